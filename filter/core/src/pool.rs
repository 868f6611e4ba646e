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
