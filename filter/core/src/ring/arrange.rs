//! Positions that endpoints keep.
//!
//! A ring's points name endpoints by their positions in the pool. If a new list of endpoints shifted everybody behind
//! the one that left, all their points would have to be written anew.

use crate::endpoint::Endpoint;
use crate::small;
use std::collections::BTreeMap;

/// Orders a new list of endpoints so that those that were there `before` keep their positions, by id. Places that became
/// free are filled by new endpoints, and when there are none by the last ones: one endpoint more or less touches the
/// points of two endpoints at most.
#[must_use]
pub fn arrange(before: &[Endpoint], after: Vec<Endpoint>) -> Vec<Endpoint> {
    let positions: BTreeMap<&str, usize> =
        small::map(before.iter().enumerate().map(|(n, endpoint)| (&*endpoint.id, n)));
    let count = after.len();
    let mut places: Vec<Option<Endpoint>> = (0..count).map(|_| None).collect();
    let mut homeless = Vec::new();
    for endpoint in after {
        match positions.get(&*endpoint.id).and_then(|n| places.get_mut(*n)).filter(|place| place.is_none()) {
            Some(place) => *place = Some(endpoint),
            None => homeless.push(endpoint),
        }
    }
    let mut homeless = homeless.into_iter();
    places.into_iter().filter_map(|place| place.or_else(|| homeless.next())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoint;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn pool(ids: &[&str]) -> Vec<Endpoint> {
        ids.iter().map(|id| endpoint(id, "10.0.0.1:80")).collect()
    }

    #[test]
    fn those_that_stay_keep_their_positions() {
        for (before, after, expected) in [
            (&["a", "b", "c"][..], &["c", "b", "a"][..], &["a", "b", "c"][..]),
            (&["a", "b", "c"], &["b", "c", "d"], &["d", "b", "c"]),
            (&["a", "b", "c"], &["a", "c"], &["a", "c"]),
            (&["a", "b", "c", "d"], &["b", "c", "d"], &["d", "b", "c"]),
            (&["a", "b"], &["x", "a", "y", "b", "z"], &["a", "b", "x", "y", "z"]),
            (&[], &["a", "b"], &["a", "b"]),
            (&["a"], &[], &[]),
            (&["a"], &["b", "b"], &["b", "b"]),
        ] {
            let arranged = arrange(&pool(before), pool(after));
            let ids: Vec<_> = arranged.iter().map(|endpoint| &*endpoint.id).collect();
            assert_eq!(ids, expected, "{before:?} to {after:?}");
        }
    }
}
