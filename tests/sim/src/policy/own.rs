//! Homes of one proxy alone, which plans for itself by what it sees.

use super::proxies::Proxies;
use super::{Asked, Ended, Policy, Seen};
use crate::cell::Cell;
use crate::names::Names;
use std::rc::Rc;
use std::time::Duration;
use warmroute_core::plan::SelfSettings;
use warmroute_core::settings::PlanSource;
use warmroute_core::strategy::{PickList, StrategyName};

/// As often as the filter ticks.
const TICK: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(super) struct HomesSelf {
    proxies: Proxies,
}

impl HomesSelf {
    /// One proxy, whatever number the cell has.
    pub fn new(cell: &Cell, names: Rc<Names>, seed: u64) -> Self {
        let slots = Some(u32::try_from(cell.slots).unwrap_or(u32::MAX));
        let plan = PlanSource::SelfMade(SelfSettings { slots, ..SelfSettings::default() });
        Self { proxies: Proxies::new(cell, names, seed, StrategyName::Homes, plan, 1) }
    }
}

impl Policy for HomesSelf {
    fn send(&mut self, asked: &Asked) -> PickList {
        self.proxies.send(asked)
    }

    fn attempt_failed(&mut self, asked: &Asked, endpoint: usize) {
        self.proxies.attempt_failed(asked, endpoint);
    }

    fn ended(&mut self, ended: &Ended) {
        self.proxies.ended(ended);
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn tick(&mut self, seen: &Seen<'_>) {
        self.proxies.pools().for_each(|pool| {
            pool.tick(seen.now);
        });
    }

    fn told(&mut self, seen: &Seen<'_>) {
        let endpoints = self.proxies.marked(seen);
        self.proxies.take(&endpoints, None, None);
        self.tick(seen);
    }
}
