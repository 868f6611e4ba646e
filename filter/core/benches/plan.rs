//! Time of one plan: from nothing, and when one model in a hundred changed.
#![allow(missing_docs, clippy::indexing_slicing, reason = "criterion's macros; a bench")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use warmroute_core::endpoint::{Endpoint, EndpointIndex};
use warmroute_core::hash::hash;
use warmroute_core::plan::{EndpointInput, Inputs, ModelInput, Planner, PlannerSettings, capacity};
use warmroute_core::ring::Ring;

/// A pool and its demand.
struct World {
    ring: Ring,
    keys: Vec<u64>,
    resident: Vec<Vec<u64>>,
    models: Vec<ModelInput>,
    memory: u32,
    capacity: f64,
}

impl World {
    /// Zipf 0.9 demand of `load` of what the pool can do warm.
    fn new(endpoints: u32, memory: u32, models: u32, load: f64) -> Self {
        let address = |n: u32| format!("10.{}.{}.{}:8000", n / 65_536, n / 256 % 256, n % 256);
        let pool: Vec<Endpoint> =
            (0..endpoints).filter_map(|n| Some(Endpoint::new(format!("gpu-{n}"), address(n).parse().ok()?))).collect();
        let capacity = capacity(1, std::time::Duration::from_millis(50));
        let weight = |n: u32| f64::from(n + 1).powf(-0.9);
        let scale = load * f64::from(endpoints) * capacity / (0..models).map(weight).sum::<f64>();
        let model = |n: u32| ModelInput {
            model: hash(format!("model-{n}").as_bytes()),
            rate: weight(n) * scale,
            size_units: 1,
            load_seconds: 0.5,
        };
        Self {
            ring: Ring::new(&pool, 150),
            keys: pool.iter().map(Endpoint::key).collect(),
            resident: vec![Vec::new(); pool.len()],
            models: (0..models).map(model).collect(),
            memory,
            capacity,
        }
    }

    fn plan(&self, planner: &mut Planner) -> usize {
        let endpoint =
            |(key, resident)| EndpointInput { key, up: true, speed: 1.0, memory_units: self.memory, resident };
        let endpoints: Vec<EndpointInput> =
            self.keys.iter().copied().zip(self.resident.iter().map(Vec::as_slice)).map(endpoint).collect();
        let inputs = Inputs {
            endpoints: &endpoints,
            models: &self.models,
            ring: &self.ring,
            capacity: self.capacity,
            servable: &|_: EndpointIndex, _| true,
        };
        planner.plan(&inputs).moves
    }

    /// Every endpoint holds what is planned for it.
    fn load_planned(&mut self, planner: &Planner) {
        let position: std::collections::BTreeMap<u64, usize> = self.keys.iter().copied().zip(0..).collect();
        self.resident.iter_mut().for_each(Vec::clear);
        for (model, placement) in planner.current().iter() {
            for home in &placement.homes {
                self.resident[position[home]].push(model);
            }
        }
    }

    /// Every hundredth model is asked for twice or half as much.
    fn change(&mut self) {
        for (n, model) in self.models.iter_mut().enumerate().filter(|(n, _)| n % 100 == 7) {
            model.rate *= if n % 200 == 7 { 2.0 } else { 0.5 };
        }
    }
}

fn bench(c: &mut Criterion) {
    for (endpoints, memory, models, load) in
        [(10_000, 4, 10_000, 0.5), (10_000, 4, 50_000, 0.5), (128, 4, 512, 0.5), (8, 3, 16, 0.3)]
    {
        let mut group = c.benchmark_group(format!("plan/{endpoints}x{models}"));
        group.sample_size(10);
        let mut world = World::new(endpoints, memory, models, load);
        group.bench_function("from nothing", |b| {
            b.iter_batched_ref(
                || Planner::new(PlannerSettings::default()),
                |planner| black_box(world.plan(planner)),
                BatchSize::PerIteration,
            );
        });
        let mut settled = Planner::new(PlannerSettings::default());
        for _ in 0..3 {
            world.plan(&mut settled);
            world.load_planned(&settled);
        }
        group.bench_function("nothing changed", |b| {
            b.iter_batched_ref(|| settled.clone(), |planner| black_box(world.plan(planner)), BatchSize::PerIteration);
        });
        world.change();
        group.bench_function("1 % changed", |b| {
            b.iter_batched_ref(|| settled.clone(), |planner| black_box(world.plan(planner)), BatchSize::PerIteration);
        });
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
