//! Sequences of planner inputs: what any plan promises, and that the order of inputs is irrelevant.

use arbitrary::{Arbitrary, Unstructured};
use std::collections::{BTreeMap, BTreeSet};
use warmroute_core::endpoint::{Endpoint, EndpointIndex};
use warmroute_core::plan::{EndpointInput, Inputs, Misfit, ModelInput, Plan, PlanOutcome, Planner, PlannerSettings};
use warmroute_core::ring::Ring;

#[derive(Arbitrary, Clone, Debug)]
struct Spot {
    up: bool,
    speed: f64,
    memory: u8,
    /// Models, by bits.
    resident: u16,
    unservable: u16,
}

#[derive(Arbitrary, Clone, Debug)]
struct Asked {
    model: u8,
    rate: f64,
    size: u8,
    load_seconds: f32,
}

#[derive(Arbitrary, Clone, Debug)]
struct World {
    spots: Vec<(u8, Spot)>,
    models: Vec<Asked>,
    capacity: f64,
}

#[derive(Arbitrary, Debug)]
struct Input {
    lanes: bool,
    worlds: Vec<World>,
}

/// Models are numbers from 1; the ring wants hashes, and any number is as good as another.
fn model(n: u8) -> u64 {
    u64::from(n % 16) + 1
}

fn bits(bits: u16) -> Vec<u64> {
    (0..16).filter(|n| bits & (1 << n) != 0).map(model).collect()
}

impl World {
    /// Distinct names, the last of each, by falling or rising name.
    fn plan(&self, planner: &mut Planner, reversed: bool) -> PlanOutcome {
        let mut spots: Vec<(u8, &Spot)> = self.spots().into_iter().collect();
        let mut models: Vec<ModelInput> = self.models.iter().map(Asked::input).collect();
        if reversed {
            spots.reverse();
            models.reverse();
        }
        let pool: Vec<Endpoint> = spots.iter().map(|(name, _)| endpoint(*name)).collect();
        let resident: Vec<Vec<u64>> = spots.iter().map(|(_, spot)| bits(spot.resident)).collect();
        let endpoints: Vec<EndpointInput<'_>> = spots
            .iter()
            .zip(&resident)
            .map(|((name, spot), resident)| EndpointInput {
                key: endpoint(*name).key(),
                up: spot.up,
                speed: spot.speed,
                memory_units: u32::from(spot.memory % 8),
                resident,
            })
            .collect();
        let servable = |index: EndpointIndex, model: u64| serves(spots[index.position()].1, model);
        let ring = Ring::new(&pool, 20);
        let inputs = Inputs {
            endpoints: &endpoints,
            models: &models,
            ring: &ring,
            capacity: self.capacity,
            servable: &servable,
        };
        planner.plan(&inputs)
    }

    fn spots(&self) -> BTreeMap<u8, &Spot> {
        self.spots.iter().take(24).map(|(name, spot)| (*name, spot)).collect()
    }
}

impl Asked {
    fn input(&self) -> ModelInput {
        ModelInput {
            model: model(self.model),
            rate: self.rate,
            size_units: u32::from(self.size % 8),
            load_seconds: f64::from(self.load_seconds),
        }
    }
}

fn serves(spot: &Spot, model: u64) -> bool {
    !bits(spot.unservable).contains(&model)
}

fn endpoint(name: u8) -> Endpoint {
    Endpoint::new(format!("gpu-{name}"), format!("10.0.0.{name}:80").parse().expect("an address"))
}

/// See the module.
pub fn check(bytes: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(bytes)) else { return };
    let new = || Planner::new(PlannerSettings { lanes: input.lanes });
    let (mut planner, mut other) = (new(), new());
    for world in input.worlds.iter().take(6) {
        let before = planner.current().clone();
        let outcome = world.plan(&mut planner, false);
        let reversed = world.plan(&mut other, true);
        // Sums are made in the order of the inputs, but what they decide is not to depend on it.
        assert_eq!(planner.current(), other.current(), "the order of inputs");
        assert_eq!(outcome.change, reversed.change);
        let mut applied = before.clone();
        outcome.change.iter().for_each(|change| applied.apply(change));
        assert_eq!(applied, *planner.current(), "the change is the whole difference");
        assert_eq!(outcome.version, before.version + u64::from(outcome.change.is_some()));
        let nothing_known = world.models.is_empty() || world.spots().values().all(|spot| !spot.up);
        if nothing_known {
            assert_eq!(before, *planner.current());
        } else {
            check_plan(world, planner.current(), &outcome);
        }
        check_restored(planner.current());
    }
}

/// Homes are distinct, up and servable, fit in memory but for the tail, and are there for every model that can have
/// one.
fn check_plan(world: &World, plan: &Plan, outcome: &PlanOutcome) {
    let spots: BTreeMap<u64, &Spot> = world
        .spots()
        .into_iter()
        .filter(|(_, spot)| spot.up)
        .map(|(name, spot)| (endpoint(name).key(), spot))
        .collect();
    let mut sizes: BTreeMap<u64, (f64, u32)> = BTreeMap::new();
    for input in world.models.iter().map(Asked::input) {
        let rate = if input.rate.is_finite() { input.rate.clamp(0.0, 1e9) } else { 0.0 };
        let size = input.size_units.max(1);
        let known = sizes.entry(input.model).or_insert((rate, size));
        if rate > known.0 || (rate == known.0 && size > known.1) {
            *known = (rate, size);
        }
    }
    let mut used: BTreeMap<u64, u32> = BTreeMap::new();
    for (model, placement) in plan.iter() {
        let (_, size) = sizes[&model];
        let homes: BTreeSet<u64> = placement.homes.iter().copied().collect();
        assert!(homes.len() == placement.homes.len() && !homes.is_empty(), "{placement:?}");
        assert!(homes.iter().all(|home| spots.get(home).is_some_and(|spot| serves(spot, model))));
        if placement.tail {
            assert_eq!(homes.len(), 1);
        } else {
            homes.iter().for_each(|home| *used.entry(*home).or_default() += size);
        }
    }
    assert!(used.iter().all(|(home, units)| *units <= u32::from(spots[home].memory % 8)), "{used:?}");
    for model in sizes.keys() {
        let can = spots.values().any(|spot| serves(spot, *model));
        assert_eq!(plan.get(*model).is_some(), can, "{model}");
        assert_eq!(outcome.misfits.contains(&(*model, Misfit::Unservable)), !can);
    }
    assert_eq!(outcome.pinned + outcome.tail, plan.len());
}

/// A planner that goes on after a restart has the plan that it had.
fn check_restored(plan: &Plan) {
    let mut restored = Planner::default();
    restored.restore(plan);
    assert_eq!(restored.current(), plan);
}
