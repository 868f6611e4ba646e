//! One request: its headers become a list of endpoints, its end tells who served and how.
//!
//! Only two callbacks do work, so that bodies, tokens and response headers cost nothing.

use crate::host::{self, HostError, LocalResponse, Map};
use crate::root::Plugin;
use crate::vm::{self, Warning};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use std::rc::Rc;
use std::time::Instant;
use warmroute_core::accounting::account;
use warmroute_core::arming;
use warmroute_core::load::InFlight;
use warmroute_core::outcome::{Ending, GrpcEnding, Outcome, asks_for_retry_after, classify};
use warmroute_core::pairs::{self, Pairs};
use warmroute_core::picker::{Answer, Pass, Pick};
use warmroute_core::refusal::{REFUSAL_HEADER, Refusal};
use warmroute_core::request::Request;
use warmroute_core::snapshot::LivePool;
use warmroute_core::strategy::{PickList, Report};

/// See the module.
#[derive(Debug)]
pub struct Http {
    plugin: Option<Rc<Plugin>>,
    steered: Option<Steered>,
}

/// A request that was sent along a list of ours, until its end.
#[derive(Debug)]
struct Steered {
    plugin: Rc<Plugin>,
    pool: Rc<LivePool>,
    picks: PickList,
    grpc: bool,
    started: Instant,
    _in_flight: Option<InFlight>,
}

impl Http {
    pub fn new(plugin: Option<Rc<Plugin>>) -> Self {
        Self { plugin, steered: None }
    }

    /// Whether the request goes on. A host call that fails leaves the choice to Envoy.
    fn steer(&mut self, plugin: &Rc<Plugin>) -> Result<Action, HostError> {
        let Some(cluster) = host::property("xds\0cluster_name")? else { return Ok(Action::Continue) };
        let Some(pool) = plugin.snapshot.pool(&cluster) else { return Ok(Action::Continue) };
        let headers = host::headers(Map::Request)?;
        let headers = Pairs::parse(&headers).map_err(|_| HostError::MALFORMED)?;
        let request = Request::from_headers(&plugin.header_names, headers);
        match vm::with(|vm| pool.answer(&request, &mut vm.rng)).ok_or(HostError::BUSY)? {
            Answer::Pick(pick) => self.send(plugin, pool, pick, request.grpc),
            Answer::Pass(reason) => pass(plugin, reason, &cluster),
            Answer::Refuse(refusal) => refuse(plugin, refusal, &cluster, request.grpc),
        }
    }

    fn send(&mut self, plugin: &Rc<Plugin>, pool: &Rc<LivePool>, pick: Pick, grpc: bool) -> Result<Action, HostError> {
        let endpoints = pool.pool().endpoints().unwrap_or_default();
        let retries = arming::max_retries(pool.pool().settings().max_retries, &pick.endpoints);
        vm::with(|vm| {
            arming::write_destination(&pick.endpoints, endpoints, &mut vm.destination);
            host::replace_request_header(&plugin.destination_header, &vm.destination)
        })
        .ok_or(HostError::BUSY)??;
        host::replace_request_header(arming::MAX_RETRIES_HEADER, arming::retries_text(retries))?;
        plugin.stats.picked(&pick);
        plugin.stats.started();
        self.steered = Some(Steered {
            plugin: Rc::clone(plugin),
            _in_flight: pick.endpoints.first().and_then(|first| pool.start(*first)),
            pool: Rc::clone(pool),
            picks: pick.endpoints,
            grpc,
            started: host::now(),
        });
        Ok(Action::Continue)
    }
}

fn pass(plugin: &Plugin, reason: Pass, cluster: &[u8]) -> Result<Action, HostError> {
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
    Ok(Action::Continue)
}

fn refuse(plugin: &Plugin, refusal: Refusal, cluster: &[u8], grpc: bool) -> Result<Action, HostError> {
    let headers = pairs::serialize(&[("content-type", "application/json"), (REFUSAL_HEADER, refusal.name())]);
    host::send_local_response(&LocalResponse {
        status: refusal.http_status(),
        details: refusal.name(),
        body: &refusal.body(grpc),
        headers: &headers,
        grpc_status: refusal.grpc_status(),
    })?;
    plugin.stats.refused(refusal);
    vm::with(|vm| {
        vm.warn(Warning::Refused, || {
            format!("{}: {} in cluster {}", refusal.name(), refusal.message(), String::from_utf8_lossy(cluster))
        });
    });
    Ok(Action::Pause)
}

/// The request goes on by Envoy's own policy.
fn host_failed(plugin: &Plugin, error: HostError) {
    plugin.stats.host_failed();
    vm::with(|vm| vm.warn(Warning::HostError, || format!("{error}; Envoy's own policy chooses")));
    // If this fails too, Envoy's early header mutation has removed what a client wrote there.
    let _removed = host::remove_request_header(&plugin.destination_header).is_ok();
}

impl Steered {
    /// Tells everyone how the request ended.
    fn end(&self) -> Result<(), HostError> {
        let endpoints = self.pool.pool().endpoints().unwrap_or_default();
        let upstream = host::property("upstream\0address")?;
        let attempts = || host::number("upstream\0request_attempt_count").ok().flatten();
        let account = account(&self.picks, endpoints, upstream.as_deref(), attempts);
        let outcome = classify(&self.ending(upstream.is_some_and(|address| !address.is_empty()))?);
        let service_time = host::now().saturating_duration_since(self.started);
        self.plugin.stats.ended(&account, outcome, service_time);
        if account.endpoint_unknown {
            vm::with(|vm| vm.warn(Warning::EndpointUnknown, || self.unknown_text()));
        }
        for endpoint in self.picks.iter().take(account.failed_before) {
            self.pool.pool().report(&Report { endpoint: *endpoint, outcome: Outcome::Failure, service_time: None });
        }
        if let Some(endpoint) = account.served.endpoint() {
            self.pool.pool().report(&Report { endpoint, outcome, service_time: Some(service_time) });
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
    fn on_http_request_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        let Some(plugin) = self.plugin.clone() else { return Action::Continue };
        self.steer(&plugin).unwrap_or_else(|error| {
            host_failed(&plugin, error);
            Action::Continue
        })
    }

    /// Envoy calls a wasm filter once, when the request has ended, however it did.
    fn on_log(&mut self) {
        let Some(steered) = self.steered.take() else { return };
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
