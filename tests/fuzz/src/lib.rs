//! What each fuzz target checks.
//!
//! A target is a function of bytes that panics when something that must hold does not. `tests/replay.rs` runs all of
//! them over the corpus and seeded mutations of it in every `cargo test`; `tools/fuzz.sh` runs them under libFuzzer,
//! guided by coverage. An input that failed once belongs into `corpus/<target>/`, so that it never fails again.
//!
//! | target | bytes | against |
//! |---|---|---|
//! | `json_body` | head, then a JSON body | chunking, `serde_json`, memory |
//! | `grpc_body` | head, then a gRPC stream | chunking, a reader that has the whole message, memory |
//! | `headers` | a header list as the proxy lays it out | itself with headers that say nothing |
//! | `session` | cookies, a line each | a reader that works on text |
//! | `config` | a plugin configuration | ranges, paths of problems, answers of what was built |
//! | `ring_changes` | sequences of members | rings from nothing |
//! | `plan` | planner inputs | promises of a plan, the order of inputs |

mod bodies;
pub mod config;
pub mod grpc_body;
pub mod headers;
pub mod json_body;
pub mod memory;
pub mod plan;
pub mod ring_changes;
pub mod session;

/// A target's check. It panics when the input shows a mistake.
pub type Check = fn(&[u8]);

/// All targets by name; the name is also that of the corpus folder.
pub const TARGETS: [(&str, Check); 7] = [
    ("config", config::check),
    ("grpc_body", grpc_body::check),
    ("headers", headers::check),
    ("json_body", json_body::check),
    ("plan", plan::check),
    ("ring_changes", ring_changes::check),
    ("session", session::check),
];

/// The check of that name.
#[must_use]
pub fn target(name: &str) -> Option<Check> {
    TARGETS.iter().find(|(target, _)| *target == name).map(|(_, check)| *check)
}
