//! All pools at one moment, by the name of Envoy's cluster.

use crate::endpoint::EndpointIndex;
use crate::load::{InFlight, PoolLoad, Registry};
use crate::picker::{self, Answer};
use crate::pool::Pool;
use crate::request::Request;
use rand::Rng;
use std::collections::BTreeMap;
use std::rc::Rc;

/// An immutable view: a new configuration makes a new snapshot, and requests under way keep the old one.
#[derive(Debug, Default)]
pub struct Snapshot {
    pools: BTreeMap<Box<[u8]>, Rc<LivePool>>,
}

/// A pool and the requests in flight at its endpoints.
#[derive(Debug)]
pub struct LivePool {
    pool: Pool,
    load: PoolLoad,
}

impl Snapshot {
    /// From pools and their clusters' names, with the requests in flight that `registry` knows of. Names are distinct:
    /// the configuration's validation saw to it.
    pub fn new(pools: impl IntoIterator<Item = (Box<str>, Pool)>, registry: &mut Registry) -> Self {
        let pools = pools
            .into_iter()
            .map(|(cluster, pool)| {
                let load = registry.bind(pool.endpoints().unwrap_or_default());
                (cluster.into_boxed_bytes(), Rc::new(LivePool { pool, load }))
            })
            .collect();
        registry.prune();
        Self { pools }
    }

    /// The pool of Envoy's cluster of that name, if it is one of ours.
    #[must_use]
    pub fn pool(&self, cluster: &[u8]) -> Option<&Rc<LivePool>> {
        self.pools.get(cluster)
    }
}

impl LivePool {
    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Answers a request; see [`picker::answer`].
    pub fn answer(&self, request: &Request<'_>, rng: &mut dyn Rng) -> Answer {
        picker::answer(&self.pool, &self.load, request, rng)
    }

    /// Counts a request at `endpoint` until the guard is dropped.
    #[must_use]
    pub fn start(&self, endpoint: EndpointIndex) -> Option<InFlight> {
        self.load.start(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoints;
    use crate::pool::PoolSettings;
    use crate::strategy::StrategyName;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn snapshot(clusters: &[&str], registry: &mut Registry) -> Snapshot {
        let settings = PoolSettings { strategy: StrategyName::P2c, virtual_nodes: 150, fallbacks: 0, max_retries: 0 };
        let pools = clusters.iter().map(|&cluster| {
            let mut pool = Pool::new(settings);
            pool.update(endpoints(2));
            (cluster.into(), pool)
        });
        Snapshot::new(pools, registry)
    }

    #[test]
    fn pools_are_found_by_their_clusters_exact_name() {
        let snapshot = snapshot(&["a", "outbound|8000|v2|svc.ns.svc.cluster.local"], &mut Registry::default());
        assert!(snapshot.pool(b"a").is_some());
        assert!(snapshot.pool(b"outbound|8000|v2|svc.ns.svc.cluster.local").is_some());
        for other in [&b""[..], b"A", b"a ", b"\xff"] {
            assert!(snapshot.pool(other).is_none(), "{other:?}");
        }
    }

    /// Two clusters (or two snapshots) with the same endpoints see each other's requests.
    #[test]
    fn requests_in_flight_outlive_their_snapshot() {
        let mut registry = Registry::default();
        let old = snapshot(&["a"], &mut registry);
        let busy: Vec<_> = (0..3).map(|_| old.pool(b"a").unwrap().start(EndpointIndex(0))).collect();
        drop(old);
        let new = snapshot(&["b"], &mut registry);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        for _ in 0..20 {
            let Answer::Pick(pick) = new.pool(b"b").unwrap().answer(&Request::update(b"m"), &mut rng) else { panic!() };
            assert_eq!(pick.endpoints.as_slice(), [EndpointIndex(1)]);
        }
        assert_eq!(busy.len(), 3);
    }
}
