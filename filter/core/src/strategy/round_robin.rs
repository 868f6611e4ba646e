//! Round robin: each request of a model goes to the next endpoint.
//!
//! Every model has a turn of its own: with one turn for all, two models that alternate would each see every other
//! endpoint only. Turns are kept in a table by the model's hash, so that clients' names cannot make it grow (models that
//! share a place share a turn), and begin at a random place, or all fresh proxies would begin at the same endpoint.

use super::{PickList, Strategy, StrategyName, View};
use crate::refusal::Refusal;
use crate::request::Request;
use rand::{Rng, RngExt};
use std::cell::Cell;

/// Models with turns of their own.
const TURNS: usize = 256;

/// See the module.
#[derive(Debug)]
pub struct RoundRobin {
    turns: Box<[Cell<Option<u32>>]>,
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self { turns: (0..TURNS).map(|_| Cell::new(None)).collect() }
    }
}

impl RoundRobin {
    fn turn(&self, request: &Request<'_>, rng: &mut dyn Rng) -> u32 {
        let place = request.model.as_ref().map_or(0, |model| model.hash) % TURNS as u64;
        let Some(cell) = usize::try_from(place).ok().and_then(|place| self.turns.get(place)) else { return 0 };
        let turn = cell.get().unwrap_or_else(|| rng.random());
        cell.set(Some(turn.wrapping_add(1)));
        turn
    }
}

impl Strategy for RoundRobin {
    fn name(&self) -> StrategyName {
        StrategyName::RoundRobin
    }

    fn pick(&self, request: &Request<'_>, view: &View<'_>, rng: &mut dyn Rng) -> Result<PickList, Refusal> {
        let candidates = view.candidates();
        let Some(count) = u32::try_from(candidates.len()).ok().filter(|&count| count > 0) else {
            return Err(Refusal::NoHealthyEndpoint);
        };
        let start = (self.turn(request, rng) % count) as usize;
        let in_turn = candidates.iter().cycle().skip(start).take(candidates.len());
        let picks: PickList =
            in_turn.copied().filter(|endpoint| view.may_serve(*endpoint)).take(view.limit()).collect();
        if picks.is_empty() { Err(Refusal::NoHealthyEndpoint) } else { Ok(picks) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::Scene;
    use super::*;
    use crate::endpoint::tests::endpoints;
    use std::collections::BTreeSet;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn first(scene: &Scene, strategy: &RoundRobin, model: &[u8]) -> u32 {
        scene.pick(strategy, &Request::for_model(model), 1).unwrap()[0]
    }

    #[test]
    fn every_endpoint_has_its_turn_for_every_model() {
        let (scene, strategy) = (Scene::new(endpoints(4)), RoundRobin::default());
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        // Two models in alternation: each still meets all four.
        for _ in 0..4 {
            for (model, seen) in [&b"llama"[..], b"bert"].into_iter().zip(&mut seen) {
                seen.insert(first(&scene, &strategy, model));
            }
        }
        assert!(seen.iter().all(|seen| seen.len() == 4), "{seen:?}");
    }

    #[test]
    fn those_that_may_not_serve_are_passed_over() {
        let mut pool = endpoints(4);
        pool[1].marked_unhealthy = true;
        let (scene, strategy) = (Scene::new(pool), RoundRobin::default());
        let turns: Vec<_> = (0..6).map(|_| first(&scene, &strategy, b"llama")).collect();
        assert_eq!(turns[..3], turns[3..], "a cycle of three");
        assert_eq!(turns.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&0, &2, &3]));
    }

    #[test]
    fn a_list_goes_on_from_the_pick() {
        let (scene, strategy) = (Scene::new(endpoints(4)), RoundRobin::default());
        for _ in 0..8 {
            let list = scene.pick(&strategy, &Request::for_model(b"llama"), 3).unwrap();
            assert_eq!(list, [list[0], (list[0] + 1) % 4, (list[0] + 2) % 4]);
        }
    }

    /// 400 fresh proxies: a fair start gives each of four endpoints 100 ± 3.5 standard deviations of 8.7.
    #[test]
    fn fresh_proxies_begin_at_different_endpoints() {
        let scene = Scene::new(endpoints(4));
        let mut starts = [0u32; 4];
        for _ in 0..400 {
            starts[first(&scene, &RoundRobin::default(), b"llama") as usize] += 1;
        }
        assert!(starts.iter().all(|count| (70..=130).contains(count)), "{starts:?}");
    }

    #[test]
    fn refuses_when_nobody_may_serve() {
        let request = Request::for_model(b"llama");
        assert_eq!(Scene::new(Vec::new()).pick(&RoundRobin::default(), &request, 1), Err(Refusal::NoHealthyEndpoint));
    }
}
