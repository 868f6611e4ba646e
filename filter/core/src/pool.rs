//! One pool: the endpoints of one Envoy cluster, what was computed from them, and the strategies over them.

use crate::eligibility::Health;
use crate::endpoint::{Endpoint, EndpointIndex};
use crate::homes::PoolPlan;
use crate::plan::{Plan, PlanChange};
use crate::ring::Ring;
use crate::roster::Roster;
use crate::settings::{PlanSource, PoolSettings};
use crate::strategy::{Report, Strategies, Strategy, StrategyName};
use crate::unknown::UnknownModels;
use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// How old what is told of residency may be when nobody says when it was seen.
const RESIDENCY_AGE: Duration = Duration::from_secs(20);

/// Longer than an answer takes to tell somebody else of a load.
const RESIDENCY_LAG: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Pool {
    settings: Rc<PoolSettings>,
    known: Option<Known>,
    nobody: Roster,
    no_ring: Ring,
    strategies: Strategies,
    plan: RefCell<PoolPlan>,
    unknown: Rc<UnknownModels>,
}

/// What is computed from a set of endpoints.
#[derive(Debug)]
struct Known {
    endpoints: Box<[Endpoint]>,
    roster: Roster,
    /// `None` while it is being built.
    ring: Option<Rc<Ring>>,
    /// The ring is that of other endpoints.
    stands_in: bool,
    seen: Option<Duration>,
}

impl Pool {
    /// A pool whose endpoints nobody has told yet.
    #[must_use]
    pub fn new(settings: impl Into<Rc<PoolSettings>>) -> Self {
        Self {
            settings: settings.into(),
            known: None,
            nobody: Roster::default(),
            no_ring: Ring::default(),
            strategies: Strategies::default(),
            plan: RefCell::default(),
            unknown: Rc::default(),
        }
    }

    /// Takes a new set of endpoints and computes what depends on it.
    pub fn update(&mut self, endpoints: Vec<Endpoint>) {
        let ring = if self.settings.needs_ring() {
            Ring::new(&endpoints, self.settings.virtual_nodes)
        } else {
            Ring::default()
        };
        self.take(endpoints, Some(ring));
    }

    /// Takes a new set of endpoints with its ring, or without one while that is being built.
    pub fn take(&mut self, endpoints: Vec<Endpoint>, ring: Option<Ring>) {
        self.take_any(endpoints, ring.map(Rc::new), false);
    }

    /// Takes a new set of endpoints with the ring of the pool before, which serves until their own is built: in it an
    /// endpoint's position may be that of one which is gone.
    pub fn take_with_old_ring(&mut self, endpoints: Vec<Endpoint>, ring: Option<Rc<Ring>>) {
        self.take_any(endpoints, ring, true);
    }

    fn take_any(&mut self, endpoints: Vec<Endpoint>, ring: Option<Rc<Ring>>, stands_in: bool) {
        let health = Health::of(&endpoints, self.settings.panic_threshold);
        let roster = Roster::new(&endpoints, &self.settings.payload, health);
        self.strategies.update(&roster);
        let plan = self.plan.get_mut();
        *plan = match &self.settings.plan {
            PlanSource::Fixed(fixed) => PoolPlan::resolve(fixed, &roster, plan),
            PlanSource::None | PlanSource::SelfMade(_) => PoolPlan::default(),
        };
        self.known = Some(Known { endpoints: endpoints.into_boxed_slice(), roster, ring, stands_in, seen: None });
    }

    /// Shares what endpoints said of models.
    pub fn share_unknown(&mut self, unknown: &Rc<UnknownModels>) {
        self.unknown = Rc::clone(unknown);
    }

    /// Goes on where the pool of the same cluster was: which homes have their models by now.
    pub fn succeed(&mut self, before: &Self) {
        if let (Some(known), PlanSource::Fixed(fixed)) = (&self.known, &self.settings.plan)
            && let Ok(old) = before.plan.try_borrow()
        {
            *self.plan.get_mut() = PoolPlan::resolve(fixed, &known.roster, &old);
        }
    }

    /// Says when what is known of residency was seen.
    pub fn seen(&mut self, at: Duration) {
        if let Some(known) = &mut self.known {
            known.seen = Some(at);
        }
    }

    /// Takes a whole plan.
    pub fn set_plan(&self, plan: &Plan) {
        if let (Some(known), Ok(mut own)) = (&self.known, self.plan.try_borrow_mut()) {
            *own = PoolPlan::resolve(plan, &known.roster, &own);
        }
    }

    /// Takes what changed in the plan.
    pub fn apply_plan(&self, change: &PlanChange) {
        if let (Some(known), Ok(mut own)) = (&self.known, self.plan.try_borrow_mut()) {
            own.apply(change, &known.roster);
        }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> Ref<'_, PoolPlan> {
        self.plan.borrow()
    }

    /// The endpoints; `None` until they are known.
    #[must_use]
    pub fn endpoints(&self) -> Option<&[Endpoint]> {
        self.known.as_ref().map(|known| &*known.endpoints)
    }

    /// The endpoint at a position.
    #[must_use]
    pub fn endpoint(&self, index: EndpointIndex) -> Option<&Endpoint> {
        self.endpoints()?.get(index.position())
    }

    /// Who comes into question; nobody until the endpoints are known.
    #[must_use]
    pub fn roster(&self) -> &Roster {
        self.known.as_ref().map_or(&self.nobody, |known| &known.roster)
    }

    /// The ring; `None` while it is being built, and until the endpoints are known. Empty where nothing walks it.
    #[must_use]
    pub fn ring(&self) -> Option<&Ring> {
        self.known.as_ref()?.ring.as_deref()
    }

    /// Whether it serves only until its own ring is built.
    #[must_use]
    pub fn stands_in(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.stands_in)
    }

    /// The ring, for another pool to have as well.
    #[must_use]
    pub fn shared_ring(&self) -> Option<Rc<Ring>> {
        self.known.as_ref()?.ring.clone()
    }

    /// A ring that owns nothing, in the place of one that is not there.
    #[must_use]
    pub fn no_ring(&self) -> &Ring {
        &self.no_ring
    }

    /// The ring is built now.
    pub fn set_ring(&mut self, ring: Ring) {
        if let Some(known) = &mut self.known {
            known.ring = Some(ring.into());
            known.stands_in = false;
        }
    }

    /// How long ago, at most, what is known of residency was seen. A planner of our own sees each request as it is sent:
    /// it knows best what that has loaded and what had to make room for it.
    #[must_use]
    pub fn residency_age(&self, now: Duration) -> Duration {
        if matches!(self.settings.plan, PlanSource::SelfMade(_)) {
            return Duration::ZERO;
        }
        let seen = self.known.as_ref().and_then(|known| known.seen);
        seen.map_or(RESIDENCY_AGE, |seen| now.saturating_sub(seen).saturating_add(RESIDENCY_LAG))
    }

    /// Who said lately that it does not know a model.
    #[must_use]
    pub fn unknown(&self) -> &UnknownModels {
        &self.unknown
    }

    /// How the pool routes.
    #[must_use]
    pub fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// The strategy of that name over this pool.
    #[must_use]
    pub fn strategy(&self, name: StrategyName) -> &dyn Strategy {
        self.strategies.get(name)
    }

    /// Tells the strategies how a request ended.
    pub fn report(&self, report: &Report) {
        self.strategies.report(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoints;
    use crate::endpoint::{Resident, Score};
    use crate::hash::hash;
    use crate::live::LivePool;
    use crate::load::Registry;
    use crate::outcome::Outcome;
    use crate::picker::{Answer, Reason};
    use crate::plan::Placement;
    use crate::request::Request;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const NOW: Duration = Duration::from_secs(100);

    fn pool(strategy: StrategyName) -> Pool {
        Pool::new(PoolSettings { strategy, ..PoolSettings::default() })
    }

    /// The first endpoint of each of `count` models.
    fn firsts(pool: Pool, count: u32) -> (Vec<EndpointIndex>, LivePool) {
        let live = LivePool::new(pool, &mut Registry::default());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        let first = |n| {
            let model = format!("model-{n}");
            let answer = live.answer(&Request::for_model(model.as_bytes()), NOW, &mut rng);
            let Answer::Pick(pick) = answer else { panic!("{answer:?}") };
            pick.endpoints[0]
        };
        ((0..count).map(first).collect(), live)
    }

    #[test]
    fn an_update_replaces_the_set_and_what_was_computed_from_it() {
        for strategy in StrategyName::ALL {
            let mut pool = pool(strategy);
            assert_eq!(pool.endpoints(), None);
            pool.update(endpoints(5));
            let (before, live) = firsts(pool, 100);
            assert!(before.contains(&EndpointIndex(4)), "{strategy:?}");
            let mut pool = live.into_pool();
            pool.update(endpoints(2));
            let (after, live) = firsts(pool, 100);
            assert!(after.iter().all(|first| first.0 < 2), "{strategy:?}: the old set is gone");
            let mut pool = live.into_pool();
            pool.update(Vec::new());
            assert_eq!(pool.endpoints(), Some(&[][..]), "known, and empty");
        }
    }

    /// A pool that walks no ring builds none: with 10,000 endpoints that is 24 MB.
    #[test]
    fn a_ring_is_built_only_where_it_is_used() {
        for strategy in StrategyName::ALL {
            let mut pool = pool(strategy);
            pool.update(endpoints(3));
            assert_eq!(pool.ring().unwrap().walk(1).count() > 0, strategy.needs_ring(), "{strategy:?}");
        }
    }

    /// The ring comes later: until then the request goes by power of two choices, and says why.
    #[test]
    fn requests_do_not_wait_for_the_ring() {
        let mut pool = pool(StrategyName::Ring);
        pool.take(endpoints(4), None);
        let live = LivePool::new(pool, &mut Registry::default());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        let mut ask = |live: &LivePool| match live.answer(&Request::for_model(b"llama"), NOW, &mut rng) {
            Answer::Pick(pick) => (pick.strategy, pick.reason),
            answer => panic!("{answer:?}"),
        };
        assert_eq!(ask(&live), (StrategyName::P2c, Reason::RingPending));
        let mut pool = live.into_pool();
        let ring = Ring::new(pool.endpoints().unwrap(), 150);
        pool.set_ring(ring);
        assert_eq!(ask(&LivePool::new(pool, &mut Registry::default())), (StrategyName::Ring, Reason::Model));
    }

    /// No strategy learns from reports yet: the same requests go the same way afterwards.
    #[test]
    fn reports_change_no_pick() {
        for strategy in StrategyName::ALL {
            let mut pool = pool(strategy);
            pool.update(endpoints(5));
            let (before, live) = firsts(pool, 1);
            for outcome in Outcome::ALL {
                live.pool().report(&Report { endpoint: before[0], outcome, service_time: None });
            }
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
            let Answer::Pick(pick) = live.answer(&Request::for_model(b"model-0"), NOW, &mut rng) else { panic!() };
            if strategy != StrategyName::RoundRobin {
                assert_eq!(pick.endpoints[0], before[0], "{strategy:?}");
            }
        }
    }

    #[test]
    fn a_fixed_plan_holds_over_updates_and_another_plan_does_not_outlive_its_set() {
        let (all, model) = (endpoints(4), hash(b"llama"));
        let placement = |n: usize| Placement { homes: [all[n].key()].into(), tail: false };
        let plan = Plan::new(5, [(model, placement(3))]);
        let settings = PoolSettings { plan: PlanSource::Fixed(plan.clone()), ..PoolSettings::default() };
        let mut fixed = Pool::new(settings);
        fixed.update(all.clone());
        let home = |pool: &Pool| pool.plan().get(model).map(|model| model.homes[0].endpoint.0);
        assert_eq!((home(&fixed), fixed.plan().version()), (Some(3), 5));
        let mut reversed = all.clone();
        reversed.reverse();
        fixed.update(reversed);
        assert_eq!(home(&fixed), Some(0), "the same endpoint at another position");

        let mut told = pool(StrategyName::Homes);
        told.set_plan(&plan);
        assert_eq!(home(&told), None, "no endpoints, no positions");
        told.update(all.clone());
        told.set_plan(&plan);
        assert_eq!(home(&told), Some(3));
        told.apply_plan(&PlanChange { version: 6, changed: vec![(model, placement(1))], removed: vec![] });
        assert_eq!((home(&told), told.plan().version()), (Some(1), 6));
        told.update(all.clone());
        assert_eq!(home(&told), None, "positions may have changed: whoever plans tells it anew");
    }

    #[test]
    fn scores_decide_until_too_few_are_left() {
        let mut set = endpoints(4);
        for endpoint in set.iter_mut().skip(2) {
            endpoint.score = Score::new(0.1).unwrap();
        }
        let mut pool = pool(StrategyName::P2c);
        pool.update(set.clone());
        assert_eq!(pool.roster().health(), Health::Scored);
        set[1].score = Score::new(0.1).unwrap();
        pool.update(set);
        assert_eq!(pool.roster().health(), Health::Panic);
    }

    #[test]
    fn what_was_seen_of_residency_ages() {
        let mut pool = pool(StrategyName::Homes);
        let mut set = endpoints(1);
        set[0].resident = Some(Resident::from_ids(["llama"]));
        pool.update(set.clone());
        assert_eq!(pool.residency_age(NOW), RESIDENCY_AGE, "nobody says when");
        pool.seen(NOW);
        assert_eq!(pool.residency_age(NOW + Duration::from_secs(3)), Duration::from_secs(4));
        pool.update(set);
        assert_eq!(pool.residency_age(NOW), RESIDENCY_AGE);
    }
}
