//! Virtual nodes: where an endpoint's points lie on the circle, and how many it has.

use crate::endpoint::{Endpoint, EndpointIndex};
use crate::hash::hash;
use std::ops::Range;
use std::sync::Arc;

/// One virtual node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Place on the circle.
    pub hash: u64,
    /// Whose it is.
    pub endpoint: EndpointIndex,
}

/// An endpoint as the ring sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The endpoint's id, which names its virtual nodes and settles ties.
    pub id: Arc<str>,
    /// Its virtual nodes that are on the ring now: the first so many.
    pub nodes: u32,
}

/// No endpoint has more than this many times the virtual nodes of an ordinary one.
const MAX_WEIGHT: f64 = 10.0;

/// Virtual nodes of `endpoint` on the ring now: `virtual_nodes` times its weight, rounded, at least one for a weight
/// above 0; of those as many as are active. A weight of 0, or one that is no number, takes it off the ring.
#[must_use]
pub fn member_nodes(endpoint: &Endpoint, virtual_nodes: u32) -> u32 {
    let nodes = if endpoint.weight > 0.0 && virtual_nodes > 0 {
        // In range: at most ten times a configured number, which fits.
        ((f64::from(virtual_nodes) * endpoint.weight.min(MAX_WEIGHT)).round() as u32).max(1)
    } else {
        0
    };
    endpoint.active_nodes.map_or(nodes, |active| nodes.min(active))
}

/// The members of a ring of `endpoints`, in their order.
#[must_use]
pub fn members(endpoints: &[Endpoint], virtual_nodes: u32) -> Vec<Member> {
    let member = |endpoint: &Endpoint| Member { id: endpoint.id.clone(), nodes: member_nodes(endpoint, virtual_nodes) };
    endpoints.iter().map(member).collect()
}

/// Writes the names of virtual nodes, `{id}#{node}`, into one buffer.
#[derive(Debug, Default)]
pub(super) struct Naming(Vec<u8>);

impl Naming {
    /// Calls `each` with the places of an endpoint's virtual nodes on the circle.
    pub(super) fn places(&mut self, id: &str, nodes: Range<u32>, mut each: impl FnMut(u64)) {
        self.0.clear();
        self.0.extend_from_slice(id.as_bytes());
        self.0.push(b'#');
        let prefix = self.0.len();
        for node in nodes {
            self.0.truncate(prefix);
            self.push_number(node);
            each(hash(&self.0));
        }
    }

    /// In decimal. By hand, since formatting takes five times as long as all the rest of placing a point.
    fn push_number(&mut self, number: u32) {
        let mut power = 1_u32;
        while number / power >= 10 {
            power = power.saturating_mul(10);
        }
        while power > 0 {
            let digit = u8::try_from(number / power % 10).unwrap_or_default();
            self.0.push(b'0'.saturating_add(digit));
            power /= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoint;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn nodes_follow_weight_and_what_is_active() {
        for (weight, active, expected) in [
            (1.0, None, 150),
            (2.0, None, 300),
            (0.5, None, 75),
            (0.001, None, 1),
            (0.0, None, 0),
            (-1.0, None, 0),
            (f64::NAN, None, 0),
            (f64::INFINITY, None, 1_500),
            (1.0, Some(15), 15),
            (1.0, Some(0), 0),
            (1.0, Some(10_000), 150),
        ] {
            let mut e = endpoint("a", "10.0.0.1:80");
            (e.weight, e.active_nodes) = (weight, active);
            assert_eq!(member_nodes(&e, 150), expected, "weight {weight}, active {active:?}");
        }
    }

    #[test]
    fn a_node_is_named_by_id_and_number() {
        let mut naming = Naming::default();
        for id in ["gpu-7", "", "10.0.0.1:8000"] {
            for nodes in [0..3, 8..12, 99..102, 149..150, 999..1_002, u32::MAX - 2..u32::MAX] {
                let expected: Vec<_> = nodes.clone().map(|node| hash(format!("{id}#{node}").as_bytes())).collect();
                let mut found = Vec::new();
                naming.places(id, nodes, |place| found.push(place));
                assert_eq!(found, expected, "{id}");
            }
        }
    }
}
