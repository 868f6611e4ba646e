//! Where a missing home may go.
//!
//! The first of: the least loaded endpoint that holds the model already and stays under B; the first in the model's ring
//! order under B; a home of the plan before under 1.1, unless another is much calmer, see `relief`; the least loaded
//! endpoint under max(B, 0.9).
//!
//! No search looks at all endpoints: the ring order ends after 24 distinct endpoints, and the least loaded are taken from
//! the head of an order that is kept. Only a model that most endpoints cannot serve is looked up everywhere once, since
//! the few that can may be anywhere.

use super::Inputs;
use super::board::{At, Board, Model, Spot};
use super::bound::{Bounds, STAY};
use arrayvec::ArrayVec;

/// Distinct endpoints of the ring that are considered for a model.
const NEAR: usize = 24;

/// Points of the ring that are walked to find those.
const WALK: usize = 8_192;

/// Endpoints looked at in order of load, for each amount of free memory.
pub(super) const SCAN: usize = 128;

/// Endpoints that come into question for one model.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// The nearest on the ring that are up and can serve it, lanes included.
    near: ArrayVec<At, NEAR>,
    /// When most of those that were met cannot serve it: all that can.
    only: Option<Vec<At>>,
}

impl Reach {
    pub fn of(inputs: &Inputs<'_>, board: &Board, model: u64) -> Self {
        let mut near = ArrayVec::new();
        let mut refused = 0_usize;
        for at in walk(inputs, board, model) {
            if near.contains(&at) {
                continue;
            }
            if !serves(inputs, board, at, model) {
                refused = refused.saturating_add(1);
            } else if near.try_push(at).is_err() || near.len() == board.spots().len() {
                break;
            }
        }
        let only = (refused >= near.len()).then(|| servers(inputs, board, model));
        Self { near, only }
    }
}

/// The endpoints that are up in the model's ring order, an endpoint as often as it has points; only the first points.
pub(super) fn walk(inputs: &Inputs<'_>, board: &Board, model: u64) -> impl Iterator<Item = At> {
    inputs.ring.walk(model).take(WALK).filter_map(|endpoint| board.at(endpoint))
}

/// Whether the endpoint can serve the model at all.
pub(super) fn serves(inputs: &Inputs<'_>, board: &Board, at: At, model: u64) -> bool {
    board.spot(at).is_some_and(|spot| (inputs.servable)(spot.endpoint, model))
}

/// All endpoints that are up and can serve the model.
pub(super) fn servers(inputs: &Inputs<'_>, board: &Board, model: u64) -> Vec<At> {
    let serving = (0..).zip(board.spots()).filter(|(_, spot)| (inputs.servable)(spot.endpoint, model));
    serving.map(|(at, _)| at).collect()
}

/// Who holds which model, by rising hash of the model.
#[derive(Debug)]
pub(super) struct Holders(Vec<(u64, At)>);

impl Holders {
    pub fn of(inputs: &Inputs<'_>, board: &Board) -> Self {
        let up = (0..)
            .zip(board.spots())
            .filter_map(|(at, spot)| Some((at, inputs.endpoints.get(spot.endpoint.position())?)));
        let mut pairs: Vec<(u64, At)> =
            up.flat_map(|(at, endpoint)| endpoint.resident.iter().map(move |model| (*model, at))).collect();
        crate::small::sort(&mut pairs, &mut Ord::cmp);
        Self(pairs)
    }

    fn holding(&self, model: u64) -> impl Iterator<Item = At> {
        let from = self.0.partition_point(|(other, _)| *other < model);
        self.0.iter().skip(from).take_while(move |(other, _)| *other == model).map(|(_, at)| *at)
    }
}

/// A search for one more home of one model.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub inputs: &'a Inputs<'a>,
    pub board: &'a Board,
    pub holders: &'a Holders,
    pub bounds: &'a Bounds,
    pub reach: &'a Reach,
    pub model: &'a Model,
}

impl Search<'_> {
    /// Under B.
    pub fn fresh(&self) -> Option<At> {
        let holders = self.holders.holding(self.model.hash);
        self.least(holders.filter(|at| self.fits(*at, self.bounds.fresh)), |spot| spot.load)
            .or_else(|| self.reach.near.iter().copied().find(|at| self.fits(*at, self.bounds.fresh)))
    }

    /// A home of the plan before.
    pub fn stay(&self) -> Option<At> {
        self.model.previous.iter().copied().find(|at| self.fits(*at, STAY))
    }

    /// The least loaded that is not too full.
    pub fn spread(&self) -> Option<At> {
        self.lightest(self.bounds.spread)
    }

    /// Anyone with the memory for it, whatever the load.
    pub fn anyone(&self) -> Option<At> {
        self.lightest(f64::INFINITY)
    }

    /// Those among whom small tenants may have to go.
    pub fn candidates(&self) -> Vec<At> {
        let usable = |at: &At| !self.board.is_lane(*at) && !self.model.homes.contains(at) && self.serves(*at);
        match &self.reach.only {
            Some(only) => only.iter().copied().filter(usable).collect(),
            None => self.board.lightest(0).flat_map(|class| class.take(SCAN)).filter(usable).collect(),
        }
    }

    fn lightest(&self, bound: f64) -> Option<At> {
        let fits = |at: &At| self.fits(*at, bound);
        let weight = |spot: &Spot| spot.load * spot.speed;
        match &self.reach.only {
            Some(only) => self.least(only.iter().copied().filter(fits), weight),
            None => {
                let heads = self.board.lightest(self.model.size).filter_map(|class| class.take(SCAN).find(fits));
                self.least(heads, weight)
            }
        }
    }

    fn least(&self, candidates: impl Iterator<Item = At>, weight: impl Fn(&Spot) -> f64) -> Option<At> {
        let weighed = candidates.filter_map(|at| Some((weight(self.board.spot(at)?), at)));
        weighed.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, at)| at)
    }

    fn fits(&self, at: At, bound: f64) -> bool {
        let Some(spot) = self.board.spot(at) else { return false };
        !self.board.is_lane(at)
            && spot.has_room(self.model.size)
            && spot.with(self.model.share()) <= bound
            && !self.model.homes.contains(&at)
            && self.serves(at)
    }

    fn serves(&self, at: At) -> bool {
        serves(self.inputs, self.board, at, self.model.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::Scene;
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// What is in reach of the model with hash 150: the endpoints on the ring from the second on.
    fn assert_reach(scene: &Scene, near: &[At], only: Option<&[At]>) {
        scene.run(0, |inputs, board, _| {
            let reach = Reach::of(inputs, board, 150);
            assert_eq!(reach.near[..], *near);
            assert_eq!(reach.only.as_deref(), only);
        });
    }

    #[test]
    fn the_nearest_that_are_up_and_can_serve_are_in_reach() {
        let mut scene = Scene::new(&[1; 6]);
        assert_reach(&scene, &[1, 2, 3, 4, 5, 0], None);
        scene.unservable = vec![(30, 150), (40, 151)];
        assert_reach(&scene, &[1, 3, 4, 5, 0], None);
        // Without the second, places on the board move up by one.
        scene.endpoints[1].up = false;
        assert_reach(&scene, &[2, 3, 4, 0], None);
    }

    #[test]
    fn the_ring_is_followed_to_the_limit() {
        let near: Vec<At> = (1..=24).collect();
        assert_reach(&Scene::new(&[1; 40]), &near, None);
    }

    #[test]
    fn who_can_serve_is_listed_when_most_cannot() {
        let mut scene = Scene::new(&[1; 4]);
        scene.unservable = vec![(10, 150), (20, 150), (30, 150)];
        assert_reach(&scene, &[3], Some(&[3]));
        scene.unservable.push((40, 150));
        assert_reach(&scene, &[], Some(&[]));
    }

    #[test]
    fn holders_are_found_by_model() {
        let mut scene = Scene::new(&[3; 4]);
        scene.endpoints[0].resident = &[7, 9];
        scene.endpoints[2].resident = &[7];
        scene.endpoints[3].resident = &[7];
        scene.endpoints[3].up = false;
        scene.run(0, |inputs, board, _| {
            let holders = Holders::of(inputs, board);
            let of = |model| holders.holding(model).collect::<Vec<At>>();
            assert_eq!([of(7), of(8), of(9)], [vec![0, 2], vec![], vec![0]]);
        });
    }
}
