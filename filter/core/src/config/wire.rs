//! The configuration as a user writes it. Unknown fields are errors; what is left out is filled in by validation.

#[cfg(feature = "schema")]
use super::limits;
use serde::Deserialize;
use std::collections::BTreeMap;

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
    /// How answers are explained.
    #[serde(default)]
    pub explain: Explain,
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
    /// How inference requests that name a model are routed; others go by `p2c`. Default: `homes` with a `plan`, else
    /// `ring`.
    pub strategy: Option<Strategy>,
    /// Who decides which endpoints are the homes of each model. `"self"`: this proxy, by what it sees; for one proxy
    /// with one worker thread (`concurrency: 1`), since several planners work against each other: with more, one worker
    /// plans and the others go by the ring. `{"fixed": {…}}`: you. Left out: nobody.
    pub plan: Option<PlanSource>,
    /// Models with settings of their own. Others need no entry.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_MODELS)))]
    #[serde(default)]
    pub models: Vec<Model>,
    /// Units of memory for models that each endpoint has, where its own `memory_units` does not say otherwise: how many
    /// models of size 1 fit at a time.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::MEMORY_UNITS_RANGE.start(), max = *limits::MEMORY_UNITS_RANGE.end()), extend("default" = limits::MEMORY_UNITS)))]
    pub memory_units: Option<u32>,
    /// Requests that an endpoint works on at a time; more than these wait there.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::SLOTS_RANGE.start(), max = *limits::SLOTS_RANGE.end()), extend("default" = limits::SLOTS)))]
    pub slots: Option<u32>,
    /// What loading a model costs, in service times of a warm request.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::LOAD_COST_RANGE.start(), max = *limits::LOAD_COST_RANGE.end()), extend("default" = limits::LOAD_COST)))]
    pub load_cost: Option<f64>,
    /// Where update requests go.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::UPDATES)))]
    pub updates: Option<Updates>,
    /// Share of the endpoints that are neither marked nor draining: when fewer of them have a good score, scores are
    /// ignored. 0: scores always count, and a pool where all are bad answers 503.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::PANIC_RANGE.start(), max = *limits::PANIC_RANGE.end()), extend("default" = limits::PANIC)))]
    pub panic_threshold_ratio: Option<f64>,
    /// Classes of large requests, by `content-length`. A request without it is an ordinary one.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_PAYLOAD_CLASSES)))]
    #[serde(default)]
    pub payload_classes: Vec<PayloadClass>,
    /// Points of each endpoint on the hash ring. Must be the same in every proxy, or they disagree about the
    /// endpoints of a model.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::VIRTUAL_NODES_RANGE.start(), max = *limits::VIRTUAL_NODES_RANGE.end()), extend("default" = limits::VIRTUAL_NODES)))]
    pub virtual_nodes: Option<u32>,
    /// Endpoints that follow the pick in the list that Envoy gets; its retries and hedges go along the list.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::FALLBACKS_RANGE.start(), max = *limits::FALLBACKS_RANGE.end()), extend("default" = limits::FALLBACKS)))]
    pub fallbacks: Option<u32>,
    /// Retries that Envoy may make, when its route retries at all; at most as many as `fallbacks` (the default gives way
    /// to fewer). Rules over the route's `num_retries`.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::MAX_RETRIES_RANGE.start(), max = *limits::MAX_RETRIES_RANGE.end()), extend("default" = limits::MAX_RETRIES)))]
    pub max_retries: Option<u32>,
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
    /// Models that the endpoint can serve at all, when that is a fixed list. Left out: any, by loading it.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_MODELS)))]
    pub serves: Option<Vec<String>>,
    /// Marks the endpoint by hand: it gets no requests.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::UNHEALTHY)))]
    pub unhealthy: Option<bool>,
    /// The endpoint finishes what it has and gets no new requests.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::DRAINING)))]
    pub draining: Option<bool>,
    /// Share of the ring, relative to the others' 1. 0 takes the endpoint off the ring.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::WEIGHT_RANGE.start(), max = *limits::WEIGHT_RANGE.end()), extend("default" = limits::WEIGHT)))]
    pub weight: Option<f64>,
    /// How many of its virtual nodes are on the ring now, for an endpoint that joins or leaves in steps. Default: all.
    pub active_nodes: Option<u32>,
    /// `key=value` labels, which payload classes may ask for.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_LABELS)))]
    #[serde(default)]
    pub labels: Vec<String>,
    /// Units of memory for models; default: the pool's.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::MEMORY_UNITS_RANGE.start(), max = *limits::MEMORY_UNITS_RANGE.end())))]
    pub memory_units: Option<u32>,
}

/// How requests are routed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case", expecting = "one of `homes`, `ring`, `p2c`, `round_robin`, `least_request`, `hash`")]
pub enum Strategy {
    /// The less loaded of two random homes that the plan gave the model; without a home, the ring.
    Homes,
    /// The model's endpoints on the consistent-hash ring, in order.
    Ring,
    /// The less loaded of two random endpoints.
    P2c,
    /// One endpoint after the other, for each model by itself.
    RoundRobin,
    /// The endpoint with the fewest requests in flight; of more than 32, the least of eight random ones.
    LeastRequest,
    /// The place on the ring of `request.hash_header`, else of the session, else of the model.
    Hash,
}

/// Where update requests go.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case", expecting = "`holders` or `pool`")]
pub enum Updates {
    /// To the endpoints that are known to hold the model, else over the pool.
    Holders,
    /// Over the pool. Cold models are loaded wherever an update goes.
    Pool,
}

/// Who decides which endpoints are the homes of each model.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(expecting = "\"self\" or {\"fixed\": {…}}")]
pub enum PlanSource {
    /// This proxy, by what it sees itself.
    #[serde(rename = "self")]
    SelfMade,
    /// You: a plan that is written here.
    #[serde(rename = "fixed")]
    Fixed(FixedPlan),
}

/// A plan written by hand.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FixedPlan {
    /// The plan's number in explanations.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::PLAN_VERSION_RANGE.start()), extend("default" = limits::PLAN_VERSION)))]
    pub version: Option<u64>,
    /// The models that have homes; others go by the ring.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_MODELS)))]
    pub models: Vec<PlannedModel>,
}

/// The homes of one model.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlannedModel {
    /// The model's id, as requests name it; no alias.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = limits::MAX_NAME_BYTES)))]
    pub id: String,
    /// Ids of endpoints of the pool that serve the model and have the memory for it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = limits::MAX_HOMES)))]
    pub homes: Vec<String>,
}

/// One model with settings of its own.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The model's id, as requests name it; no alias.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = limits::MAX_NAME_BYTES)))]
    pub id: String,
    /// How its requests are routed; default: the pool's strategy.
    pub strategy: Option<Strategy>,
    /// Units of memory that it takes. With the plan `"self"`, as many as some endpoint of the pool has.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::SIZE_UNITS_RANGE.start(), max = *limits::SIZE_UNITS_RANGE.end()), extend("default" = limits::SIZE_UNITS)))]
    pub size_units: Option<u32>,
    /// Milliseconds that loading it takes. Default: measured; until three loads were seen, ten service times.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::LOAD_MS_RANGE.start(), max = *limits::LOAD_MS_RANGE.end())))]
    pub load_ms: Option<u64>,
}

/// One class of large requests.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PayloadClass {
    /// Its name in explanations.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = limits::MAX_NAME_BYTES)))]
    pub name: String,
    /// Requests with a larger body than this belong to it, up to the next class.
    pub above_bytes: u64,
    /// What one of them counts in flight, in ordinary requests.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::PAYLOAD_WEIGHT_RANGE.start(), max = *limits::PAYLOAD_WEIGHT_RANGE.end()), extend("default" = limits::PAYLOAD_WEIGHT)))]
    pub weight: Option<u32>,
    /// Labels that an endpoint must have to serve it. Some endpoint of the pool must have them all.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_LABELS)))]
    #[serde(default)]
    pub labels: Vec<String>,
}

/// How requests are read.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Headers that name the model: the first that is there and not empty counts. Without one, known paths are read
    /// (`/v2/models/{model}/infer`). Lower case; no header may stand in two fields.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_HEADER_NAMES), extend("default" = limits::MODEL_HEADERS)))]
    pub model_headers: Option<Vec<String>>,
    /// Headers that name the request type, `inference` or `update`. Lower case.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::MAX_HEADER_NAMES), extend("default" = limits::TYPE_HEADERS)))]
    pub type_headers: Option<Vec<String>>,
    /// Header that carries the list of endpoints to `header_to_metadata`. Lower case. Envoy's configuration must name the
    /// same one where it removes a client's own (early header mutation) and where it moves ours into metadata. None that
    /// anybody else needs, such as `authorization`.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::DESTINATION_HEADER)))]
    pub destination_header: Option<String>,
    /// Other names of models: `{"chat": "llama-3-70b"}` routes requests for `chat` as requests for `llama-3-70b`. The
    /// request itself is not changed. One step: the target is not looked up again. Pools name models by what requests are
    /// routed as: `llama-3-70b`, not `chat`.
    #[cfg_attr(feature = "schema", schemars(extend("maxProperties" = limits::MAX_ALIASES)))]
    #[serde(default)]
    pub aliases: BTreeMap<String, String>,
    /// Model of inference requests that name none; may be an alias. Where all endpoints have a `serves`, one of those.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = limits::MAX_NAME_BYTES)))]
    pub default_model: Option<String>,
    /// Whether the callers of this listener may set the urgency of requests and ask for explanations: true for a
    /// sidecar's own application, false where strangers call.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::TRUSTED)))]
    pub trusted: Option<bool>,
    /// Header that tells a request's urgency, `normal`, `high` or `critical`; only a trusted caller's counts. Lower case.
    /// None that anybody else needs, such as `priority`: it is removed from strangers' requests.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::URGENCY_HEADER)))]
    pub urgency_header: Option<String>,
    /// Header whose value the strategy `hash` places on the ring. Lower case.
    pub hash_header: Option<String>,
    /// Keeps the requests of a session at one endpoint, for what its server has cached. Left out: no sessions.
    pub session: Option<Session>,
    /// Reads the model from the beginning of the body when neither headers nor path name one. Needs
    /// `allow_on_headers_stop_iteration: true` in Envoy's filter configuration. Left out: bodies are not read.
    pub body: Option<Body>,
}

/// What a session is told by: the first of these that a request has.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Header that names the session. Lower case.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::SESSION_HEADER)))]
    pub header: Option<String>,
    /// Cookie that names the session.
    pub cookie: Option<Cookie>,
    /// The client's address, without its port.
    #[cfg_attr(feature = "schema", schemars(extend("default" = limits::SESSION_ADDRESS)))]
    pub address: Option<bool>,
}

/// A cookie that names the session.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cookie {
    /// The name of the cookie. Not `__Host-…` or `__Secure-…`, unless Warmroute sets none.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = limits::MAX_NAME_BYTES)))]
    pub name: String,
    /// Seconds that a browser keeps a cookie which Warmroute sets because the request had none. 0: none is set.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::COOKIE_TTL_RANGE.start(), max = *limits::COOKIE_TTL_RANGE.end()), extend("default" = limits::COOKIE_TTL)))]
    pub ttl_seconds: Option<u32>,
}

/// How bodies are read.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// Bytes of a body that are read at most. When they do not name a model the request goes on as one without it.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::BODY_BYTES_RANGE.start(), max = *limits::BODY_BYTES_RANGE.end()), extend("default" = limits::BODY_BYTES)))]
    pub max_bytes: Option<u32>,
}

/// Telling why requests went where they went.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// Request header that asks for an explanation, by `1` or `true`; only a trusted caller's counts. Lower case.
    /// None that anybody else needs, such as `authorization`: it is removed from strangers' requests. Left out: nobody
    /// can ask.
    pub header: Option<String>,
    /// Share of the requests that are explained without being asked, for the access log.
    #[cfg_attr(feature = "schema", schemars(range(min = *limits::EXPLAIN_RATIO_RANGE.start(), max = *limits::EXPLAIN_RATIO_RANGE.end()), extend("default" = limits::EXPLAIN_RATIO)))]
    pub log_ratio: Option<f64>,
}

/// The JSON schema of [`Plugin`], from which the reference for users is made.
#[cfg(feature = "schema")]
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Plugin).to_value()
}
