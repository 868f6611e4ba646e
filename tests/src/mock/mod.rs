//! A stand-in for a GPU model server: everything a router sees of one, without the GPU.
//!
//! What it models:
//!
//! - a memory that holds a few models; a request for another one loads it first, which is slow, happens one load at
//!   a time, and evicts the least recently used model (`memory`, `gpu`);
//! - a limited number of places where requests run, with a queue before them (`gpu`);
//! - the protocols of real servers: OpenAI with streams (`openai`), KServe v2 and Triton's repository over HTTP
//!   (`kserve`, `repository`) and gRPC (`grpc`), metrics under vLLM's and Triton's names (`metrics`), all on one
//!   port, HTTP/1.1 and HTTP/2, with or without TLS (`connection`);
//! - a client that leaves stops its work at once (`ticket`);
//! - faults, switched while it runs (`faults`), up to a crash and a return (`server`).
//!
//! A request meets them in this order: `front` (counting, faults) → its protocol → `app` (which model) → `gpu`
//! (place, model) → the service time → the answer. `control` watches and breaks it through `/mock/`.

mod answer;
mod app;
mod builder;
mod connection;
mod control;
mod failure;
mod fault_plan;
mod faults;
mod front;
mod gpu;
mod grpc;
mod kind;
mod kserve;
mod link;
mod memory;
mod metrics;
mod openai;
mod openai_stream;
mod record;
mod repository;
mod server;
mod settings;
mod socket;
mod stats;
mod ticket;
mod timing;
mod tls;

pub use builder::MockServerBuilder;
pub use faults::{ErrorPattern, FaultError, Faults, ResetAt};
pub use record::RecordedRequest;
pub use server::MockServer;
pub use settings::{SettingError, Settings};
pub use stats::StatsSnapshot;
pub use tls::Identity;

/// The Open Inference Protocol's messages, client and service.
#[allow(missing_debug_implementations, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod proto {
    tonic::include_proto!("inference");
}
