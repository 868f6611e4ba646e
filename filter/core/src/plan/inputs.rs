//! What a plan is made of.

use crate::endpoint::EndpointIndex;
use crate::ring::Ring;

/// One endpoint as the planner sees it.
#[derive(Clone, Copy, Debug)]
pub struct EndpointInput<'a> {
    /// [`crate::endpoint::Endpoint::key`]. Of several endpoints with one key only one is planned for.
    pub key: u64,
    /// It may serve. One that is not up has no homes.
    pub up: bool,
    /// Its warm service time relative to the pool's: 2 is twice as slow. Nonsense counts as 1.
    pub speed: f64,
    /// Memory for models, in units of a model of size 1.
    pub memory_units: u32,
    /// Hashes of the models in its memory, rising; empty when that is not known.
    pub resident: &'a [u64],
}

/// One model as the planner sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelInput {
    /// Hash of its id. Of several inputs for one model the one with the highest rate counts.
    pub model: u64,
    /// Requests per second. What is negative or no finite number counts as 0: a model that is known but not asked for.
    pub rate: f64,
    /// Memory that it takes; 0 counts as 1.
    pub size_units: u32,
    /// How long a load takes. What is negative or no finite number counts as 0.
    pub load_seconds: f64,
}

/// Everything that a plan depends on, besides the plan before it. The order of endpoints and models is irrelevant.
///
/// Missing data: no endpoint that is up, or no models, means that nothing is known, and the plan stays as it is. A
/// capacity that is not positive is not known either: models are then placed by memory alone, one home each.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The endpoints at the same positions as in `ring`.
    pub endpoints: &'a [EndpointInput<'a>],
    /// The models to place; others lose their placement.
    pub models: &'a [ModelInput],
    /// Ring of the same endpoints.
    pub ring: &'a Ring,
    /// Requests per second of one warm endpoint, see [`super::capacity()`].
    pub capacity: f64,
    /// Whether an endpoint can serve a model at all.
    pub servable: &'a dyn Fn(EndpointIndex, u64) -> bool,
}

impl std::fmt::Debug for Inputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inputs")
            .field("endpoints", &self.endpoints.len())
            .field("models", &self.models.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
