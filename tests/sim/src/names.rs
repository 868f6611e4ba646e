//! What the endpoints and models of a run are called. Names differ by seed, so that each seed has another ring.

use crate::cell::Cell;
use warmroute_core::endpoint::Endpoint;
use warmroute_core::hash::hash;

/// See the module.
#[derive(Clone, Debug)]
pub struct Names {
    /// The endpoints as everybody knows them from the start: healthy, residency unknown.
    pub endpoints: Vec<Endpoint>,
    /// Ids of the models.
    pub models: Vec<String>,
    /// Their hashes, at the same positions.
    pub hashes: Vec<u64>,
}

impl Names {
    /// For a run of `cell`.
    #[must_use]
    pub fn new(cell: &Cell, seed: u64) -> Self {
        let endpoint = |n: usize| {
            let octets = (n / 65_536, n / 256 % 256, n % 256);
            let address = format!("10.{}.{}.{}:8000", octets.0, octets.1, octets.2);
            let address = address.parse().unwrap_or_else(|error| panic!("{address}: {error}"));
            let memory_units = u32::try_from(cell.memory).unwrap_or(u32::MAX);
            Endpoint { memory_units, ..Endpoint::new(format!("endpoint-{seed}-{n}"), address) }
        };
        let models: Vec<String> = (0..cell.models).map(|n| format!("model-{seed}-{n}")).collect();
        let hashes = models.iter().map(|model| hash(model.as_bytes())).collect();
        Self { endpoints: (0..cell.endpoints).map(endpoint).collect(), models, hashes }
    }
}
