//! A strategy of the core that needs nobody to plan: it is told of endpoints only when their health changes.

use super::proxies::Proxies;
use super::{Asked, Ended, Policy, Seen};
use crate::cell::Cell;
use crate::names::Names;
use std::rc::Rc;
use warmroute_core::settings::PlanSource;
use warmroute_core::strategy::{PickList, StrategyName};

/// See the module.
#[derive(Debug)]
pub(super) struct CoreRival {
    proxies: Proxies,
}

impl CoreRival {
    /// The strategy in all proxies.
    pub fn new(cell: &Cell, names: Rc<Names>, seed: u64, strategy: StrategyName) -> Self {
        Self { proxies: Proxies::new(cell, names, seed, strategy, PlanSource::None, cell.proxies) }
    }
}

impl Policy for CoreRival {
    fn send(&mut self, asked: &Asked) -> PickList {
        self.proxies.send(asked)
    }

    fn attempt_failed(&mut self, asked: &Asked, endpoint: usize) {
        self.proxies.attempt_failed(asked, endpoint);
    }

    fn ended(&mut self, ended: &Ended) {
        self.proxies.ended(ended);
    }

    fn told(&mut self, seen: &Seen<'_>) {
        let endpoints = self.proxies.marked(seen);
        self.proxies.take(&endpoints, None, None);
    }
}
