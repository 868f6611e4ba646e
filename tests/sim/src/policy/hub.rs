//! A hub: it adds up what proxies report, plans with the core's planner, and tells the plan.

use super::Seen;
use super::proxies::{Proxies, Sample};
use super::throughput::Throughput;
use crate::cell::{Cell, LOAD, SERVICE};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use warmroute_core::endpoint::Endpoint;
use warmroute_core::plan::{
    DemandEstimator, EndpointInput, Inputs, Measurements, ModelInput, Plan, PlanOutcome, Planner, Warmth, capacity,
};

/// Where a hub has the capacity of an endpoint from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// From what endpoints serve and what is in flight there, by all proxies: see `throughput`.
    Throughput,
    /// From the median total of warm requests that found at most S of their own proxy's requests at the endpoint.
    Median,
    /// It is told the truth, loads included.
    Known,
}

/// What a hub knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knowledge {
    /// Of times.
    pub service: Service,
    /// Of all models, whether they were asked for or not: model servers list them.
    pub catalogue: bool,
}

/// What a planner did in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Churn {
    /// Homes that were new in a plan.
    pub moves: usize,
    /// The same in the measured time.
    pub moves_measured: usize,
    /// Times that the number of lanes changed in the measured time.
    pub lane_changes: usize,
    /// Lanes in the last plan.
    pub lanes: usize,
    /// Models with homes of their own in the last plan.
    pub pinned: usize,
    /// Models that share in the last plan.
    pub tail: usize,
    /// Most homes of one model in the last plan.
    pub most_homes: usize,
    /// Load of a home that the last plan aimed at.
    pub share_target: f64,
    /// Service time that the last plan was made with, in seconds.
    pub service_seconds: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Hub {
    planner: Planner,
    demand: DemandEstimator,
    measurements: Measurements,
    counts: BTreeMap<u64, u64>,
    slots: u32,
    knowledge: Knowledge,
    throughput: Throughput,
    last: Duration,
    measured_from: Duration,
    churn: Churn,
}

impl Hub {
    /// Of a pool that nobody has asked yet.
    pub fn new(cell: &Cell, knowledge: Knowledge, catalogue: &[u64]) -> Self {
        let slots = u32::try_from(cell.slots).unwrap_or(u32::MAX);
        let mut demand = DemandEstimator::default();
        if knowledge.catalogue {
            demand.remember(Duration::ZERO, catalogue.iter().copied());
        }
        Self {
            planner: Planner::default(),
            demand,
            measurements: Measurements::new(slots, SERVICE),
            counts: BTreeMap::new(),
            slots,
            knowledge,
            throughput: Throughput::new(cell.endpoints, cell.slots),
            last: Duration::ZERO,
            measured_from: cell.warm_up,
            churn: Churn::default(),
        }
    }

    /// A proxy sent a request of the model.
    pub fn sent(&mut self, model: u64) {
        *self.counts.entry(model).or_default() += 1;
        self.measurements.know(model);
    }

    /// A proxy measured a request of the model.
    pub fn measured(&mut self, model: u64, sample: &Sample) {
        let cold = sample.warmth == Warmth::Cold;
        self.throughput.served(sample.endpoint, sample.total.as_secs_f64(), cold);
        self.measurements.record(model, sample.warmth, sample.in_flight_at_start, sample.total);
    }

    /// Takes up what was asked since the last time.
    pub fn observe(&mut self, now: Duration) {
        self.throughput.pass((now - self.last).as_secs_f64());
        self.last = now;
        self.demand.observe(now, std::mem::take(&mut self.counts).into_iter());
    }

    /// The plan for these endpoints.
    pub fn plan(&mut self, seen: &Seen<'_>, endpoints: &[Endpoint], proxies: &Proxies) -> &Plan {
        let residents: Vec<Vec<u64>> = endpoints.iter().map(held).collect();
        let both = endpoints.iter().zip(&residents);
        let inputs: Vec<EndpointInput<'_>> = both.map(|(endpoint, resident)| input(endpoint, resident)).collect();
        let service = self.service();
        let models = self.models(service);
        let outcome = self.planner.plan(&Inputs {
            endpoints: &inputs,
            models: &models,
            ring: proxies.ring(),
            capacity: capacity(self.slots, service),
            servable: &|_, _| true,
        });
        self.note(&outcome, service, seen.now);
        self.planner.current()
    }

    /// What the planner did.
    pub fn churn(&self) -> Churn {
        let homes = self.planner.current().iter().map(|(_, placement)| placement.homes.len());
        Churn { most_homes: homes.max().unwrap_or(0), ..self.churn }
    }

    /// Service time of a warm request that is alone.
    fn service(&self) -> Duration {
        match self.knowledge.service {
            Service::Throughput => {
                // The inverse of the core's formula of a capacity.
                let one = capacity(self.slots, Duration::from_secs(1));
                self.throughput.capacity().map_or(SERVICE, |found| Duration::from_secs_f64(one / found))
            }
            Service::Median => self.measurements.service().value,
            Service::Known => SERVICE,
        }
    }

    fn models(&self, service: Duration) -> Vec<ModelInput> {
        let load = |model| match self.knowledge.service {
            Service::Throughput | Service::Median => self.measurements.load(model, service).value,
            Service::Known => LOAD,
        };
        let input = |(model, rate)| ModelInput { model, rate, size_units: 1, load_seconds: load(model).as_secs_f64() };
        self.demand.rates().map(input).collect()
    }

    fn note(&mut self, outcome: &PlanOutcome, service: Duration, now: Duration) {
        let churn = &mut self.churn;
        churn.moves += outcome.moves;
        if now >= self.measured_from {
            churn.moves_measured += outcome.moves;
            churn.lane_changes += usize::from(outcome.lanes != churn.lanes);
        }
        churn.lanes = outcome.lanes;
        churn.pinned = outcome.pinned;
        churn.tail = outcome.tail;
        churn.share_target = outcome.share_target;
        churn.service_seconds = service.as_secs_f64();
    }
}

fn held(endpoint: &Endpoint) -> Vec<u64> {
    endpoint.resident.as_ref().map_or(Vec::new(), |resident| resident.hashes().collect())
}

fn input<'a>(endpoint: &Endpoint, resident: &'a [u64]) -> EndpointInput<'a> {
    EndpointInput {
        key: endpoint.key(),
        up: !endpoint.marked_unhealthy,
        speed: endpoint.speed,
        memory_units: endpoint.memory_units,
        resident,
    }
}
