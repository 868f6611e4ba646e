//! Properties of the decisions over random pools, requests and bytes. Seeds are fixed, and a failing case is printed by
//! proptest. What a plan promises by itself is in `plan.rs` beside this folder.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod body_grpc;
mod body_json;
mod config;
mod headers;

mod load;
mod own_plan;
mod picks;
mod ring;
mod ring_changes;
mod scene;
mod shares;

use proptest::test_runner::{Config, RngAlgorithm, RngSeed};
use warmroute_core::endpoint::Endpoint;

/// So many cases from the one seed of all properties here.
fn fixed(cases: u32) -> Config {
    Config {
        cases,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(20_260_101),
        failure_persistence: None,
        ..Config::default()
    }
}

fn endpoint(n: usize) -> Endpoint {
    let address = format!("10.{}.{}.{}:8000", n / 65_536, n / 256 % 256, n % 256);
    Endpoint::new(format!("gpu-{n}"), address.parse().unwrap())
}

fn pool(count: usize) -> Vec<Endpoint> {
    (0..count).map(endpoint).collect()
}
