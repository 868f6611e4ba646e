//! Every routing decision of Warmroute, pure.
//!
//! A request comes in as bytes that the proxy handed over, and goes out as an ordered list of endpoints, a named
//! refusal, or a reason to leave the choice to Envoy. Nothing here reads a clock, draws a random number by itself,
//! logs, counts, or knows of proxy-wasm: `now` and the generator are arguments, and every outcome is a value.
//!
//! | folder or file | what it decides |
//! |---|---|
//! | [`config`] | plugin configuration: wire form → defaults → validation → runtime objects |
//! | [`request`] | what a request asks for: model, type, protocol |
//! | [`snapshot`], [`pool`], [`endpoint`], [`address`] | the endpoints of each cluster |
//! | [`ring`], [`hash`] | consistent hashing |
//! | [`eligibility`] | which endpoints may serve now |
//! | [`strategy`] | the order of endpoints for a request, one file a strategy |
//! | [`picker`] | the answer: a pick, a refusal, or Envoy's own policy |
//! | [`arming`] | the headers that carry a pick to Envoy |
//! | [`load`] | requests in flight per endpoint |
//! | [`outcome`], [`accounting`] | how a request ended, and who served it |
//! | [`refusal`] | refusals as HTTP and gRPC answers |
//! | [`pairs`] | header lists as proxy-wasm lays them out in memory |
//! | [`stats`] | the names under which outcomes are counted |
//! | [`throttle`] | how often a warning may be logged |

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unreachable,
    unsafe_code,
    missing_docs
)]

pub mod accounting;
pub mod address;
pub mod arming;
pub mod config;
pub mod eligibility;
pub mod endpoint;
pub mod hash;
pub mod load;
pub mod outcome;
pub mod pairs;
pub mod picker;
pub mod plan;
pub mod pool;
pub mod refusal;
pub mod request;
pub mod ring;
pub mod snapshot;
pub mod stats;
pub mod strategy;
pub mod throttle;
