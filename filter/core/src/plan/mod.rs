//! Placement: which endpoints are the homes of each model.
//!
//! Picking is fast and local, placing is slow and done by one brain: a hub for many proxies, or a lone gateway for
//! itself. The planner is a pure function of its inputs, its own last plan and a little hysteresis; a request never
//! runs it. Why not let each request look for the best endpoint: any rule that answers a queue with a load of the model
//! elsewhere makes the queue longer, since a load costs as much as ten requests, and the pool collapses at half its
//! load. Homes that stay keep models in memory.
//!
//! | file | what it decides |
//! |---|---|
//! | `demand` | requests per second of each model, steady under noise and quick at a real change |
//! | `capacity` | requests per second that one endpoint serves |
//! | `lanes` | how many endpoints are set aside for the models that do not fit in memory, and which models those are |
//! | `replicas` | how many homes a model gets |
//! | `bound` | how much load an endpoint may be given |
//! | `board` | the endpoints while a plan is made: load, memory, tenants |
//! | `place`, `search`, `displace` | homes of the models that fit |
//! | `tail` | homes of the rest |
//! | `planner` | the steps above in order, and what is remembered between two plans |
//! | `measure`, `residency` | service and load times; what endpoints are believed to hold |
//! | `own` | a lone gateway that plans for itself |
//!
//! Cold start: without any demand there is no plan, and models fall to the ring. Missing data: see [`Inputs`].

mod board;
mod bound;
mod capacity;
mod demand;
mod displace;
mod inputs;
mod lanes;
mod measure;
mod own;
mod place;
mod planner;
mod replicas;
mod residency;
#[cfg(test)]
mod scene;
mod search;
mod tail;

pub use capacity::capacity;
pub use demand::{DemandEstimator, DemandSettings};
pub use inputs::{EndpointInput, Inputs, ModelInput};
pub use measure::{Measured, Measurements};
pub use own::{Ended, InputDefaults, SelfPlanner, SelfSettings, TickReport};
pub use planner::{Misfit, PlanOutcome, Planner, PlannerSettings};
pub use residency::{Residency, Warmth};

use std::collections::BTreeMap;

/// Where one model lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Keys of the homes ([`crate::endpoint::Endpoint::key`]), in order, distinct.
    pub homes: Box<[u64]>,
    /// Not pinned: it shares a lane, or whatever is free, with other models.
    pub tail: bool,
}

/// The homes of all models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Rises with every change; 0 is the plan that nobody has made yet.
    pub version: u64,
    models: BTreeMap<u64, Placement>,
}

impl Plan {
    /// A plan of that version from placements by model hash; of several of one model the last counts.
    #[must_use]
    pub fn new(version: u64, placements: impl IntoIterator<Item = (u64, Placement)>) -> Self {
        Self { version, models: crate::small::map(placements) }
    }

    /// Where the model lives, by the hash of its id.
    #[must_use]
    pub fn get(&self, model: u64) -> Option<&Placement> {
        self.models.get(&model)
    }

    /// All models by rising hash.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Placement)> {
        self.models.iter().map(|(model, placement)| (*model, placement))
    }

    /// How many models have a placement.
    #[must_use]
    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Whether no model has a placement.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Brings the plan to the change's version. The change must have been made from this very plan; otherwise the
    /// whole plan has to be sent.
    pub fn apply(&mut self, change: &PlanChange) {
        self.version = change.version;
        self.models.extend(change.changed.iter().cloned());
        for model in &change.removed {
            self.models.remove(model);
        }
    }
}

/// What is different in a newer plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChange {
    /// The newer plan's version.
    pub version: u64,
    /// New and changed placements by rising model hash.
    pub changed: Vec<(u64, Placement)>,
    /// Models that have no placement any more, rising.
    pub removed: Vec<u64>,
}

impl PlanChange {
    /// What turns `old` into `new`.
    #[must_use]
    pub fn between(old: &Plan, new: &Plan) -> Self {
        let changed = new.iter().filter(|(model, placement)| old.get(*model) != Some(placement));
        let removed = old.iter().map(|(model, _)| model).filter(|model| new.get(*model).is_none());
        Self {
            version: new.version,
            changed: changed.map(|(model, placement)| (model, placement.clone())).collect(),
            removed: removed.collect(),
        }
    }

    /// Whether the placements are the same, whatever the version.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn at(homes: &[u64], tail: bool) -> Placement {
        Placement { homes: homes.into(), tail }
    }

    #[test]
    fn a_change_turns_the_old_plan_into_the_new_one() {
        let old =
            Plan::new(4, [(1, at(&[10, 20], false)), (2, at(&[20], false)), (3, at(&[30], true)), (5, at(&[1], true))]);
        let new = Plan::new(
            5,
            [(1, at(&[20, 10], false)), (2, at(&[20], false)), (3, at(&[30], false)), (4, at(&[40], true))],
        );
        let change = PlanChange::between(&old, &new);
        assert_eq!(
            change.changed.iter().map(|(model, _)| *model).collect::<Vec<_>>(),
            [1, 3, 4],
            "order and tail count"
        );
        assert_eq!(change.removed, [5]);
        assert_eq!(change.version, 5);
        let mut applied = old.clone();
        applied.apply(&change);
        assert_eq!(applied, new);
        assert!(PlanChange::between(&new, &applied).is_empty());
    }

    #[test]
    fn a_new_plan_is_empty_and_has_version_0() {
        let plan = Plan::default();
        assert!(plan.is_empty());
        assert_eq!((plan.version, plan.len(), plan.get(7)), (0, 0, None));
    }
}
