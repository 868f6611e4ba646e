//! Pools whose ring takes many ticks to build.

use std::cell::Cell;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_core::endpoint::Endpoint;
use warmroute_core::hash::hash;
use warmroute_core::ring::Ring;
use warmroute_tests::harness::{config, eventually};

use crate::rig::{Rig, SOON, servers};

const ENDPOINTS: usize = 3_000;
const KNOWN: usize = 4;

/// Four real endpoints among many that Envoy does not know.
fn plugin(known: &[SocketAddr]) -> Value {
    let mut plugin = config::one_pool(config::CLUSTER, known);
    if let Some(list) = plugin["pools"][0]["endpoints"].as_array_mut() {
        list.extend((KNOWN..ENDPOINTS).map(|n| json!({"id": format!("gpu-{n}"), "address": address(n)})));
    }
    plugin
}

fn address(n: usize) -> String {
    format!("10.1.{}.{}:80", n / 250, n % 250)
}

/// A model that the ring of that pool gives to one of the first four endpoints, and which one.
fn model_of_a_known_endpoint() -> Option<(String, usize)> {
    let pool: Vec<_> = (0..ENDPOINTS).map(|n| Endpoint::new(format!("gpu-{n}"), address(n).parse().unwrap())).collect();
    let ring = Ring::new(&pool, 150);
    (0..).map(|n| format!("model-{n}")).find_map(|model| {
        let owner = ring.walk(hash(model.as_bytes())).next()?.position();
        (owner < KNOWN).then_some((model, owner))
    })
}

/// Requests are served from the first moment on, by two choices until the ring is there; and it is the one that is built
/// natively. Its 450,000 points are placed in slices of half a millisecond, each of some thousand points: a hundred ticks.
#[tokio::test]
async fn a_large_ring_is_built_beside_the_traffic() -> Result<()> {
    let (model, owner) = model_of_a_known_endpoint().context("no such model")?;
    for workers in [1, 4] {
        let rig = Rig::with(servers(KNOWN, "127.0.0.1:0").await?, |envoy, addresses| {
            envoy.plugin_config(plugin(addresses)).concurrency(workers)
        })
        .await?;
        let sent = Cell::new(0);
        eventually(SOON, "the ring's own endpoint serves", || async {
            let reply = rig.chat(&model).await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            sent.set(sent.get() + 1);
            Ok((rig.count("pick.ring").await? > 0).then_some(()))
        })
        .await?;
        for _ in 0..5 {
            let reply = rig.chat(&model).await?;
            assert_eq!(rig.served_by(&reply)?, owner, "{workers} workers");
        }
        rig.await_count("outcome.success", sent.get() + 5).await?;
        let counts = rig.counts().await?;
        let count = |name: &str| counts.get(name).copied().unwrap_or_default();
        let pending = count("pick_reason.ring_pending");
        assert!(pending > 0, "{workers} workers: {counts:?}");
        assert_eq!(count("pick.p2c"), pending, "{counts:?}");
        assert_eq!(pending + count("pick.ring"), sent.get() + 5, "{counts:?}");
    }
    Ok(())
}
