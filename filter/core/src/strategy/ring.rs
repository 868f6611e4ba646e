//! The ring's order: the k nearest distinct endpoints of the model, those that may not serve left out.
//!
//! Every proxy sends a model's requests to the same endpoint without talking to the others, so the model stays
//! resident there. When the first endpoint may not serve, all proxies fall through to the same second one.

use super::{PickList, Strategy, StrategyName, View};
use crate::refusal::Refusal;
use crate::request::Request;
use rand::Rng;

/// Points that a pick looks at. With 150 virtual nodes and half of a pool refused, the list is full after a few; only
/// where almost nobody may serve is the rest found among the candidates instead.
const WALK: usize = 8_192;

/// See the module.
#[derive(Debug, Default)]
pub struct RingOrder;

impl Strategy for RingOrder {
    fn name(&self) -> StrategyName {
        StrategyName::Ring
    }

    /// A request without a model has the key 0; the picker sends such requests to another strategy.
    fn pick(&self, request: &Request<'_>, view: &View<'_>, _rng: &mut dyn Rng) -> Result<PickList, Refusal> {
        let mut picks = PickList::new();
        extend(&mut picks, request.model.as_ref().map_or(0, |model| model.hash), view);
        if picks.is_empty() { Err(Refusal::NoHealthyEndpoint) } else { Ok(picks) }
    }
}

/// Fills the list up to the view's limit with endpoints that may serve, in the ring's order from `key`.
pub(super) fn extend(picks: &mut PickList, key: u64, view: &View<'_>) {
    let limit = view.limit();
    if picks.len() >= limit {
        return;
    }
    let mut last = None;
    for endpoint in view.ring.walk(key).take(WALK) {
        // Neighbours on the ring are often the same endpoint's.
        if last != Some(endpoint) && !picks.contains(&endpoint) && view.may_serve(endpoint) {
            // Cannot fail: the limit is at most the capacity.
            picks.push(endpoint);
            if picks.len() >= limit {
                return;
            }
        }
        last = Some(endpoint);
    }
    extend_from_candidates(picks, key, view);
}

/// From a place among the candidates that every proxy derives from the key alike.
fn extend_from_candidates(picks: &mut PickList, key: u64, view: &View<'_>) {
    let (limit, candidates) = (view.limit(), view.candidates());
    let count = u64::try_from(candidates.len()).unwrap_or(u64::MAX).max(1);
    let start = usize::try_from(key % count).unwrap_or(0);
    for endpoint in candidates.iter().cycle().skip(start).take(candidates.len()) {
        if picks.len() >= limit {
            return;
        }
        if !picks.contains(endpoint) && view.may_serve(*endpoint) {
            picks.push(*endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::Scene;
    use super::*;
    use crate::endpoint::tests::endpoints;
    use crate::endpoint::{Endpoint, Resident, Score, Servable};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn pick(pool: &[Endpoint], model: &[u8], wanted: usize) -> Result<Vec<u32>, Refusal> {
        Scene::new(pool.to_vec()).pick(&RingOrder, &Request::for_model(model), wanted)
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
        pool[all[3] as usize].draining = true;
        assert_eq!(pick(&pool, b"llama", 3).unwrap(), [all[1], all[4], all[5]]);
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

    /// Two of 300 can serve the model, farther along the ring than a pick looks: they are found all the same, the same
    /// one first for everybody.
    #[test]
    fn the_few_that_can_serve_are_found_in_a_large_pool() {
        let mut pool = endpoints(300);
        for (n, endpoint) in pool.iter_mut().enumerate() {
            let models = if n == 17 || n == 230 { ["bert"] } else { ["gpt"] };
            endpoint.servable = Servable::Fixed(Resident::from_ids(models));
        }
        let mut found = pick(&pool, b"bert", 3).unwrap();
        assert_eq!(found, pick(&pool, b"bert", 3).unwrap());
        found.sort_unstable();
        assert_eq!(found, [17, 230]);
        assert_eq!(pick(&pool, b"llama", 3), Err(Refusal::NoHealthyEndpoint), "on nobody's list");
    }

    #[test]
    fn load_does_not_move_a_model() {
        let scene = Scene::new(endpoints(4));
        let first = scene.pick(&RingOrder, &Request::for_model(b"llama"), 1).unwrap();
        let busy: Vec<_> = (0..50).map(|_| scene.busy(first[0], 1)).collect();
        assert_eq!(scene.pick(&RingOrder, &Request::for_model(b"llama"), 1).unwrap(), first);
        assert_eq!(busy.len(), 50);
    }
}
