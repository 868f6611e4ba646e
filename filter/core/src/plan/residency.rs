//! What endpoints are believed to hold, by what was sent to them.
//!
//! A gateway through which all requests go can follow each endpoint's memory itself: a request loads its model, and what
//! was not used for the longest time makes room, up to the endpoint's memory units. What the endpoint itself is known
//! to hold replaces the belief whenever that news changes. An endpoint that is born anew starts empty.
//!
//! Beliefs err when somebody else sends requests, or when the model server evicts by another rule; then a request that
//! was thought warm takes as long as a load. That is one slow sample in a median, and the next request finds it loaded.

use crate::endpoint::{Endpoint, Resident};
use std::collections::BTreeMap;

/// Whether a request finds its model in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// It does.
    Warm,
    /// It has to load it.
    Cold,
}

/// Models believed at most of one endpoint, whatever memory it is said to have.
const MOST: usize = 1_024;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Residency {
    /// By the endpoint's key.
    endpoints: BTreeMap<u64, Held>,
    /// Rises with every use of a model.
    clock: u64,
}

#[derive(Clone, Debug, Default)]
struct Held {
    incarnation: u64,
    memory: u32,
    reported: Option<Resident>,
    /// Rising hashes, and beside each its size and when it was used last.
    models: Vec<u64>,
    uses: Vec<Use>,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    size: u32,
    last: u64,
}

impl Residency {
    /// Follows these endpoints and no others. `size_of` gives the size of a model that an endpoint is known to hold.
    pub fn follow(&mut self, endpoints: &[Endpoint], size_of: impl Fn(u64) -> u32) {
        let mut followed = BTreeMap::new();
        for endpoint in endpoints {
            let key = endpoint.key();
            let held = self.endpoints.remove(&key).filter(|held| held.incarnation == endpoint.incarnation);
            let mut held = held.unwrap_or_else(|| Held::new(endpoint));
            held.memory = endpoint.memory_units;
            if held.reported != endpoint.resident {
                held.replace(endpoint.resident.as_ref(), &size_of, self.clock);
            }
            held.resize(&size_of);
            held.make_room(0);
            followed.insert(key, held);
        }
        self.endpoints = followed;
    }

    /// A request of the model goes to the endpoint. Allocates at most where a model is loaded.
    pub fn touch(&mut self, endpoint: u64, model: u64, size: u32) -> Warmth {
        self.clock = self.clock.saturating_add(1);
        self.endpoints.get_mut(&endpoint).map_or(Warmth::Cold, |held| held.touch(model, size.max(1), self.clock))
    }

    /// What a request of the model would find at the endpoint.
    #[must_use]
    pub fn peek(&self, endpoint: u64, model: u64) -> Warmth {
        if self.models(endpoint).binary_search(&model).is_ok() { Warmth::Warm } else { Warmth::Cold }
    }

    /// The model turned out not to be there.
    pub fn forget(&mut self, endpoint: u64, model: u64) {
        if let Some(held) = self.endpoints.get_mut(&endpoint)
            && let Ok(at) = held.models.binary_search(&model)
        {
            held.remove(at);
        }
    }

    /// Models believed to be in the endpoint's memory, rising.
    #[must_use]
    pub fn models(&self, endpoint: u64) -> &[u64] {
        self.endpoints.get(&endpoint).map_or(&[], |held| &held.models)
    }
}

impl Held {
    fn new(endpoint: &Endpoint) -> Self {
        let room = usize::try_from(endpoint.memory_units).map_or(MOST, |units| units.min(64));
        Self {
            incarnation: endpoint.incarnation,
            models: Vec::with_capacity(room),
            uses: Vec::with_capacity(room),
            ..Self::default()
        }
    }

    fn replace(&mut self, reported: Option<&Resident>, size_of: impl Fn(u64) -> u32, clock: u64) {
        self.reported = reported.cloned();
        if let Some(reported) = reported {
            self.models.clear();
            self.models.extend(reported.hashes());
            self.models.dedup();
            self.uses.clear();
            self.uses.extend(self.models.iter().map(|model| Use { size: size_of(*model).max(1), last: clock }));
        }
    }

    fn resize(&mut self, size_of: impl Fn(u64) -> u32) {
        self.models.iter().zip(&mut self.uses).for_each(|(model, used)| used.size = size_of(*model).max(1));
    }

    fn touch(&mut self, model: u64, size: u32, clock: u64) -> Warmth {
        if let Ok(at) = self.models.binary_search(&model) {
            if let Some(used) = self.uses.get_mut(at) {
                *used = Use { size, last: clock };
            }
            return Warmth::Warm;
        }
        if size <= self.memory {
            self.make_room(size);
            let at = self.models.partition_point(|other| *other < model);
            self.models.insert(at, model);
            self.uses.insert(at, Use { size, last: clock });
        }
        Warmth::Cold
    }

    /// Drops the models used longest ago until one of that size fits.
    fn make_room(&mut self, size: u32) {
        let mut used: u64 = self.uses.iter().map(|used| u64::from(used.size)).sum();
        while used.saturating_add(size.into()) > self.memory.into() || self.models.len() >= MOST {
            let oldest = self.uses.iter().enumerate().min_by_key(|(_, used)| used.last);
            let Some((at, oldest)) = oldest else { break };
            used = used.saturating_sub(oldest.size.into());
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        self.models.remove(at);
        self.uses.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoints;
    use crate::hash::hash;
    use Warmth::{Cold, Warm};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Endpoints of that memory, and their keys.
    fn pool(memory: &[u32]) -> (Vec<Endpoint>, Vec<u64>) {
        let mut pool = endpoints(memory.len() as u32);
        pool.iter_mut().zip(memory).for_each(|(endpoint, memory)| endpoint.memory_units = *memory);
        let keys = pool.iter().map(Endpoint::key).collect();
        (pool, keys)
    }

    fn residency(pool: &[Endpoint]) -> Residency {
        let mut residency = Residency::default();
        residency.follow(pool, |_| 1);
        residency
    }

    #[test]
    fn the_model_used_longest_ago_makes_room() {
        let (pool, keys) = pool(&[2, 2]);
        let mut r = residency(&pool);
        let mut touch = |model| r.touch(keys[0], model, 1);
        assert_eq!([touch(1), touch(2), touch(1), touch(3), touch(1), touch(2)], [Cold, Cold, Warm, Cold, Warm, Cold]);
        assert_eq!(r.models(keys[0]), [1, 2]);
        assert_eq!((r.peek(keys[0], 1), r.peek(keys[1], 1)), (Warm, Cold), "each endpoint by itself");
    }

    #[test]
    fn sizes_count_and_what_never_fits_is_never_held() {
        let (pool, keys) = pool(&[4]);
        let mut r = residency(&pool);
        let mut touch = |model, size| r.touch(keys[0], model, size);
        assert_eq!([touch(1, 2), touch(2, 1), touch(3, 1), touch(4, 3)], [Cold; 4]);
        assert_eq!([touch(5, 9), touch(5, 9)], [Cold; 2]);
        assert_eq!(r.models(keys[0]), [3, 4], "1 and 2 made room for three units");
    }

    #[test]
    fn a_new_incarnation_starts_empty_and_one_that_left_is_forgotten() {
        let (mut pool, keys) = pool(&[2, 2, 2]);
        let mut r = residency(&pool);
        keys.iter().for_each(|key| assert_eq!(r.touch(*key, 7, 1), Cold));
        pool[1].incarnation = 1;
        pool.truncate(2);
        r.follow(&pool, |_| 1);
        assert_eq!([0, 1, 2].map(|n| r.peek(keys[n], 7)), [Warm, Cold, Cold]);
        assert_eq!(r.touch(keys[2], 7, 1), Cold);
        assert_eq!(r.touch(keys[2], 7, 1), Cold, "nothing is believed of a stranger");
    }

    #[test]
    fn what_is_known_replaces_the_belief_when_it_changes() {
        let (mut pool, keys) = pool(&[3]);
        let llama = hash(b"llama");
        pool[0].resident = Some(Resident::from_ids(["llama"]));
        let mut r = residency(&pool);
        assert_eq!(r.touch(keys[0], llama, 1), Warm);
        assert_eq!(r.touch(keys[0], 5, 1), Cold);
        r.follow(&pool, |_| 1);
        assert_eq!(r.peek(keys[0], 5), Warm, "old news");
        pool[0].resident = Some(Resident::from_ids(["bert"]));
        r.follow(&pool, |_| 1);
        assert_eq!(r.models(keys[0]), [hash(b"bert")]);
        pool[0].resident = None;
        r.follow(&pool, |_| 1);
        assert_eq!(r.models(keys[0]), [hash(b"bert")], "no news");
    }

    #[test]
    fn less_memory_holds_less() {
        let (mut pool, keys) = pool(&[3]);
        let mut r = residency(&pool);
        assert_eq!([1, 2, 3, 1].map(|model| r.touch(keys[0], model, 1)), [Cold, Cold, Cold, Warm]);
        pool[0].memory_units = 1;
        r.follow(&pool, |_| 1);
        assert_eq!(r.models(keys[0]), [1], "used last");
        pool[0].memory_units = 0;
        r.follow(&pool, |_| 1);
        assert_eq!([r.touch(keys[0], 1, 1), r.touch(keys[0], 1, 1)], [Cold; 2]);
    }

    #[test]
    fn a_model_that_was_not_there_is_cold_again() {
        let (pool, keys) = pool(&[3]);
        let mut r = residency(&pool);
        assert_eq!([r.touch(keys[0], 1, 1), r.touch(keys[0], 1, 1)], [Cold, Warm]);
        r.forget(keys[0], 1);
        r.forget(keys[0], 2);
        r.forget(1, 1);
        assert_eq!(r.touch(keys[0], 1, 1), Cold);
    }

    #[test]
    fn memory_without_end_is_believed_up_to_a_limit() {
        let (pool, keys) = pool(&[u32::MAX]);
        let mut r = residency(&pool);
        (0..3000).for_each(|model| assert_eq!(r.touch(keys[0], model, 1), Cold));
        assert_eq!(r.models(keys[0]).len(), MOST);
        assert_eq!(r.peek(keys[0], 2999), Warm);
    }
}
