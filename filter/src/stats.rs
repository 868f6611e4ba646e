//! Envoy stats of the filter, `wasmcustom.warmroute.*`. Their names are a fixed set: nothing that a client sends is
//! part of one.
//!
//! A request only adds to cells of the VM; each tick hands the sums over to Envoy. That is seven calls to
//! Envoy less for each request. A VM that traps takes at most one tick's counts with it; one that is
//! replaced hands over the rest with its last root context.

use crate::host::{self, HostError, Metric, MetricKind};
use std::cell::Cell;
use std::time::Duration;
use warmroute_core::accounting::Account;
use warmroute_core::live::Planned;
use warmroute_core::outcome::Outcome;
use warmroute_core::picker::{Pass, Pick};
use warmroute_core::refusal::Refusal;
use warmroute_core::stats;

/// Every stat, defined once per VM.
#[derive(Debug)]
pub struct Stats {
    pick: Vec<Stat>,
    reason: Vec<Stat>,
    pass: Vec<Stat>,
    host_error: Stat,
    end_unread: Stat,
    attempt_failed: Stat,
    refusal: Vec<Stat>,
    served: Vec<Stat>,
    outcome: Vec<Stat>,
    endpoint_unknown: Stat,
    panic: Stat,
    marks_ignored: Stat,
    body_overdue: Stat,
    body_unread: Stat,
    body_model: Stat,
    body_no_model: Stat,
    plan_changed: Stat,
    planner_input_default: Stat,
    plan_elsewhere: Stat,
    in_flight: Stat,
    service_time: Stat,
}

/// One counter, or the gauge, and what was added to it since the last tick.
#[derive(Debug)]
struct Stat {
    metric: Metric,
    pending: Cell<i64>,
}

impl Stat {
    fn define(kind: MetricKind, name: &str) -> Result<Self, HostError> {
        Ok(Self { metric: host::define_metric(kind, name)?, pending: Cell::new(0) })
    }

    fn add(&self, by: i64) {
        self.pending.set(self.pending.get().saturating_add(by));
    }

    /// What Envoy refuses stays pending, for the next tick.
    fn flush(&self) {
        let pending = self.pending.get();
        if pending != 0 && host::increment(self.metric, pending).is_ok() {
            self.pending.set(0);
        }
    }
}

impl Stats {
    /// Defines them all.
    pub fn define() -> Result<Self, HostError> {
        let counter = |name: &str| Stat::define(MetricKind::Counter, name);
        let counters =
            |names: Vec<String>| -> Result<Vec<Stat>, HostError> { names.iter().map(|name| counter(name)).collect() };
        Ok(Self {
            pick: counters(stats::picks())?,
            reason: counters(stats::reasons())?,
            pass: counters(stats::passes())?,
            host_error: counter(stats::HOST_ERROR)?,
            end_unread: counter(stats::END_UNREAD)?,
            attempt_failed: counter(stats::ATTEMPT_FAILED)?,
            refusal: counters(stats::refusals())?,
            served: counters(stats::served())?,
            outcome: counters(stats::outcomes())?,
            endpoint_unknown: counter(stats::ENDPOINT_UNKNOWN)?,
            panic: counter(stats::PANIC)?,
            marks_ignored: counter(stats::MARKS_IGNORED)?,
            body_overdue: counter(stats::BODY_OVERDUE)?,
            body_unread: counter(stats::BODY_UNREAD)?,
            body_model: counter(stats::BODY_MODEL)?,
            body_no_model: counter(stats::BODY_NO_MODEL)?,
            plan_changed: counter(stats::PLAN_CHANGED)?,
            planner_input_default: counter(stats::PLANNER_INPUT_DEFAULT)?,
            plan_elsewhere: counter(stats::PLAN_ELSEWHERE)?,
            in_flight: Stat::define(MetricKind::Gauge, stats::IN_FLIGHT)?,
            service_time: counter(stats::SERVICE_TIME)?,
        })
    }

    /// Hands everything over to Envoy.
    pub fn flush(&self) {
        let groups = [&self.pick, &self.reason, &self.pass, &self.refusal, &self.served, &self.outcome];
        let single = [
            &self.host_error,
            &self.end_unread,
            &self.attempt_failed,
            &self.endpoint_unknown,
            &self.panic,
            &self.marks_ignored,
            &self.body_overdue,
            &self.body_unread,
            &self.body_model,
            &self.body_no_model,
            &self.plan_changed,
            &self.planner_input_default,
            &self.plan_elsewhere,
            &self.in_flight,
            &self.service_time,
        ];
        groups.into_iter().flatten().chain(single).for_each(Stat::flush);
    }

    pub fn picked(&self, pick: &Pick) {
        add(self.pick.get(pick.strategy.position()));
        add(self.reason.get(pick.reason.position()));
        if pick.marks_ignored {
            self.marks_ignored.add(1);
        }
    }

    pub fn in_panic(&self) {
        self.panic.add(1);
    }

    pub fn body_overdue(&self) {
        self.body_overdue.add(1);
    }

    pub fn body_unread(&self) {
        self.body_unread.add(1);
    }

    pub fn body_read(&self, named_model: bool) {
        let stat = if named_model { &self.body_model } else { &self.body_no_model };
        stat.add(1);
    }

    pub fn planned(&self, planned: &Planned) {
        self.plan_changed.add(i64::from(planned.changed));
        self.planner_input_default.add(i64::try_from(planned.defaults).unwrap_or(i64::MAX));
    }

    pub fn plan_elsewhere(&self) {
        self.plan_elsewhere.add(1);
    }

    pub fn passed(&self, pass: Pass) {
        add(self.pass.get(pass.position()));
    }

    pub fn host_failed(&self) {
        self.host_error.add(1);
    }

    pub fn end_unread(&self) {
        self.end_unread.add(1);
    }

    pub fn refused(&self, refusal: Refusal) {
        add(self.refusal.get(refusal.position()));
    }

    pub fn started(&self) {
        self.in_flight.add(1);
    }

    pub fn released(&self) {
        self.in_flight.add(-1);
    }

    pub fn ended(&self, account: &Account, outcome: Outcome, service_time: Duration) {
        add(self.served.get(account.served.position()));
        add(self.outcome.get(outcome.position()));
        if account.endpoint_unknown {
            self.endpoint_unknown.add(1);
        }
        self.attempt_failed.add(i64::try_from(account.failed_before).unwrap_or(i64::MAX));
        self.service_time.add(i64::try_from(service_time.as_micros()).unwrap_or(i64::MAX));
    }
}

fn add(stat: Option<&Stat>) {
    if let Some(stat) = stat {
        stat.add(1);
    }
}
