//! Requests in flight, against a sum by hand.

use crate::{endpoint, fixed};
use proptest::prelude::*;
use std::collections::BTreeMap;
use warmroute_core::endpoint::{Endpoint, EndpointIndex};
use warmroute_core::load::{InFlight, Load, PoolLoad, Registry};

const ENDPOINTS: u32 = 4;

#[derive(Clone, Debug)]
enum Step {
    /// At an endpoint of the pool so many configurations ago.
    Start {
        at: u32,
        ago: usize,
        weight: u32,
        cold: bool,
    },
    End(usize),
    /// The endpoint comes back as another incarnation; a new configuration follows.
    Reborn(u32),
    Configured,
    /// Old configurations go, but for the last.
    Retired,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let weight = prop_oneof![4 => 1u32..100, 1 => Just(u32::MAX), 1 => Just(0)];
    let start = (0..ENDPOINTS + 1, 0usize..3, weight, any::<bool>());
    let step = prop_oneof![
        5 => start.prop_map(|(at, ago, weight, cold)| Step::Start { at, ago, weight, cold }),
        4 => any::<usize>().prop_map(Step::End),
        1 => (0..ENDPOINTS).prop_map(Step::Reborn),
        1 => Just(Step::Configured),
        1 => Just(Step::Retired),
    ];
    prop::collection::vec(step, 0..80)
}

/// One configuration: its counts, and each endpoint's incarnation.
type Configured = (PoolLoad, Vec<u64>);

fn configure(registry: &mut Registry, lives: &[u64]) -> Configured {
    let endpoints: Vec<Endpoint> =
        lives.iter().enumerate().map(|(n, life)| Endpoint { incarnation: *life, ..endpoint(n) }).collect();
    (registry.bind(&endpoints), lives.to_vec())
}

/// A guard, and what it counts where.
struct Held {
    _guard: InFlight,
    life: (usize, u64),
    weight: u32,
    cold: bool,
}

/// What should be in flight at a life of an endpoint.
fn sums(held: &[Held]) -> BTreeMap<(usize, u64), (u32, u32)> {
    let mut sums = BTreeMap::new();
    for Held { life, weight, cold, .. } in held {
        let sum: &mut (u32, u32) = sums.entry(*life).or_default();
        *sum = (sum.0 + weight, sum.1 + u32::from(*cold));
    }
    sums
}

fn check(configs: &[Configured], held: &[Held]) -> Result<(), TestCaseError> {
    let sums = sums(held);
    for (load, lives) in configs {
        for (n, life) in lives.iter().enumerate() {
            let index = EndpointIndex(u32::try_from(n).unwrap());
            let expected = sums.get(&(n, *life)).copied().unwrap_or_default();
            prop_assert_eq!((load.in_flight(index), load.cold(index)), expected, "endpoint {} life {}", n, life);
        }
        prop_assert_eq!(load.in_flight(EndpointIndex(ENDPOINTS)), 0, "nobody is there");
    }
    Ok(())
}

proptest! {
    #![proptest_config(fixed(800))]

    /// Whatever the order of starts and ends, while endpoints are born again and configurations come and go: every
    /// count is the sum of what is held there, never more than fits, never less than nothing, and nothing in the end.
    #[test]
    fn counts_are_the_sum_of_what_is_held(steps in steps()) {
        let mut registry = Registry::default();
        let mut lives = vec![0u64; ENDPOINTS as usize];
        let mut configs = vec![configure(&mut registry, &lives)];
        let mut held: Vec<Held> = Vec::new();
        for step in steps {
            match step {
                Step::Start { at, ago, weight, cold } => {
                    let (load, lives) = &configs[configs.len().saturating_sub(1 + ago)];
                    let before = load.in_flight(EndpointIndex(at));
                    let guard = load.start(EndpointIndex(at), weight, cold);
                    prop_assert_eq!(guard.is_some(), at < ENDPOINTS);
                    if let Some(guard) = guard {
                        let life = (at as usize, lives[at as usize]);
                        prop_assert_eq!(guard.before() as usize, held.iter().filter(|held| held.life == life).count());
                        held.push(Held { _guard: guard, life, weight: weight.min(u32::MAX - before), cold });
                    }
                }
                Step::End(n) if !held.is_empty() => drop(held.swap_remove(n % held.len())),
                Step::End(_) => {}
                Step::Reborn(at) => {
                    lives[at as usize] += 1;
                    configs.push(configure(&mut registry, &lives));
                }
                Step::Configured => configs.push(configure(&mut registry, &lives)),
                Step::Retired => {
                    configs.drain(..configs.len() - 1);
                    registry.prune();
                }
            }
            check(&configs, &held)?;
        }
        held.clear();
        registry.prune();
        configs.push(configure(&mut registry, &lives));
        check(&configs, &held)?;
    }
}
