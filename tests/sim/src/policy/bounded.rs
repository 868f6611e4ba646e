//! A rival: consistent hashing with bounded loads. A request walks the ring from its model and takes the first endpoint
//! whose requests in flight are below 1.25 times the mean, this request included. A proxy knows its own ones only.
//! Source: Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016.

use super::proxies::index;
use super::{Asked, Ended, Policy, Seen};
use crate::cell::Cell;
use crate::names::Names;
use std::collections::HashMap;
use warmroute_core::ring::Ring;
use warmroute_core::strategy::PickList;

/// Load of an endpoint ÷ the mean, at most.
const BOUND: f64 = 1.25;

/// Virtual nodes, as in the core.
const VIRTUAL_NODES: u32 = 150;

/// Endpoints that a request carries, as many as the core's lists by default.
const WANTED: usize = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Bounded {
    /// The endpoints in the order of the ring, for each model.
    orders: Vec<Vec<usize>>,
    up: Vec<bool>,
    /// Requests in flight by proxy and endpoint.
    in_flight: Vec<Vec<u32>>,
    /// Where each request under way was sent.
    sent: HashMap<usize, usize>,
}

impl Bounded {
    /// Over all endpoints.
    pub fn new(cell: &Cell, names: &Names) -> Self {
        let ring = Ring::new(&names.endpoints, VIRTUAL_NODES);
        Self {
            orders: names.hashes.iter().map(|model| order(&ring, *model)).collect(),
            up: vec![true; cell.endpoints],
            in_flight: vec![vec![0; cell.endpoints]; cell.proxies],
            sent: HashMap::new(),
        }
    }
}

fn order(ring: &Ring, model: u64) -> Vec<usize> {
    let mut order = Vec::new();
    for endpoint in ring.walk(model).map(|index| index.position()) {
        if !order.contains(&endpoint) {
            order.push(endpoint);
        }
    }
    order
}

/// Requests that an endpoint may have when one more is coming: the bound, rounded up.
fn room(in_flight: u32, endpoints: usize) -> u32 {
    (BOUND * f64::from(in_flight + 1) / endpoints.max(1) as f64).ceil() as u32
}

impl Policy for Bounded {
    fn send(&mut self, asked: &Asked) -> PickList {
        let own = &mut self.in_flight[asked.proxy];
        let up = || self.orders[asked.model].iter().copied().filter(|endpoint| self.up[*endpoint]);
        let most = room(own.iter().sum(), up().count());
        // Rounded up, the bounds add up to more than there is: somebody has room.
        let Some(pick) = up().find(|endpoint| own[*endpoint] < most).or_else(|| up().next()) else {
            return PickList::new();
        };
        let rest = up().filter(|endpoint| *endpoint != pick);
        let list = std::iter::once(pick).chain(rest).take(WANTED).map(index).collect();
        own[pick] += 1;
        self.sent.insert(asked.request, pick);
        list
    }

    fn ended(&mut self, ended: &Ended) {
        if let Some(endpoint) = self.sent.remove(&ended.asked.request) {
            self.in_flight[ended.asked.proxy][endpoint] -= 1;
        }
    }

    fn told(&mut self, seen: &Seen<'_>) {
        self.up = seen.up.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn policy() -> (Bounded, Names) {
        let cell = Cell { endpoints: 4, models: 3, proxies: 1, ..Cell::default() };
        let names = Names::new(&cell, 1);
        (Bounded::new(&cell, &names), names)
    }

    fn send(policy: &mut Bounded, request: usize) -> usize {
        policy.send(&Asked { request, proxy: 0, model: 0, now: Duration::ZERO })[0].position()
    }

    /// Of 4 endpoints each may have ⌈1.25 · n ÷ 4⌉ when the n-th comes: 1 for n ≤ 3, 2 for n ≤ 6.
    #[test]
    fn a_busy_endpoint_hands_on_to_the_next_of_the_ring() {
        let (mut policy, _) = policy();
        let order = policy.orders[0].clone();
        let picks: Vec<usize> = (0..6).map(|request| send(&mut policy, request)).collect();
        assert_eq!(picks, [order[0], order[1], order[2], order[0], order[1], order[2]]);
        let asked = Asked { request: 0, proxy: 0, model: 0, now: Duration::ZERO };
        let outcome = warmroute_core::outcome::Outcome::Success;
        policy.ended(&Ended { asked, endpoint: Some(order[0]), outcome, now: Duration::ZERO });
        assert_eq!(send(&mut policy, 9), order[0], "it has room again");
    }

    #[test]
    fn the_dead_are_left_out_once_told() {
        let (mut policy, _) = policy();
        let order = policy.orders[0].clone();
        let mut up = [true; 4];
        up[order[0]] = false;
        policy.told(&Seen { gpus: &[], up: &up, now: Duration::ZERO });
        assert_eq!(send(&mut policy, 0), order[1]);
    }
}
