//! The planner: the steps of placement in order, and what is remembered from one plan to the next.
//!
//! Remembered are the plan itself, which models were pinned (they count twice in the order of rate ÷ size, so that noise
//! does not swap models at the edge of memory), how many homes each wanted, the number of lanes and the step of θ.
//!
//! One plan costs O((N + M + R) log) for N endpoints, M models and R homes, whatever changed.

use super::board::{At, Board, Model, Spot};
use super::bound::Bounds;
use super::{Inputs, ModelInput, Placement, Plan, PlanChange, lanes, place, replicas, tail};
use crate::small;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A model that was pinned counts this many times in the order.
const PINNED_COUNTS: f64 = 2.0;

/// Choices of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannerSettings {
    /// Set endpoints aside for the models that do not fit in memory, so that their loads never evict the others.
    pub lanes: bool,
}

impl Default for PlannerSettings {
    fn default() -> Self {
        Self { lanes: true }
    }
}

/// Why a model is not where models should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// No endpoint has the memory for it; it is in the tail, and whether it can be loaded at all is for the endpoint.
    TooLarge,
    /// No endpoint that is up can serve it; it has no home.
    Unservable,
}

/// What came of one round of planning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanOutcome {
    /// The plan's version now.
    pub version: u64,
    /// What is different from the plan before; `None` when nothing is.
    pub change: Option<PlanChange>,
    /// Homes that the plan before did not have: each costs a load, unless the model happens to be there.
    pub moves: usize,
    /// Models that could not be placed as they should, by rising hash.
    pub misfits: Vec<(u64, Misfit)>,
    /// Endpoints set aside for the tail.
    pub lanes: usize,
    /// Models with homes of their own.
    pub pinned: usize,
    /// Models that share.
    pub tail: usize,
    /// Load of one home that replicas aim at, in endpoints' worth of work.
    pub share_target: f64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    settings: PlannerSettings,
    current: Plan,
    lanes: usize,
    /// Position of θ in its grid.
    target: usize,
    /// By rising hash of the model.
    remembered: Vec<Remembered>,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    model: u64,
    pinned: bool,
    replicas: u32,
}

impl Planner {
    /// Without a plan.
    #[must_use]
    pub fn new(settings: PlannerSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Goes on with other settings from the last plan.
    pub fn reconfigure(&mut self, settings: PlannerSettings) {
        self.settings = settings;
    }

    /// Makes the next plan. Its version rises only when a placement changed.
    pub fn plan(&mut self, inputs: &Inputs<'_>) -> PlanOutcome {
        let mut board = Board::new(inputs.endpoints);
        if board.spots().is_empty() || inputs.models.is_empty() {
            return self.unchanged();
        }
        let mut models = self.models(inputs, &board);
        self.choose_lanes(&mut board, &mut models);
        let bounds = self.choose_replicas(&board, &mut models);
        place::place(inputs, &mut board, &mut models, &bounds);
        let pinned: Vec<bool> = models.iter().map(|model| !model.homes.is_empty()).collect();
        tail::place(inputs, &mut board, &mut models);
        self.remembered = models.iter().map(Remembered::of).collect();
        self.settle(&board, &models, &pinned)
    }

    /// The last plan.
    #[must_use]
    pub fn current(&self) -> &Plan {
        &self.current
    }

    /// Goes on from a plan that was made before a restart; a home that is named twice counts once. Models that are not
    /// among the next inputs lose their homes, so the demand estimator should be told of them as well:
    /// [`super::DemandEstimator::remember`].
    pub fn restore(&mut self, plan: &Plan) {
        self.current = Plan::new(plan.version, plan.iter().map(|(model, placement)| (model, distinct(placement))));
        let remembered = self.current.iter().map(|(model, placement)| Remembered {
            model,
            pinned: !placement.tail,
            replicas: u32::try_from(placement.homes.len()).unwrap_or(u32::MAX),
        });
        self.remembered = remembered.collect();
    }

    fn unchanged(&self) -> PlanOutcome {
        let tail = self.current.iter().filter(|(_, placement)| placement.tail).count();
        PlanOutcome {
            version: self.current.version,
            lanes: self.lanes,
            pinned: self.current.len().saturating_sub(tail),
            tail,
            share_target: self.theta(),
            ..PlanOutcome::default()
        }
    }

    fn theta(&self) -> f64 {
        replicas::GRID.get(self.target).copied().unwrap_or(0.1)
    }

    /// The models by rising hash, with what is remembered of them.
    fn models(&self, inputs: &Inputs<'_>, board: &Board) -> Vec<Model> {
        let mut given: Vec<&ModelInput> = inputs.models.iter().collect();
        small::sort(&mut given, &mut |a, b| {
            let busier_first = sane(b.rate).total_cmp(&sane(a.rate));
            let dearer_first = sane(b.load_seconds).total_cmp(&sane(a.load_seconds));
            a.model.cmp(&b.model).then(busier_first).then(b.size_units.cmp(&a.size_units)).then(dearer_first)
        });
        given.dedup_by_key(|input| input.model);
        let capacity =
            if inputs.capacity.is_finite() && inputs.capacity > 0.0 { inputs.capacity } else { f64::INFINITY };
        given.into_iter().map(|input| self.model(input, capacity, board)).collect()
    }

    fn model(&self, input: &ModelInput, capacity: f64, board: &Board) -> Model {
        let known = self.remembered.binary_search_by_key(&input.model, |known| known.model);
        let known = known.ok().and_then(|at| self.remembered.get(at));
        let homes = self.current.get(input.model).map_or(&[][..], |placement| &placement.homes);
        let rate = sane(input.rate);
        Model {
            hash: input.model,
            rate,
            size: input.size_units.max(1),
            load_seconds: sane(input.load_seconds),
            demand: sane(rate / capacity),
            pinned: known.is_some_and(|known| known.pinned),
            replicas: known.map_or(1, |known| known.replicas),
            previous: homes.iter().filter_map(|key| board.find(*key)).collect(),
            homes: Vec::new(),
        }
    }

    fn choose_lanes(&mut self, board: &mut Board, models: &mut [Model]) {
        let largest = board.spots().iter().map(|spot| spot.memory).max().unwrap_or(0);
        let order = by_worth(models, largest);
        let most = if self.settings.lanes { board.spots().len() / 2 } else { 0 };
        let in_order: Vec<&Model> = order.iter().filter_map(|position| models.get(*position)).collect();
        let choice = lanes::choose(&in_order, board.spots(), self.lanes, most);
        models.iter_mut().for_each(|model| model.pinned = false);
        for position in order.iter().take(choice.pinned) {
            if let Some(model) = models.get_mut(*position) {
                model.pinned = true;
            }
        }
        self.lanes = choice.lanes;
        board.lanes = choice.lanes;
    }

    /// Settles how many homes each model gets; the bounds that follow from the load.
    fn choose_replicas(&mut self, board: &Board, models: &mut [Model]) -> Bounds {
        let others = board.others();
        let most = u32::try_from(others.len()).unwrap_or(u32::MAX);
        let room = others.iter().map(|spot| u64::from(spot.memory)).fold(0, u64::saturating_add);
        let pinned: Vec<&Model> = models.iter().filter(|model| model.pinned).collect();
        let mean =
            pinned.iter().map(|model| model.demand).sum::<f64>() / others.iter().map(Spot::power).sum::<f64>().max(0.5);
        self.target = replicas::target(&pinned, room, most, self.target);
        let theta = self.theta();
        for model in models.iter_mut() {
            model.replicas = if model.pinned { replicas::count(model.demand, theta, model.replicas, most) } else { 1 };
        }
        replicas::fit(models, room, theta, most);
        Bounds::of(mean)
    }

    /// Takes over what changed.
    fn settle(&mut self, board: &Board, models: &[Model], pinned: &[bool]) -> PlanOutcome {
        let mut change = PlanChange { version: self.current.version.saturating_add(1), ..PlanChange::default() };
        let mut outcome = PlanOutcome { lanes: self.lanes, share_target: self.theta(), ..PlanOutcome::default() };
        let largest = board.spots().iter().map(|spot| spot.memory).max().unwrap_or(0);
        for (model, pinned) in models.iter().zip(pinned) {
            outcome.count(model, *pinned, largest);
            let tail = !pinned;
            let keys = || model.homes.iter().filter_map(|at| Some(board.spot(*at)?.key));
            let same = |old: &Placement| old.tail == tail && old.homes.iter().copied().eq(keys());
            if !model.homes.is_empty() && !self.current.get(model.hash).is_some_and(same) {
                change.changed.push((model.hash, Placement { homes: keys().collect(), tail }));
            }
        }
        let homeless = |hash: u64| {
            models
                .binary_search_by_key(&hash, |model| model.hash)
                .ok()
                .and_then(|at| models.get(at))
                .is_none_or(|model| model.homes.is_empty())
        };
        change.removed = self.current.iter().map(|(model, _)| model).filter(|model| homeless(*model)).collect();
        if !change.is_empty() {
            self.current.apply(&change);
            outcome.change = Some(change);
        }
        outcome.version = self.current.version;
        outcome
    }
}

impl Remembered {
    fn of(model: &Model) -> Self {
        Self { model: model.hash, pinned: model.pinned, replicas: model.replicas }
    }
}

impl PlanOutcome {
    fn count(&mut self, model: &Model, pinned: bool, largest: u32) {
        if model.homes != model.previous {
            let new = |home: &&At| !model.previous.contains(home);
            self.moves = self.moves.saturating_add(model.homes.iter().filter(new).count());
        }
        match (model.homes.is_empty(), pinned) {
            (true, _) => self.misfits.push((model.hash, Misfit::Unservable)),
            (false, true) => self.pinned += 1,
            (false, false) => self.tail += 1,
        }
        if model.size > largest && !model.homes.is_empty() {
            self.misfits.push((model.hash, Misfit::TooLarge));
        }
    }
}

fn distinct(placement: &Placement) -> Placement {
    let mut seen = BTreeSet::new();
    Placement { homes: placement.homes.iter().copied().filter(|home| seen.insert(*home)).collect(), ..*placement }
}

/// What is not positive or no finite number counts as nothing; what is beyond all measure is cut, so that sums stay
/// finite.
fn sane(number: f64) -> f64 {
    if number.is_finite() && number > 0.0 { number.min(1e9) } else { 0.0 }
}

/// Positions of the models that fit on some endpoint, by falling rate ÷ size.
fn by_worth(models: &[Model], largest: u32) -> Vec<usize> {
    let worth = |model: &Model| model.rate / f64::from(model.size) * if model.pinned { PINNED_COUNTS } else { 1.0 };
    let fitting = models.iter().enumerate().filter(|(_, model)| model.size <= largest);
    // Worths are not negative, and the bits of such floats are in their order. The sort keeps the order of hashes.
    let mut order: Vec<(Reverse<u64>, usize)> =
        fitting.map(|(at, model)| (Reverse(worth(model).to_bits()), at)).collect();
    small::sort(&mut order, &mut Ord::cmp);
    order.into_iter().map(|(_, position)| position).collect()
}

#[cfg(test)]
mod tests {
    use super::super::EndpointInput;
    use super::super::board::tests::inputs;
    use super::*;
    use crate::endpoint::EndpointIndex;
    use crate::hash::hash;
    use crate::ring::{Point, Ring};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// A model of size 1 whose load takes 0.5 s.
    fn model(model: u64, rate: f64) -> ModelInput {
        ModelInput { model, rate, size_units: 1, load_seconds: 0.5 }
    }

    /// Plans for endpoints that stand on the ring at 100, 200, … and serve 20 requests a second each.
    fn plan(planner: &mut Planner, endpoints: &[EndpointInput<'_>], models: &[ModelInput]) -> PlanOutcome {
        let point = |n: u32| Point { hash: u64::from(n + 1) * 100, endpoint: EndpointIndex(n) };
        let ring = Ring::from_points((0..endpoints.len() as u32).map(point).collect(), |_| "");
        planner.plan(&Inputs { endpoints, models, ring: &ring, capacity: 20.0, servable: &|_, model| model != 666 })
    }

    fn homes(planner: &Planner, model: u64) -> Vec<u64> {
        planner.current().get(model).map_or(Vec::new(), |placement| placement.homes.to_vec())
    }

    #[test]
    fn the_version_rises_only_with_a_change() {
        let mut planner = Planner::default();
        let endpoints = inputs(&[3, 3]);
        let first = plan(&mut planner, &endpoints, &[model(50, 1.0), model(150, 1.0)]);
        assert_eq!((first.version, first.moves, first.pinned, first.tail), (1, 2, 2, 0));
        assert_eq!(first.change.map(|change| change.changed.len()), Some(2));
        assert_eq!((homes(&planner, 50), homes(&planner, 150)), (vec![10], vec![20]));
        let second = plan(&mut planner, &endpoints, &[model(150, 1.01), model(50, 1.0)]);
        assert_eq!((second.version, second.change, second.moves), (1, None, 0));
        let third = plan(&mut planner, &endpoints, &[model(50, 1.0)]);
        assert_eq!((third.version, third.moves), (2, 0));
        assert_eq!(third.change.map(|change| change.removed), Some(vec![150]));
    }

    #[test]
    fn the_plan_stays_when_nobody_is_up_or_nothing_is_asked_for() {
        let mut planner = Planner::default();
        let mut endpoints = inputs(&[3, 3]);
        plan(&mut planner, &endpoints, &[model(50, 1.0)]);
        let before = planner.current().clone();
        assert_eq!(plan(&mut planner, &endpoints, &[]).pinned, 1);
        endpoints.iter_mut().for_each(|endpoint| endpoint.up = false);
        assert_eq!(plan(&mut planner, &endpoints, &[model(50, 1.0)]).version, 1);
        assert_eq!(plan(&mut planner, &[], &[model(50, 1.0)]).change, None);
        assert_eq!(planner.current(), &before);
    }

    #[test]
    fn a_restored_plan_goes_on_with_each_home_once() {
        let mut planner = Planner::default();
        let endpoints = inputs(&[3, 3]);
        // One home would do for 1 a second, and the ring would say the first endpoint.
        planner.restore(&Plan::new(41, [(50, Placement { homes: [20, 20].into(), tail: false })]));
        let outcome = plan(&mut planner, &endpoints, &[model(50, 1.0)]);
        assert_eq!((outcome.version, outcome.change), (41, None));
        assert_eq!(plan(&mut planner, &endpoints, &[model(50, 1.0), model(51, 1.0)]).version, 42);
    }

    /// Twelve endpoints of two units; twenty models have a demand of 0.3 each, six next to none. One lane leaves 22 units,
    /// so that four models are the tail. Each home at θ = 0.3, since 0.25 would need two of twenty models.
    #[test]
    fn a_restored_plan_keeps_its_lanes_its_tail_and_its_share() {
        let endpoints = inputs(&[2; 12]);
        let models: Vec<ModelInput> = (0..26).map(|n| model(50 + 40 * n, if n < 20 { 6.0 } else { 0.05 })).collect();
        let mut planner = Planner::default();
        plan(&mut planner, &endpoints, &models);
        let settled = plan(&mut planner, &endpoints, &models);
        assert_eq!((settled.lanes, settled.pinned, settled.tail, settled.share_target), (1, 22, 4, 0.3));
        assert_eq!(settled.change, None);
        let mut restored = Planner::default();
        restored.restore(planner.current());
        assert_eq!(plan(&mut restored, &endpoints, &models), settled);
        assert_eq!(restored.current(), planner.current());
    }

    /// Endpoints `gpu-0` to `gpu-3` of two units. Demands of 1, 0.4, 0.2, 0.1 and 0.05 need 3 + 2 + 1 + 1 + 1 = 8 of 8 units
    /// at θ = 0.35, and 4 + 2 + 3 = 9 at 0.3. Where the homes are is by xxh64 ring order, computed once: it moves when the
    /// ring or the planner does, natively or in the module, which must be noticed.
    #[test]
    fn golden_plan_of_a_small_pool() {
        let pool = crate::endpoint::tests::endpoints(4);
        let inputs: Vec<EndpointInput<'_>> = pool
            .iter()
            .map(|endpoint| EndpointInput { key: endpoint.key(), up: true, speed: 1.0, memory_units: 2, resident: &[] })
            .collect();
        let names = ["llama", "bert", "qwen", "phi", "gpt"];
        let models: Vec<ModelInput> = names
            .iter()
            .zip([20.0, 8.0, 4.0, 2.0, 1.0])
            .map(|(name, rate)| model(hash(name.as_bytes()), rate))
            .collect();
        let mut planner = Planner::default();
        let ring = Ring::new(&pool, 150);
        let outcome = planner.plan(&Inputs {
            endpoints: &inputs,
            models: &models,
            ring: &ring,
            capacity: 20.0,
            servable: &|_, _| true,
        });
        assert_eq!((outcome.share_target, outcome.lanes, outcome.pinned, outcome.moves), (0.35, 0, 5, 8));
        let position = |home: &u64| pool.iter().position(|endpoint| endpoint.key() == *home).unwrap();
        let found: Vec<Vec<usize>> =
            models.iter().map(|input| homes(&planner, input.model).iter().map(position).collect()).collect();
        assert_eq!(found, [&[1, 2, 0][..], &[3, 0], &[3], &[2], &[1]]);
    }

    #[test]
    fn one_endpoint_is_home_to_everything() {
        let mut planner = Planner::default();
        let models: Vec<ModelInput> = (0..5).map(|n| model(n, 1.0)).collect();
        let outcome = plan(&mut planner, &inputs(&[3]), &models);
        assert_eq!((outcome.lanes, outcome.pinned, outcome.tail), (0, 3, 2), "no lane of one endpoint");
        assert!(models.iter().all(|input| homes(&planner, input.model) == [10]));
    }

    #[test]
    fn misfits_are_named() {
        let mut planner = Planner::default();
        let huge = ModelInput { size_units: 4, ..model(60, 5.0) };
        let outcome = plan(&mut planner, &inputs(&[3, 3]), &[model(50, 1.0), huge, model(666, 1.0)]);
        assert_eq!(outcome.misfits, [(60, Misfit::TooLarge), (666, Misfit::Unservable)]);
        assert_eq!((outcome.pinned, outcome.tail), (1, 1));
        assert!(planner.current().get(60).is_some_and(|placement| placement.tail));
        assert_eq!(planner.current().get(666), None);
        let outcome = plan(&mut planner, &inputs(&[0, 0]), &[model(50, 1.0)]);
        assert_eq!(outcome.misfits, [(50, Misfit::TooLarge)], "no memory at all");
    }

    #[test]
    fn the_pinned_count_twice_at_the_edge_of_memory() {
        let mut planner = Planner::new(PlannerSettings { lanes: false });
        let endpoints = inputs(&[1, 1]);
        let tail = |planner: &Planner| -> Vec<u64> {
            planner.current().iter().filter(|(_, placement)| placement.tail).map(|(model, _)| model).collect()
        };
        plan(&mut planner, &endpoints, &[model(50, 9.0), model(150, 5.0), model(250, 4.0)]);
        assert_eq!(tail(&planner), [250]);
        plan(&mut planner, &endpoints, &[model(50, 9.0), model(150, 5.0), model(250, 9.9)]);
        assert_eq!(tail(&planner), [250], "9.9 against 2 · 5");
        plan(&mut planner, &endpoints, &[model(50, 9.0), model(150, 5.0), model(250, 10.1)]);
        assert_eq!(tail(&planner), [150]);
    }

    #[test]
    fn a_capacity_that_is_not_known_leaves_memory_alone() {
        for capacity in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let endpoints = inputs(&[1, 1]);
            let models = [model(50, 500.0), model(51, 1.0)];
            let ring = Ring::default();
            let mut planner = Planner::default();
            let inputs =
                Inputs { endpoints: &endpoints, models: &models, ring: &ring, capacity, servable: &|_, _| true };
            let outcome = planner.plan(&inputs);
            assert_eq!((outcome.pinned, outcome.moves), (2, 2), "{capacity}: one home each, and no ring is no harm");
        }
    }

    #[test]
    fn of_several_inputs_of_one_model_the_busiest_counts() {
        let endpoints = inputs(&[3; 8]);
        let (mut one, mut other) = (Planner::default(), Planner::default());
        plan(&mut one, &endpoints, &[model(50, 40.0), model(50, 1.0), model(50, f64::NAN)]);
        plan(&mut other, &endpoints, &[model(50, f64::NAN), model(50, 1.0), model(50, 40.0)]);
        assert_eq!(one.current(), other.current());
        // ⌈2 ÷ 0.1⌉ is more than there are endpoints.
        assert_eq!(homes(&one, 50).len(), 8);
    }
}
