//! A pool at work: its endpoints and strategies, the requests in flight, and the planner of a proxy that is alone.

use crate::endpoint::EndpointIndex;
use crate::explain::Explanation;
use crate::load::{InFlight, PoolLoad, Registry};
use crate::outcome::Outcome;
use crate::picker::{self, Answer, Pick};
use crate::plan::{Ended, Plan, SelfPlanner, SelfSettings, Warmth};
use crate::pool::Pool;
use crate::request::Request;
use crate::settings::PlanSource;
use crate::strategy::{Report, Residency, Told};
use rand::Rng;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub struct LivePool {
    pool: Pool,
    load: PoolLoad,
    planner: Option<Rc<RefCell<SelfPlanner>>>,
    /// Somebody wanted something of the pool.
    asked: Cell<bool>,
}

/// A request that was sent, in flight until this is dropped.
#[derive(Debug)]
pub struct Sent {
    endpoint: u64,
    model: Option<u64>,
    warmth: Warmth,
    in_flight: InFlight,
}

impl Sent {
    /// Whether the endpoint was believed to have the model.
    #[must_use]
    pub fn warmth(&self) -> Warmth {
        self.warmth
    }
}

/// What a tick did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// The plan is another one now.
    pub changed: bool,
    /// Inputs for which a default stood in.
    pub defaults: usize,
}

/// How a request ended at the endpoint that served it.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Who served.
    pub endpoint: EndpointIndex,
    /// How it ended.
    pub outcome: Outcome,
    /// From the pick to the end of the response.
    pub service_time: Duration,
    /// The server said that it does not know the model.
    pub model_unknown: bool,
}

impl LivePool {
    /// With the requests in flight that `registry` knows of.
    pub fn new(pool: Pool, registry: &mut Registry) -> Self {
        let load = registry.bind(pool.endpoints().unwrap_or_default());
        let planner = match &pool.settings().plan {
            PlanSource::SelfMade(settings) => Some(Rc::new(RefCell::new(SelfPlanner::new(settings.clone())))),
            PlanSource::None | PlanSource::Fixed(_) => None,
        };
        Self { pool, load, planner, asked: Cell::new(false) }
    }

    /// Goes on where the pool of the same cluster was: what its planner learnt, and the plan, are kept.
    pub fn succeed(&mut self, before: &Self) {
        if let (Some(own), Some(planner)) = (&mut self.planner, &before.planner)
            && same_settings(&self.pool, &before.pool)
        {
            *own = Rc::clone(planner);
            let planner = planner.borrow();
            self.pool.set_plan(planner.current());
        }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The pool, when nothing is at work any more.
    #[must_use]
    pub fn into_pool(self) -> Pool {
        self.pool
    }

    /// Whether this proxy plans for itself.
    #[must_use]
    pub fn plans_itself(&self) -> bool {
        self.planner.is_some()
    }

    /// Whether a request was answered.
    #[must_use]
    pub fn was_asked(&self) -> bool {
        self.asked.get()
    }

    /// Somebody else plans: what was planned here is forgotten, and models go by the ring.
    pub fn stop_planning(&self) {
        self.pool.set_plan(&Plan::default());
    }

    /// Answers a request; see [`picker::answer`].
    pub fn answer(&self, request: &Request<'_>, now: Duration, rng: &mut dyn Rng) -> Answer {
        self.asked.set(true);
        picker::answer(&self.pool, &self.load, self, request, now, rng)
    }

    /// Why the answer is what it is; see [`crate::explain`]. To be asked before the request is counted as sent.
    #[must_use]
    pub fn explain(&self, request: &Request<'_>, answer: &Answer, now: Duration) -> String {
        let plan = self.pool.plan();
        let view =
            self.pool.endpoints().map(|all| picker::view(&self.pool, &self.load, self, request, now, all, &plan));
        Explanation { request, answer, view }.to_string()
    }

    /// The pick goes out: counts it as in flight until the result is dropped. `None` when there is nothing to count.
    pub fn start(&self, request: &Request<'_>, pick: &Pick, now: Duration) -> Option<Sent> {
        let index = *pick.endpoints.first()?;
        let endpoint = self.pool.endpoint(index)?.key();
        let model = request.model.as_ref().map(|model| model.hash);
        let warmth = model.map_or(Warmth::Warm, |model| self.sent(index, endpoint, model, now));
        let in_flight = self.load.start(index, pick.weight, warmth == Warmth::Cold)?;
        Some(Sent { endpoint, model, warmth, in_flight })
    }

    fn sent(&self, index: EndpointIndex, key: u64, model: u64, now: Duration) -> Warmth {
        let plan = self.pool.plan();
        let lately = plan.sent_within(model, index, now, self.pool.residency_age(now));
        plan.sent(model, index, now);
        match &self.planner {
            Some(planner) => planner.try_borrow_mut().map_or(Warmth::Warm, |mut planner| planner.sent(key, model)),
            None if !lately && self.holds(index, model) == Some(false) => Warmth::Cold,
            None => Warmth::Warm,
        }
    }

    /// The request ended.
    pub fn ended(&self, sent: &Sent, end: &End, now: Duration) {
        let Some(key) = self.pool.endpoint(end.endpoint).map(|endpoint| endpoint.key()) else { return };
        self.pool.report(&Report {
            endpoint: end.endpoint,
            outcome: end.outcome,
            service_time: Some(end.service_time),
        });
        let Some(model) = sent.model else { return };
        if end.model_unknown {
            self.pool.unknown().mark(key, model, now);
        }
        // Served by another endpoint than the pick: its warmth and its queue are not known.
        if let Some(planner) = self.planner.as_ref().filter(|_| key == sent.endpoint)
            && let Ok(mut planner) = planner.try_borrow_mut()
        {
            planner.ended(&Ended {
                endpoint: key,
                model,
                warmth: sent.warmth,
                in_flight_at_start: sent.in_flight.before().saturating_add(1),
                total_time: end.service_time,
                outcome: end.outcome,
            });
        }
    }

    /// An endpoint was tried in vain before another one served.
    pub fn attempt_failed(&self, endpoint: EndpointIndex) {
        self.pool.report(&Report { endpoint, outcome: Outcome::Failure, service_time: None });
    }

    /// Lets the planner plan, if there is one and it is time. To be called at each tick.
    pub fn tick(&self, now: Duration) -> Planned {
        let (Some(planner), Some(endpoints), Some(ring)) = (&self.planner, self.pool.endpoints(), self.pool.ring())
        else {
            return Planned::default();
        };
        let Ok(mut planner) = planner.try_borrow_mut() else { return Planned::default() };
        let change = planner.tick(now, endpoints, ring);
        if let Some(change) = &change {
            self.pool.apply_plan(change);
        }
        let defaults = planner.report().defaults;
        let defaults = [defaults.service, defaults.slots, defaults.loads, defaults.sizes]
            .into_iter()
            .fold(0, usize::saturating_add);
        Planned { changed: change.is_some(), defaults: if change.is_some() { defaults } else { 0 } }
    }

    /// Takes a plan that somebody else made.
    pub fn set_plan(&self, plan: &Plan) {
        self.pool.set_plan(plan);
    }
}

/// What the planner of a lone proxy believes, else what the endpoints tell.
impl Residency for LivePool {
    fn holds(&self, endpoint: EndpointIndex, model_hash: u64) -> Option<bool> {
        let endpoints = self.pool.endpoints()?;
        let Some(planner) = &self.planner else { return Told(endpoints).holds(endpoint, model_hash) };
        let key = endpoints.get(endpoint.position())?.key();
        planner.try_borrow().ok()?.holds(key, model_hash)
    }
}

fn same_settings(left: &Pool, right: &Pool) -> bool {
    let settings = |pool: &Pool| -> Option<SelfSettings> {
        match &pool.settings().plan {
            PlanSource::SelfMade(settings) => Some(settings.clone()),
            PlanSource::None | PlanSource::Fixed(_) => None,
        }
    };
    settings(left) == settings(right)
}
