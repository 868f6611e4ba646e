//! A small pool for tests of placement.

use super::board::{Board, Model};
use super::{EndpointInput, Inputs};
use crate::endpoint::EndpointIndex;
use crate::ring::{Point, Ring};

/// Endpoints with keys 10, 20, … that stand on the ring at 100, 200, …, so that a model whose hash is 150 walks from the
/// second endpoint on.
pub(super) struct Scene {
    pub endpoints: Vec<EndpointInput<'static>>,
    pub models: Vec<Model>,
    ring: Ring,
    /// Pairs of an endpoint's key and a model that it cannot serve.
    pub unservable: Vec<(u64, u64)>,
}

impl Scene {
    pub fn new(memories: &[u32]) -> Self {
        let endpoints = super::board::tests::inputs(memories);
        let point = |n: u32| Point { hash: u64::from(n + 1) * 100, endpoint: EndpointIndex(n) };
        let ring = Ring::from_points((0..memories.len() as u32).map(point).collect(), |_| "");
        Self { endpoints, models: Vec::new(), ring, unservable: Vec::new() }
    }

    /// Adds a pinned model of size 1 that wants so many homes with that share each.
    pub fn model(&mut self, hash: u64, share: f64, replicas: u32, previous: &[u32]) -> &mut Model {
        let demand = share * f64::from(replicas);
        let model = Model {
            hash,
            rate: demand * 20.0,
            demand,
            size: 1,
            load_seconds: 0.5,
            pinned: true,
            replicas,
            previous: previous.to_vec(),
            ..Model::default()
        };
        self.models.push(model);
        self.models.last_mut().unwrap()
    }

    /// Runs `place` on a board with that many lanes; each model's homes as positions on the board.
    pub fn run(&self, lanes: usize, place: impl Fn(&Inputs<'_>, &mut Board, &mut [Model])) -> Vec<Vec<u32>> {
        let mut board = Board::new(&self.endpoints);
        board.lanes = lanes;
        let servable = |endpoint: EndpointIndex, model: u64| {
            !self.unservable.contains(&(self.endpoints[endpoint.position()].key, model))
        };
        let inputs =
            Inputs { endpoints: &self.endpoints, models: &[], ring: &self.ring, capacity: 20.0, servable: &servable };
        let mut models = self.models.clone();
        place(&inputs, &mut board, &mut models);
        models.into_iter().map(|model| model.homes).collect()
    }
}
