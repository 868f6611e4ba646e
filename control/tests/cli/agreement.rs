//! What the command says is what the proxies do: against the core's picker, for the same configurations.

use crate::run::{file, run};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::time::Duration;
use warmroute_core::config;
use warmroute_core::live::LivePool;
use warmroute_core::load::Registry;
use warmroute_core::picker::Answer;
use warmroute_core::request::Request;
use warmroute_core::snapshot::Snapshot;

const SEEDS: std::ops::Range<u64> = 0..40;
const KEYS: usize = 25;

/// A pool of which everybody is on the ring, with at most 20 · 40 · 10 = 8,000 points, which a pick looks at all.
fn pool(rng: &mut Xoshiro256PlusPlus) -> Value {
    let count = rng.random_range(1..=20);
    let endpoints: Vec<_> = (0..count).map(|n| endpoint(n, rng)).collect();
    let virtual_nodes = rng.random_range(1..=40);
    json!({"cluster": "model-servers", "endpoints": endpoints, "virtual_nodes": virtual_nodes,
           "fallbacks": rng.random_range(0..=7), "max_retries": 0})
}

fn endpoint(n: usize, rng: &mut Xoshiro256PlusPlus) -> Value {
    let mut endpoint = json!({"address": format!("10.0.0.{n}:8000"), "weight": rng.random_range(0.1..=10.0)});
    if rng.random_bool(0.7) {
        endpoint["id"] = format!("gpu-{n}").into();
    }
    if rng.random_bool(0.3) {
        endpoint["active_nodes"] = rng.random_range(1..=40).into();
    }
    for mark in ["unhealthy", "draining"] {
        endpoint[mark] = rng.random_bool(0.15).into();
    }
    if rng.random_bool(0.2) {
        endpoint["serves"] = json!(["model-1", "model-2"]);
    }
    endpoint
}

/// What the command lists without those that it says are skipped, cut to the pool's length.
fn said(answer: &Value, key: usize, length: usize) -> Vec<String> {
    let endpoints = answer["keys"][key]["endpoints"].as_array().unwrap();
    let serving = endpoints.iter().filter(|endpoint| endpoint["skipped"].is_null());
    serving.map(|endpoint| endpoint["address"].as_str().unwrap().to_owned()).take(length).collect()
}

fn done(pool: &LivePool, key: &str, rng: &mut Xoshiro256PlusPlus) -> Vec<String> {
    match pool.answer(&Request::for_model(key.as_bytes()), Duration::from_secs(1), rng) {
        Answer::Pick(pick) => {
            let endpoints = pick.endpoints.iter().filter_map(|index| pool.pool().endpoint(*index));
            endpoints.map(|endpoint| endpoint.address.to_string()).collect()
        }
        Answer::Refuse(_) => Vec::new(),
        Answer::Pass(pass) => panic!("{pass:?}"),
    }
}

#[test]
fn the_owners_that_are_not_skipped_are_the_proxies_list() {
    let keys: Vec<_> = (0..KEYS).map(|n| format!("model-{n}")).collect();
    let (mut lists, mut refused) = (0, 0);
    for seed in SEEDS {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let plugin = json!({"pools": [pool(&mut rng)]}).to_string();
        let (_folder, path) = file(plugin.as_bytes());
        let mut arguments = vec!["ring", "--format", "json", "--replicas", "20", "--config", path.to_str().unwrap()];
        arguments.extend(keys.iter().flat_map(|key| ["--key", key]));
        let answer = run(&arguments).json();

        let pools = config::parse(plugin.as_bytes()).unwrap().pools;
        let snapshot = Snapshot::complete(pools, &mut Registry::default());
        let pool = snapshot.pool(b"model-servers").unwrap();
        let length = usize::from(pool.pool().settings().fallbacks) + 1;
        for (n, key) in keys.iter().enumerate() {
            let done = done(pool, key, &mut rng);
            assert_eq!(said(&answer, n, length), done, "seed {seed}, {key}: {plugin}");
            *(if done.is_empty() { &mut refused } else { &mut lists }) += 1;
        }
    }
    assert!(lists > 500 && refused > 0, "{lists} lists and {refused} refusals: both are compared");
}
