//! A plan as one pool sees it: keys of endpoints become positions, and each home remembers when it was last sent to.
//!
//! A plan outlives the set of endpoints that it was made for: homes that are not in the pool are left out until they
//! are back, and a model without any home falls to the ring.

use crate::endpoint::EndpointIndex;
use crate::plan::{Placement, Plan, PlanChange};
use crate::roster::Roster;
use crate::small;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

/// One home of a model.
#[derive(Clone, Debug)]
pub struct Home {
    /// Where it is.
    pub endpoint: EndpointIndex,
    /// The endpoint's key, by which it is found in the next set of endpoints.
    pub key: u64,
    /// When a request of the model was last sent there; requests under way share the plan.
    pub sent: Cell<Option<Duration>>,
}

/// The homes of one model.
#[derive(Clone, Debug)]
pub struct PlannedModel {
    /// In the plan's order.
    pub homes: Box<[Home]>,
    /// It shares its homes' memory with others, and loads are expected.
    pub tail: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct PoolPlan {
    version: u64,
    models: BTreeMap<u64, PlannedModel>,
}

impl PoolPlan {
    /// Of a whole plan; what `before` knows about homes that stay is kept.
    #[must_use]
    pub fn resolve(plan: &Plan, roster: &Roster, before: &Self) -> Self {
        let models = plan.iter().map(|(model, placement)| (model, planned(placement, roster, before.get(model))));
        Self { version: plan.version, models: small::map(models) }
    }

    /// Takes only what changed.
    pub fn apply(&mut self, change: &PlanChange, roster: &Roster) {
        self.version = change.version;
        for (model, placement) in &change.changed {
            let planned = planned(placement, roster, self.get(*model));
            self.models.insert(*model, planned);
        }
        for model in &change.removed {
            self.models.remove(model);
        }
    }

    /// A request of the model was sent to the endpoint.
    pub fn sent(&self, model_hash: u64, endpoint: EndpointIndex, now: Duration) {
        if let Some(home) = self.home(model_hash, endpoint) {
            home.sent.set(Some(now));
        }
    }

    /// What was sent there was sent in vain: the model need not be there.
    pub fn failed(&self, model_hash: u64, endpoint: EndpointIndex) {
        if let Some(home) = self.home(model_hash, endpoint) {
            home.sent.set(None);
        }
    }

    fn home(&self, model_hash: u64, endpoint: EndpointIndex) -> Option<&Home> {
        self.get(model_hash)?.homes.iter().find(|home| home.endpoint == endpoint)
    }

    /// Whether a request of the model was sent to the endpoint, its home, not longer ago than `age`.
    #[must_use]
    pub fn sent_within(&self, model_hash: u64, endpoint: EndpointIndex, now: Duration, age: Duration) -> bool {
        let sent = self.home(model_hash, endpoint).and_then(|home| home.sent.get());
        sent.is_some_and(|at| now.saturating_sub(at) < age)
    }

    /// The plan's version; 0 when there is no plan.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The model's homes, when at least one is in the pool.
    #[must_use]
    pub fn get(&self, model_hash: u64) -> Option<&PlannedModel> {
        self.models.get(&model_hash).filter(|model| !model.homes.is_empty())
    }
}

fn planned(placement: &Placement, roster: &Roster, before: Option<&PlannedModel>) -> PlannedModel {
    let sent = |key| before?.homes.iter().find(|home| home.key == key)?.sent.get();
    let homes = placement.homes.iter().filter_map(|key| Some((*key, roster.position(*key)?)));
    PlannedModel {
        homes: homes.map(|(key, endpoint)| Home { endpoint, key, sent: Cell::new(sent(key)) }).collect(),
        tail: placement.tail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eligibility::Health;
    use crate::endpoint::Endpoint;
    use crate::endpoint::tests::endpoints;
    use crate::payload::PayloadClasses;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const NOW: Duration = Duration::from_secs(9);

    fn roster(pool: &[Endpoint]) -> Roster {
        Roster::new(pool, &PayloadClasses::default(), Health::Scored)
    }

    fn placement(pool: &[Endpoint], homes: &[usize]) -> Placement {
        Placement { homes: homes.iter().map(|&n| pool[n].key()).collect(), tail: false }
    }

    fn positions(plan: &PoolPlan, model: u64) -> Vec<u32> {
        plan.get(model).map_or(Vec::new(), |model| model.homes.iter().map(|home| home.endpoint.0).collect())
    }

    #[test]
    fn keys_become_positions_and_those_that_are_not_there_are_left_out() {
        let pool = endpoints(4);
        let plan =
            Plan::new(3, [(1, placement(&pool, &[2, 0])), (2, placement(&pool, &[3])), (3, placement(&pool, &[]))]);
        let resolved = PoolPlan::resolve(&plan, &roster(&pool[..3]), &PoolPlan::default());
        assert_eq!(resolved.version(), 3);
        assert_eq!(positions(&resolved, 1), [2, 0]);
        assert!(resolved.get(2).is_none(), "its only home is gone");
        assert!(resolved.get(3).is_none() && resolved.get(4).is_none());
    }

    #[test]
    fn a_change_replaces_only_what_it_names() {
        let pool = endpoints(4);
        let plan =
            Plan::new(1, [(1, placement(&pool, &[0])), (2, placement(&pool, &[1])), (3, placement(&pool, &[2]))]);
        let mut resolved = PoolPlan::resolve(&plan, &roster(&pool), &PoolPlan::default());
        resolved.sent(1, EndpointIndex(0), NOW);
        let change = PlanChange { version: 2, changed: vec![(1, placement(&pool, &[3, 0]))], removed: vec![2] };
        resolved.apply(&change, &roster(&pool));
        assert_eq!((resolved.version(), positions(&resolved, 1)), (2, vec![3, 0]));
        assert!(resolved.get(2).is_none());
        assert_eq!(positions(&resolved, 3), [2]);
        let sent: Vec<_> = resolved.get(1).unwrap().homes.iter().map(|home| home.sent.get()).collect();
        assert_eq!(sent, [None, Some(NOW)], "what is known of a home that stays is kept");
    }

    /// Positions shift when an endpoint goes: what was sent is of the endpoint, not of its position.
    #[test]
    fn what_was_sent_follows_its_endpoint() {
        let pool = endpoints(3);
        let plan = Plan::new(1, [(1, placement(&pool, &[1, 2]))]);
        let before = PoolPlan::resolve(&plan, &roster(&pool), &PoolPlan::default());
        before.sent(1, EndpointIndex(1), NOW);
        let after = PoolPlan::resolve(&plan, &roster(&pool[1..]), &before);
        assert_eq!(positions(&after, 1), [0, 1]);
        let age = Duration::from_secs(1);
        assert!(after.sent_within(1, EndpointIndex(0), NOW, age) && !after.sent_within(1, EndpointIndex(1), NOW, age));
    }

    #[test]
    fn what_failed_was_not_sent() {
        let pool = endpoints(2);
        let plan = Plan::new(1, [(1, placement(&pool, &[0, 1]))]);
        let plan = PoolPlan::resolve(&plan, &roster(&pool), &PoolPlan::default());
        (0..2).for_each(|n| plan.sent(1, EndpointIndex(n), NOW));
        plan.failed(1, EndpointIndex(0));
        plan.failed(7, EndpointIndex(1));
        let sent = [0, 1].map(|n| plan.sent_within(1, EndpointIndex(n), NOW, Duration::from_secs(1)));
        assert_eq!(sent, [false, true]);
    }

    #[test]
    fn what_was_sent_survives_a_whole_new_plan() {
        let pool = endpoints(2);
        let plan = Plan::new(1, [(1, placement(&pool, &[0, 1]))]);
        let before = PoolPlan::resolve(&plan, &roster(&pool), &PoolPlan::default());
        before.sent(1, EndpointIndex(1), NOW);
        before.sent(9, EndpointIndex(1), NOW);
        let after = PoolPlan::resolve(&plan, &roster(&pool), &before);
        assert_eq!(after.get(1).unwrap().homes[1].sent.get(), Some(NOW));
        assert_eq!(after.get(1).unwrap().homes[0].sent.get(), None);
    }
}
