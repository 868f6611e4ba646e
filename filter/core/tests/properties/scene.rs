//! A random pool with everything that may keep an endpoint from serving, a random request, and by hand who may serve
//! it.

use crate::endpoint;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use warmroute_core::endpoint::{Endpoint, EndpointIndex, Resident, Score, Servable};
use warmroute_core::hash::hash;
use warmroute_core::live::LivePool;
use warmroute_core::load::{InFlight, PoolLoad, Registry};
use warmroute_core::payload::{PayloadClass, PayloadClasses};
use warmroute_core::plan::{Placement, Plan, SelfSettings};
use warmroute_core::pool::Pool;
use warmroute_core::request::{Request, RequestType, SessionKey};
use warmroute_core::ring::Ring;
use warmroute_core::settings::{ModelSettings, PlanSource, PoolSettings, UpdateScope};
use warmroute_core::strategy::StrategyName;

/// When the request comes.
pub const NOW: Duration = Duration::from_secs(1_000);

pub const MODELS: [&str; 3] = ["llama", "bert", "qwen"];

/// What one endpoint is like.
#[derive(Clone, Debug)]
pub struct Spot {
    pub marked: bool,
    pub draining: bool,
    /// In tenths.
    pub score: u8,
    /// Of 2 labels.
    pub labels: [bool; 2],
    /// Of [`MODELS`], when its list is fixed.
    pub serves: Option<[bool; 3]>,
    /// Of [`MODELS`], when it is known.
    pub holds: Option<[bool; 3]>,
    pub weight: f64,
    pub active_nodes: Option<u32>,
    /// Models of size 1 that fit.
    pub memory: u32,
}

prop_compose! {
    fn spot()(
        marked in prop::bool::weighted(0.15),
        draining in prop::bool::weighted(0.15),
        score in prop_oneof![3 => Just(10u8), 2 => 0u8..=10],
        labels in any::<[bool; 2]>(),
        serves in prop::option::weighted(0.3, any::<[bool; 3]>()),
        holds in prop::option::weighted(0.5, any::<[bool; 3]>()),
        weight in prop::sample::select(vec![1.0, 1.0, 0.0, 0.3, 2.0]),
        active_nodes in prop::option::weighted(0.2, 0u32..30),
        memory in 0u32..4,
    ) -> Spot {
        Spot { marked, draining, score, labels, serves, holds, weight, active_nodes, memory }
    }
}

/// How the pool routes.
#[derive(Clone, Debug)]
pub struct Routes {
    pub strategy: StrategyName,
    pub own_strategy: Option<StrategyName>,
    pub fallbacks: u8,
    pub panic_threshold: f64,
    pub updates: UpdateScope,
    /// Homes of [`MODELS`] by position; some are not in the pool.
    pub plan: Option<[Vec<usize>; 3]>,
    pub ring_pending: bool,
}

prop_compose! {
    fn routes()(
        strategy in prop::sample::select(StrategyName::ALL.to_vec()),
        own_strategy in prop::option::weighted(0.2, prop::sample::select(StrategyName::ALL.to_vec())),
        fallbacks in 0u8..=7,
        panic_threshold in prop::sample::select(vec![0.0, 0.5, 0.5, 1.0]),
        everywhere in any::<bool>(),
        plan in prop::option::of([homes(), homes(), homes()]),
        ring_pending in prop::bool::weighted(0.1),
    ) -> Routes {
        let updates = if everywhere { UpdateScope::Pool } else { UpdateScope::Holders };
        Routes { strategy, own_strategy, fallbacks, panic_threshold, updates, plan, ring_pending }
    }
}

fn homes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::btree_set(0usize..30, 0..5).prop_map(|homes| homes.into_iter().collect())
}

/// What a request is like.
#[derive(Clone, Debug)]
pub struct Asked {
    pub request_type: RequestType,
    /// Of [`MODELS`].
    pub model: Option<usize>,
    pub session: Option<u64>,
    pub key: Option<u64>,
    pub bytes: Option<u64>,
}

prop_compose! {
    pub fn asked()(
        request_type in prop_oneof![
            4 => Just(RequestType::Inference), 1 => Just(RequestType::Update), 1 => Just(RequestType::Unknown)
        ],
        model in prop::option::weighted(0.85, 0usize..3),
        session in prop::option::weighted(0.3, any::<u64>()),
        key in prop::option::weighted(0.3, any::<u64>()),
        bytes in prop::sample::select(vec![None, Some(10), Some(1_000), Some(1_001), Some(20_000)]),
    ) -> Asked {
        Asked { request_type, model, session, key, bytes }
    }
}

impl Asked {
    pub fn request(&self) -> Request<'static> {
        let model = self.model.map_or("", |model| MODELS[model]);
        Request {
            request_type: self.request_type,
            session: self.session.map(SessionKey),
            key: self.key,
            payload_bytes: self.bytes,
            ..Request::for_model(model.as_bytes())
        }
    }

    /// Classes: above 1,000 bytes label 0 and weight 4, above 10,000 both labels and weight 16.
    pub fn class(&self) -> (&'static [usize], u32) {
        match self.bytes {
            Some(10_001..) => (&[0, 1], 16),
            Some(1_001..) => (&[0], 4),
            _ => (&[], 1),
        }
    }
}

fn classes() -> PayloadClasses {
    let class = |name: &str, above_bytes, weight, labels: &[usize]| PayloadClass {
        name: name.into(),
        above_bytes,
        weight,
        labels: labels.iter().map(|label| format!("label={label}").into()).collect(),
    };
    PayloadClasses::new(vec![class("huge", 10_000, 16, &[0, 1]), class("large", 1_000, 4, &[0])])
}

/// A pool at some moment.
#[derive(Clone, Debug)]
pub struct Scene {
    pub spots: Vec<Spot>,
    pub routes: Routes,
    /// Endpoint, model, and how many seconds ago it said that it does not know it.
    pub unknown: Vec<(usize, usize, u64)>,
    /// Endpoint, weight and whether it is cold, of what is in flight.
    pub busy: Vec<(u32, u32, bool)>,
}

prop_compose! {
    pub fn scenes()(
        spots in prop::collection::vec(spot(), 0..24),
        routes in routes(),
        unknown in prop::collection::vec((0usize..24, 0usize..3, 0u64..90), 0..40),
        busy in prop::collection::vec((0u32..24, 1u32..20, any::<bool>()), 0..40),
    ) -> Scene {
        Scene { spots, routes, unknown, busy }
    }
}

fn named(models: [bool; 3]) -> Resident {
    Resident::from_ids(MODELS.iter().zip(models).filter(|(_, there)| *there).map(|(model, _)| *model))
}

impl Scene {
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let endpoint = |(n, spot): (usize, &Spot)| Endpoint {
            marked_unhealthy: spot.marked,
            draining: spot.draining,
            score: Score::new(f64::from(spot.score) / 10.0).unwrap(),
            labels: (0..2).filter(|n| spot.labels[*n]).map(|n| format!("label={n}").into()).collect(),
            servable: spot.serves.map_or(Servable::OnDemand, |models| Servable::Fixed(named(models))),
            resident: spot.holds.map(named),
            weight: spot.weight,
            active_nodes: spot.active_nodes,
            memory_units: spot.memory,
            ..endpoint(n)
        };
        self.spots.iter().enumerate().map(endpoint).collect()
    }

    pub fn settings(&self) -> PoolSettings {
        let routes = &self.routes;
        let own = |strategy| (hash(MODELS[0].as_bytes()), ModelSettings { strategy, ..ModelSettings::default() });
        let home = |homes: &Vec<usize>| Placement {
            homes: homes.iter().map(|n| endpoint(*n).key()).collect(),
            tail: homes.len() == 1,
        };
        let plan = |plan: &[Vec<usize>; 3]| {
            let placements = MODELS.iter().zip(plan).map(|(model, homes)| (hash(model.as_bytes()), home(homes)));
            PlanSource::Fixed(Plan::new(3, placements))
        };
        PoolSettings {
            strategy: routes.strategy,
            virtual_nodes: 20,
            fallbacks: routes.fallbacks,
            panic_threshold: routes.panic_threshold,
            payload: classes(),
            updates: routes.updates,
            models: routes.own_strategy.map(|strategy| own(Some(strategy))).into_iter().collect(),
            plan: routes.plan.as_ref().map_or(PlanSource::None, plan),
            ..PoolSettings::default()
        }
    }

    /// The pool at work, and what is in flight there.
    pub fn live(&self) -> (LivePool, Vec<InFlight>) {
        let endpoints = self.endpoints();
        let mut registry = Registry::default();
        let load = registry.bind(&endpoints);
        let in_flight =
            self.busy.iter().filter_map(|(at, weight, cold)| load.start(EndpointIndex(*at), *weight, *cold)).collect();
        let mut pool = Pool::new(self.settings());
        match self.routes.ring_pending {
            true => pool.take(endpoints, None),
            false => pool.update(endpoints),
        }
        let live = LivePool::new(pool, &mut registry);
        // In the order of time, as they happen.
        let mut marks = self.unknown.clone();
        marks.sort_by_key(|(_, _, ago)| std::cmp::Reverse(*ago));
        for (at, model, ago) in marks {
            live.pool().unknown().mark(
                endpoint(at).key(),
                hash(MODELS[model].as_bytes()),
                NOW - Duration::from_secs(ago),
            );
        }
        (live, in_flight)
    }

    /// The same pool, planned by itself, and what counts its requests in flight.
    pub fn self_made(&self) -> (LivePool, PoolLoad) {
        let settings = PoolSettings { plan: PlanSource::SelfMade(SelfSettings::default()), ..self.settings() };
        let mut pool = Pool::new(settings);
        let endpoints = self.endpoints();
        let ring = Ring::new(&endpoints, 20);
        let mut registry = Registry::default();
        let load = registry.bind(&endpoints);
        pool.take(endpoints, Some(ring));
        (LivePool::new(pool, &mut registry), load)
    }

    /// Scores are ignored: of those in service, a share below the threshold has more than 0.2.
    fn panics(&self) -> bool {
        let in_service = || self.spots.iter().filter(|spot| !spot.marked && !spot.draining);
        let (all, good) = (in_service().count(), in_service().filter(|spot| spot.score > 2).count());
        good < all && (good as f64) < self.routes.panic_threshold * all as f64
    }

    /// Who may serve, marks of models as unknown aside.
    pub fn eligible(&self, asked: &Asked) -> BTreeSet<u32> {
        let (panics, (labels, _)) = (self.panics(), asked.class());
        let may = |spot: &Spot| {
            !spot.marked
                && !spot.draining
                && (panics || spot.score > 2)
                && labels.iter().all(|label| spot.labels[*label])
                && asked.model.is_none_or(|model| spot.serves.is_none_or(|serves| serves[model]))
        };
        (0..).zip(&self.spots).filter(|(_, spot)| may(spot)).map(|(n, _)| n).collect()
    }

    /// Who may serve, and whether that is so only because marks are ignored: they would leave nobody. A mark lasts 60
    /// seconds from when it was last made.
    pub fn allowed(&self, asked: &Asked) -> (BTreeSet<u32>, bool) {
        let mut last: BTreeMap<(u32, usize), u64> = BTreeMap::new();
        for (at, model, ago) in &self.unknown {
            let least = last.entry((u32::try_from(*at).unwrap(), *model)).or_insert(*ago);
            *least = (*least).min(*ago);
        }
        let marked = |n: &u32| asked.model.is_some_and(|model| last.get(&(*n, model)).is_some_and(|ago| *ago < 60));
        let eligible = self.eligible(asked);
        let known: BTreeSet<u32> = eligible.iter().copied().filter(|n| !marked(n)).collect();
        let ignored = known.is_empty() && !eligible.is_empty();
        if ignored { (eligible, true) } else { (known, false) }
    }
}
