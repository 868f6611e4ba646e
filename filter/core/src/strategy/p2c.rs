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
use crate::endpoint::{Endpoint, EndpointIndex, Resident};
use crate::refusal::Refusal;
use crate::request::Request;
use rand::{Rng, RngExt};
use std::collections::BTreeMap;

/// Below this a score does not raise the cost further.
const SCORE_FLOOR: f64 = 0.01;

/// Random draws before the pool is searched in order. With half of a pool refused, 16 draws miss once in 65,536 picks.
const DRAWS: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct PowerOfTwoChoices {
    /// Endpoints that hold a model, by the hash of its id.
    holders: BTreeMap<u64, Box<[EndpointIndex]>>,
    pool: Box<[EndpointIndex]>,
}

impl PowerOfTwoChoices {
    /// The endpoints known to hold the request's model.
    fn holders(&self, request: &Request<'_>) -> &[EndpointIndex] {
        request.model.as_ref().and_then(|model| self.holders.get(&model.hash)).map_or(&[], |holders| holders)
    }
}

impl Strategy for PowerOfTwoChoices {
    fn name(&self) -> StrategyName {
        StrategyName::P2c
    }

    fn update(&mut self, endpoints: &[Endpoint]) {
        let indexed = || (0..).map(EndpointIndex).zip(endpoints);
        let mut holders: BTreeMap<u64, Vec<EndpointIndex>> = BTreeMap::new();
        for (index, endpoint) in indexed() {
            for model in endpoint.resident.iter().flat_map(Resident::hashes) {
                holders.entry(model).or_default().push(index);
            }
        }
        self.holders = holders.into_iter().map(|(model, list)| (model, list.into_boxed_slice())).collect();
        self.pool = indexed().map(|(index, _)| index).collect();
    }

    fn pick(&self, request: &Request<'_>, view: &View<'_>, rng: &mut dyn Rng) -> Result<PickList, Refusal> {
        // Nobody may serve: known without looking at each.
        if view.limit() == 0 {
            return Err(Refusal::NoHealthyEndpoint);
        }
        let mut picks = PickList::new();
        let holders = self.holders(request);
        let Some(first) = draw(holders, view, &picks, rng).or_else(|| draw(&self.pool, view, &picks, rng)) else {
            return Err(Refusal::NoHealthyEndpoint);
        };
        let from = if holders.contains(&first) { holders } else { &self.pool };
        let second = draw(from, view, &[first], rng);
        let (better, other) = cheaper_first(first, second, view);
        picks.push(better);
        if view.limit() > 1 {
            picks.extend(other);
        }
        for candidates in [from, &self.pool] {
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

fn cost(endpoint: EndpointIndex, view: &View<'_>) -> f64 {
    let score = view.endpoints.get(endpoint.position()).map_or(SCORE_FLOOR, |e| e.score.value().max(SCORE_FLOOR));
    (f64::from(view.load.in_flight(endpoint)) + 1.0) / score
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eligibility::count_eligible;
    use crate::endpoint::Score;
    use crate::endpoint::tests::endpoints;
    use crate::load::{PoolLoad, Registry};
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    struct Bench {
        pool: Vec<Endpoint>,
        p2c: PowerOfTwoChoices,
        load: PoolLoad,
        rng: Xoshiro256PlusPlus,
        wanted: usize,
    }

    impl Bench {
        fn new(pool: Vec<Endpoint>) -> Self {
            let mut p2c = PowerOfTwoChoices::default();
            p2c.update(&pool);
            let load = Registry::default().bind(&pool);
            Self { pool, p2c, load, rng: Xoshiro256PlusPlus::seed_from_u64(7), wanted: 3 }
        }

        fn pick(&mut self, request: &Request<'_>) -> Result<PickList, Refusal> {
            let eligible = count_eligible(&self.pool);
            let view = View { endpoints: &self.pool, load: &self.load, eligible, wanted: self.wanted };
            self.p2c.pick(request, &view, &mut self.rng)
        }

        /// How often each endpoint is the pick in `rounds` picks.
        fn firsts(&mut self, request: &Request<'_>, rounds: usize) -> Vec<usize> {
            let mut counts = vec![0; self.pool.len()];
            for _ in 0..rounds {
                let first = self.pick(request).unwrap()[0];
                counts[first.position()] += 1;
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
            let busy = [bench.load.start(EndpointIndex(2)), bench.load.start(EndpointIndex(2))];
            let counts = bench.firsts(&Request::update(b"llama"), 1000);
            assert_eq!(counts[2], 0, "{counts:?}");
            assert!(busy.iter().all(Option::is_some));
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
        let mut bench = Bench::new(pool);
        let busy: Vec<_> = [0, 1, 1].into_iter().map(|n| bench.load.start(EndpointIndex(n))).collect();
        assert_eq!(bench.firsts(&Request::update(b"llama"), 100), [0, 100]);
        assert_eq!(busy.len(), 3);
    }

    #[test]
    fn stays_among_those_that_hold_the_model_when_that_is_known() {
        let mut pool = endpoints(5);
        for n in [1, 3] {
            pool[n].resident = Some(Resident::from_ids(["llama"]));
        }
        let mut bench = Bench::new(pool);
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
        let mut bench = Bench::new(pool);
        for _ in 0..50 {
            let picks = bench.pick(&Request::update(b"llama")).unwrap();
            let mut holders = [picks[0].0, picks[1].0];
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
        let mut bench = Bench::new(pool);
        for _ in 0..50 {
            assert_eq!(bench.pick(&Request::update(b"llama")).unwrap().as_slice(), [EndpointIndex(321)]);
        }
    }

    #[test]
    fn lists_are_distinct_and_nobody_to_serve_is_refused() {
        let mut bench = Bench::new(endpoints(5));
        bench.wanted = 5;
        for _ in 0..100 {
            let mut picks = bench.pick(&Request::update(b"llama")).unwrap().to_vec();
            picks.sort_unstable();
            assert_eq!(picks, (0..5).map(EndpointIndex).collect::<Vec<_>>());
        }
        assert_eq!(Bench::new(Vec::new()).pick(&Request::update(b"llama")), Err(Refusal::NoHealthyEndpoint));
    }
}
