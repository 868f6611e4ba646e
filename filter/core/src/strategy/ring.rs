//! The ring's order: the k nearest distinct endpoints of the model, those that may not serve left out.
//!
//! Every proxy sends a model's requests to the same endpoint without talking to the others, so the model stays
//! resident there. When the first endpoint may not serve, all proxies fall through to the same second one.

use super::{PickList, Strategy, StrategyName, View};
use crate::endpoint::Endpoint;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::ring::Ring;
use rand::Rng;

/// See the module.
#[derive(Debug)]
pub struct RingOrder {
    virtual_nodes: u32,
    ring: Ring,
}

impl RingOrder {
    /// With `virtual_nodes` points an endpoint; empty until [`Strategy::update`].
    #[must_use]
    pub fn new(virtual_nodes: u32) -> Self {
        Self { virtual_nodes, ring: Ring::default() }
    }
}

impl Strategy for RingOrder {
    fn name(&self) -> StrategyName {
        StrategyName::Ring
    }

    fn update(&mut self, endpoints: &[Endpoint]) {
        self.ring = Ring::new(endpoints, self.virtual_nodes);
    }

    /// A request without a model has the key 0; the picker sends such requests to another strategy.
    fn pick(&self, request: &Request<'_>, view: &View<'_>, _rng: &mut dyn Rng) -> Result<PickList, Refusal> {
        let key = request.model.as_ref().map_or(0, |model| model.hash);
        let mut picks = PickList::new();
        for endpoint in self.ring.walk(key) {
            if picks.len() >= view.limit() {
                break;
            }
            if !picks.contains(&endpoint) && view.may_serve(endpoint) {
                // Cannot fail: the limit is at most the capacity.
                picks.push(endpoint);
            }
        }
        if picks.is_empty() { Err(Refusal::NoHealthyEndpoint) } else { Ok(picks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eligibility::count_eligible;
    use crate::endpoint::tests::endpoints;
    use crate::endpoint::{EndpointIndex, Score};
    use crate::load::Registry;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn pick(pool: &[Endpoint], model: &[u8], wanted: usize) -> Result<Vec<u32>, Refusal> {
        let mut ring = RingOrder::new(150);
        ring.update(pool);
        let load = Registry::default().bind(pool);
        let view = View { endpoints: pool, load: &load, eligible: count_eligible(pool), wanted };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        ring.pick(&Request::for_model(model), &view, &mut rng).map(|list| list.iter().map(|e| e.0).collect())
    }

    #[test]
    fn lists_distinct_endpoints_in_ring_order_whatever_the_length() {
        let pool = endpoints(6);
        let all = pick(&pool, b"llama", 6).unwrap();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
        for wanted in 1..=6 {
            assert_eq!(pick(&pool, b"llama", wanted).unwrap(), all[..wanted]);
        }
        assert_eq!(pick(&pool, b"llama", 100).unwrap(), all, "no more than there are");
    }

    #[test]
    fn falls_through_those_that_may_not_serve_and_keeps_the_order() {
        let mut pool = endpoints(6);
        let all = pick(&pool, b"llama", 6).unwrap();
        pool[all[0] as usize].marked_unhealthy = true;
        pool[all[2] as usize].score = Score::new(0.1).unwrap();
        assert_eq!(pick(&pool, b"llama", 3).unwrap(), [all[1], all[3], all[4]]);
    }

    #[test]
    fn refuses_when_nobody_may_serve() {
        let mut pool = endpoints(3);
        for endpoint in &mut pool {
            endpoint.marked_unhealthy = true;
        }
        assert_eq!(pick(&pool, b"llama", 2), Err(Refusal::NoHealthyEndpoint));
        assert_eq!(pick(&[], b"llama", 2), Err(Refusal::NoHealthyEndpoint));
    }

    #[test]
    fn a_list_is_never_longer_than_a_request_can_carry() {
        assert_eq!(pick(&endpoints(20), b"llama", 20).unwrap().len(), super::super::MAX_PICKS);
    }

    #[test]
    fn load_does_not_move_a_model() {
        let pool = endpoints(4);
        let mut ring = RingOrder::new(150);
        ring.update(&pool);
        let load = Registry::default().bind(&pool);
        let view = View { endpoints: &pool, load: &load, eligible: 4, wanted: 1 };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let first = ring.pick(&Request::for_model(b"llama"), &view, &mut rng).unwrap();
        let busy: Vec<_> = (0..50).map(|_| load.start(first[0])).collect();
        assert_eq!(ring.pick(&Request::for_model(b"llama"), &view, &mut rng).unwrap(), first);
        assert!(busy.iter().all(Option::is_some));
        assert!(!view.may_serve(EndpointIndex(4)));
    }
}
