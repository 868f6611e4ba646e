//! How a pool routes, as its configuration says.

use crate::payload::PayloadClasses;
use crate::plan::{Plan, SelfSettings};
use crate::strategy::StrategyName;
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of one pool.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// The strategy of inference requests that name a model.
    pub strategy: StrategyName,
    /// Points of an endpoint on the ring.
    pub virtual_nodes: u32,
    /// Endpoints that follow the pick in the list.
    pub fallbacks: u8,
    /// Retries that Envoy may make along the list.
    pub max_retries: u8,
    /// Share of the endpoints in service, 0–1, below which scores decide nothing.
    pub panic_threshold: f64,
    /// Classes of large requests.
    pub payload: PayloadClasses,
    /// Where update requests go.
    pub updates: UpdateScope,
    /// Requests may belong to sessions, which have their places on the ring.
    pub sessions: bool,
    /// Models with settings of their own, by the hash of their ids.
    pub models: BTreeMap<u64, ModelSettings>,
    /// Who places the models.
    pub plan: PlanSource,
    /// Requests that an endpoint works on at a time.
    pub slots: u32,
    /// What a load costs, in service times of a warm request.
    pub load_cost: f64,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            strategy: StrategyName::Ring,
            virtual_nodes: 150,
            fallbacks: 2,
            max_retries: 2,
            panic_threshold: 0.5,
            payload: PayloadClasses::default(),
            updates: UpdateScope::Holders,
            sessions: false,
            models: BTreeMap::new(),
            plan: PlanSource::None,
            slots: 1,
            load_cost: 10.0,
        }
    }
}

/// What is particular about one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSettings {
    /// Its strategy, in the place of the pool's.
    pub strategy: Option<StrategyName>,
    /// Units of memory that it takes; the pool's usual model takes one.
    pub size_units: Option<u32>,
    /// How long it takes to load.
    pub load_time: Option<Duration>,
}

/// Where update requests go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateScope {
    /// To the endpoints that hold the model, when some are known to; spreading updates wider drags cold models
    /// everywhere.
    #[default]
    Holders,
    /// To the whole pool.
    Pool,
}

/// Who places the models of a pool.
#[derive(Clone, Debug, Default)]
pub enum PlanSource {
    /// Nobody.
    #[default]
    None,
    /// Whoever wrote the configuration.
    Fixed(Plan),
    /// This proxy, which is the only one in front of the pool, by what it sees itself.
    SelfMade(SelfSettings),
}

impl PoolSettings {
    /// The strategy of a model.
    #[must_use]
    pub fn strategy_of(&self, model_hash: u64) -> StrategyName {
        self.models.get(&model_hash).and_then(|model| model.strategy).unwrap_or(self.strategy)
    }

    /// Whether any request of the pool may walk the ring.
    #[must_use]
    pub fn needs_ring(&self) -> bool {
        let own = self.models.values().filter_map(|model| model.strategy);
        self.sessions || own.chain([self.strategy]).any(StrategyName::needs_ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_model_may_have_a_strategy_of_its_own() {
        let own = ModelSettings { strategy: Some(StrategyName::LeastRequest), ..ModelSettings::default() };
        let models = [(7, own), (8, ModelSettings::default())].into();
        let settings = PoolSettings { models, ..PoolSettings::default() };
        assert_eq!(
            [7, 8, 9].map(|model| settings.strategy_of(model)),
            [StrategyName::LeastRequest, StrategyName::Ring, StrategyName::Ring]
        );
    }

    #[test]
    fn a_ring_is_needed_when_any_model_walks_it() {
        let by = |strategy, model| {
            let own = ModelSettings { strategy: Some(model), ..ModelSettings::default() };
            PoolSettings { strategy, models: [(7, own)].into(), ..PoolSettings::default() }.needs_ring()
        };
        assert!(by(StrategyName::P2c, StrategyName::Hash));
        assert!(by(StrategyName::Homes, StrategyName::P2c));
        assert!(!by(StrategyName::P2c, StrategyName::RoundRobin));
        let sessions =
            PoolSettings { strategy: StrategyName::P2c, sessions: true, ..PoolSettings::default() }.needs_ring();
        assert!(sessions);
    }
}
