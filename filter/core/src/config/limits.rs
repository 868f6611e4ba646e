//! Defaults and ranges, each with its reason. The wire types document them from here, and validation checks them.

use super::wire::{Strategy, Updates};
use std::ops::RangeInclusive;

/// Without a plan by somebody who knows the GPUs, the ring is what keeps a model where it is.
pub const STRATEGY: Strategy = Strategy::Ring;
/// What a plan is for.
pub const STRATEGY_WITH_PLAN: Strategy = Strategy::Homes;
/// Nobody has marked an endpoint until somebody does.
pub const UNHEALTHY: bool = false;
/// Nobody drains until somebody says so.
pub const DRAINING: bool = false;
/// Spreading updates wider than the holders drags cold models everywhere.
pub const UPDATES: Updates = Updates::Holders;
/// As Envoy has it.
pub const PANIC: f64 = 0.5;
/// A share.
pub const PANIC_RANGE: RangeInclusive<f64> = 0.0..=1.0;
/// All endpoints alike.
pub const WEIGHT: f64 = 1.0;
/// Ten times the points of the others is as much as one endpoint can differ.
pub const WEIGHT_RANGE: RangeInclusive<f64> = 0.0..=10.0;

/// One model at a time, as most LLM servers are run.
pub const MEMORY_UNITS: u32 = 1;
/// Units are as fine as you like: gigabytes, if models differ much.
pub const MEMORY_UNITS_RANGE: RangeInclusive<u32> = 1..=100_000;
/// A model of the usual size.
pub const SIZE_UNITS: u32 = 1;
/// As many as the largest memory has.
pub const SIZE_UNITS_RANGE: RangeInclusive<u32> = 1..=100_000;
/// One request at a time, as a server without batching has it.
pub const SLOTS: u32 = 1;
/// More at a time than any server batches.
pub const SLOTS_RANGE: RangeInclusive<u32> = 1..=4_096;
/// What loading a model from disk costs against a typical request.
pub const LOAD_COST: f64 = 10.0;
/// Loads that cost nothing need no routing; minutes of loading against milliseconds of service are the other end.
pub const LOAD_COST_RANGE: RangeInclusive<f64> = 0.0..=100_000.0;
/// From nothing to an hour.
pub const LOAD_MS_RANGE: RangeInclusive<u64> = 0..=3_600_000;
/// A plan that was written once.
pub const PLAN_VERSION: u64 = 1;
/// 0 is the plan that nobody has made, which explanations leave out.
pub const PLAN_VERSION_RANGE: RangeInclusive<u64> = 1..=u64::MAX;
/// Homes of one model in a plan written by hand.
pub const MAX_HOMES: usize = 1_000;

/// Classes of one pool.
pub const MAX_PAYLOAD_CLASSES: usize = 8;
/// Like any other request.
pub const PAYLOAD_WEIGHT: u32 = 1;
/// A thousand requests' work in one.
pub const PAYLOAD_WEIGHT_RANGE: RangeInclusive<u32> = 1..=1_000;
/// Labels of one endpoint or one class.
pub const MAX_LABELS: usize = 32;

/// Other names of models.
pub const MAX_ALIASES: usize = 1_000;
/// Strangers, until somebody says otherwise.
pub const TRUSTED: bool = false;
/// The name that most clients use.
pub const SESSION_HEADER: &str = "x-session-id";
/// Many clients behind one address would share one endpoint.
pub const SESSION_ADDRESS: bool = false;
/// An hour.
pub const COOKIE_TTL: u32 = 3_600;
/// Up to a year.
pub const COOKIE_TTL_RANGE: RangeInclusive<u32> = 0..=31_536_000;
/// The most that is looked at: a model named after 64 KiB of prompt is not found.
pub const BODY_BYTES: u32 = 65_536;
/// A kilobyte holds what usually stands before the prompt.
pub const BODY_BYTES_RANGE: RangeInclusive<u32> = 64..=65_536;
/// None.
pub const EXPLAIN_RATIO: f64 = 0.0;
/// A share.
pub const EXPLAIN_RATIO_RANGE: RangeInclusive<f64> = 0.0..=1.0;

/// Enough points that 50 endpoints' shares stay within 35 % of the mean; more costs memory for little.
pub const VIRTUAL_NODES: u32 = 150;
/// Past 1,000 the shares hardly change, while a ring of 10,000 endpoints would need 160 MB.
pub const VIRTUAL_NODES_RANGE: RangeInclusive<u32> = 1..=1_000;

/// Two fallbacks serve two retries.
pub const FALLBACKS: u32 = 2;
/// A list has at most eight endpoints.
pub const FALLBACKS_RANGE: RangeInclusive<u32> = 0..=7;

/// A third attempt at most: more would multiply load when a pool fails. Fewer when there are fewer fallbacks.
pub const MAX_RETRIES: u32 = 2;
/// As many as there can be fallbacks.
pub const MAX_RETRIES_RANGE: RangeInclusive<u32> = 0..=7;

/// Points of all rings of one configuration together: 32 MB in each worker's VM, twice that while a new configuration
/// takes over. 10,000 endpoints need 1.5 million.
pub const MAX_POINTS: usize = 2_000_000;
/// Problems that are told of one configuration; the rest are counted.
pub const MAX_PROBLEMS: usize = 20;

/// Pools of one configuration.
pub const MAX_POOLS: usize = 1_024;
/// Endpoints of one pool.
pub const MAX_ENDPOINTS: usize = 10_000;
/// Resident models told of one endpoint.
pub const MAX_MODELS: usize = 10_000;
/// Names in a list of headers.
pub const MAX_HEADER_NAMES: usize = 8;
/// Bytes of an endpoint id, a cluster's name or a header's name.
pub const MAX_NAME_BYTES: usize = 256;

/// Headers that name the model, by the Gateway API's and the older habit.
pub const MODEL_HEADERS: [&str; 2] = ["x-model-id", "model-id"];
/// Headers that name the request type.
pub const TYPE_HEADERS: [&str; 2] = ["x-request-type", "request-type"];
/// The name that the Gateway API Inference Extension gave it.
pub const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";
/// Our own.
pub const URGENCY_HEADER: &str = "x-warmroute-urgency";
