//! The demo: what the same Envoy does with the same traffic by round robin, by Warmroute's ring, and by Warmroute's plan.
//!
//! Eight mock model servers hold three of sixteen models each ([`Fleet`]); loading another one costs ten requests'
//! time, as on a GPU. Requests arrive by a clock of their own ([`Traffic`]): a queue does not slow the clients down, as
//! it would in a closed loop, and their latency counts from when they were due ([`drive`]). All policies get the same
//! requests at the same times, from the same models in memory ([`run`]).
//!
//! [`up`] leaves the same processes running, for a person to try; [`down`] ends them.

mod drive;
mod fleet;
mod identity;
mod picks;
mod report;
mod run;
mod stack;
mod traffic;

pub use drive::{Sample, drive};
pub use fleet::Fleet;
pub use report::{PolicyReport, Report};
pub use run::run;
pub use stack::{Ports, Stack, Up, down, up};
pub use traffic::{Arrival, Plan, Traffic};

/// The number of model servers.
pub const ENDPOINTS: usize = 8;
/// The models that clients ask for.
pub const MODELS: usize = 16;
/// The models that one server's memory holds.
pub const CAPACITY: usize = 3;

/// A model's name by its rank in the mix; 0 is asked for most.
///
/// Where the ring puts a model hangs on its name, and with it how well the ring does: of 200 ways to name the sixteen,
/// the middle one had 12 times fewer cold loads than round robin with all models asked for alike, the best none and the
/// worst a quarter of that. These names are such a middling case.
pub fn model_name(rank: usize) -> String {
    format!("classifier-{:02}", rank + 1)
}

/// An endpoint's name. It stays when the port changes, so the ring, which goes by names, stays as well.
pub fn endpoint_name(index: usize) -> String {
    format!("gpu-{index}")
}

/// The models that server `index` holds at the start: neighbours, so that the servers' memories together hold every
/// model at least once, and neither policy finds what it would have chosen itself.
pub fn resident(index: usize) -> Vec<String> {
    (0..CAPACITY).map(|slot| model_name((index * CAPACITY + slot) % MODELS)).collect()
}
