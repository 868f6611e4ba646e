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
//! | [`snapshot`], [`live`], [`pool`], [`settings`] | the pools of all clusters, at work |
//! | [`endpoint`], [`address`], [`roster`] | the endpoints of each, and who comes into question for what |
//! | [`ring`], [`hash`] | consistent hashing |
//! | [`plan`], [`homes`] | placement: which endpoints are the homes of each model; the plan as a pool sees it |
//! | [`eligibility`], [`unknown`], [`payload`] | which endpoints may serve now, and what |
//! | [`strategy`] | the order of endpoints for a request, one file a strategy |
//! | [`picker`] | the answer: a pick, a refusal, or Envoy's own policy |
//! | [`explain`] | why, as a line of text |
//! | [`arming`] | the headers that carry a pick to Envoy |
//! | [`load`] | requests in flight per endpoint |
//! | [`outcome`], [`accounting`] | how a request ended, and who served it |
//! | [`refusal`] | refusals as HTTP and gRPC answers |
//! | [`pairs`] | header lists as proxy-wasm lays them out in memory |
//! | [`stats`] | the names under which outcomes are counted |
//! | [`throttle`], [`lease`] | how often a warning may be logged; what only one VM of an Envoy does |

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
pub mod explain;
pub mod hash;
pub mod homes;
pub mod lease;
pub mod live;
pub mod load;
pub mod outcome;
pub mod pairs;
pub mod payload;
pub mod picker;
pub mod plan;
pub mod pool;
pub mod refusal;
pub mod request;
pub mod ring;
pub mod roster;
pub mod settings;
mod small;
pub mod snapshot;
pub mod stats;
pub mod strategy;
pub mod throttle;
pub mod unknown;
