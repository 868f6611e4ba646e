//! Power of two choices: of two random endpoints, the less loaded one.
//!
//! cost = (in-flight + 1) ÷ max(score, 0.01). The request itself is counted (+ 1), so that of two idle endpoints the
//! healthier one wins; with in-flight ÷ score alone every idle endpoint costs 0, and one that fails fast, hence is
//! always idle, would draw traffic. Two random endpoints rather than the least loaded of all: many proxies that all
//! see the same least loaded endpoint would all send there.
//! Source: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 2001.
//!
//! The two come from the endpoints that hold the model, when it is known that some do, else from the whole pool. The
//! fallbacks come from the holders first, then from the rest: a dead holder must not leave a request without one.

use super::{PickList, Strategy, StrategyName, View};
use crate::endpoint::EndpointIndex;
use crate::refusal::Refusal;
use crate::request::Request;
use rand::{Rng, RngExt};

/// Below this a score does not raise the cost further.
const SCORE_FLOOR: f64 = 0.01;

/// Random draws before the candidates are searched in order. With half of them refused, 16 draws miss once in 65,536
/// picks.
const DRAWS: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct PowerOfTwoChoices;

impl Strategy for PowerOfTwoChoices {
    fn name(&self) -> StrategyName {
        StrategyName::P2c
    }

    fn pick(&self, _request: &Request<'_>, view: &View<'_>, rng: &mut dyn Rng) -> Result<PickList, Refusal> {
        // Nobody comes into question: known without looking at each.
        if view.limit() == 0 {
            return Err(Refusal::NoHealthyEndpoint);
        }
        let mut picks = PickList::new();
        let (pool, holders) = (view.candidates(), view.holders);
        let Some(first) = draw(holders, view, &picks, rng).or_else(|| draw(pool, view, &picks, rng)) else {
            return Err(Refusal::NoHealthyEndpoint);
        };
        let from = if holders.contains(&first) { holders } else { pool };
        let second = draw(from, view, &[first], rng);
        let (better, other) = cheaper_first(first, second, view);
        picks.push(better);
        if view.limit() > 1 {
            picks.extend(other);
        }
        for candidates in [from, pool] {
            while picks.len() < view.limit() {
                let Some(endpoint) = draw(candidates, view, &picks, rng) else { break };
                picks.push(endpoint);
            }
        }
        Ok(picks)
    }
}

/// A random eligible endpoint of `candidates` that is not in `taken`: uniform while random draws find one, else the
/// next one from a random place.
fn draw(
    candidates: &[EndpointIndex],
    view: &View<'_>,
    taken: &[EndpointIndex],
    rng: &mut dyn Rng,
) -> Option<EndpointIndex> {
    let count = u32::try_from(candidates.len()).ok().filter(|&count| count > 0)?;
    let free = |endpoint: &EndpointIndex| !taken.contains(endpoint) && view.may_serve(*endpoint);
    let mut at = 0;
    for _ in 0..DRAWS {
        at = rng.random_range(0..count) as usize;
        if let Some(endpoint) = candidates.get(at).filter(|endpoint| free(endpoint)) {
            return Some(*endpoint);
        }
    }
    candidates.iter().cycle().skip(at).take(candidates.len()).find(|endpoint| free(endpoint)).copied()
}

/// The cheaper one, and the other if there is one; the first of two that cost the same.
fn cheaper_first(
    first: EndpointIndex,
    second: Option<EndpointIndex>,
    view: &View<'_>,
) -> (EndpointIndex, Option<EndpointIndex>) {
    match second {
        Some(second) if cost(second, view) < cost(first, view) => (second, Some(first)),
        second => (first, second),
    }
}

/// (in-flight + 1) ÷ score; see the module.
pub(super) fn cost(endpoint: EndpointIndex, view: &View<'_>) -> f64 {
    let score = view.endpoints.get(endpoint.position()).map_or(SCORE_FLOOR, |e| e.score.value().max(SCORE_FLOOR));
    (f64::from(view.load.in_flight(endpoint)) + 1.0) / score
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::Scene;
    use super::*;
    use crate::endpoint::tests::endpoints;
    use crate::endpoint::{Endpoint, Resident, Score};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    struct Bench {
        scene: Scene,
        wanted: usize,
    }

    impl Bench {
        fn new(pool: Vec<Endpoint>) -> Self {
            Self { scene: Scene::new(pool), wanted: 3 }
        }

        fn pick(&self, request: &Request<'_>) -> Result<Vec<u32>, Refusal> {
            self.scene.pick(&PowerOfTwoChoices, request, self.wanted)
        }

        /// How often each endpoint is the pick in `rounds` picks.
        fn firsts(&self, request: &Request<'_>, rounds: usize) -> Vec<usize> {
            let mut counts = vec![0; self.scene.endpoints.len()];
            for _ in 0..rounds {
                let first = self.pick(request).unwrap()[0];
                counts[first as usize] += 1;
            }
            counts
        }
    }

    /// All idle: ties. Each of 4 endpoints is drawn first with chance 1/4; of 4,000 picks 1,000 ± 5 standard
    /// deviations of sqrt(4000 · 1/4 · 3/4) = 27.
    #[test]
    fn idle_endpoints_share_evenly() {
        let counts = Bench::new(endpoints(4)).firsts(&Request::update(b"llama"), 4000);
        assert!(counts.iter().all(|&n| (863..=1137).contains(&n)), "{counts:?}");
    }

    /// The busiest of 4 is never the less loaded of two.
    #[test]
    fn the_less_loaded_of_two_wins() {
        for wanted in [1, 3] {
            let mut bench = Bench::new(endpoints(4));
            bench.wanted = wanted;
            let busy = [bench.scene.busy(2, 1), bench.scene.busy(2, 1)];
            let counts = bench.firsts(&Request::update(b"llama"), 1000);
            assert_eq!(counts[2], 0, "{counts:?}");
            assert_eq!(busy.len(), 2);
        }
    }

    #[test]
    fn of_two_idle_endpoints_the_healthier_wins() {
        let mut pool = endpoints(2);
        pool[0].score = Score::new(0.5).unwrap();
        assert_eq!(Bench::new(pool).firsts(&Request::update(b"llama"), 100), [0, 100]);
    }

    /// Score 0.5 counts double: (1 + 1) ÷ 0.5 = 4 against (2 + 1) ÷ 1 = 3.
    #[test]
    fn load_is_weighed_by_health() {
        let mut pool = endpoints(2);
        pool[0].score = Score::new(0.5).unwrap();
        let bench = Bench::new(pool);
        let busy: Vec<_> = [0, 1, 1].into_iter().map(|n| bench.scene.busy(n, 1)).collect();
        assert_eq!(bench.firsts(&Request::update(b"llama"), 100), [0, 100]);
        assert_eq!(busy.len(), 3);
    }

    #[test]
    fn stays_among_those_that_hold_the_model_when_that_is_known() {
        let mut pool = endpoints(5);
        for n in [1, 3] {
            pool[n].resident = Some(Resident::from_ids(["llama"]));
        }
        let bench = Bench::new(pool);
        let counts = bench.firsts(&Request::update(b"llama"), 200);
        assert_eq!(counts[1] + counts[3], 200, "{counts:?}");
        let counts = bench.firsts(&Request::update(b"other"), 500);
        assert!(counts.iter().all(|&n| n > 0), "a model that nobody holds spreads over the pool: {counts:?}");
    }

    #[test]
    fn leaves_the_holders_when_none_of_them_may_serve() {
        let mut pool = endpoints(3);
        pool[1].resident = Some(Resident::from_ids(["llama"]));
        pool[1].marked_unhealthy = true;
        let counts = Bench::new(pool).firsts(&Request::update(b"llama"), 100);
        assert_eq!(counts[1], 0);
    }

    /// The list goes on past the holders: their models are lost with them, the request need not be.
    #[test]
    fn fallbacks_come_from_the_holders_first_then_from_the_rest() {
        let mut pool = endpoints(5);
        for n in [1, 3] {
            pool[n].resident = Some(Resident::from_ids(["llama"]));
        }
        let bench = Bench::new(pool);
        for _ in 0..50 {
            let picks = bench.pick(&Request::update(b"llama")).unwrap();
            let mut holders = [picks[0], picks[1]];
            holders.sort_unstable();
            assert_eq!((holders, picks.len()), ([1, 3], 3), "{picks:?}");
        }
    }

    #[test]
    fn finds_the_only_one_that_may_serve() {
        let mut pool = endpoints(500);
        for endpoint in &mut pool {
            endpoint.marked_unhealthy = true;
        }
        pool[321].marked_unhealthy = false;
        let bench = Bench::new(pool);
        for _ in 0..50 {
            assert_eq!(bench.pick(&Request::update(b"llama")).unwrap(), [321]);
        }
    }

    #[test]
    fn lists_are_distinct_and_nobody_to_serve_is_refused() {
        let mut bench = Bench::new(endpoints(5));
        bench.wanted = 5;
        for _ in 0..100 {
            let mut picks = bench.pick(&Request::update(b"llama")).unwrap();
            picks.sort_unstable();
            assert_eq!(picks, (0..5).collect::<Vec<_>>());
        }
        assert_eq!(Bench::new(Vec::new()).pick(&Request::update(b"llama")), Err(Refusal::NoHealthyEndpoint));
    }
}
