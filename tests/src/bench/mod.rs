//! The cost bench: how much CPU time one request takes in one Envoy process, with and without Warmroute.
//!
//! Four Envoys run at once, each with one worker thread, and differ only in how they choose an endpoint
//! ([`Variant`]). wrk saturates one after the other, round after round, so that whatever else the machine does
//! meets all of them. A request's cost is the CPU time (user and system) that the whole process took during a run,
//! divided by the requests that Envoy itself counted in it.
//!
//! The upstream is a fifth Envoy that answers every request at once with the same few bytes. A model server's
//! work would only add noise: nothing of it is in the measured processes.
//! Access logs are off, since a user chooses their cost, and it would make the filter's share look smaller.

mod cpu;
mod report;
mod run;
mod variants;
mod wrk;

pub use report::{Report, Summary};
pub use run::{Plan, run};
pub use variants::Variant;
