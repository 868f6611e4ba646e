//! The cost bench: how much CPU time one request takes in one Envoy process, with and without Warmroute.
//!
//! Four Envoys, or five with another build of the filter, each with one worker thread, differ only in how they choose an endpoint ([`Variant`]). wrk saturates
//! one after the other, round after round, so that whatever else the machine does meets all of them. Every run has a
//! fresh Envoy: of two processes with the same configuration one can be several µs dearer for all its life, because
//! of where its memory happens to lie. A request's cost is the CPU time (user and system) that the whole process took
//! during a run, divided by the requests that Envoy itself counted in it.
//!
//! The upstream is one more Envoy that answers every request at once with the same few bytes. A model server's
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
