//! The proxies of a run, each with the core's live pool and its own requests in flight.

use super::{Asked, Ended, Seen};
use crate::cell::{Cell, LOAD, SERVICE};
use crate::names::Names;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use warmroute_core::endpoint::{Endpoint, EndpointIndex, Resident};
use warmroute_core::live::{End, LivePool, Sent};
use warmroute_core::load::Registry;
use warmroute_core::outcome::Outcome;
use warmroute_core::picker::Answer;
use warmroute_core::plan::{Plan, Warmth};
use warmroute_core::pool::Pool;
use warmroute_core::request::Request;
use warmroute_core::ring::Ring;
use warmroute_core::settings::{PlanSource, PoolSettings};
use warmroute_core::strategy::{PickList, StrategyName};

/// See the module.
#[derive(Debug)]
pub(super) struct Proxies {
    names: Rc<Names>,
    settings: Rc<PoolSettings>,
    ring: Ring,
    all: Vec<Proxy>,
    under_way: HashMap<usize, UnderWay>,
    rng: Xoshiro256PlusPlus,
}

#[derive(Debug)]
struct Proxy {
    live: LivePool,
    registry: Registry,
    in_flight: Vec<u32>,
}

#[derive(Debug)]
struct UnderWay {
    sent: Sent,
    endpoint: EndpointIndex,
    in_flight_at_start: u32,
}

/// What a proxy measured of a request that its pick served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Who served.
    pub endpoint: usize,
    pub warmth: Warmth,
    /// Own requests there when it was sent, itself included.
    pub in_flight_at_start: u32,
    pub total: Duration,
}

impl Proxies {
    /// So many proxies with the same settings.
    pub fn new(
        cell: &Cell,
        names: Rc<Names>,
        seed: u64,
        strategy: StrategyName,
        plan: PlanSource,
        count: usize,
    ) -> Self {
        let slots = u32::try_from(cell.slots).unwrap_or(u32::MAX);
        let load_cost = LOAD.as_secs_f64() / SERVICE.as_secs_f64();
        let settings = Rc::new(PoolSettings { strategy, plan, slots, load_cost, ..PoolSettings::default() });
        let ring = Ring::new(&names.endpoints, settings.virtual_nodes);
        // Not the generator of the arrivals: what a policy draws must not change what is asked.
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5EED_0F70_11C1_E500);
        let mut proxies = Self { names, settings, ring, all: Vec::new(), under_way: HashMap::new(), rng };
        proxies.all = (0..count).map(|_| proxies.proxy()).collect();
        proxies
    }

    fn proxy(&self) -> Proxy {
        let mut registry = Registry::default();
        let live = LivePool::new(self.pool(self.names.endpoints.clone(), None), &mut registry);
        Proxy { live, registry, in_flight: vec![0; self.names.endpoints.len()] }
    }

    fn pool(&self, endpoints: Vec<Endpoint>, seen: Option<Duration>) -> Pool {
        let mut pool = Pool::new(Rc::clone(&self.settings));
        let ring = if self.settings.needs_ring() { self.ring.clone() } else { Ring::default() };
        pool.take(endpoints, Some(ring));
        if let Some(at) = seen {
            pool.seen(at);
        }
        pool
    }

    /// The names of the run.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The ring of all endpoints.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The pools.
    pub fn pools(&self) -> impl Iterator<Item = &LivePool> {
        self.all.iter().map(|proxy| &proxy.live)
    }

    /// Answers a request and counts it as sent.
    pub fn send(&mut self, asked: &Asked) -> PickList {
        let at = asked.proxy % self.all.len();
        let request = Request::for_model(self.names.models[asked.model].as_bytes());
        let proxy = &mut self.all[at];
        let Answer::Pick(pick) = proxy.live.answer(&request, asked.now, &mut self.rng) else {
            return PickList::new();
        };
        if let (Some(sent), Some(endpoint)) =
            (proxy.live.start(&request, &pick, asked.now), pick.endpoints.first().copied())
        {
            let count = &mut proxy.in_flight[endpoint.position()];
            *count += 1;
            self.under_way.insert(asked.request, UnderWay { sent, endpoint, in_flight_at_start: *count });
        }
        pick.endpoints
    }

    /// An endpoint could not be reached.
    pub fn attempt_failed(&self, asked: &Asked, endpoint: usize) {
        let sent = self.under_way.get(&asked.request).map(|under_way| &under_way.sent);
        self.all[asked.proxy % self.all.len()].live.attempt_failed(sent, index(endpoint));
    }

    /// A request ended. What was measured, if the pick served it well.
    pub fn ended(&mut self, ended: &Ended) -> Option<Sample> {
        let under_way = self.under_way.remove(&ended.asked.request)?;
        let at = ended.asked.proxy % self.all.len();
        let proxy = &mut self.all[at];
        proxy.in_flight[under_way.endpoint.position()] -= 1;
        let served = index(ended.endpoint?);
        let total = ended.now - ended.asked.now;
        let end = End { endpoint: served, outcome: ended.outcome, service_time: total, model_unknown: false };
        proxy.live.ended(&under_way.sent, &end, ended.now);
        let sample = Sample {
            endpoint: served.position(),
            warmth: under_way.sent.warmth(),
            in_flight_at_start: under_way.in_flight_at_start,
            total,
        };
        (ended.outcome == Outcome::Success && served == under_way.endpoint).then_some(sample)
    }

    /// A new set of endpoints comes to all proxies, with a plan if somebody made one.
    pub fn take(&mut self, endpoints: &[Endpoint], seen: Option<Duration>, plan: Option<&Plan>) {
        for at in 0..self.all.len() {
            let pool = self.pool(endpoints.to_vec(), seen);
            let proxy = &mut self.all[at];
            let mut live = LivePool::new(pool, &mut proxy.registry);
            live.succeed(&proxy.live);
            if let Some(plan) = plan {
                live.set_plan(plan);
            }
            proxy.live = live;
            proxy.registry.prune();
        }
    }

    /// The endpoints with what is known of their health.
    pub fn marked(&self, seen: &Seen<'_>) -> Vec<Endpoint> {
        let mut endpoints = self.names.endpoints.clone();
        for (endpoint, up) in endpoints.iter_mut().zip(seen.up) {
            endpoint.marked_unhealthy = !up;
        }
        endpoints
    }

    /// The same with the models in their memory.
    pub fn resident(&self, seen: &Seen<'_>) -> Vec<Endpoint> {
        let mut endpoints = self.marked(seen);
        for (endpoint, gpu) in endpoints.iter_mut().zip(seen.gpus) {
            let models = gpu.models().map(|model| self.names.models[model].as_str());
            endpoint.resident = Some(Resident::from_ids(models));
        }
        endpoints
    }
}

/// As the core counts endpoints.
pub(super) fn index(endpoint: usize) -> EndpointIndex {
    EndpointIndex(u32::try_from(endpoint).unwrap_or(u32::MAX))
}
