//! Rings made by changes, in slices of any size, against rings from nothing.

use arbitrary::{Arbitrary, Unstructured};
use std::collections::{BTreeMap, BTreeSet};
use warmroute_core::endpoint::Endpoint;
use warmroute_core::ring::{Member, Progress, Ring, RingBuilder, arrange, members};

#[derive(Arbitrary, Debug)]
struct Change {
    /// Names and how many virtual nodes; of several of one name the last counts.
    members: Vec<(u8, u8)>,
    /// Whether those that stay keep their positions.
    arranged: bool,
    reversed: bool,
    slice: u8,
}

impl Change {
    fn endpoints(&self) -> Vec<Endpoint> {
        let nodes: BTreeMap<u8, u8> = self.members.iter().copied().collect();
        let endpoint = |(name, nodes): (u8, u8)| {
            let address = format!("10.0.0.{name}:80").parse().expect("an address");
            Endpoint { active_nodes: Some(u32::from(nodes)), ..Endpoint::new(format!("gpu-{name}"), address) }
        };
        let mut endpoints: Vec<Endpoint> = nodes.into_iter().map(endpoint).collect();
        if self.reversed {
            endpoints.reverse();
        }
        endpoints
    }
}

/// See the module.
pub fn check(bytes: &[u8]) {
    let Ok(changes) = Vec::<Change>::arbitrary(&mut Unstructured::new(bytes)) else { return };
    let (mut ring, mut before) = (Ring::default(), Vec::new());
    for change in changes.iter().take(16) {
        let after = change.endpoints();
        let after = if change.arranged { arrange(&before, after) } else { after };
        let (old, new) = (members(&before, 255), members(&after, 255));
        ring = changed(ring, &old, &new, usize::from(change.slice));
        check_ring(&ring, &new);
        before = after;
    }
}

fn changed(ring: Ring, old: &[Member], new: &[Member], slice: usize) -> Ring {
    let mut builder = RingBuilder::change(ring, old, new);
    let mut left = builder.points_left();
    while builder.step(slice) == Progress::More {
        assert!(builder.points_left() <= left);
        left = builder.points_left();
    }
    assert_eq!(builder.points_left(), 0);
    builder.finish()
}

fn check_ring(ring: &Ring, members: &[Member]) {
    let nothing = RingBuilder::from_nothing(members).finish();
    assert_eq!(*ring, nothing);
    let points: u32 = members.iter().map(|member| member.nodes).sum();
    assert_eq!(ring.len(), points as usize);
    assert!(ring.points().is_sorted_by_key(|point| point.hash));
    let shares = ring.shares(members.len());
    let sum: f64 = shares.iter().sum();
    assert!((sum - if points == 0 { 0.0 } else { 1.0 }).abs() < 1e-9, "{sum}");
    for (share, member) in shares.iter().zip(members) {
        // A sum of many floats is off by a little.
        assert!((0.0..=1.0 + 1e-9).contains(share) && (member.nodes > 0 || *share == 0.0));
    }
    let met: BTreeSet<usize> = ring.walk(1 << 63).map(|endpoint| endpoint.position()).collect();
    let expected: BTreeSet<usize> = (0..members.len()).filter(|n| members[*n].nodes > 0).collect();
    assert_eq!(met, expected, "a walk meets everybody");
}
