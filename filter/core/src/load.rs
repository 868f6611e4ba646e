//! Requests in flight per endpoint, as this VM sent them.
//!
//! A count belongs to one life of an address, not to a configuration: a new configuration finds the counts of the
//! requests that the old one sent, and two listeners of one proxy add up, while an endpoint that was born again starts
//! at zero. A request holds an [`InFlight`] guard, so every way in which it can end releases it exactly once, and a
//! count can never go below zero.
//!
//! A request counts by the weight of its payload class: a batch of 64 images is not one more of the same.

use crate::address::Address;
use crate::endpoint::{Endpoint, EndpointIndex};
use crate::live::Cluster;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// How loaded each endpoint is; what a strategy sees.
pub trait Load {
    /// Weights of the requests in flight at `endpoint`; 0 for an endpoint that is not there.
    fn in_flight(&self, endpoint: EndpointIndex) -> u32;

    /// How many of the requests in flight were sent to an endpoint that had to load the model first.
    fn cold(&self, endpoint: EndpointIndex) -> u32;
}

/// What is in flight at one life of one address.
#[derive(Debug, Default)]
struct Counts {
    requests: Cell<u32>,
    weight: Cell<u32>,
    cold: Cell<u32>,
}

/// One request in flight, released when dropped.
#[derive(Debug)]
pub struct InFlight {
    counts: Rc<Counts>,
    weight: u32,
    cold: bool,
    before: u32,
}

impl InFlight {
    /// Requests that were in flight there just before, whatever their weights.
    #[must_use]
    pub fn before(&self) -> u32 {
        self.before
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Counts { requests, weight, cold } = &*self.counts;
        requests.set(requests.get().saturating_sub(1));
        weight.set(weight.get().saturating_sub(self.weight));
        cold.set(cold.get().saturating_sub(u32::from(self.cold)));
    }
}

/// Counts of one pool's endpoints, by their index.
#[derive(Debug, Default)]
pub struct PoolLoad {
    counts: Box<[Rc<Counts>]>,
}

impl PoolLoad {
    /// Counts one request of `weight` at `endpoint` until the guard is dropped; `None` for an endpoint that is not
    /// there. A weight that the sum has no room for is counted as far as there is room, and no more is released.
    #[must_use]
    pub fn start(&self, endpoint: EndpointIndex, weight: u32, cold: bool) -> Option<InFlight> {
        let counts = Rc::clone(self.counts.get(endpoint.position())?);
        let (before, sum) = (counts.requests.get(), counts.weight.get());
        let weight = weight.min(u32::MAX.saturating_sub(sum));
        counts.requests.set(before.saturating_add(1));
        counts.weight.set(sum.saturating_add(weight));
        counts.cold.set(counts.cold.get().saturating_add(u32::from(cold)));
        Some(InFlight { counts, weight, cold, before })
    }
}

impl Load for PoolLoad {
    fn in_flight(&self, endpoint: EndpointIndex) -> u32 {
        self.counts.get(endpoint.position()).map_or(0, |counts| counts.weight.get())
    }

    fn cold(&self, endpoint: EndpointIndex) -> u32 {
        self.counts.get(endpoint.position()).map_or(0, |counts| counts.cold.get())
    }
}

/// Every life of an address, and every cluster, that some pool or some request still refers to; one per VM.
#[derive(Debug, Default)]
pub struct Registry {
    counts: BTreeMap<(Address, u64), Weak<Counts>>,
    clusters: BTreeMap<Box<[u8]>, Weak<Cluster>>,
}

impl Registry {
    /// Forgets what nothing refers to any more.
    pub fn prune(&mut self) {
        self.counts.retain(|_, counts| counts.strong_count() > 0);
        self.clusters.retain(|_, cluster| cluster.strong_count() > 0);
    }

    /// What the pools of Envoy's cluster of that name share.
    pub(crate) fn cluster(&mut self, name: &[u8]) -> Rc<Cluster> {
        if let Some(cluster) = self.clusters.get(name).and_then(Weak::upgrade) {
            return cluster;
        }
        let cluster = Rc::<Cluster>::default();
        self.clusters.insert(name.into(), Rc::downgrade(&cluster));
        cluster
    }

    /// The counts of `endpoints`, shared with every other pool and request at the same addresses and incarnations.
    pub fn bind(&mut self, endpoints: &[Endpoint]) -> PoolLoad {
        let counts = endpoints.iter().map(|endpoint| self.counts(endpoint)).collect();
        PoolLoad { counts }
    }

    fn counts(&mut self, endpoint: &Endpoint) -> Rc<Counts> {
        let key = (endpoint.address.clone(), endpoint.incarnation);
        if let Some(counts) = self.counts.get(&key).and_then(Weak::upgrade) {
            return counts;
        }
        let counts = Rc::new(Counts::default());
        self.counts.insert(key, Rc::downgrade(&counts));
        counts
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.counts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoints;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const FIRST: EndpointIndex = EndpointIndex(0);
    const SECOND: EndpointIndex = EndpointIndex(1);

    #[test]
    fn a_guard_counts_one_until_it_is_dropped() {
        let load = Registry::default().bind(&endpoints(2));
        let one = load.start(FIRST, 1, false);
        let two = load.start(FIRST, 1, false);
        assert_eq!((load.in_flight(FIRST), load.in_flight(SECOND)), (2, 0));
        drop(one);
        assert_eq!(load.in_flight(FIRST), 1);
        drop(two);
        assert_eq!(load.in_flight(FIRST), 0);
    }

    #[test]
    fn an_endpoint_that_is_not_there_counts_nothing() {
        let load = Registry::default().bind(&endpoints(1));
        assert!(load.start(SECOND, 1, false).is_none());
        assert_eq!(load.in_flight(SECOND), 0);
    }

    #[test]
    fn a_new_configuration_finds_the_requests_of_the_old_one() {
        let mut registry = Registry::default();
        let old = registry.bind(&endpoints(2));
        let request = old.start(SECOND, 1, false);
        drop(old);
        let mut reversed = endpoints(2);
        reversed.reverse();
        let new = registry.bind(&reversed);
        assert_eq!((new.in_flight(FIRST), new.in_flight(SECOND)), (1, 0));
        drop(request);
        assert_eq!(new.in_flight(FIRST), 0);
    }

    #[test]
    fn addresses_that_nothing_refers_to_are_forgotten() {
        let mut registry = Registry::default();
        let old = registry.bind(&endpoints(100));
        let request = old.start(EndpointIndex(99), 1, false);
        drop(old);
        let new = registry.bind(&endpoints(1));
        registry.prune();
        assert_eq!(registry.len(), 2, "the one bound, and the one with a request in flight");
        drop((request, new));
        registry.prune();
        assert_eq!(registry.len(), 0);
    }

    #[test]
    fn a_heavy_request_counts_by_its_weight_and_a_cold_one_as_cold() {
        let load = Registry::default().bind(&endpoints(1));
        let heavy = load.start(FIRST, 8, false);
        let cold = load.start(FIRST, 1, true);
        assert_eq!((load.in_flight(FIRST), load.cold(FIRST)), (9, 1));
        assert_eq!(cold.as_ref().map(InFlight::before), Some(1), "one request, whatever it weighs");
        drop(heavy);
        assert_eq!((load.in_flight(FIRST), load.cold(FIRST)), (1, 1));
        drop(cold);
        assert_eq!((load.in_flight(FIRST), load.cold(FIRST)), (0, 0));
    }

    /// What found no room is not taken away either: the count of the others stays.
    #[test]
    fn a_full_count_stays_full_and_comes_back_to_zero() {
        let load = Registry::default().bind(&endpoints(1));
        let one = load.start(FIRST, 5, false);
        let huge = load.start(FIRST, u32::MAX, false);
        let none_left = load.start(FIRST, 7, false);
        assert_eq!(load.in_flight(FIRST), u32::MAX);
        drop(none_left);
        assert_eq!(load.in_flight(FIRST), u32::MAX);
        drop(huge);
        assert_eq!(load.in_flight(FIRST), 5);
        drop(one);
        assert_eq!(load.in_flight(FIRST), 0);
    }

    /// Same address, new life: what the old one had in flight died with it.
    #[test]
    fn an_endpoint_born_again_starts_at_zero() {
        let mut registry = Registry::default();
        let old = registry.bind(&endpoints(1));
        let request = old.start(FIRST, 1, false);
        let mut reborn = endpoints(1);
        reborn[0].incarnation = 1;
        let new = registry.bind(&reborn);
        assert_eq!((old.in_flight(FIRST), new.in_flight(FIRST)), (1, 0));
        let next = new.start(FIRST, 1, false);
        drop(request);
        assert_eq!((old.in_flight(FIRST), new.in_flight(FIRST)), (0, 1), "a late end belongs to the life it began in");
        drop(next);
    }
}
