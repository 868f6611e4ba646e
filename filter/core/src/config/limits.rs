//! Defaults and ranges, each with its reason. The wire types document them from here, and validation checks them.

use super::wire::Strategy;
use std::ops::RangeInclusive;

/// Without a plan by somebody who knows the GPUs, the ring is what keeps a model where it is.
pub const STRATEGY: Strategy = Strategy::Ring;
/// Nobody has marked an endpoint until somebody does.
pub const UNHEALTHY: bool = false;

/// Enough points that 50 endpoints' shares stay within 35 % of the mean; more costs memory for little.
pub const VIRTUAL_NODES: u32 = 150;
/// Past 1,000 the shares hardly change, while a ring of 10,000 endpoints would need 160 MB.
pub const VIRTUAL_NODES_RANGE: RangeInclusive<u32> = 1..=1_000;

/// Two fallbacks serve two retries.
pub const FALLBACKS: u8 = 2;
/// A list has at most eight endpoints.
pub const FALLBACKS_RANGE: RangeInclusive<u8> = 0..=7;

/// A third attempt at most: more would multiply load when a pool fails. Fewer when there are fewer fallbacks.
pub const MAX_RETRIES: u8 = 2;
/// As many as there can be fallbacks.
pub const MAX_RETRIES_RANGE: RangeInclusive<u8> = 0..=7;

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
