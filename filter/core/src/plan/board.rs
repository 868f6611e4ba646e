//! The endpoints and models while a plan is made.

use super::EndpointInput;
use crate::endpoint::EndpointIndex;
use std::collections::{BTreeMap, BTreeSet};

/// Position of an endpoint on the board.
pub(super) type At = u32;

/// A model and what the plan is about to say of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub hash: u64,
    /// Requests per second.
    pub rate: f64,
    /// Units of memory, at least 1.
    pub size: u32,
    pub load_seconds: f64,
    /// Work, in endpoints.
    pub demand: f64,
    /// It belongs to the models that fit in memory; until those are chosen: it did the last time.
    pub pinned: bool,
    /// Homes wanted; until that is settled: those wanted the last time.
    pub replicas: u32,
    /// Homes of the plan before that are up.
    pub previous: Vec<At>,
    pub homes: Vec<At>,
}

impl Model {
    /// Load of each home.
    pub fn share(&self) -> f64 {
        self.demand / f64::from(self.replicas.max(1))
    }

    /// Order of sizes of shares, in steps of 1.4, so that noise does not change who is placed first.
    pub fn rank(&self) -> i32 {
        (self.share().max(1e-4).ln() * 3.0).round() as i32
    }
}

/// A pinned model on an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tenant {
    /// Position in the list of models.
    pub model: usize,
    pub share: f64,
    pub size: u32,
}

/// An endpoint that is up.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub key: u64,
    pub endpoint: EndpointIndex,
    pub speed: f64,
    pub memory: u32,
    pub used: u64,
    /// Work planned for it, relative to what it can do.
    pub load: f64,
    pub tenants: Vec<Tenant>,
}

impl Spot {
    fn new(endpoint: EndpointIndex, input: &EndpointInput<'_>) -> Self {
        Self {
            key: input.key,
            endpoint,
            speed: sane_speed(input.speed),
            memory: input.memory_units,
            used: 0,
            load: 0.0,
            tenants: Vec::new(),
        }
    }

    /// Work that it can do, in endpoints of the pool's usual speed.
    pub fn power(&self) -> f64 {
        1.0 / self.speed
    }

    /// Its load with a share more.
    pub fn with(&self, share: f64) -> f64 {
        self.load + share * self.speed
    }

    /// Whether so many units more fit in its memory.
    pub fn has_room(&self, size: u32) -> bool {
        self.used.saturating_add(size.into()) <= self.memory.into()
    }

    fn free(&self) -> u64 {
        u64::from(self.memory).saturating_sub(self.used)
    }
}

/// Nonsense counts as the pool's usual speed; beyond a factor of 100 a measurement is wrong.
fn sane_speed(speed: f64) -> f64 {
    if speed.is_finite() && speed > 0.0 { speed.clamp(0.01, 100.0) } else { 1.0 }
}

/// The endpoints that are up, by rising key; the first of them are the lanes.
#[derive(Debug)]
pub(super) struct Board {
    spots: Vec<Spot>,
    /// Position on the board by position in the inputs.
    at: Vec<Option<At>>,
    pub lanes: usize,
    lightest: Option<Lightest>,
}

impl Board {
    pub fn new(endpoints: &[EndpointInput<'_>]) -> Self {
        let up = (0..).map(EndpointIndex).zip(endpoints).filter(|(_, input)| input.up);
        let mut spots: Vec<Spot> = up.map(|(endpoint, input)| Spot::new(endpoint, input)).collect();
        crate::small::sort(&mut spots, &mut |a, b| a.key.cmp(&b.key));
        spots.dedup_by_key(|spot| spot.key);
        let mut at = vec![None; endpoints.len()];
        for (position, spot) in (0..).zip(&spots) {
            if let Some(slot) = at.get_mut(spot.endpoint.position()) {
                *slot = Some(position);
            }
        }
        Self { spots, at, lanes: 0, lightest: None }
    }

    pub fn spots(&self) -> &[Spot] {
        &self.spots
    }

    pub fn spot(&self, at: At) -> Option<&Spot> {
        self.spots.get(at as usize)
    }

    /// Where the endpoint is that has that position in the inputs and on the ring, if it is up.
    pub fn at(&self, endpoint: EndpointIndex) -> Option<At> {
        self.at.get(endpoint.position()).copied().flatten()
    }

    /// Where the endpoint with that key is, if it is up.
    pub fn find(&self, key: u64) -> Option<At> {
        self.spots.binary_search_by_key(&key, |spot| spot.key).ok().and_then(|at| At::try_from(at).ok())
    }

    pub fn is_lane(&self, at: At) -> bool {
        (at as usize) < self.lanes
    }

    /// Endpoints that are no lanes.
    pub fn others(&self) -> &[Spot] {
        self.spots.get(self.lanes..).unwrap_or(&[])
    }

    pub fn place(&mut self, at: At, tenant: Tenant) {
        self.change(at, |spot| {
            spot.used = spot.used.saturating_add(tenant.size.into());
            spot.load = spot.with(tenant.share);
            spot.tenants.push(tenant);
        });
    }

    pub fn evict(&mut self, at: At, tenant: &Tenant) {
        self.change(at, |spot| {
            spot.used = spot.used.saturating_sub(tenant.size.into());
            spot.load = (spot.load - tenant.share * spot.speed).max(0.0);
            spot.tenants.retain(|other| other.model != tenant.model);
        });
    }

    /// Gives it work of a model that has no place of its own there.
    pub fn share_out(&mut self, at: At, size: u32, work: f64) {
        self.change(at, |spot| {
            spot.used = spot.used.saturating_add(size.into());
            spot.load = spot.with(work);
        });
    }

    /// From here on, the endpoints that are no lanes are kept in order of load.
    pub fn keep_order(&mut self) {
        let others = (0..).zip(&self.spots).skip(self.lanes);
        let mut lightest = Lightest::default();
        others.for_each(|(at, spot)| lightest.insert(at, spot));
        self.lightest = Some(lightest);
    }

    /// Endpoints that are no lanes and have `units` free, lightest first within each amount of free memory.
    pub fn lightest(&self, units: u32) -> impl Iterator<Item = impl Iterator<Item = At>> {
        self.lightest
            .iter()
            .flat_map(move |order| order.0.range(u64::from(units)..))
            .map(|(_, class)| class.iter().map(|(_, at)| *at))
    }

    fn change(&mut self, at: At, change: impl FnOnce(&mut Spot)) {
        let Some(spot) = self.spots.get_mut(at as usize) else { return };
        if let Some(order) = &mut self.lightest {
            order.remove(at, spot);
        }
        change(spot);
        if let Some(order) = &mut self.lightest {
            order.insert(at, spot);
        }
    }
}

/// Endpoints by free memory, then by load · speed.
#[derive(Debug, Default)]
struct Lightest(BTreeMap<u64, BTreeSet<(u64, At)>>);

impl Lightest {
    fn insert(&mut self, at: At, spot: &Spot) {
        self.0.entry(spot.free()).or_default().insert((Self::weight(spot), at));
    }

    fn remove(&mut self, at: At, spot: &Spot) {
        if let Some(class) = self.0.get_mut(&spot.free()) {
            class.remove(&(Self::weight(spot), at));
            if class.is_empty() {
                self.0.remove(&spot.free());
            }
        }
    }

    /// Bits of floats that are not negative are in the order of the floats.
    fn weight(spot: &Spot) -> u64 {
        (spot.load * spot.speed).to_bits()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Endpoints with keys 10, 20, … of that memory, all up and alike.
    pub(in super::super) fn inputs(memories: &[u32]) -> Vec<EndpointInput<'static>> {
        (1..)
            .zip(memories)
            .map(|(n, memory)| EndpointInput {
                key: n * 10,
                up: true,
                speed: 1.0,
                memory_units: *memory,
                resident: &[],
            })
            .collect()
    }

    fn keys(board: &Board, units: u32) -> Vec<Vec<u64>> {
        board.lightest(units).map(|class| class.map(|at| board.spot(at).unwrap().key).collect()).collect()
    }

    #[test]
    fn only_those_that_are_up_are_on_the_board_once_by_rising_key() {
        let mut endpoints = inputs(&[1, 1, 1, 1]);
        endpoints.reverse();
        endpoints[1].up = false;
        endpoints[2].key = 10;
        let board = Board::new(&endpoints);
        assert_eq!(board.spots().iter().map(|spot| spot.key).collect::<Vec<_>>(), [10, 40]);
        assert_eq!(board.at(EndpointIndex(0)), Some(1));
        assert_eq!(board.at(EndpointIndex(1)), None, "not up");
        assert_eq!(board.at(EndpointIndex(9)), None, "not there");
        assert_eq!((board.find(40), board.find(30)), (Some(1), None));
    }

    #[test]
    fn tenants_take_memory_and_load_and_give_them_back() {
        let mut endpoints = inputs(&[4]);
        endpoints[0].speed = 2.0;
        let mut board = Board::new(&endpoints);
        let tenant = Tenant { model: 0, share: 0.2, size: 3 };
        board.place(0, tenant);
        let spot = board.spot(0).unwrap();
        assert_eq!((spot.used, spot.load, spot.power()), (3, 0.4, 0.5));
        assert!(spot.has_room(1) && !spot.has_room(2));
        board.evict(0, &tenant);
        let spot = board.spot(0).unwrap();
        assert_eq!((spot.used, spot.load, spot.tenants.len()), (0, 0.0, 0));
    }

    #[test]
    fn order_of_load_follows_every_change_and_leaves_lanes_out() {
        let mut board = Board::new(&inputs(&[2, 2, 2, 2]));
        board.lanes = 1;
        board.place(1, Tenant { model: 0, share: 0.3, size: 1 });
        board.keep_order();
        assert_eq!(keys(&board, 1), [vec![20], vec![30, 40]], "one free, two free");
        board.place(2, Tenant { model: 1, share: 0.2, size: 1 });
        board.place(3, Tenant { model: 2, share: 0.1, size: 2 });
        assert_eq!(keys(&board, 0), [vec![40], vec![30, 20]]);
        assert_eq!(keys(&board, 2), Vec::<Vec<u64>>::new());
        board.evict(3, &Tenant { model: 2, share: 0.1, size: 2 });
        assert_eq!(keys(&board, 2), [[40]]);
    }

    #[test]
    fn nonsense_of_a_speed_is_the_usual_one() {
        for (speed, expected) in
            [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (1e9, 100.0), (0.5, 0.5)]
        {
            assert_eq!(sane_speed(speed), expected, "{speed}");
        }
    }

    /// ln(0.5) · 3 = −2.08, ln(0.59) · 3 = −1.58, ln(0.6) · 3 = −1.53, ln(0.61) · 3 = −1.48.
    #[test]
    fn ranks_are_steps_that_noise_seldom_crosses() {
        let rank = |share| Model { demand: share, replicas: 1, ..Model::default() }.rank();
        assert_eq!([rank(0.5), rank(0.59), rank(0.6), rank(0.61)], [-2, -2, -2, -1]);
        assert_eq!(rank(0.0), rank(1e-4), "all that hardly matter are equal");
    }
}
