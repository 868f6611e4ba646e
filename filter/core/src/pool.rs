//! One pool: the endpoints of one Envoy cluster, and the strategies over them.

use crate::eligibility::count_eligible;
use crate::endpoint::Endpoint;
use crate::strategy::{PowerOfTwoChoices, Report, RingOrder, Strategy, StrategyName};

/// How a pool routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// The strategy of inference requests that name a model.
    pub strategy: StrategyName,
    /// Points of an endpoint on the ring.
    pub virtual_nodes: u32,
    /// Endpoints that follow the pick in the list.
    pub fallbacks: u8,
    /// Retries that Envoy may make along the list.
    pub max_retries: u8,
}

/// See the module.
#[derive(Debug)]
pub struct Pool {
    settings: PoolSettings,
    endpoints: Option<Box<[Endpoint]>>,
    eligible: usize,
    ring: RingOrder,
    p2c: PowerOfTwoChoices,
}

impl Pool {
    /// A pool whose endpoints nobody has told yet.
    #[must_use]
    pub fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            endpoints: None,
            eligible: 0,
            ring: RingOrder::new(settings.virtual_nodes),
            p2c: PowerOfTwoChoices::default(),
        }
    }

    /// Takes a new set of endpoints and computes what depends on it.
    pub fn update(&mut self, endpoints: Vec<Endpoint>) {
        self.p2c.update(&endpoints);
        if self.settings.strategy == StrategyName::Ring {
            self.ring.update(&endpoints);
        }
        self.eligible = count_eligible(&endpoints);
        self.endpoints = Some(endpoints.into_boxed_slice());
    }

    /// The endpoints; `None` until they are known.
    #[must_use]
    pub fn endpoints(&self) -> Option<&[Endpoint]> {
        self.endpoints.as_deref()
    }

    /// How many endpoints may serve.
    #[must_use]
    pub fn eligible(&self) -> usize {
        self.eligible
    }

    /// How the pool routes.
    #[must_use]
    pub fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// The strategy of that name over this pool.
    #[must_use]
    pub fn strategy(&self, name: StrategyName) -> &dyn Strategy {
        match name {
            StrategyName::Ring => &self.ring,
            StrategyName::P2c => &self.p2c,
        }
    }

    /// Tells the strategies how a request ended.
    pub fn report(&self, report: &Report) {
        self.ring.report(report);
        self.p2c.report(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoints;
    use crate::endpoint::{EndpointIndex, Score};
    use crate::load::Registry;
    use crate::outcome::Outcome;
    use crate::request::Request;
    use crate::strategy::View;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn pool(strategy: StrategyName) -> Pool {
        Pool::new(PoolSettings { strategy, virtual_nodes: 150, fallbacks: 2, max_retries: 2 })
    }

    /// The first endpoint of `count` models, by the pool's own strategy.
    fn firsts(pool: &Pool, count: u32) -> Vec<EndpointIndex> {
        let endpoints = pool.endpoints().unwrap();
        let load = Registry::default().bind(endpoints);
        let view = View { endpoints, load: &load, eligible: pool.eligible(), wanted: 1 };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        (0..count)
            .map(|n| {
                let model = format!("model-{n}");
                let request = Request::for_model(model.as_bytes());
                pool.strategy(pool.settings().strategy).pick(&request, &view, &mut rng).unwrap()[0]
            })
            .collect()
    }

    #[test]
    fn an_update_replaces_the_set_and_what_was_computed_from_it() {
        for strategy in StrategyName::ALL {
            let mut pool = pool(strategy);
            assert_eq!((pool.endpoints(), pool.eligible()), (None, 0));
            pool.update(endpoints(5));
            assert_eq!(pool.eligible(), 5);
            assert!(firsts(&pool, 100).contains(&EndpointIndex(4)), "{strategy:?}");
            pool.update(endpoints(2));
            assert!(firsts(&pool, 100).iter().all(|first| first.0 < 2), "{strategy:?}: the old set is gone");
            pool.update(Vec::new());
            assert_eq!(pool.endpoints(), Some(&[][..]), "known, and empty");
        }
    }

    #[test]
    fn only_those_that_may_serve_are_counted() {
        let mut set = endpoints(4);
        set[0].marked_unhealthy = true;
        set[1].score = Score::new(0.1).unwrap();
        let mut pool = pool(StrategyName::Ring);
        pool.update(set);
        assert_eq!((pool.endpoints().unwrap().len(), pool.eligible()), (4, 2));
    }

    /// A pool that routes by p2c alone builds no ring: with 10,000 endpoints that is 24 MB.
    #[test]
    fn a_ring_is_built_only_where_it_is_used() {
        let mut pool = pool(StrategyName::P2c);
        pool.update(endpoints(3));
        let load = Registry::default().bind(pool.endpoints().unwrap());
        let view = View { endpoints: pool.endpoints().unwrap(), load: &load, eligible: 3, wanted: 1 };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        let request = Request::for_model(b"llama");
        assert!(pool.strategy(StrategyName::Ring).pick(&request, &view, &mut rng).is_err(), "nobody is on it");
        assert!(pool.strategy(StrategyName::P2c).pick(&request, &view, &mut rng).is_ok());
    }

    /// Neither strategy learns from reports: the same requests go the same way afterwards.
    #[test]
    fn reports_change_no_pick() {
        for strategy in StrategyName::ALL {
            let mut pool = pool(strategy);
            pool.update(endpoints(5));
            let before = firsts(&pool, 50);
            for outcome in Outcome::ALL {
                pool.report(&Report { endpoint: before[0], outcome, service_time: None });
            }
            assert_eq!(firsts(&pool, 50), before, "{strategy:?}");
        }
    }

    #[test]
    fn strategies_are_found_by_their_names() {
        let pool = pool(StrategyName::Ring);
        for name in StrategyName::ALL {
            assert_eq!(pool.strategy(name).name(), name);
            assert_eq!(StrategyName::ALL[name.position()], name);
        }
    }
}
