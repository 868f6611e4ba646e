//! What a strategy sees of a pool.

use super::MAX_PICKS;
use crate::eligibility::{self, Ineligible, Need};
use crate::endpoint::{Endpoint, EndpointIndex};
use crate::homes::{PlannedModel, PoolPlan};
use crate::load::Load;
use crate::ring::Ring;
use crate::roster::Roster;
use crate::unknown::UnknownModels;
use std::time::Duration;

/// Who holds which model, as far as somebody knows.
pub trait Residency {
    /// Whether the endpoint at that position holds the model; `None` when that is not known.
    fn holds(&self, endpoint: EndpointIndex, model_hash: u64) -> Option<bool>;
}

/// By the endpoints' own resident sets, as the snapshot tells them.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a>(pub &'a [Endpoint]);

impl Residency for Told<'_> {
    fn holds(&self, endpoint: EndpointIndex, model_hash: u64) -> Option<bool> {
        self.0.get(endpoint.position())?.holds(model_hash)
    }
}

/// See the module.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The pool's endpoints.
    pub endpoints: &'a [Endpoint],
    /// Who comes into question.
    pub roster: &'a Roster,
    /// Their ring; empty when the pool has no use for one.
    pub ring: &'a Ring,
    /// Requests in flight at them.
    pub load: &'a dyn Load,
    /// Who holds which model.
    pub residency: &'a dyn Residency,
    /// The pool's plan.
    pub plan: &'a PoolPlan,
    /// Who does not know which model; `None`: whoever asks for this view does not care.
    pub unknown: Option<&'a UnknownModels>,
    /// Those that hold the model, where a strategy should prefer them.
    pub holders: &'a [EndpointIndex],
    /// What the request needs of an endpoint.
    pub need: Need<'a>,
    /// Position of the request's payload class.
    pub class: Option<usize>,
    /// Requests that an endpoint works on at a time.
    pub slots: u32,
    /// What a load costs, in service times of a warm request.
    pub load_cost: f64,
    /// Monotonic time.
    pub now: Duration,
    /// How long ago the residency may have been seen: what was sent since is not in it.
    pub residency_age: Duration,
    /// How many endpoints the list shall have, at most [`MAX_PICKS`].
    pub wanted: usize,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("need", &self.need).field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl<'a> View<'a> {
    /// Whether the endpoint is in the pool and may serve the request.
    #[must_use]
    pub fn may_serve(&self, endpoint: EndpointIndex) -> bool {
        self.endpoints.get(endpoint.position()).is_some_and(|endpoint| self.check(endpoint).is_ok())
    }

    /// Why the endpoint may not serve the request.
    ///
    /// # Errors
    /// The first reason.
    pub fn check(&self, endpoint: &Endpoint) -> Result<(), Ineligible> {
        eligibility::check_under(endpoint, self.roster.health())?;
        eligibility::meets(endpoint, &self.need)?;
        match (self.unknown, self.need.model_hash) {
            (Some(unknown), Some(model)) if unknown.is_marked(endpoint.key(), model, self.now) => {
                Err(Ineligible::ModelUnknown)
            }
            _ => Ok(()),
        }
    }

    /// Those that come into question.
    #[must_use]
    pub fn candidates(&self) -> &'a [EndpointIndex] {
        self.roster.candidates(self.class, self.need.model_hash)
    }

    /// How many endpoints to list: as many as wanted, as far as there can be any.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.wanted.min(self.candidates().len()).min(MAX_PICKS)
    }

    /// The plan for the request's model.
    #[must_use]
    pub fn planned(&self) -> Option<&'a PlannedModel> {
        self.plan.get(self.need.model_hash?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::eligibility::Health;
    use crate::endpoint::tests::endpoints;
    use crate::endpoint::{Resident, Servable};
    use crate::hash::hash;
    use crate::load::{InFlight, PoolLoad, Registry};
    use crate::payload::PayloadClasses;
    use crate::plan::Plan;
    use crate::refusal::Refusal;
    use crate::request::Request;
    use crate::strategy::Strategy;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    use std::cell::RefCell;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// A pool with all that a view shows of it.
    pub(crate) struct Scene {
        pub endpoints: Vec<Endpoint>,
        pub roster: Roster,
        pub ring: Ring,
        pub load: PoolLoad,
        pub plan: PoolPlan,
        pub unknown: UnknownModels,
        pub slots: u32,
        pub now: Duration,
        rng: RefCell<Xoshiro256PlusPlus>,
    }

    impl Scene {
        pub fn new(endpoints: Vec<Endpoint>) -> Self {
            Self {
                roster: Roster::new(&endpoints, &PayloadClasses::default(), Health::of(&endpoints, 0.0)),
                ring: Ring::new(&endpoints, 150),
                load: Registry::default().bind(&endpoints),
                plan: PoolPlan::default(),
                unknown: UnknownModels::default(),
                slots: 1,
                now: Duration::from_secs(1_000),
                rng: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(7)),
                endpoints,
            }
        }

        pub fn planned(mut self, plan: &Plan) -> Self {
            self.plan = PoolPlan::resolve(plan, &self.roster, &self.plan);
            self
        }

        pub fn view<'a>(&'a self, request: &Request<'_>, wanted: usize, residency: &'a dyn Residency) -> View<'a> {
            View {
                endpoints: &self.endpoints,
                roster: &self.roster,
                ring: &self.ring,
                load: &self.load,
                residency,
                plan: &self.plan,
                unknown: Some(&self.unknown),
                holders: request.model.as_ref().map_or(&[], |model| self.roster.holders(model.hash)),
                need: Need { model_hash: request.model.as_ref().map(|model| model.hash), labels: &[] },
                class: None,
                slots: self.slots,
                load_cost: 10.0,
                now: self.now,
                residency_age: Duration::from_secs(2),
                wanted,
            }
        }

        pub fn pick(&self, strategy: &dyn Strategy, request: &Request<'_>, wanted: usize) -> Result<Vec<u32>, Refusal> {
            let residency = Told(&self.endpoints);
            let view = self.view(request, wanted, &residency);
            let picks = strategy.pick(request, &view, &mut *self.rng.borrow_mut())?;
            Ok(picks.iter().map(|endpoint| endpoint.0).collect())
        }

        /// The generator's next number.
        pub fn draw(&self) -> u64 {
            use rand::RngExt;
            self.rng.borrow_mut().random()
        }

        /// `weight` in flight at an endpoint until dropped.
        pub fn busy(&self, endpoint: u32, weight: u32) -> InFlight {
            self.load.start(EndpointIndex(endpoint), weight, false).unwrap()
        }
    }

    #[test]
    fn each_reason_against_an_endpoint_is_named() {
        let mut pool = endpoints(4);
        pool[0].draining = true;
        pool[1].servable = Servable::Fixed(Resident::from_ids(["bert"]));
        let scene = Scene::new(pool);
        scene.unknown.mark(scene.endpoints[2].key(), hash(b"llama"), scene.now);
        let residency = Told(&scene.endpoints);
        let view = scene.view(&Request::for_model(b"llama"), 3, &residency);
        let reasons: Vec<_> = scene.endpoints.iter().map(|endpoint| view.check(endpoint).err()).collect();
        assert_eq!(
            reasons,
            [Some(Ineligible::Draining), Some(Ineligible::ModelNotServed), Some(Ineligible::ModelUnknown), None]
        );
        assert!(!view.may_serve(EndpointIndex(4)), "not there");
        let careless = View { unknown: None, ..view };
        assert!(careless.may_serve(EndpointIndex(2)));
    }

    #[test]
    fn a_list_is_no_longer_than_there_can_be_endpoints() {
        let scene = Scene::new(endpoints(20));
        let residency = Told(&scene.endpoints);
        for (wanted, limit) in [(0, 0), (3, 3), (8, 8), (20, 8)] {
            assert_eq!(scene.view(&Request::for_model(b"llama"), wanted, &residency).limit(), limit);
        }
        assert_eq!(Scene::new(endpoints(2)).view(&Request::for_model(b"x"), 3, &residency).limit(), 2);
    }
}
