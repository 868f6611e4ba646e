//! Homes with a hub: each proxy picks by its own requests in flight and by what the hub pushed last.

use super::hub::{Churn, Hub, Knowledge};
use super::proxies::Proxies;
use super::{Asked, Ended, Policy, Seen};
use crate::cell::Cell;
use crate::names::Names;
use std::rc::Rc;
use std::time::Duration;
use warmroute_core::settings::PlanSource;
use warmroute_core::strategy::{PickList, StrategyName};

/// See the module.
#[derive(Debug)]
pub(super) struct Homes {
    proxies: Proxies,
    hub: Hub,
    hub_alive: bool,
    interval: Duration,
}

impl Homes {
    /// With a hub that knows nothing yet.
    pub fn new(cell: &Cell, names: Rc<Names>, seed: u64, knowledge: Knowledge) -> Self {
        let hub = Hub::new(cell, knowledge, &names.hashes);
        Self {
            proxies: Proxies::new(cell, names, seed, StrategyName::Homes, PlanSource::None, cell.proxies),
            hub,
            hub_alive: true,
            interval: cell.snapshot,
        }
    }

    fn push(&mut self, seen: &Seen<'_>) {
        let endpoints = self.proxies.resident(seen);
        let plan = self.hub.plan(seen, &endpoints, &self.proxies);
        self.proxies.take(&endpoints, Some(seen.now), Some(plan));
    }
}

impl Policy for Homes {
    fn send(&mut self, asked: &Asked) -> PickList {
        self.hub.sent(self.proxies.names().hashes[asked.model]);
        self.proxies.send(asked)
    }

    fn attempt_failed(&mut self, asked: &Asked, endpoint: usize) {
        self.proxies.attempt_failed(asked, endpoint);
    }

    fn ended(&mut self, ended: &Ended) {
        if let Some(sample) = self.proxies.ended(ended) {
            self.hub.measured(self.proxies.names().hashes[ended.asked.model], &sample);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn tick(&mut self, seen: &Seen<'_>) {
        if self.hub_alive {
            self.hub.observe(seen.now);
            self.push(seen);
        }
    }

    /// At once: a plan with a dead home must not wait for the next round.
    fn told(&mut self, seen: &Seen<'_>) {
        if self.hub_alive {
            self.push(seen);
        }
    }

    fn hub_died(&mut self) {
        self.hub_alive = false;
    }

    fn churn(&self) -> Option<Churn> {
        Some(self.hub.churn())
    }
}
