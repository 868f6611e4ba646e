//! The configuration as a user writes it. Unknown fields are errors; what is left out is filled in by validation.

#[cfg(feature = "schema")]
use super::limits;
use serde::Deserialize;

/// Plugin configuration of the Warmroute filter, as JSON.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Plugin {
    /// The clusters that Warmroute steers. Requests to any other cluster pass untouched.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_POOLS)))]
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// How requests are read.
    #[serde(default)]
    pub request: Request,
}

/// One steered cluster.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Name of Envoy's cluster, as routes name it: `model-servers`, or in Istio
    /// `outbound|8000|v2|svc.ns.svc.cluster.local`.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = limits::MAX_NAME_BYTES)))]
    pub cluster: String,
    /// The cluster's endpoints. Left out: not known yet, and Envoy's own policy chooses. Empty: known to be none, and
    /// requests are refused with 503.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_ENDPOINTS)))]
    pub endpoints: Option<Vec<Endpoint>>,
    /// How inference requests that name a model are routed. Others go by `p2c`.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::STRATEGY)))]
    pub strategy: Option<Strategy>,
    /// Points of each endpoint on the hash ring. Must be the same in every proxy, or they disagree about the
    /// endpoints of a model.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::VIRTUAL_NODES_RANGE.start(), max = *limits::VIRTUAL_NODES_RANGE.end()), extend("default" = limits::VIRTUAL_NODES)))]
    pub virtual_nodes: Option<u32>,
    /// Endpoints that follow the pick in the list that Envoy gets; its retries and hedges go along the list.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::FALLBACKS_RANGE.start(), max = *limits::FALLBACKS_RANGE.end()), extend("default" = limits::FALLBACKS)))]
    pub fallbacks: Option<u8>,
    /// Retries that Envoy may make, when its route retries at all; at most as many as `fallbacks` (the default gives way
    /// to fewer). Rules over the route's `num_retries`.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::MAX_RETRIES_RANGE.start(), max = *limits::MAX_RETRIES_RANGE.end()), extend("default" = limits::MAX_RETRIES)))]
    pub max_retries: Option<u8>,
}

/// One endpoint of a cluster.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// `ip:port` as Envoy's cluster has it, IPv6 in brackets. No host names: Envoy finds endpoints by address.
    pub address: String,
    /// Stable name that places the endpoint on the ring. Default: the address. With an id that survives restarts, a
    /// new address moves no model.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = limits::MAX_NAME_BYTES)))]
    pub id: Option<String>,
    /// Models in the endpoint's memory, when that is known: what `p2c` routes for a model goes to the endpoints that hold
    /// it while one of them may serve.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_MODELS)))]
    pub models: Option<Vec<String>>,
    /// Marks the endpoint by hand: it gets no requests.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::UNHEALTHY)))]
    pub unhealthy: Option<bool>,
}

/// How inference requests that name a model are routed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The model's endpoints on the consistent-hash ring, in order.
    Ring,
    /// The less loaded of two random endpoints.
    P2c,
}

/// How requests are read.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Headers that name the model; none of them, nor the other headers here, may be named twice: the first that is there and not empty. Without one, known paths are read
    /// (`/v2/models/{model}/infer`). Lower case.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_HEADER_NAMES), extend("default" = limits::MODEL_HEADERS)))]
    pub model_headers: Option<Vec<String>>,
    /// Headers that name the request type, `inference` or `update`. Lower case.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_HEADER_NAMES), extend("default" = limits::TYPE_HEADERS)))]
    pub type_headers: Option<Vec<String>>,
    /// Header that carries the list of endpoints to `header_to_metadata`. Lower case. Envoy's configuration must name the
    /// same one where it removes a client's own (early header mutation) and where it moves ours into metadata.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::DESTINATION_HEADER)))]
    pub destination_header: Option<String>,
}

/// The JSON schema of [`Plugin`], from which the reference for users is made.
#[cfg(feature = "schema")]
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Plugin).to_value()
}
