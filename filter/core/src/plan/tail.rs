//! Homes of the models that do not fit in memory.
//!
//! Each gets one home: on a lane, or anywhere when there are none. Its work is d + rate · load time, since most of its
//! requests load it. First all keep their homes of the plan before up to a load of 1.15 · b, or of 1.15 · what the least
//! loaded would get, which is more where a single model is more than b. Then each of the others takes the first in its
//! ring order up to b, else the least loaded. The most asked for comes first, ties by hash. b = 1.1 · mean work of those
//! endpoints; a lane also takes no more than 1.15 · mean units + 1, rounded up, so that none gets all the rare ones.
//!
//! A model that no lane can serve goes to the least loaded endpoint that can, and one that nobody can serve has no home.

use super::Inputs;
use super::board::{At, Board, Model, Spot};
use super::search::{SCAN, servers, serves, walk};
use std::collections::BTreeSet;

const SLACK: f64 = 1.1;
const KEEP: f64 = 1.15;
const UNITS_SLACK: f64 = 1.15;

/// Work of a model in the tail.
fn work(model: &Model) -> f64 {
    model.demand + model.rate * model.load_seconds
}

/// Places every model that has no home yet.
pub(super) fn place(inputs: &Inputs<'_>, board: &mut Board, models: &mut [Model]) {
    let mut rest: Vec<usize> =
        (0..models.len()).filter(|at| models.get(*at).is_some_and(|m| m.homes.is_empty())).collect();
    let rate = |at: &usize| models.get(*at).map_or(0.0, |model| model.rate);
    crate::small::sort(&mut rest, &mut |a, b| rate(b).total_cmp(&rate(a)));
    let mut area = Area::of(board, rest.iter().filter_map(|at| models.get(*at)));
    for find in [Area::kept, Area::fresh] {
        for position in &rest {
            let Some(model) = models.get_mut(*position).filter(|model| model.homes.is_empty()) else { continue };
            if let Some(home) = find(&area, inputs, board, model) {
                area.give(board, home, model);
                model.homes.push(home);
            }
        }
    }
}

/// The endpoints for the tail.
struct Area {
    lanes_only: bool,
    bound: f64,
    most_units: u64,
    /// By load.
    order: BTreeSet<(u64, At)>,
}

impl Area {
    fn of<'a>(board: &Board, rest: impl Iterator<Item = &'a Model>) -> Self {
        let lanes_only = board.lanes > 0;
        let count = if lanes_only { board.lanes } else { board.spots().len() };
        let spots = || board.spots().iter().take(count);
        let (total, units) =
            rest.fold((0.0, 0), |(sum, units), model| (sum + work(model), units + u64::from(model.size)));
        let mean = (total + spots().map(|spot| spot.load).sum::<f64>()) / count.max(1) as f64;
        Self {
            lanes_only,
            bound: mean * SLACK,
            most_units: (units as f64 / count.max(1) as f64 * UNITS_SLACK).ceil() as u64 + 1,
            order: (0..).zip(spots()).map(|(at, spot)| (spot.load.to_bits(), at)).collect(),
        }
    }

    /// The home of the plan before, while its load stays bearable.
    fn kept(&self, inputs: &Inputs<'_>, board: &Board, model: &Model) -> Option<At> {
        let lightest = self.order.first().map_or(0.0, |(load, _)| f64::from_bits(*load));
        let bound = self.bound.max(lightest + work(model)) * KEEP;
        let first = model.previous.first().copied();
        first.filter(|at| self.fits(board, model, *at, bound) && serves(inputs, board, *at, model.hash))
    }

    fn fresh(&self, inputs: &Inputs<'_>, board: &Board, model: &Model) -> Option<At> {
        let fits = |at: &At| self.fits(board, model, *at, self.bound) && serves(inputs, board, *at, model.hash);
        walk(inputs, board, model.hash).find(fits).or_else(|| self.least_loaded(inputs, board, model))
    }

    fn fits(&self, board: &Board, model: &Model, at: At, bound: f64) -> bool {
        let Some(spot) = board.spot(at) else { return false };
        self.holds(board, at) && spot.with(work(model)) <= bound && (!self.lanes_only || spot.used < self.most_units)
    }

    fn holds(&self, board: &Board, at: At) -> bool {
        !self.lanes_only || board.is_lane(at)
    }

    fn least_loaded(&self, inputs: &Inputs<'_>, board: &Board, model: &Model) -> Option<At> {
        let head = self.order.iter().take(SCAN).map(|(_, at)| *at).find(|at| serves(inputs, board, *at, model.hash));
        head.or_else(|| {
            let load = |at: &At| board.spot(*at).map_or(0.0, |spot: &Spot| spot.load);
            let servers = servers(inputs, board, model.hash);
            servers.into_iter().min_by(|a, b| {
                let lanes_first = self.holds(board, *b).cmp(&self.holds(board, *a));
                lanes_first.then(load(a).total_cmp(&load(b))).then(a.cmp(b))
            })
        })
    }

    fn give(&mut self, board: &mut Board, at: At, model: &Model) {
        let known = board.spot(at).is_some_and(|spot| self.order.remove(&(spot.load.to_bits(), at)));
        board.share_out(at, model.size, work(model));
        if let (true, Some(spot)) = (known, board.spot(at)) {
            self.order.insert((spot.load.to_bits(), at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::Scene;
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Adds a model of that many requests a second; its work is rate · (0.05 + 0.5).
    fn rare(scene: &mut Scene, hash: u64, rate: f64, previous: &[u32]) {
        scene.model(hash, rate / 20.0, 1, previous);
    }

    #[test]
    fn the_tail_lives_on_lanes_in_ring_order_under_the_bound() {
        let mut scene = Scene::new(&[2; 4]);
        // The nearest for all of them is the second. Work 0.22 + 0.11 · 2 + 0.055: b = 1.1 · 0.495 ÷ 2 = 0.272.
        rare(&mut scene, 150, 0.4, &[]);
        rare(&mut scene, 151, 0.2, &[]);
        rare(&mut scene, 152, 0.2, &[]);
        rare(&mut scene, 153, 0.1, &[]);
        // 0.22 on the second, not 0.33; 0.11 + 0.11 on the first; 0.055 on neither: 0.275. Both have 0.22: the first.
        assert_eq!(scene.run(2, place), [[1], [0], [0], [0]]);
    }

    #[test]
    fn a_home_stays_up_to_its_own_bound_and_leaves_what_is_no_lane() {
        let mut scene = Scene::new(&[2; 4]);
        rare(&mut scene, 150, 0.4, &[0]);
        rare(&mut scene, 151, 0.2, &[0]);
        rare(&mut scene, 152, 0.2, &[3]);
        // b = 1.1 · 0.44 ÷ 2 = 0.242 for new homes, 0.2783 for old ones: 0.22 stays, 0.33 does not.
        assert_eq!(scene.run(2, place), [[0], [1], [1]]);
    }

    #[test]
    fn without_lanes_the_tail_lives_anywhere() {
        let mut scene = Scene::new(&[0; 3]);
        rare(&mut scene, 250, 0.2, &[]);
        rare(&mut scene, 251, 0.2, &[]);
        rare(&mut scene, 252, 0.2, &[1]);
        // b = 0.121: one each; the home of before comes in its turn, by rate and then by hash.
        assert_eq!(scene.run(0, place), [[2], [0], [1]]);
    }

    /// Nine rare models on three lanes: at most ⌈9 ÷ 3 · 1.15⌉ + 1 = 5 units each, although none of them does any work.
    #[test]
    fn no_lane_gets_all_the_rare_ones() {
        let mut scene = Scene::new(&[2; 6]);
        (0..9).for_each(|n| rare(&mut scene, 150 + n, 0.0, &[]));
        let homes = scene.run(3, place);
        let on = |at: u32| homes.iter().filter(|homes| **homes == [at]).count();
        assert_eq!([on(0), on(1), on(2)], [0, 5, 4]);
    }

    #[test]
    fn a_model_that_no_lane_can_serve_goes_to_who_can() {
        let mut scene = Scene::new(&[2; 4]);
        scene.unservable = vec![(10, 150), (20, 150), (30, 150), (10, 151), (20, 151), (30, 151), (40, 151)];
        rare(&mut scene, 150, 0.4, &[]);
        rare(&mut scene, 151, 0.2, &[]);
        assert_eq!(scene.run(2, place), [vec![3], vec![]]);
    }
}
