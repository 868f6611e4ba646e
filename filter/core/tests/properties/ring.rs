//! The ring: who owns which keys, and who loses or gains them when endpoints come and go.

use crate::{endpoint, fixed, pool};
use proptest::prelude::*;
use std::collections::BTreeSet;
use warmroute_core::endpoint::Endpoint;
use warmroute_core::hash::hash;
use warmroute_core::ring::{Ring, member_nodes};

const KEYS: u64 = 4_000;

/// Owners by id of `KEYS` keys spread over the circle.
fn owners(endpoints: &[Endpoint]) -> Vec<Option<String>> {
    let ring = Ring::new(endpoints, 150);
    (0..KEYS)
        .map(|key| ring.walk(hash(&key.to_le_bytes())).next().map(|e| endpoints[e.position()].id.to_string()))
        .collect()
}

/// Endpoints called anything.
fn named(names: impl IntoIterator<Item = String>) -> Vec<Endpoint> {
    names.into_iter().enumerate().map(|(n, name)| Endpoint::new(name, endpoint(n).address)).collect()
}

fn names(count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = BTreeSet<String>> {
    prop::collection::btree_set("[a-z0-9.:#_-]{1,24}", count)
}

proptest! {
    #![proptest_config(fixed(40))]

    /// One of N endpoints less moves its own keys only, about 1/N of all: at most 1.5/N from 4 endpoints on. A share's
    /// standard deviation is its mean ÷ √150, 8 %; that of the count in 4,000 keys adds 16 % at 40 endpoints.
    #[test]
    fn removing_an_endpoint_moves_only_its_keys(names in names(4..40), gone in any::<prop::sample::Index>()) {
        let all = named(names);
        let before = owners(&all);
        let mut rest = all.clone();
        let name = rest.remove(gone.index(all.len())).id;
        let after = owners(&rest);
        let moved: Vec<_> = before.iter().zip(&after).filter(|(b, a)| b != a).collect();
        prop_assert!(moved.iter().all(|(b, _)| b.as_deref() == Some(&*name)));
        prop_assert!((moved.len() as f64) < 1.5 / all.len() as f64 * KEYS as f64, "{} of {KEYS}", moved.len());
    }

    /// One more moves keys to itself only, and as few.
    #[test]
    fn adding_an_endpoint_moves_keys_only_to_it(names in names(4..40), at in any::<prop::sample::Index>()) {
        let mut all = named(names);
        let before = owners(&all);
        let at = at.index(all.len() + 1);
        all.insert(at, Endpoint::new("NEW", endpoint(99).address));
        let after = owners(&all);
        let moved: Vec<_> = before.iter().zip(&after).filter(|(b, a)| b != a).collect();
        prop_assert!(moved.iter().all(|(_, a)| a.as_deref() == Some("NEW")));
        prop_assert!((moved.len() as f64) < 1.5 / all.len() as f64 * KEYS as f64, "{} of {KEYS}", moved.len());
    }

    #[test]
    fn insertion_order_is_irrelevant(names in names(1..20), seed in any::<u64>()) {
        let pool = named(names);
        let mut shuffled = pool.clone();
        shuffled.sort_by_key(|e| hash(format!("{seed}{}", e.id).as_bytes()));
        prop_assert_eq!(owners(&pool), owners(&shuffled));
    }

    /// 32 endpoints whatever they are called: a share's standard deviation is its mean ÷ √150, 8 %, so 1.40 is almost
    /// five of them, and one layout in some 2,000 goes beyond. The golden naming, which stays at 1.25, is checked
    /// beside the ring itself.
    #[test]
    fn shares_are_even_whatever_the_endpoints_are_called(names in names(32..=32)) {
        let shares = Ring::new(&named(names), 150).shares(32);
        prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let most = shares.iter().copied().fold(0.0, f64::max) * 32.0;
        prop_assert!(most <= 1.40, "{} times the mean", most);
    }

    /// Eight endpoints of each of the weights ½, 1, 2, 4 have 600 to 4,800 of 9,000 points. Their common share is
    /// proportional; its standard deviation is at most 1 ÷ √600, 4 %, and 20 % are five of them.
    #[test]
    fn shares_follow_the_weights(names in names(32..=32)) {
        let weights = [0.5, 1.0, 2.0, 4.0];
        let mut all = named(names);
        all.iter_mut().enumerate().for_each(|(n, endpoint)| endpoint.weight = weights[n % 4]);
        let shares = Ring::new(&all, 150).shares(32);
        for (class, weight) in weights.iter().enumerate() {
            prop_assert_eq!(f64::from(member_nodes(&all[class], 150)), weight * 150.0);
            let share: f64 = shares.iter().skip(class).step_by(4).sum();
            let expected = weight / 7.5;
            prop_assert!((share / expected - 1.0).abs() < 0.2, "weight {} has {}, not {}", weight, share, expected);
        }
    }

    /// A walk meets each point once, so that the first k distinct owners are there for every k up to the endpoints that
    /// have points.
    #[test]
    fn a_walk_meets_everybody_with_all_their_points(
        weights in prop::collection::vec(
            (prop::sample::select(vec![0.0, 0.01, 1.0, 3.0]), prop::option::of(0u32..20)),
            0..20,
        ),
        key in any::<u64>(),
    ) {
        let mut all = pool(weights.len());
        for (endpoint, (weight, active)) in all.iter_mut().zip(&weights) {
            (endpoint.weight, endpoint.active_nodes) = (*weight, *active);
        }
        let mut met = vec![0; all.len()];
        Ring::new(&all, 10).walk(key).for_each(|endpoint| met[endpoint.position()] += 1);
        let expected: Vec<u32> = all.iter().map(|endpoint| member_nodes(endpoint, 10)).collect();
        prop_assert_eq!(met, expected);
    }
}
