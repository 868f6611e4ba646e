//! A rival: Maglev. Each endpoint fills a table in an order of its own, one entry a turn, so that all get equally many
//! and few entries move when one leaves. Source: Eisenbud et al., "Maglev", NSDI 2016, section 3.4.

use super::proxies::index;
use super::{Asked, Ended, Policy, Seen};
use crate::names::Names;
use warmroute_core::hash::hash;
use warmroute_core::strategy::PickList;

/// Entries: a prime, so that every step walks the whole table; Envoy's default.
const SIZE: usize = 65_537;

/// Endpoints that a request carries, as many as the core's lists by default.
const WANTED: usize = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Maglev {
    ids: Vec<String>,
    hashes: Vec<u64>,
    table: Vec<usize>,
}

impl Maglev {
    /// Over all endpoints.
    pub fn new(names: &Names) -> Self {
        let ids: Vec<String> = names.endpoints.iter().map(|endpoint| endpoint.id.to_string()).collect();
        let table = table(&ids, &vec![true; ids.len()]);
        Self { ids, hashes: names.hashes.clone(), table }
    }
}

/// Which endpoint has each entry; empty when nobody is up.
fn table(ids: &[String], up: &[bool]) -> Vec<usize> {
    let mut turns: Vec<(usize, Permutation)> =
        ids.iter().enumerate().filter(|(at, _)| up[*at]).map(|(at, id)| (at, Permutation::of(id))).collect();
    let mut table = vec![None; if turns.is_empty() { 0 } else { SIZE }];
    let mut free = table.len();
    while free > 0 {
        for (endpoint, order) in &mut turns {
            if free > 0
                && let Some(entry) = order.find(|entry| table[*entry].is_none())
            {
                table[entry] = Some(*endpoint);
                free -= 1;
            }
        }
    }
    table.into_iter().flatten().collect()
}

/// The order in which an endpoint wants the entries.
struct Permutation {
    next: usize,
    step: usize,
}

impl Permutation {
    fn of(id: &str) -> Self {
        let hash_of = |what: &str| hash(format!("{id}/{what}").as_bytes());
        let start = hash_of("start") % SIZE as u64;
        let step = hash_of("step") % (SIZE as u64 - 1) + 1;
        Self { next: start as usize, step: step as usize }
    }
}

impl Iterator for Permutation {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let entry = self.next;
        self.next = (self.next + self.step) % SIZE;
        Some(entry)
    }
}

impl Policy for Maglev {
    fn send(&mut self, asked: &Asked) -> PickList {
        let mut picks = PickList::new();
        let start = (self.hashes[asked.model] % SIZE as u64) as usize;
        for endpoint in self.table.iter().cycle().skip(start).take(self.table.len()).map(|at| index(*at)) {
            if picks.len() >= WANTED {
                break;
            }
            if !picks.contains(&endpoint) {
                picks.push(endpoint);
            }
        }
        picks
    }

    fn ended(&mut self, _ended: &Ended) {}

    fn told(&mut self, seen: &Seen<'_>) {
        self.table = table(&self.ids, seen.up);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("endpoint-{n}")).collect()
    }

    /// All take turns, so shares differ by one entry at most.
    #[test]
    fn everybody_has_as_many_entries() {
        let table = table(&ids(7), &[true; 7]);
        assert_eq!(table.len(), SIZE);
        for endpoint in 0..7 {
            let count = table.iter().filter(|at| **at == endpoint).count();
            assert!((SIZE / 7..=SIZE / 7 + 1).contains(&count), "{count}");
        }
    }

    /// An eighth must move; the paper saw little more, and a modulo would move seven eighths.
    #[test]
    fn few_entries_move_when_one_leaves() {
        let (ids, mut up) = (ids(8), [true; 8]);
        let before = table(&ids, &up);
        up[3] = false;
        let after = table(&ids, &up);
        let moved = before.iter().zip(&after).filter(|(old, new)| old != new).count() as f64 / SIZE as f64;
        assert!((0.12..0.25).contains(&moved), "{moved}");
        assert!(!after.contains(&3));
        assert!(table(&ids, &[false; 8]).is_empty());
    }
}
