//! All pools at one moment, by the name of Envoy's cluster.
//!
//! A pool is at work at once, and its ring is built in slices. Until it is there, the new endpoints serve by the ring of
//! the pool before, if there was one for the cluster and most of them are on it, else by power of two choices: whoever
//! was drained, marked or removed gets nothing more, and whoever came serves. A ring that is built from that of the pool
//! before costs only what changed.

use crate::config::PoolConfig;
use crate::endpoint::Endpoint;
use crate::live::LivePool;
use crate::load::Registry;
use crate::pool::Pool;
use crate::ring::{Ring, RingBuilder, arrange, members};
use std::collections::BTreeMap;
use std::rc::Rc;

pub use crate::ring::Progress;

/// Pools at work, by the name of Envoy's cluster.
pub type Pools = BTreeMap<Box<[u8]>, Rc<LivePool>>;

/// An immutable view but for the rings that are being built: a new configuration makes a new snapshot, and requests under
/// way keep the old one.
#[derive(Debug, Default)]
pub struct Snapshot {
    pools: Pools,
    building: Vec<Building>,
}

/// A pool whose ring is being built.
#[derive(Debug)]
struct Building {
    cluster: Box<[u8]>,
    config: PoolConfig,
    endpoints: Vec<Endpoint>,
    ring: RingBuilder,
}

impl Snapshot {
    /// With the requests in flight that `registry` knows of; goes on from the pools that were at work
    /// `before`. Clusters' names are distinct: the configuration's validation saw to it. [`Snapshot::advance`] completes it.
    pub fn begin(configs: Vec<PoolConfig>, before: &Pools, registry: &mut Registry) -> Self {
        let mut snapshot = Self::default();
        for config in configs {
            let cluster = config.cluster.as_bytes().into();
            snapshot.add(cluster, config, before, registry);
        }
        registry.prune();
        snapshot
    }

    /// The same at once, for callers that have the time.
    pub fn complete(configs: Vec<PoolConfig>, registry: &mut Registry) -> Self {
        let mut snapshot = Self::begin(configs, &Pools::new(), registry);
        while snapshot.advance(usize::MAX, registry) == Progress::More {}
        snapshot
    }

    fn add(&mut self, cluster: Box<[u8]>, mut config: PoolConfig, before: &Pools, registry: &mut Registry) {
        let old = before.get(&cluster);
        match config.endpoints.take_if(|_| config.settings.needs_ring()) {
            Some(endpoints) => {
                let building = Building::new(cluster, config, endpoints, old);
                self.pools.insert(building.cluster.clone(), Rc::new(building.stand_in(old, registry)));
                self.building.push(building);
            }
            None => {
                let live = succeed(LivePool::in_cluster(&cluster, config.build(), registry), old);
                self.pools.insert(cluster, Rc::new(live));
            }
        }
    }

    /// Builds on, by about `points` virtual nodes. Each pool is put to work when its ring is there.
    pub fn advance(&mut self, points: usize, registry: &mut Registry) -> Progress {
        let Some(building) = self.building.last_mut() else { return Progress::Done };
        if building.ring.step(points) == Progress::Done
            && let Some(building) = self.building.pop()
        {
            let old = self.pools.get(&building.cluster).map(Rc::clone);
            let (cluster, live) = building.finish(registry);
            self.pools.insert(cluster, Rc::new(succeed(live, old.as_ref())));
        }
        if self.building.is_empty() { Progress::Done } else { Progress::More }
    }

    /// The pool of Envoy's cluster of that name, if it is one of ours.
    #[must_use]
    pub fn pool(&self, cluster: &[u8]) -> Option<&Rc<LivePool>> {
        self.pools.get(cluster)
    }

    /// All pools.
    #[must_use]
    pub fn pools(&self) -> &Pools {
        &self.pools
    }
}

impl Building {
    fn new(cluster: Box<[u8]>, config: PoolConfig, endpoints: Vec<Endpoint>, old: Option<&Rc<LivePool>>) -> Self {
        let nodes = config.settings.virtual_nodes;
        let before = old.map(|live| live.pool()).filter(|pool| pool.settings().virtual_nodes == nodes);
        // Another number of virtual nodes is another ring, but positions stay.
        let (endpoints, ring) = match before.and_then(|pool| Some((pool.endpoints()?, pool.ring()?))) {
            Some((old, ring)) if !ring.is_empty() => {
                let endpoints = arrange(old, endpoints);
                let ring = RingBuilder::change(ring.clone(), &members(old, nodes), &members(&endpoints, nodes));
                (endpoints, ring)
            }
            _ => {
                let endpoints = arrange(old.and_then(|live| live.pool().endpoints()).unwrap_or_default(), endpoints);
                let ring = RingBuilder::from_nothing(&members(&endpoints, nodes));
                (endpoints, ring)
            }
        };
        Self { cluster, config, endpoints, ring }
    }

    /// The pool until its ring is there.
    fn stand_in(&self, old: Option<&Rc<LivePool>>, registry: &mut Registry) -> LivePool {
        let mut pool = Pool::new(Rc::clone(&self.config.settings));
        pool.take_with_old_ring(self.endpoints.clone(), old.and_then(|old| self.ring_of(old.pool())));
        succeed(LivePool::in_cluster(&self.cluster, pool, registry), old)
    }

    /// The ring of the pool before, if at least half of the endpoints are on it: those that are not get no requests by
    /// it, and the others must be able to bear them. Where an endpoint that is gone stood, the one serves that has its
    /// position now.
    fn ring_of(&self, old: &Pool) -> Option<Rc<Ring>> {
        let before = old.endpoints()?;
        let stayed = self.endpoints.iter().zip(before).filter(|(new, old)| new.id == old.id).count();
        old.shared_ring().filter(|ring| !ring.is_empty() && stayed.saturating_mul(2) >= self.endpoints.len())
    }

    fn finish(self, registry: &mut Registry) -> (Box<[u8]>, LivePool) {
        let mut pool = Pool::new(self.config.settings);
        pool.take(self.endpoints, Some(self.ring.finish()));
        let live = LivePool::in_cluster(&self.cluster, pool, registry);
        (self.cluster, live)
    }
}

fn succeed(mut live: LivePool, old: Option<&Rc<LivePool>>) -> LivePool {
    if let Some(old) = old {
        live.succeed(old);
    }
    live
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::EndpointIndex;
    use crate::endpoint::tests::endpoints;
    use crate::live::End;
    use crate::outcome::Outcome;
    use crate::picker::{Answer, Pick, Reason};
    use crate::plan::SelfSettings;
    use crate::request::Request;
    use crate::settings::{PlanSource, PoolSettings};
    use crate::strategy::StrategyName;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    use std::time::Duration;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const NOW: Duration = Duration::from_secs(1);

    fn config(cluster: &str, strategy: StrategyName, endpoints: Vec<Endpoint>) -> PoolConfig {
        let settings = Rc::new(PoolSettings { strategy, ..PoolSettings::default() });
        PoolConfig { cluster: cluster.into(), settings, endpoints: Some(endpoints) }
    }

    fn pick(snapshot: &Snapshot, cluster: &[u8], request: &Request<'_>) -> Pick {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        match snapshot.pool(cluster).unwrap().answer(request, NOW, &mut rng) {
            Answer::Pick(pick) => pick,
            answer => panic!("{answer:?}"),
        }
    }

    fn finish(snapshot: &mut Snapshot, registry: &mut Registry, step: usize) -> usize {
        let mut steps = 1;
        while snapshot.advance(step, registry) == Progress::More {
            steps += 1;
        }
        steps
    }

    #[test]
    fn pools_are_found_by_their_clusters_exact_name() {
        let clusters = ["a", "outbound|8000|v2|svc.ns.svc.cluster.local"];
        let configs = clusters.map(|cluster| config(cluster, StrategyName::P2c, endpoints(2))).into();
        let snapshot = Snapshot::complete(configs, &mut Registry::default());
        for cluster in clusters {
            assert!(snapshot.pool(cluster.as_bytes()).is_some());
        }
        for other in [&b""[..], b"A", b"a ", b"\xff"] {
            assert!(snapshot.pool(other).is_none(), "{other:?}");
        }
        assert_eq!(snapshot.pools().len(), 2);
    }

    /// Two clusters (or two snapshots) with the same endpoints see each other's requests.
    #[test]
    fn requests_in_flight_outlive_their_snapshot() {
        let mut registry = Registry::default();
        let p2c = |cluster| vec![config(cluster, StrategyName::P2c, endpoints(2))];
        let old = Snapshot::complete(p2c("a"), &mut registry);
        let request = Request::update(b"m");
        let first = pick(&old, b"a", &request);
        let busy: Vec<_> = (0..3).map(|_| old.pool(b"a").unwrap().start(&request, &first, NOW)).collect();
        drop(old);
        let new = Snapshot::complete(p2c("b"), &mut registry);
        let other = EndpointIndex(1 - first.endpoints[0].0);
        for _ in 0..20 {
            assert_eq!(pick(&new, b"b", &request).endpoints[0], other);
        }
        assert!(busy.iter().all(Option::is_some));
    }

    #[test]
    fn a_pool_serves_before_its_ring_is_built() {
        let mut registry = Registry::default();
        let mut snapshot =
            Snapshot::begin(vec![config("a", StrategyName::Ring, endpoints(20))], &Pools::new(), &mut registry);
        let request = Request::for_model(b"llama");
        assert_eq!(pick(&snapshot, b"a", &request).reason, Reason::RingPending);
        // 20 endpoints of 150 points, at most 100 at a time.
        assert!(finish(&mut snapshot, &mut registry, 100) >= 30);
        let built = pick(&snapshot, b"a", &request);
        assert_eq!((built.strategy, built.reason), (StrategyName::Ring, Reason::Model));
        let at_once = Snapshot::complete(vec![config("a", StrategyName::Ring, endpoints(20))], &mut registry);
        assert_eq!(pick(&at_once, b"a", &request), built, "slices make no difference");
    }

    /// One of 40 endpoints is new: only its points are placed, and the old ring serves in the meantime.
    #[test]
    fn a_changed_pool_costs_what_changed_and_the_old_ring_serves_meanwhile() {
        let mut registry = Registry::default();
        let before = Snapshot::complete(vec![config("a", StrategyName::Ring, endpoints(39))], &mut registry);
        let request = Request::for_model(b"llama");
        let changed = vec![config("a", StrategyName::Ring, endpoints(40))];
        let mut snapshot = Snapshot::begin(changed, before.pools(), &mut registry);
        assert_eq!(pick(&snapshot, b"a", &request), pick(&before, b"a", &request));
        let steps = finish(&mut snapshot, &mut registry, 10);
        assert!(steps < 60, "{steps} steps of 10 points; from nothing it were 600");
        assert_eq!(snapshot.pool(b"a").unwrap().pool().endpoints().unwrap().len(), 40);
        let fresh = Snapshot::complete(vec![config("a", StrategyName::Ring, endpoints(40))], &mut registry);
        for n in 0..200u32 {
            let model = n.to_le_bytes();
            let request = Request::for_model(&model);
            let id = |snapshot: &Snapshot| {
                let index = pick(snapshot, b"a", &request).endpoints[0];
                snapshot.pool(b"a").unwrap().pool().endpoint(index).unwrap().id.clone()
            };
            assert_eq!(id(&snapshot), id(&fresh));
        }
    }

    /// Endpoints of the first request of each of 200 models.
    fn firsts(snapshot: &Snapshot) -> Vec<String> {
        let id = |n: u32| {
            let model = n.to_le_bytes();
            let index = pick(snapshot, b"a", &Request::for_model(&model)).endpoints[0];
            snapshot.pool(b"a").unwrap().pool().endpoint(index).unwrap().id.to_string()
        };
        (0..200).map(id).collect()
    }

    /// While a ring is built nothing goes to endpoints that the new configuration drains, marks or lacks, and only their
    /// models move.
    #[test]
    fn who_may_not_serve_any_more_gets_nothing_while_the_ring_is_built() {
        let mut registry = Registry::default();
        let before = Snapshot::complete(vec![config("a", StrategyName::Ring, endpoints(20))], &mut registry);
        let mut set = endpoints(20);
        set[3].draining = true;
        set[4].marked_unhealthy = true;
        let gone = [set.remove(7).id, set[3].id.clone(), set[4].id.clone()];
        // Other virtual nodes, so that the whole ring is built anew.
        let settings = PoolSettings { strategy: StrategyName::Ring, virtual_nodes: 100, ..PoolSettings::default() };
        let changed = PoolConfig { cluster: "a".into(), settings: Rc::new(settings), endpoints: Some(set) };
        let mut snapshot = Snapshot::begin(vec![changed], before.pools(), &mut registry);
        let (old, meanwhile) = (firsts(&before), firsts(&snapshot));
        assert!(old.iter().any(|id| gone.iter().any(|gone| **gone == **id)), "they had models");
        assert!(!meanwhile.iter().any(|id| gone.iter().any(|gone| **gone == **id)));
        let moved = old.iter().zip(&meanwhile).filter(|(old, new)| old != new).count();
        let theirs = old.iter().filter(|id| gone.iter().any(|gone| **gone == ***id)).count();
        // And those of the last endpoint, which stands where one that is gone stood.
        let last = old.iter().filter(|id| **id == *endpoints(20)[19].id).count();
        assert!(moved <= theirs + last, "{moved} moved, {theirs} had to");
        finish(&mut snapshot, &mut registry, 100);
        assert!(!firsts(&snapshot).iter().any(|id| gone.iter().any(|gone| **gone == **id)));
    }

    /// From nobody to many, and from one to many: the new ones serve at once, all of them.
    #[test]
    fn a_pool_that_grows_serves_at_once() {
        for before in [0, 1, 9] {
            let mut registry = Registry::default();
            let old = Snapshot::complete(vec![config("a", StrategyName::Ring, endpoints(before))], &mut registry);
            let new = vec![config("a", StrategyName::Ring, endpoints(20))];
            let snapshot = Snapshot::begin(new, old.pools(), &mut registry);
            assert_eq!(pick(&snapshot, b"a", &Request::for_model(b"llama")).reason, Reason::RingPending);
            let mut used: Vec<_> = (0..400u64)
                .map(|seed| {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
                    let live = snapshot.pool(b"a").unwrap();
                    let Answer::Pick(pick) = live.answer(&Request::for_model(b"llama"), NOW, &mut rng) else {
                        panic!()
                    };
                    pick.endpoints[0]
                })
                .collect();
            used.sort();
            used.dedup();
            // 400 random picks of 20 miss one of them with chance 20 · 0.95^400.
            assert_eq!(used.len(), 20, "from {before}");
        }
    }

    /// A pool of the same cluster goes on with what the planner learnt.
    #[test]
    fn a_planner_survives_a_new_configuration() {
        let mut registry = Registry::default();
        let settings = PoolSettings {
            strategy: StrategyName::Homes,
            plan: PlanSource::SelfMade(SelfSettings::default()),
            ..PoolSettings::default()
        };
        let settings = Rc::new(settings);
        let config = |count| PoolConfig {
            cluster: "a".into(),
            settings: Rc::clone(&settings),
            endpoints: Some(endpoints(count)),
        };
        let before = Snapshot::complete(vec![config(3)], &mut registry);
        let request = Request::for_model(b"llama");
        let mut now = NOW;
        for _ in 0..200 {
            let live = before.pool(b"a").unwrap();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
            let Answer::Pick(pick) = live.answer(&request, now, &mut rng) else { panic!() };
            let sent = live.start(&request, &pick, now).unwrap();
            now += Duration::from_millis(50);
            let service_time = Duration::from_millis(40);
            let end =
                End { endpoint: pick.endpoints[0], outcome: Outcome::Success, service_time, model_unknown: false };
            live.ended(&sent, &end, now);
            live.tick(now);
        }
        assert_eq!(pick(&before, b"a", &request).strategy, StrategyName::Homes, "planned by now");
        let mut after = Snapshot::begin(vec![config(4)], before.pools(), &mut registry);
        finish(&mut after, &mut registry, usize::MAX);
        assert_eq!(pick(&after, b"a", &request).strategy, StrategyName::Homes);
    }
}
