//! Sorting and maps whose machine code is small.
//!
//! The standard library's sorts are fast, and some five kilobytes for every type that is sorted; collecting into a map
//! sorts as well. The filter's file is loaded by every proxy and has a limit, and what it sorts is small or rare. So in
//! wasm a plain merge sort stands in; elsewhere it is the standard library's. Both are stable, so the order is the same.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Sorts stably.
#[cfg(not(target_arch = "wasm32"))]
#[expect(clippy::ptr_arg, reason = "the other one splits the vector")]
pub(crate) fn sort<T>(items: &mut Vec<T>, compare: &mut dyn FnMut(&T, &T) -> Ordering) {
    items.sort_by(compare);
}

/// Sorts stably.
#[cfg(target_arch = "wasm32")]
pub(crate) fn sort<T>(items: &mut Vec<T>, compare: &mut dyn FnMut(&T, &T) -> Ordering) {
    merge_sort(items, compare);
}

/// A map of what the iterator gives; of several values of one key the last counts.
pub(crate) fn map<K: Ord, V>(items: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    for (key, value) in items {
        map.insert(key, value);
    }
    map
}

/// Up to this many items are sorted by insertion, without memory of their own.
#[cfg(any(target_arch = "wasm32", test))]
const FEW: usize = 24;

#[cfg(any(target_arch = "wasm32", test))]
fn merge_sort<T>(items: &mut Vec<T>, compare: &mut dyn FnMut(&T, &T) -> Ordering) {
    if items.len() <= FEW {
        return insertion_sort(items, compare);
    }
    let mut right = items.split_off(items.len() / 2);
    merge_sort(items, compare);
    merge_sort(&mut right, compare);
    let count = items.len().saturating_add(right.len());
    let mut left = std::mem::replace(items, Vec::with_capacity(count)).into_iter().peekable();
    let mut right = right.into_iter().peekable();
    loop {
        let take_right = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) => compare(r, l) == Ordering::Less,
            (None, None) => return,
            (None, Some(_)) => true,
            (Some(_), None) => false,
        };
        items.extend(if take_right { right.next() } else { left.next() });
    }
}

#[cfg(any(target_arch = "wasm32", test))]
fn insertion_sort<T>(items: &mut [T], compare: &mut dyn FnMut(&T, &T) -> Ordering) {
    for end in 1..items.len() {
        let mut at = end;
        while let (Some(below), Some(item)) = (items.get(at.wrapping_sub(1)), items.get(at)) {
            if compare(item, below) != Ordering::Less {
                break;
            }
            items.swap(at.wrapping_sub(1), at);
            at = at.wrapping_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Items with few distinct keys and their positions: a stable sort keeps the positions in order within a key.
    #[test]
    fn the_small_sort_does_what_the_large_one_does() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(21);
        for length in (0..60).chain([100, 1_000, 5_000]) {
            let items: Vec<(u8, usize)> = (0..length).map(|at| (rng.random_range(0..9), at)).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            let mut found = items.clone();
            merge_sort(&mut found, &mut |a, b| a.0.cmp(&b.0));
            assert_eq!(found, expected, "{length} items");
            let mut found = items;
            sort(&mut found, &mut |a, b| a.0.cmp(&b.0));
            assert_eq!(found, expected, "{length} items");
        }
    }

    #[test]
    fn of_several_values_the_last_counts() {
        assert_eq!(map([(1, 'a'), (2, 'b'), (1, 'c')]), [(1, 'c'), (2, 'b')].into());
    }
}
