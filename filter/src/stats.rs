//! Envoy stats of the filter, `wasmcustom.warmroute.*`. Their names are a fixed set: nothing that a client sends is
//! part of one.

use crate::host::{self, HostError, Metric, MetricKind};
use std::time::Duration;
use warmroute_core::accounting::Account;
use warmroute_core::outcome::Outcome;
use warmroute_core::picker::{Pass, Pick};
use warmroute_core::refusal::Refusal;
use warmroute_core::stats;

/// Every stat, defined once per VM.
#[derive(Debug)]
pub struct Stats {
    pick: Vec<Metric>,
    reason: Vec<Metric>,
    pass: Vec<Metric>,
    host_error: Metric,
    refusal: Vec<Metric>,
    served: Vec<Metric>,
    outcome: Vec<Metric>,
    endpoint_unknown: Metric,
    in_flight: Metric,
    service_time: Metric,
}

impl Stats {
    /// Defines them all.
    pub fn define() -> Result<Self, HostError> {
        let counter = |name: &str| host::define_metric(MetricKind::Counter, name);
        let counters =
            |names: Vec<String>| -> Result<Vec<Metric>, HostError> { names.iter().map(|name| counter(name)).collect() };
        Ok(Self {
            pick: counters(stats::picks())?,
            reason: counters(stats::reasons())?,
            pass: counters(stats::passes())?,
            host_error: counter(stats::HOST_ERROR)?,
            refusal: counters(stats::refusals())?,
            served: counters(stats::served())?,
            outcome: counters(stats::outcomes())?,
            endpoint_unknown: counter(stats::ENDPOINT_UNKNOWN)?,
            in_flight: host::define_metric(MetricKind::Gauge, stats::IN_FLIGHT)?,
            service_time: host::define_metric(MetricKind::Histogram, stats::SERVICE_TIME)?,
        })
    }

    pub fn picked(&self, pick: &Pick) {
        add(self.pick.get(pick.strategy.position()), 1);
        add(self.reason.get(pick.reason.position()), 1);
    }

    pub fn passed(&self, pass: Pass) {
        add(self.pass.get(pass.position()), 1);
    }

    pub fn host_failed(&self) {
        add(Some(&self.host_error), 1);
    }

    pub fn refused(&self, refusal: Refusal) {
        add(self.refusal.get(refusal.position()), 1);
    }

    pub fn started(&self) {
        add(Some(&self.in_flight), 1);
    }

    pub fn released(&self) {
        add(Some(&self.in_flight), -1);
    }

    pub fn ended(&self, account: Account, outcome: Outcome, service_time: Duration) {
        add(self.served.get(account.served.position()), 1);
        add(self.outcome.get(outcome.position()), 1);
        if account.endpoint_unknown {
            add(Some(&self.endpoint_unknown), 1);
        }
        let micros = u64::try_from(service_time.as_micros()).unwrap_or(u64::MAX);
        ignore(host::record(self.service_time, micros));
    }
}

fn add(metric: Option<&Metric>, by: i64) {
    if let Some(metric) = metric {
        ignore(host::increment(*metric, by));
    }
}

/// A stat that the host refuses is lost, and the request goes on: there is nothing to count the loss with.
fn ignore(_result: Result<(), HostError>) {}
