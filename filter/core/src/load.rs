//! Requests in flight per endpoint, as this VM sent them.
//!
//! A count belongs to an address, not to a configuration: a new configuration finds the counts of the requests that
//! the old one sent, and two listeners of one proxy add up. A request holds an [`InFlight`] guard, so every way in
//! which it can end releases it exactly once, and a count can never go below zero.

use crate::address::Address;
use crate::endpoint::{Endpoint, EndpointIndex};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// How loaded each endpoint is; what a strategy sees.
pub trait Load {
    /// Requests in flight at `endpoint`; 0 for an endpoint that is not there.
    fn in_flight(&self, endpoint: EndpointIndex) -> u32;
}

/// One request in flight, released when dropped.
#[derive(Debug)]
pub struct InFlight {
    count: Rc<Cell<u32>>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.count.set(self.count.get().saturating_sub(1));
    }
}

/// Counts of one pool's endpoints, by their index.
#[derive(Debug, Default)]
pub struct PoolLoad {
    counts: Box<[Rc<Cell<u32>>]>,
}

impl PoolLoad {
    /// Counts one request at `endpoint` until the guard is dropped; `None` for an endpoint that is not there.
    #[must_use]
    pub fn start(&self, endpoint: EndpointIndex) -> Option<InFlight> {
        let count = Rc::clone(self.counts.get(endpoint.position())?);
        count.set(count.get().saturating_add(1));
        Some(InFlight { count })
    }
}

impl Load for PoolLoad {
    fn in_flight(&self, endpoint: EndpointIndex) -> u32 {
        self.counts.get(endpoint.position()).map_or(0, |count| count.get())
    }
}

/// Every address that some pool or some request still refers to; one per VM.
#[derive(Debug, Default)]
pub struct Registry {
    counts: BTreeMap<Address, Weak<Cell<u32>>>,
}

impl Registry {
    /// Forgets the addresses that nothing refers to any more.
    pub fn prune(&mut self) {
        self.counts.retain(|_, count| count.strong_count() > 0);
    }

    /// The counts of `endpoints`, shared with every other pool and request at the same addresses.
    pub fn bind(&mut self, endpoints: &[Endpoint]) -> PoolLoad {
        let counts = endpoints.iter().map(|endpoint| self.count(&endpoint.address)).collect();
        PoolLoad { counts }
    }

    fn count(&mut self, address: &Address) -> Rc<Cell<u32>> {
        if let Some(count) = self.counts.get(address).and_then(Weak::upgrade) {
            return count;
        }
        let count = Rc::new(Cell::new(0));
        self.counts.insert(address.clone(), Rc::downgrade(&count));
        count
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
        let one = load.start(FIRST);
        let two = load.start(FIRST);
        assert_eq!((load.in_flight(FIRST), load.in_flight(SECOND)), (2, 0));
        drop(one);
        assert_eq!(load.in_flight(FIRST), 1);
        drop(two);
        assert_eq!(load.in_flight(FIRST), 0);
    }

    #[test]
    fn an_endpoint_that_is_not_there_counts_nothing() {
        let load = Registry::default().bind(&endpoints(1));
        assert!(load.start(SECOND).is_none());
        assert_eq!(load.in_flight(SECOND), 0);
    }

    #[test]
    fn a_new_configuration_finds_the_requests_of_the_old_one() {
        let mut registry = Registry::default();
        let old = registry.bind(&endpoints(2));
        let request = old.start(SECOND);
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
        let request = old.start(EndpointIndex(99));
        drop(old);
        let new = registry.bind(&endpoints(1));
        registry.prune();
        assert_eq!(registry.len(), 2, "the one bound, and the one with a request in flight");
        drop((request, new));
        registry.prune();
        assert_eq!(registry.len(), 0);
    }
}
