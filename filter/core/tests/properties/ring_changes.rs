//! Rings made from rings, and endpoints that join step by step.

use crate::{fixed, pool};
use proptest::prelude::*;
use warmroute_core::endpoint::{Endpoint, EndpointIndex};
use warmroute_core::hash::hash;
use warmroute_core::ring::{Member, Progress, Ring, RingBuilder, arrange, members};

/// Some of 16 endpoints, with their weights, and whether they keep their positions.
fn sets() -> impl Strategy<Value = Vec<(Vec<Endpoint>, bool)>> {
    let set = prop::collection::vec(
        (any::<bool>(), prop::sample::select(vec![0.0, 0.2, 1.0, 1.0, 4.0]), prop::option::weighted(0.2, 0u32..60)),
        16,
    );
    let endpoints = |choice: Vec<(bool, f64, Option<u32>)>| {
        let chosen = pool(16).into_iter().zip(choice).filter(|(_, (there, _, _))| *there);
        chosen.map(|(endpoint, (_, weight, active_nodes))| Endpoint { weight, active_nodes, ..endpoint }).collect()
    };
    prop::collection::vec((set.prop_map(endpoints), prop::bool::weighted(0.8)), 1..8)
}

proptest! {
    #![proptest_config(fixed(300))]

    /// Whatever the sequence of changes, and whatever the slices in which they are made.
    #[test]
    fn a_ring_made_by_changes_is_the_ring_from_nothing(
        sets in sets(),
        slices in prop::collection::vec(1usize..400, 1..6),
        nodes in 1u32..60,
    ) {
        let (mut ring, mut before) = (Ring::default(), Vec::new());
        for (set, keeps) in sets {
            let after = if keeps { arrange(&before, set) } else { set };
            let (old, new): (Vec<Member>, Vec<Member>) = (members(&before, nodes), members(&after, nodes));
            let mut builder = RingBuilder::change(ring.clone(), &old, &new);
            let kept = ring.clone();
            let mut slices = slices.iter().cycle();
            let mut left = builder.points_left();
            while slices.next().is_some_and(|slice| builder.step(*slice) == Progress::More) {
                prop_assert!(builder.points_left() <= left, "no work is added");
                left = builder.points_left();
            }
            prop_assert_eq!(&kept, &ring, "the ring before stays as it was");
            ring = builder.finish();
            prop_assert_eq!(&ring, &Ring::new(&after, nodes));
            before = after;
        }
    }

    #[test]
    fn an_endpoint_that_joins_in_steps_takes_keys_and_moves_no_others(
        count in 2usize..12,
        joins in any::<prop::sample::Index>(),
        mut steps in prop::collection::vec(0u32..=150, 1..6),
    ) {
        let (mut all, joins) = (pool(count), joins.index(count));
        let index = EndpointIndex(u32::try_from(joins).unwrap());
        let owners = |all: &[Endpoint]| -> Vec<Option<EndpointIndex>> {
            let ring = Ring::new(all, 150);
            (0..500u64).map(|key| ring.walk(hash(&key.to_le_bytes())).next()).collect()
        };
        all[joins].active_nodes = Some(0);
        let mut before = owners(&all);
        prop_assert!(!before.contains(&Some(index)), "nothing is its own yet");
        steps.sort_unstable();
        for active in steps {
            all[joins].active_nodes = Some(active);
            let after = owners(&all);
            prop_assert!(before.iter().zip(&after).all(|(b, a)| b == a || *a == Some(index)));
            before = after;
        }
        all[joins].active_nodes = None;
        let whole = owners(&all);
        prop_assert!(before.iter().zip(&whole).all(|(b, a)| b == a || *a == Some(index)));
    }
}
