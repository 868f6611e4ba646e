//! Least requests: the endpoint with the fewest requests in flight per score, ties at random.
//!
//! Up to [`EXACT`] candidates all are compared; of more, [`SAMPLE`] random ones, as Envoy's policy of this name does: a
//! pick must not read 10,000 counts, and many proxies that agree on the least loaded endpoint would all go there.
//! Source: Envoy's least_request, <https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/load_balancing/load_balancers>.

use super::p2c::cost;
use super::{PickList, Strategy, StrategyName, View};
use crate::endpoint::EndpointIndex;
use crate::refusal::Refusal;
use crate::request::Request;
use rand::{Rng, RngExt};

/// Pools up to this size are compared as a whole.
const EXACT: usize = 32;

/// Random candidates of a larger pool.
const SAMPLE: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub struct LeastRequest;

impl Strategy for LeastRequest {
    fn name(&self) -> StrategyName {
        StrategyName::LeastRequest
    }

    fn pick(&self, _request: &Request<'_>, view: &View<'_>, rng: &mut dyn Rng) -> Result<PickList, Refusal> {
        let candidates = view.candidates();
        let mut best = Best::default();
        if candidates.len() > EXACT {
            for _ in 0..SAMPLE {
                if let Some(endpoint) = candidates.get(rng.random_range(0..candidates.len())) {
                    best.offer(*endpoint, view, rng);
                }
            }
        }
        // Few enough, or none of the sample may serve.
        if best.list.is_empty() {
            candidates.iter().for_each(|endpoint| best.offer(*endpoint, view, rng));
        }
        if best.list.is_empty() { Err(Refusal::NoHealthyEndpoint) } else { Ok(best.list) }
    }
}

/// The cheapest endpoints met so far, cheapest first.
#[derive(Default)]
struct Best {
    list: PickList,
    costs: arrayvec::ArrayVec<f64, { super::MAX_PICKS }>,
    /// How many cost as little as the first, itself included.
    ties: u32,
}

impl Best {
    fn offer(&mut self, endpoint: EndpointIndex, view: &View<'_>, rng: &mut dyn Rng) {
        if self.list.contains(&endpoint) || !view.may_serve(endpoint) {
            return;
        }
        let cost = cost(endpoint, view);
        let mut place = self.costs.partition_point(|other| *other <= cost);
        // The n-th of n that tie comes first with chance 1 ÷ n, so that each does with the same.
        if self.costs.first().is_some_and(|least| *least == cost) {
            self.ties = self.ties.saturating_add(1);
            if rng.random_range(0..self.ties) == 0 {
                place = 0;
            }
        } else if place == 0 {
            self.ties = 1;
        }
        let limit = view.limit();
        if place < limit {
            self.list.truncate(limit.saturating_sub(1));
            self.costs.truncate(limit.saturating_sub(1));
            self.list.insert(place, endpoint);
            self.costs.insert(place, cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::Scene;
    use super::*;
    use crate::endpoint::Score;
    use crate::endpoint::tests::endpoints;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn pick(scene: &Scene, wanted: usize) -> Result<Vec<u32>, Refusal> {
        scene.pick(&LeastRequest, &Request::for_model(b"llama"), wanted)
    }

    #[test]
    fn the_least_loaded_come_first_in_order() {
        let scene = Scene::new(endpoints(4));
        let busy = [scene.busy(0, 3), scene.busy(1, 1), scene.busy(3, 2)];
        assert_eq!(pick(&scene, 4).unwrap(), [2, 1, 3, 0]);
        assert_eq!(pick(&scene, 2).unwrap(), [2, 1]);
        drop(busy);
    }

    #[test]
    fn a_low_score_makes_an_endpoint_dearer() {
        let mut pool = endpoints(2);
        pool[0].score = Score::new(0.5).unwrap();
        let scene = Scene::new(pool);
        // (0 + 1) ÷ 0.5 = 2 ÷ 1: equal at one request more; below that the healthy one is cheaper.
        assert_eq!(pick(&scene, 1).unwrap(), [1]);
        let busy = scene.busy(1, 2);
        assert_eq!(pick(&scene, 1).unwrap(), [0]);
        drop(busy);
    }

    /// 200 picks over four idle endpoints: 50 each, ± 3.5 standard deviations of 6.1.
    #[test]
    fn ties_are_settled_at_random() {
        let scene = Scene::new(endpoints(4));
        let mut counts = [0u32; 4];
        for _ in 0..200 {
            counts[pick(&scene, 1).unwrap()[0] as usize] += 1;
        }
        assert!(counts.iter().all(|count| (28..=72).contains(count)), "{counts:?}");
    }

    /// All but one of 1,000 are busy. Eight random ones contain it in 0.8 % of picks; it is never forced on everybody,
    /// and a busy pool is never refused.
    #[test]
    fn a_large_pool_is_sampled() {
        let scene = Scene::new(endpoints(1_000));
        let busy: Vec<_> = (1..1_000).map(|endpoint| scene.busy(endpoint, 1)).collect();
        let hits = (0..1_000).filter(|_| pick(&scene, 1).unwrap() == [0]).count();
        assert!((1..40).contains(&hits), "{hits}");
        assert_eq!(busy.len(), 999);
    }

    #[test]
    fn the_only_one_that_may_serve_is_found_in_a_large_pool() {
        let mut pool = endpoints(500);
        pool.iter_mut().filter(|e| &*e.id != "10.0.1.44:8000").for_each(|e| e.draining = true);
        assert_eq!(pick(&Scene::new(pool), 3).unwrap(), [299]);
    }

    #[test]
    fn refuses_when_nobody_may_serve() {
        assert_eq!(pick(&Scene::new(Vec::new()), 1), Err(Refusal::NoHealthyEndpoint));
    }
}
