//! Virtual nodes: where an endpoint's points lie on the circle, and how many it has.

use crate::endpoint::{Endpoint, EndpointIndex};
use crate::hash::hash;
use std::fmt::Write;

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
    pub id: Box<str>,
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
pub(super) struct Naming(String);

impl Naming {
    /// The place of a virtual node on the circle.
    pub(super) fn place(&mut self, id: &str, node: u32) -> u64 {
        self.0.clear();
        // Writing to a String cannot fail; what is written names the node.
        let _written = write!(self.0, "{id}#{node}").is_ok();
        hash(self.0.as_bytes())
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
        assert_eq!(Naming::default().place("gpu-7", 149), hash(b"gpu-7#149"));
    }
}
