//! A lone gateway that plans for itself from its own counts.
//!
//! It sees every request, so it needs no reports: it counts them, follows what each endpoint holds, and measures how long
//! warm and cold ones take. Gateways that each plan alone disagree and do worse than the ring; more than one need a hub.
//!
//! Names come from clients, so memory must not grow with them. A name is taken up when a request for it was first served
//! well, at most 1,024 a plan; the models with the most requests are kept. All other names are counted as one and are
//! not planned: they fall to the ring.
//!
//! Cold start: until the first plan there are no homes, and models fall to the ring. Missing data: see [`InputDefaults`].

use super::{
    DemandEstimator, DemandSettings, EndpointInput, Inputs, Measurements, ModelInput, Plan, PlanChange, PlanOutcome,
    Planner, PlannerSettings, Residency, Warmth, capacity,
};
use crate::eligibility::{self, Health};
use crate::endpoint::{Endpoint, EndpointIndex};
use crate::outcome::Outcome;
use crate::ring::Ring;
use std::collections::BTreeMap;
use std::time::Duration;

/// Names taken up between two plans.
const NEWCOMERS: usize = 1_024;

/// Settings of a [`SelfPlanner`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfSettings {
    /// Time between two plans.
    pub interval: Duration,
    /// Requests that an endpoint serves at a time; `None`: not known, 1.
    pub slots: Option<u32>,
    /// Service time of a warm request until it is measured.
    pub default_service: Duration,
    /// Memory that models take, by model hash; the others take 1.
    pub sizes: BTreeMap<u64, u32>,
    /// Load times of models, by model hash, where they need not be measured.
    pub loads: BTreeMap<u64, Duration>,
    /// Which models are remembered.
    pub demand: DemandSettings,
    /// How models are placed.
    pub planner: PlannerSettings,
}

impl Default for SelfSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            slots: None,
            default_service: Duration::from_millis(50),
            sizes: BTreeMap::new(),
            loads: BTreeMap::new(),
            demand: DemandSettings::default(),
            planner: PlannerSettings::default(),
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Key of the endpoint that it was sent to.
    pub endpoint: u64,
    /// Hash of the model's id.
    pub model: u64,
    /// What [`SelfPlanner::sent`] said.
    pub warmth: Warmth,
    /// Own requests at the endpoint when it was sent, itself included.
    pub in_flight_at_start: u32,
    /// From sending to the end.
    pub total_time: Duration,
    /// How it ended.
    pub outcome: Outcome,
}

/// Inputs of the last plan for which a default stood in, to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputDefaults {
    /// The service time: 1 or 0.
    pub service: usize,
    /// The slots: 1 or 0.
    pub slots: usize,
    /// Load times of models.
    pub loads: usize,
    /// Sizes of models.
    pub sizes: usize,
}

/// The last plan, to be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TickReport {
    /// What came of it.
    pub outcome: PlanOutcome,
    /// What was not known.
    pub defaults: InputDefaults,
    /// Requests since the plan before that named a model which is not planned.
    pub other_requests: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct SelfPlanner {
    settings: SelfSettings,
    planner: Planner,
    demand: DemandEstimator,
    measurements: Measurements,
    residency: Residency,
    /// Requests since the last plan of the models that are taken up.
    counts: BTreeMap<u64, u64>,
    other_requests: u64,
    members: Vec<Member>,
    next: Option<Duration>,
    report: TickReport,
}

/// What makes a new plan necessary at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    key: u64,
    incarnation: u64,
    up: bool,
}

impl SelfPlanner {
    /// Without a plan.
    #[must_use]
    pub fn new(settings: SelfSettings) -> Self {
        Self {
            planner: Planner::new(settings.planner.clone()),
            demand: DemandEstimator::new(settings.demand.clone()),
            measurements: Measurements::new(settings.slots.unwrap_or(1), settings.default_service),
            settings,
            residency: Residency::default(),
            counts: BTreeMap::new(),
            other_requests: 0,
            members: Vec::new(),
            next: None,
            report: TickReport::default(),
        }
    }

    /// Goes on with other settings and all that was learnt. Sizes of models that are held change with the next plan.
    pub fn reconfigure(&mut self, settings: SelfSettings) {
        if settings == self.settings {
            return;
        }
        self.planner.reconfigure(settings.planner.clone());
        self.demand.reconfigure(settings.demand.clone());
        self.measurements.reconfigure(settings.slots.unwrap_or(1), settings.default_service);
        self.settings = settings;
        self.next = None;
    }

    /// Somebody else plans, or nobody can: the requests until `now` are not counted, and the time is no time without
    /// requests. Whoever counted while others planned would take over with an hour's requests as those of a second, and
    /// ask for homes that load all at once.
    pub fn pause(&mut self, now: Duration) {
        self.counts.values_mut().for_each(|count| *count = 0);
        self.other_requests = 0;
        self.demand.pause(now);
        self.next = Some(now.saturating_add(self.settings.interval));
    }

    /// Whether it is time for the next plan.
    #[must_use]
    pub fn is_due(&self, now: Duration) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// The endpoint served the model as a fallback: it has it now. How long it took says nothing.
    pub fn served(&mut self, endpoint: u64, model: u64) {
        self.take_up(endpoint, model);
        self.found(endpoint, model);
    }

    /// The endpoint was told to load the model.
    pub fn found(&mut self, endpoint: u64, model: u64) {
        if self.counts.contains_key(&model) {
            self.residency.touch(endpoint, model, self.settings.size(model));
        }
    }

    /// The endpoint turned out not to have the model, or not to be there.
    pub fn lost(&mut self, endpoint: u64, model: u64) {
        self.residency.forget(endpoint, model);
    }

    /// A request of the model goes to the endpoint with that key. Does not allocate, unless a model is loaded where more
    /// were never held.
    pub fn sent(&mut self, endpoint: u64, model: u64) -> Warmth {
        match self.counts.get_mut(&model) {
            Some(count) => {
                *count = count.saturating_add(1);
                self.residency.touch(endpoint, model, self.settings.size(model))
            }
            None => {
                self.other_requests = self.other_requests.saturating_add(1);
                self.residency.peek(endpoint, model)
            }
        }
    }

    /// Whether the endpoint is believed to hold the model; `None` for a model that is not taken up.
    #[must_use]
    pub fn holds(&self, endpoint: u64, model: u64) -> Option<bool> {
        self.counts.contains_key(&model).then(|| self.residency.peek(endpoint, model) == Warmth::Warm)
    }

    /// A request ended. Does not allocate for models that are taken up.
    pub fn ended(&mut self, ended: &Ended) {
        match ended.outcome {
            Outcome::Success => {
                self.take_up(ended.endpoint, ended.model);
                let Ended { model, warmth, in_flight_at_start, total_time, .. } = *ended;
                self.measurements.record(model, warmth, in_flight_at_start, total_time);
            }
            // Most likely the load failed.
            Outcome::Failure if ended.warmth == Warmth::Cold => self.residency.forget(ended.endpoint, ended.model),
            Outcome::Failure | Outcome::BackPressure | Outcome::Neutral => {}
        }
    }

    /// To be called often, and at once when the pool changed: makes a plan once per interval, and at once when who is
    /// there or who may serve changed. What is different from the plan before, if anything is. `ring` is the ring of
    /// `endpoints`.
    pub fn tick(&mut self, now: Duration, endpoints: &[Endpoint], ring: &Ring) -> Option<PlanChange> {
        self.tick_where(now, endpoints, ring, Health::Scored, &|_, _| true)
    }

    /// [`SelfPlanner::tick`] in a pool of that health, and where more is known of who can serve what than
    /// [`Endpoint::servable`] says.
    pub fn tick_where(
        &mut self,
        now: Duration,
        endpoints: &[Endpoint],
        ring: &Ring,
        health: Health,
        servable: &dyn Fn(EndpointIndex, u64) -> bool,
    ) -> Option<PlanChange> {
        let due = self.is_due(now);
        let changed = !self.members.iter().copied().eq(members(endpoints, health));
        if !due && !changed {
            return None;
        }
        if due {
            self.next = Some(now.saturating_add(self.settings.interval));
            self.take_counts(now);
        }
        if changed {
            self.members = members(endpoints, health).collect();
        }
        let sizes = &self.settings;
        self.residency.follow(endpoints, |model| sizes.size(model));
        self.plan(endpoints, ring, servable)
    }

    /// The plan.
    #[must_use]
    pub fn current(&self) -> &Plan {
        self.planner.current()
    }

    /// Requests of the model per second, as last estimated.
    #[must_use]
    pub fn rate(&self, model: u64) -> f64 {
        self.demand.rates().find(|(known, _)| *known == model).map_or(0.0, |(_, rate)| rate)
    }

    /// What there is to tell of the last plan.
    #[must_use]
    pub fn report(&self) -> &TickReport {
        &self.report
    }

    /// Goes on from a plan that was made before a restart.
    pub fn restore(&mut self, now: Duration, plan: &Plan) {
        self.demand.remember(now, plan.iter().map(|(model, _)| model));
        for (model, _) in self.demand.rates() {
            self.counts.entry(model).or_default();
            self.measurements.know(model);
        }
        self.planner.restore(plan);
    }

    fn take_up(&mut self, endpoint: u64, model: u64) {
        let most = self.settings.demand.max_models.saturating_add(NEWCOMERS);
        if self.counts.len() < most && !self.counts.contains_key(&model) {
            self.counts.insert(model, 1);
            self.measurements.know(model);
            self.residency.touch(endpoint, model, self.settings.size(model));
        }
    }

    fn take_counts(&mut self, now: Duration) {
        self.demand.observe(now, self.counts.iter().map(|(model, count)| (*model, *count)));
        self.counts.retain(|model, count| {
            *count = 0;
            self.demand.knows(*model)
        });
        self.measurements.retain(|model| self.demand.knows(model));
        self.report.other_requests = std::mem::take(&mut self.other_requests);
    }

    fn plan(
        &mut self,
        endpoints: &[Endpoint],
        ring: &Ring,
        servable: &dyn Fn(EndpointIndex, u64) -> bool,
    ) -> Option<PlanChange> {
        let mut defaults = InputDefaults::default();
        let service = self.service(&mut defaults);
        let models = self.model_inputs(service, &mut defaults);
        let input = |(endpoint, member): (&Endpoint, &Member)| EndpointInput {
            key: member.key,
            up: member.up,
            speed: endpoint.speed,
            memory_units: endpoint.memory_units,
            resident: self.residency.models(member.key),
        };
        let inputs: Vec<EndpointInput<'_>> = endpoints.iter().zip(&self.members).map(input).collect();
        let servable = |index: EndpointIndex, model: u64| {
            endpoints.get(index.position()).is_some_and(|endpoint| endpoint.servable.allows(model))
                && servable(index, model)
        };
        let inputs = Inputs {
            endpoints: &inputs,
            models: &models,
            ring,
            capacity: self.capacity(service, &mut defaults),
            servable: &servable,
        };
        let outcome = self.planner.plan(&inputs);
        self.report.defaults = defaults;
        self.report.outcome = outcome;
        self.report.outcome.change.clone()
    }

    fn model_inputs(&self, service: Duration, defaults: &mut InputDefaults) -> Vec<ModelInput> {
        let input = |(model, rate)| {
            let measured = self.measurements.load(model, service);
            let told = self.settings.loads.get(&model).copied();
            defaults.loads += usize::from(told.is_none() && measured.default);
            defaults.sizes += usize::from(!self.settings.sizes.contains_key(&model));
            let load_seconds = told.unwrap_or(measured.value).as_secs_f64();
            ModelInput { model, rate, size_units: self.settings.size(model), load_seconds }
        };
        self.demand.rates().map(input).collect()
    }

    fn service(&self, defaults: &mut InputDefaults) -> Duration {
        let service = self.measurements.service();
        defaults.service = usize::from(service.default);
        service.value
    }

    fn capacity(&self, service: Duration, defaults: &mut InputDefaults) -> f64 {
        defaults.slots = usize::from(self.settings.slots.is_none());
        capacity(self.settings.slots.unwrap_or(1), service)
    }
}

impl SelfSettings {
    fn size(&self, model: u64) -> u32 {
        self.sizes.get(&model).copied().unwrap_or(1)
    }
}

/// Homes are placed where picks may go: in panic that is also where scores are low.
fn members(endpoints: &[Endpoint], health: Health) -> impl Iterator<Item = Member> {
    endpoints.iter().map(move |endpoint| Member {
        key: endpoint.key(),
        incarnation: endpoint.incarnation,
        up: eligibility::check_under(endpoint, health).is_ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoints;
    use crate::endpoint::{Resident, Servable};
    use crate::hash::hash;
    use Warmth::{Cold, Warm};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const SECOND: Duration = Duration::from_secs(1);
    const LLAMA: u64 = 1_000;

    struct Gateway {
        planner: SelfPlanner,
        pool: Vec<Endpoint>,
        now: Duration,
    }

    impl Gateway {
        fn new(count: u32, settings: SelfSettings) -> Self {
            let mut pool = endpoints(count);
            pool.iter_mut().for_each(|endpoint| endpoint.memory_units = 3);
            let mut gateway = Self { planner: SelfPlanner::new(settings), pool, now: SECOND * 100 };
            assert_eq!(gateway.tick(Duration::ZERO), None, "nothing was asked for yet");
            gateway
        }

        fn tick(&mut self, after: Duration) -> Option<PlanChange> {
            self.now += after;
            self.planner.tick(self.now, &self.pool, &Ring::new(&self.pool, 50))
        }

        fn key(&self, endpoint: usize) -> u64 {
            self.pool[endpoint].key()
        }

        /// A request that ends like that after 50 ms warm or 550 ms cold.
        fn request(&mut self, endpoint: usize, model: u64, outcome: Outcome) -> Warmth {
            let endpoint = self.key(endpoint);
            let warmth = self.planner.sent(endpoint, model);
            let total_time = Duration::from_millis(if warmth == Warm { 50 } else { 550 });
            self.planner.ended(&Ended { endpoint, model, warmth, in_flight_at_start: 1, total_time, outcome });
            warmth
        }

        /// One of the model's homes, in turn; without any some endpoint.
        fn home(&self, model: u64, turn: usize) -> usize {
            let homes = self.planner.current().get(model).map_or(&[][..], |placement| &placement.homes);
            let home = homes.iter().cycle().nth(turn);
            self.pool
                .iter()
                .position(|endpoint| Some(&endpoint.key()) == home)
                .unwrap_or(model as usize % self.pool.len())
        }

        fn homes(&self, model: u64) -> usize {
            self.planner.current().get(model).map_or(0, |placement| placement.homes.len())
        }
    }

    #[test]
    fn plans_once_per_interval_what_was_asked_for() {
        let mut gateway = Gateway::new(4, SelfSettings::default());
        assert_eq!([0, 1].map(|_| gateway.request(0, LLAMA, Outcome::Success)), [Cold, Warm]);
        assert_eq!(gateway.tick(SECOND / 2), None, "not yet");
        let change = gateway.tick(SECOND / 2).unwrap();
        assert_eq!((change.version, change.changed.len(), gateway.homes(LLAMA)), (1, 1, 1));
        assert_eq!(change.changed[0].1.homes[..], [gateway.key(0)], "where it is already");
        assert_eq!(gateway.tick(SECOND), None, "nothing new");
        assert_eq!(gateway.planner.report().outcome.pinned, 1);
    }

    #[test]
    fn plans_at_once_when_an_endpoint_goes_or_comes() {
        let mut gateway = Gateway::new(4, SelfSettings::default());
        gateway.request(2, LLAMA, Outcome::Success);
        gateway.tick(SECOND);
        assert_eq!(gateway.planner.current().get(LLAMA).unwrap().homes[..], [gateway.key(2)]);
        gateway.pool[2].draining = true;
        let change = gateway.tick(SECOND / 100).unwrap();
        assert_ne!(change.changed[0].1.homes[..], [gateway.key(2)]);
        assert_eq!(gateway.tick(SECOND / 100), None, "once");
        gateway.pool[2].draining = false;
        gateway.pool[0].incarnation = 7;
        assert_eq!(gateway.tick(SECOND / 100), None, "planned again, and nobody has to move");
        assert_eq!(gateway.planner.report().other_requests, 1, "counted with the interval's plan only");
    }

    #[test]
    fn a_name_is_taken_up_when_it_was_served() {
        let mut gateway = Gateway::new(2, SelfSettings::default());
        for outcome in [Outcome::Failure, Outcome::Neutral, Outcome::BackPressure] {
            assert_eq!(gateway.request(0, LLAMA, outcome), Cold);
        }
        gateway.tick(SECOND);
        assert_eq!((gateway.homes(LLAMA), gateway.planner.report().other_requests), (0, 3));
        assert_eq!(gateway.request(0, LLAMA, Outcome::Success), Cold);
        assert_eq!(gateway.request(0, LLAMA, Outcome::Success), Warm);
        gateway.tick(SECOND);
        assert_eq!((gateway.homes(LLAMA), gateway.planner.report().other_requests), (1, 1));
    }

    #[test]
    fn names_without_end_take_no_memory_and_no_place() {
        let demand = DemandSettings { max_models: 5, ..DemandSettings::default() };
        let mut gateway = Gateway::new(2, SelfSettings { demand, ..SelfSettings::default() });
        for second in 0..5u64 {
            (0..5).for_each(|model| {
                (0..10).for_each(|_| {
                    gateway.request(0, model, Outcome::Success);
                });
            });
            (0..3_000).for_each(|n| {
                gateway.request(1, 1_000_000 + second * 10_000 + n, Outcome::Success);
            });
            assert_eq!(gateway.planner.counts.len(), 5 + NEWCOMERS);
            gateway.tick(SECOND);
            assert_eq!(gateway.planner.counts.len(), 5);
            assert!((0..5).all(|model| gateway.homes(model) > 0), "the models that are asked for stay");
            assert_eq!(gateway.planner.current().len(), 5);
        }
    }

    #[test]
    fn defaults_are_counted_until_there_are_measurements() {
        let settings = SelfSettings { sizes: [(1, 2)].into(), ..SelfSettings::default() };
        let mut gateway = Gateway::new(4, settings);
        (1..=2).for_each(|model| assert_eq!(gateway.request(0, model, Outcome::Success), Cold));
        gateway.tick(SECOND);
        let expected = InputDefaults { service: 1, slots: 1, loads: 2, sizes: 1 };
        assert_eq!(gateway.planner.report().defaults, expected);
        // Cold at two more endpoints, and warm once each.
        for endpoint in 1..3 {
            assert_eq!(gateway.request(endpoint, 1, Outcome::Success), Cold);
            assert_eq!(gateway.request(endpoint, 1, Outcome::Success), Warm);
            assert_eq!(gateway.request(0, 2, Outcome::Success), Warm);
        }
        gateway.tick(SECOND);
        let expected = InputDefaults { service: 0, slots: 1, loads: 1, sizes: 1 };
        assert_eq!(gateway.planner.report().defaults, expected);
    }

    #[test]
    fn a_load_that_failed_is_not_believed() {
        let mut gateway = Gateway::new(2, SelfSettings::default());
        assert_eq!(gateway.request(0, LLAMA, Outcome::Success), Cold);
        assert_eq!(gateway.request(1, LLAMA, Outcome::Failure), Cold);
        assert_eq!(gateway.request(1, LLAMA, Outcome::Neutral), Cold);
        assert_eq!(gateway.request(1, LLAMA, Outcome::Failure), Warm);
        assert_eq!(gateway.request(1, LLAMA, Outcome::Success), Warm, "a failure of a warm one says nothing");
    }

    #[test]
    fn only_those_that_can_serve_a_model_are_its_homes() {
        let mut gateway = Gateway::new(3, SelfSettings::default());
        let llama = hash(b"llama");
        gateway.pool[0].servable = Servable::Fixed(Resident::from_ids(["bert"]));
        gateway.request(1, llama, Outcome::Success);
        let (now, pool) = (gateway.now + SECOND, gateway.pool.clone());
        let ring = Ring::new(&pool, 50);
        let change =
            gateway.planner.tick_where(now, &pool, &ring, Health::Scored, &|index, _| index != EndpointIndex(1));
        assert_eq!(change.unwrap().changed[0].1.homes[..], [gateway.key(2)]);
    }

    /// Twelve models of 3 requests a second and one of 24, 40 % of all, on twelve endpoints of two units. At 50 ms each
    /// that is work of 0.15 and of 1.2 endpoints: at θ = 0.16 it needs 12 · 1 + ⌈1.2 ÷ 0.16⌉ = 20 of 24 units, at 0.13 it
    /// would need 12 · 2 + 10 = 34. So eight homes.
    #[test]
    fn a_hot_model_gets_as_many_homes_as_its_share_needs() {
        const HOT: u64 = 12;
        let mut gateway = Gateway::new(12, SelfSettings::default());
        gateway.pool.iter_mut().for_each(|endpoint| endpoint.memory_units = 2);
        let mut last = None;
        for _ in 0..8 {
            for model in 0..=HOT {
                for n in 0..if model == HOT { 24 } else { 3 } {
                    let endpoint = gateway.home(model, n);
                    gateway.request(endpoint, model, Outcome::Success);
                }
            }
            last = gateway.tick(SECOND);
        }
        let outcome = &gateway.planner.report().outcome;
        assert_eq!((outcome.share_target, outcome.lanes, outcome.tail), (0.16, 0, 0));
        assert_eq!(gateway.homes(HOT), 8);
        assert!((0..HOT).all(|model| gateway.homes(model) == 1));
        assert_eq!(last, None, "and there they stay");
    }

    #[test]
    fn a_restored_plan_is_kept_until_its_models_are_forgotten() {
        let mut gateway = Gateway::new(4, SelfSettings::default());
        let homes: Box<[u64]> = [gateway.key(3)].into();
        let placement = crate::plan::Placement { homes, tail: false };
        gateway.planner.restore(gateway.now, &Plan::new(9, [(LLAMA, placement)]));
        assert_eq!(gateway.tick(SECOND), None);
        assert_eq!(gateway.request(3, LLAMA, Outcome::Success), Cold);
        assert_eq!(gateway.tick(SECOND), None);
        assert_eq!((gateway.planner.current().version, gateway.homes(LLAMA)), (9, 1));
        gateway.request(0, 5, Outcome::Success);
        gateway.tick(SECOND * 599);
        assert_eq!((gateway.homes(LLAMA), gateway.homes(5)), (1, 1));
        gateway.request(0, 5, Outcome::Success);
        let change = gateway.tick(SECOND * 2).unwrap();
        assert_eq!(change.removed, [LLAMA]);
    }
}
