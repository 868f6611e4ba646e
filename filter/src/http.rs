//! One request: its headers become a list of endpoints, its end tells who served and how.
//!
//! Bodies are read only for requests whose model nothing else names, and only where the configuration says so; tokens
//! and response headers cost nothing.

use crate::body::{self, Delivery, Named, Pending, Waiting};
use crate::host::{self, HostError, LocalResponse, Map};
use crate::root::Plugin;
use crate::vm::{self, Warning};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use rand::RngExt;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use warmroute_core::accounting::account;
use warmroute_core::arming;
use warmroute_core::eligibility::Health;
use warmroute_core::live::{End, LivePool, Sent};
use warmroute_core::outcome::{Ending, GrpcEnding, asks_for_retry_after, classify};
use warmroute_core::pairs::{self, Pairs};
use warmroute_core::picker::{Answer, Pass, Pick, Reason};
use warmroute_core::refusal::{REFUSAL_HEADER, Refusal};
use warmroute_core::request::{BodyHint, BodyScanner, DEBUG_HEADER, Request, SessionKey, names_model_once};
use warmroute_core::strategy::PickList;

/// Header and stream attribute that carry an explanation.
const EXPLAIN: &str = "x-warmroute-explain";
const EXPLAIN_ATTRIBUTE: &str = "warmroute_explain";
/// Attribute for explanations that nobody asked for.
const EXPLAIN_LOG_ATTRIBUTE: &str = "warmroute_explain_log";
/// Attribute for a session cookie to be set.
const COOKIE_ATTRIBUTE: &str = "warmroute_set_cookie";

/// See the module.
#[derive(Debug)]
pub struct Http {
    context: u32,
    plugin: Option<Rc<Plugin>>,
    waiting: Option<Rc<Waiting>>,
    steered: Option<Steered>,
}

/// A request that was sent along a list of ours, until its end.
#[derive(Debug)]
pub struct Steered {
    plugin: Rc<Plugin>,
    pool: Rc<LivePool>,
    picks: PickList,
    grpc: bool,
    not_found: NotFound,
    started: Duration,
    sent: Option<Sent>,
}

/// Whether a 404 would say that the server does not know the model.
#[derive(Debug)]
enum NotFound {
    Anything,
    Model,
    /// If this body names no second one.
    ModelIn(Vec<u8>),
}

/// What became of a request's headers.
enum Routed {
    /// It goes on, along a list of ours.
    Steered(Steered),
    /// It goes on by Envoy's own policy.
    Passed,
    /// It was answered.
    Answered,
}

impl Http {
    pub fn new(context: u32, plugin: Option<Rc<Plugin>>) -> Self {
        Self { context, plugin, waiting: None, steered: None }
    }

    /// Whether the request goes on. A host call that fails leaves the choice to Envoy.
    fn headers(&mut self, plugin: &Rc<Plugin>, end_of_stream: bool) -> Result<Action, HostError> {
        let Some(cluster) = host::property("xds\0cluster_name")? else { return Ok(Action::Continue) };
        let Some(pool) = plugin.pool(&cluster) else { return Ok(Action::Continue) };
        let headers = host::headers(Map::Request)?;
        let client = client_address(plugin)?;
        let pairs = Pairs::parse(&headers).map_err(|_| HostError::MALFORMED)?;
        let request = Request::from_headers(&plugin.request, pairs, client.as_deref());
        if request.forged {
            remove_forged(plugin)?;
        }
        if let Some(scanner) = scanner(plugin, &request, end_of_stream) {
            // What a client wrote there must not choose an endpoint, should the request go on by any other way.
            host::remove_request_header(&plugin.destination_header)?;
            self.wait(plugin, cluster, pool, headers, scanner);
            return Ok(Action::Pause);
        }
        Ok(self.routed(route(plugin, &pool, &cluster, request)?))
    }

    fn routed(&mut self, routed: Routed) -> Action {
        match routed {
            Routed::Steered(steered) => self.steered = Some(steered),
            Routed::Passed => {}
            Routed::Answered => return Action::Pause,
        }
        Action::Continue
    }

    fn wait(&mut self, plugin: &Plugin, cluster: Vec<u8>, pool: Rc<LivePool>, headers: Vec<u8>, scanner: BodyScanner) {
        let waiting = Rc::new(Waiting {
            context: self.context,
            since: host::now(),
            pending: RefCell::new(Some(Pending { cluster, pool, headers, scanner })),
            scanned: Cell::new(0),
            released: Cell::new(None),
            steered: RefCell::new(None),
        });
        if let Ok(mut list) = plugin.waiting.try_borrow_mut() {
            list.push(Rc::clone(&waiting));
        }
        self.waiting = Some(waiting);
    }

    /// More of the body is here, or its end.
    fn body(&mut self, plugin: &Rc<Plugin>, waiting: &Waiting, buffered: usize, end_of_stream: bool) -> Action {
        plugin.bodies.set(Delivery::Works);
        match waiting.read(buffered).or(end_of_stream.then_some(None)) {
            Some(named) => self.decide(plugin, waiting, named),
            None => Action::Pause,
        }
    }

    /// The model is known, or that there is none to be known.
    fn decide(&mut self, plugin: &Rc<Plugin>, waiting: &Waiting, named: Option<Named>) -> Action {
        plugin.stats.body_read(named.is_some());
        let routed = route_waiting(plugin, waiting, named).unwrap_or_else(|error| {
            host_failed(plugin, error);
            Routed::Passed
        });
        self.routed(routed)
    }
}

/// Who the client is, where sessions go by it.
fn client_address(plugin: &Plugin) -> Result<Option<Vec<u8>>, HostError> {
    if plugin.request.needs_client_address() { host::property("source\0address") } else { Ok(None) }
}

/// What finds the model in the body, when nothing else names it and the body is to be read.
fn scanner(plugin: &Plugin, request: &Request<'_>, end_of_stream: bool) -> Option<BodyScanner> {
    let hinted = request.body_hint != BodyHint::None && !request.names_model();
    let settings = plugin.request.body.as_ref().filter(|_| hinted && !end_of_stream)?;
    let scanner = BodyScanner::new(request.body_hint, settings)?;
    body::is_asked_for(plugin).then_some(scanner)
}

/// What strangers may not say is not handed on either: the next proxy may trust this one.
fn remove_forged(plugin: &Plugin) -> Result<(), HostError> {
    host::remove_request_header(DEBUG_HEADER)?;
    let headers = [&plugin.request.urgency_header, &plugin.request.debug_header];
    headers.into_iter().flatten().try_for_each(|name| host::remove_request_header(name))
}

fn route_waiting(plugin: &Rc<Plugin>, waiting: &Waiting, named: Option<Named>) -> Result<Routed, HostError> {
    let Pending { cluster, pool, headers, .. } = waiting.end().ok_or(HostError::BUSY)?;
    let pairs = Pairs::parse(&headers).map_err(|_| HostError::MALFORMED)?;
    let client = client_address(plugin)?;
    let mut request = Request::from_headers(&plugin.request, pairs, client.as_deref());
    let (model, body) = named.map_or((None, None), |named| (Some(named.model), named.body));
    if let Some(model) = &model {
        request.name_by_body(&plugin.request, model);
    }
    let mut routed = route(plugin, &pool, &cluster, request)?;
    if let (Routed::Steered(steered), true) = (&mut routed, model.is_some()) {
        steered.not_found.depends_on(body);
    }
    Ok(routed)
}

/// Routes a request that waited in vain, from outside of its callbacks. Whether it may go on.
pub fn resume(plugin: &Rc<Plugin>, waiting: &Waiting) -> bool {
    match route_waiting(plugin, waiting, None) {
        Ok(Routed::Steered(steered)) => {
            waiting.steered.replace(Some(steered));
            true
        }
        Ok(Routed::Passed) => true,
        Ok(Routed::Answered) => false,
        Err(error) => {
            host_failed(plugin, error);
            true
        }
    }
}

fn route(
    plugin: &Rc<Plugin>,
    pool: &Rc<LivePool>,
    cluster: &[u8],
    mut request: Request<'_>,
) -> Result<Routed, HostError> {
    let now = host::now();
    let answer = answer(plugin, pool, &mut request, now)?;
    let explanation = explain(plugin, pool, &request, &answer, now)?;
    match answer {
        Answer::Pick(pick) => send(plugin, pool, cluster, &pick, &request, now).map(Routed::Steered),
        Answer::Pass(reason) => pass(plugin, reason, cluster).map(|()| Routed::Passed),
        Answer::Refuse(refusal) => {
            refuse(plugin, refusal, cluster, request.grpc, explanation).map(|()| Routed::Answered)
        }
    }
}

/// The answer; a request without a session, where sessions go by a cookie of ours, begins one if that is what decides
/// where it goes. gRPC clients keep no cookies.
fn answer(plugin: &Plugin, pool: &LivePool, request: &mut Request<'_>, now: Duration) -> Result<Answer, HostError> {
    let Some(cookie) = plugin.session_cookie.as_ref().filter(|_| request.session.is_none() && !request.grpc) else {
        return vm::with(|vm| pool.answer(request, now, &mut vm.rng)).ok_or(HostError::BUSY);
    };
    let values: [u128; 2] = vm::with(|vm| [vm.rng.random(), vm.rng.random()]).ok_or(HostError::BUSY)?;
    let values = values.map(|value| format!("{value:032x}"));
    let sessions = values.each_ref().map(|value| SessionKey::of(value.as_bytes()));
    let (answer, chosen) =
        vm::with(|vm| pool.answer_anew(request, sessions, now, &mut vm.rng)).ok_or(HostError::BUSY)?;
    if let Some(value) = chosen.and_then(|n| values.get(n)) {
        let (name, ttl, secure) = (&cookie.name, cookie.ttl_seconds, if request.secure { "; Secure" } else { "" });
        let cookie = format!("{name}={value}; Max-Age={ttl}; Path=/; HttpOnly; SameSite=Lax{secure}");
        host::set_property(COOKIE_ATTRIBUTE, &cookie)?;
    }
    Ok(answer)
}

/// Tells why, to whoever asked and to the log's sample. The text for a caller who asked.
fn explain(
    plugin: &Plugin,
    pool: &LivePool,
    request: &Request<'_>,
    answer: &Answer,
    now: Duration,
) -> Result<Option<String>, HostError> {
    let ratio = plugin.explain.log_ratio;
    let sampled = ratio > 0.0 && vm::with(|vm| vm.rng.random_bool(ratio.min(1.0))).unwrap_or(false);
    if !request.debug && !sampled {
        return Ok(None);
    }
    let text = pool.explain(request, answer, now);
    if sampled {
        host::set_property(EXPLAIN_LOG_ATTRIBUTE, &text)?;
    }
    if request.debug {
        host::set_property(EXPLAIN_ATTRIBUTE, &text)?;
    }
    Ok(request.debug.then_some(text))
}

fn send(
    plugin: &Rc<Plugin>,
    pool: &Rc<LivePool>,
    cluster: &[u8],
    pick: &Pick,
    request: &Request<'_>,
    now: Duration,
) -> Result<Steered, HostError> {
    let endpoints = pool.pool().endpoints().unwrap_or_default();
    let retries = arming::max_retries(pool.pool().settings().max_retries, &pick.endpoints);
    vm::with(|vm| {
        arming::write_destination(&pick.endpoints, endpoints, &mut vm.destination);
        host::replace_request_header(&plugin.destination_header, &vm.destination)
    })
    .ok_or(HostError::BUSY)??;
    host::replace_request_header(arming::MAX_RETRIES_HEADER, arming::retries_text(retries))?;
    plugin.stats.picked(pick);
    plugin.stats.started();
    warn_of_degraded_pick(plugin, pool, cluster, pick);
    Ok(Steered {
        plugin: Rc::clone(plugin),
        sent: pool.start(request, pick, now),
        pool: Rc::clone(pool),
        picks: pick.endpoints.clone(),
        grpc: request.grpc,
        not_found: if request.not_found_means_model() { NotFound::Model } else { NotFound::Anything },
        started: now,
    })
}

fn warn_of_degraded_pick(plugin: &Plugin, pool: &LivePool, cluster: &[u8], pick: &Pick) {
    if pool.pool().roster().health() == Health::Panic {
        plugin.stats.in_panic();
        vm::with(|vm| {
            vm.warn(Warning::Panic, || {
                format!(
                    "panic: too few endpoints of {} have a good score, scores are ignored",
                    String::from_utf8_lossy(cluster)
                )
            });
        });
    }
    if pick.reason == Reason::RingPending {
        vm::with(|vm| {
            vm.warn(Warning::RingPending, || {
                format!("ring_pending: the ring of {} is being built", String::from_utf8_lossy(cluster))
            });
        });
    }
}

fn pass(plugin: &Plugin, reason: Pass, cluster: &[u8]) -> Result<(), HostError> {
    // What a client wrote there must not choose an endpoint either.
    host::remove_request_header(&plugin.destination_header)?;
    plugin.stats.passed(reason);
    vm::with(|vm| {
        vm.warn(Warning::NoSnapshot, || {
            let cluster = String::from_utf8_lossy(cluster);
            format!(
                "{}: the endpoints of cluster {cluster} are not known yet, Envoy's own policy chooses",
                reason.name()
            )
        });
    });
    Ok(())
}

fn refuse(
    plugin: &Plugin,
    refusal: Refusal,
    cluster: &[u8],
    grpc: bool,
    explanation: Option<String>,
) -> Result<(), HostError> {
    let mut headers = vec![("content-type", "application/json"), (REFUSAL_HEADER, refusal.name())];
    headers.extend(explanation.as_deref().map(|text| (EXPLAIN, text)));
    host::send_local_response(&LocalResponse {
        status: refusal.http_status(),
        details: refusal.name(),
        body: &refusal.body(grpc),
        headers: &pairs::serialize(&headers),
        grpc_status: refusal.grpc_status(),
    })?;
    plugin.stats.refused(refusal);
    vm::with(|vm| {
        vm.warn(Warning::Refused, || {
            format!("{}: {} in cluster {}", refusal.name(), refusal.message(), String::from_utf8_lossy(cluster))
        });
    });
    Ok(())
}

/// The request goes on by Envoy's own policy.
fn host_failed(plugin: &Plugin, error: HostError) {
    plugin.stats.host_failed();
    vm::with(|vm| vm.warn(Warning::HostError, || format!("{error}; Envoy's own policy chooses")));
    // If this fails too, Envoy's early header mutation has removed what a client wrote there.
    let _removed = host::remove_request_header(&plugin.destination_header).is_ok();
}

impl NotFound {
    /// A body named the model: this one, as far as it was kept.
    fn depends_on(&mut self, body: Option<Vec<u8>>) {
        if matches!(self, Self::Model) {
            *self = body.map_or(Self::Anything, Self::ModelIn);
        }
    }

    fn is_of_model(&self) -> bool {
        match self {
            Self::Anything => false,
            Self::Model => true,
            Self::ModelIn(body) => names_model_once(body),
        }
    }
}

impl Steered {
    /// Tells everyone how the request ended.
    fn end(&self) -> Result<(), HostError> {
        let endpoints = self.pool.pool().endpoints().unwrap_or_default();
        let upstream = host::property("upstream\0address")?;
        let attempts = || host::number("upstream\0request_attempt_count").ok().flatten();
        let account = account(&self.picks, endpoints, upstream.as_deref(), attempts);
        let ending = self.ending(upstream.is_some_and(|address| !address.is_empty()))?;
        let outcome = classify(&ending);
        let now = host::now();
        let service_time = now.saturating_sub(self.started);
        self.plugin.stats.ended(&account, outcome, service_time);
        if account.endpoint_unknown {
            vm::with(|vm| vm.warn(Warning::EndpointUnknown, || self.unknown_text()));
        }
        self.picks.iter().take(account.failed_before).for_each(|endpoint| {
            self.pool.attempt_failed(self.sent.as_ref(), *endpoint);
        });
        if let (Some(endpoint), Some(sent)) = (account.served.endpoint(), &self.sent) {
            let model_unknown = ending.says_not_found() && self.not_found.is_of_model();
            self.pool.ended(sent, &End { endpoint, outcome, service_time, model_unknown }, now);
        }
        Ok(())
    }

    fn ending(&self, upstream: bool) -> Result<Ending, HostError> {
        let status = host::number("response\0code")?.and_then(|code| u16::try_from(code).ok());
        let grpc = |map| response_header(map, "grpc-status");
        Ok(Ending {
            status,
            upstream,
            flags: host::number("response\0flags")?.unwrap_or(0),
            retry_after: asks_for_retry_after(status) && response_header(Map::Response, "retry-after")?.is_some(),
            grpc: match self.grpc {
                true => Some(GrpcEnding::read(grpc(Map::ResponseTrailers)?, || grpc(Map::Response))?),
                false => None,
            },
        })
    }

    fn unknown_text(&self) -> String {
        let mut list = String::new();
        arming::write_destination(&self.picks, self.pool.pool().endpoints().unwrap_or_default(), &mut list);
        format!("endpoint_unknown: Envoy does not know every endpoint of {}={list}", self.plugin.destination_header)
    }
}

fn response_header(map: Map, name: &str) -> Result<Option<Vec<u8>>, HostError> {
    Ok(host::header(map, name)?.filter(|value| !value.is_empty()))
}

impl Context for Http {}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        let Some(plugin) = self.plugin.clone() else { return Action::Continue };
        self.headers(&plugin, end_of_stream).unwrap_or_else(|error| {
            host_failed(&plugin, error);
            Action::Continue
        })
    }

    fn on_http_request_body(&mut self, buffered: usize, end_of_stream: bool) -> Action {
        let Some(waiting) = self.waiting.clone() else { return Action::Continue };
        match self.plugin.clone() {
            Some(plugin) if !waiting.is_done() => self.body(&plugin, &waiting, buffered, end_of_stream),
            Some(plugin) => {
                body::came_late(&plugin, &waiting);
                Action::Continue
            }
            None => Action::Continue,
        }
    }

    /// Trailers end the body: without this call they would send a waiting request on, and the tick once more.
    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        match (self.waiting.clone(), self.plugin.clone()) {
            (Some(waiting), Some(plugin)) if !waiting.is_done() => {
                plugin.bodies.set(Delivery::Works);
                self.decide(&plugin, &waiting, None)
            }
            _ => Action::Continue,
        }
    }

    /// Envoy calls a wasm filter once, when the request has ended, however it did.
    fn on_log(&mut self) {
        let waited = self.waiting.take().and_then(|waiting| {
            drop(waiting.end());
            waiting.steered.take()
        });
        let Some(steered) = self.steered.take().or(waited) else { return };
        if let Err(error) = steered.end() {
            steered.plugin.stats.end_unread();
            vm::with(|vm| vm.warn(Warning::EndUnread, || format!("end_unread: {error} at a request's end")));
        }
    }
}

/// At the end, or with the VM's context when there is no end to be told.
impl Drop for Steered {
    fn drop(&mut self) {
        self.plugin.stats.released();
    }
}
