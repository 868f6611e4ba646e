//! Who may serve a request, and under which name its model is known.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};
use warmroute_tests::harness::Client;
use warmroute_tests::mock::MockServer;

use crate::rig::{Rig, infer_body, pool, ring_order, servers};

async fn rig(count: usize, workers: usize, change: impl FnOnce(&mut Value)) -> Result<Rig> {
    Rig::with(servers(count, "127.0.0.1:0").await?, |envoy, addresses| {
        let mut plugin = pool(addresses, json!({}));
        change(&mut plugin);
        envoy.plugin_config(plugin).concurrency(workers)
    })
    .await
}

#[tokio::test]
async fn a_draining_endpoint_gets_nothing_new() -> Result<()> {
    let order = ring_order(4, b"llama");
    for workers in [1, 4] {
        let rig = rig(4, workers, |plugin| {
            plugin["pools"][0]["endpoints"][order[0]]["draining"] = json!(true);
        })
        .await?;
        assert_eq!(rig.served_by(&rig.chat("llama").await?)?, order[1]);
        let spread = rig.shares(40, async || rig.chat_with(&[], "llama").await).await?;
        assert_eq!(spread[order[0]], 0, "{spread:?}");
    }
    Ok(())
}

/// Endpoints that serve a fixed list of models get no others.
#[tokio::test]
async fn a_model_goes_only_to_endpoints_that_can_serve_it() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(4, workers, |plugin| {
            for n in 0..4 {
                plugin["pools"][0]["endpoints"][n]["serves"] = json!(if n < 2 { ["llama"] } else { ["bert"] });
            }
        })
        .await?;
        for (model, allowed) in [("llama", [0, 1]), ("bert", [2, 3])] {
            let expected = ring_order(4, model.as_bytes()).into_iter().find(|n| allowed.contains(n));
            assert_eq!(Some(rig.served_by(&rig.chat(model).await?)?), expected);
        }
        for list in rig.await_lists(2).await? {
            assert_eq!(list.len(), 2, "{list:?}");
        }
        let refused = rig.chat("qwen").await?;
        assert_eq!(refused.status, 503, "{}", refused.text());
        rig.await_count("refusal.no_healthy_endpoint", 1).await?;
    }
    Ok(())
}

/// Large bodies only where the label is; small ones anywhere.
#[tokio::test]
async fn a_large_payload_goes_where_its_class_may() -> Result<()> {
    let order = ring_order(4, b"llama");
    for workers in [1, 4] {
        let rig = rig(4, workers, |plugin| {
            plugin["pools"][0]["payload_classes"] =
                json!([{"name": "batch", "above_bytes": 4096, "weight": 16, "labels": ["tier=batch"]}]);
            plugin["pools"][0]["endpoints"][order[3]]["labels"] = json!(["tier=batch", "zone=a"]);
        })
        .await?;
        let large = json!({"model": "llama", "max_tokens": 1,
            "messages": [{"role": "user", "content": "x".repeat(8 * 1024)}]});
        let url = rig.url("/v1/chat/completions");
        let reply = rig.client.post(&url, &[("x-model-id", "llama")], &large).await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(rig.served_by(&reply)?, order[3]);
        assert_eq!(rig.served_by(&rig.chat("llama").await?)?, order[0], "a small one");
    }
    Ok(())
}

/// A server that answers 404 for a model gets no more of its requests for a while; the next of the ring does.
#[tokio::test]
async fn an_endpoint_that_does_not_know_a_model_is_left_alone_with_it() -> Result<()> {
    let order = ring_order(3, b"llama");
    for workers in [1, 4] {
        let mut servers = Vec::new();
        for n in 0..3 {
            let models = if n == order[0] { &["bert"][..] } else { &["bert", "llama"] };
            let builder = MockServer::builder().listen("127.0.0.1:0").capacity(10).models(models.iter().copied());
            servers.push(builder.start().await?);
        }
        let rig = Rig::with(servers, |envoy, _| envoy.concurrency(workers)).await?;
        let infer = async |model: &str| {
            rig.client.post(&rig.url(&format!("/v2/models/{model}/infer")), &[], &infer_body()).await
        };
        let reply = infer("llama").await?;
        assert_eq!((reply.status.as_u16(), rig.served_by(&reply)?), (404, order[0]));
        rig.await_in_flight(0).await?;
        for _ in 0..5 {
            let reply = infer("llama").await?;
            assert_eq!((reply.status.as_u16(), rig.served_by(&reply)?), (200, order[1]), "{workers} workers");
        }
        assert_eq!(infer("bert").await?.status, 200);
        // Nobody knows this one: the marks would leave nobody, so they do not count, and the client gets its 404.
        for _ in 0..6 {
            assert_eq!(infer("nonsense").await?.status, 404);
            rig.await_in_flight(0).await?;
        }
        // Three marks, then three requests that nobody is left for.
        rig.await_count("unknown_marks_ignored", 3).await?;
    }
    Ok(())
}

/// Marks are a worker's own: each has its 404 once.
#[tokio::test]
async fn every_worker_finds_out_once_who_does_not_know_a_model() -> Result<()> {
    const REQUESTS: u64 = 24;
    let order = ring_order(3, b"llama");
    for workers in [1, 4] {
        let mut servers = Vec::new();
        for n in 0..3 {
            let model = if n == order[0] { "bert" } else { "llama" };
            servers.push(MockServer::builder().listen("127.0.0.1:0").models([model]).start().await?);
        }
        let rig = Rig::with(servers, |envoy, _| envoy.concurrency(workers)).await?;
        let mut not_found = 0;
        for sent in 1..=REQUESTS {
            let reply = Client::http1().post(&rig.url("/v2/models/llama/infer"), &[], &infer_body()).await?;
            match reply.status.as_u16() {
                404 => not_found += 1,
                status => assert_eq!((status, rig.served_by(&reply)?), (200, order[1])),
            }
            rig.await_count("served.pick", sent).await?;
        }
        let stats = rig.envoy.admin().stats("listener.").await?;
        let connections = |name: &str| name.contains(".worker_") && name.ends_with(".downstream_cx_total");
        let busy = stats.iter().filter(|(name, count)| connections(name) && **count > 0).count();
        assert_eq!(not_found, busy, "{workers} workers: {stats:?}");
        // Only one of four but by chance (1/4)^23.
        assert_eq!(busy > 1, workers > 1, "{workers} workers: {stats:?}");
    }
    Ok(())
}

#[tokio::test]
async fn aliases_defaults_and_adapters_are_models() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(5, workers, |plugin| {
            plugin["request"] = json!({"aliases": {"chat": "llama-3-70b"}, "default_model": "small"});
        })
        .await?;
        for (asked, routed) in [
            ("chat", "llama-3-70b"),
            ("llama-3-70b", "llama-3-70b"),
            ("llama-3-70b:sql-adapter", "llama-3-70b:sql-adapter"),
        ] {
            let reply = rig.chat_with(&[("x-model-id", asked)], asked).await?;
            assert_eq!(rig.served_by(&reply)?, ring_order(5, routed.as_bytes())[0], "{asked}");
        }
        let reply = rig.chat_with(&[], "whatever").await?;
        assert_eq!(rig.served_by(&reply)?, ring_order(5, b"small")[0]);
        // The server gets the name that the client wrote.
        let seen: BTreeSet<_> =
            rig.servers.iter().flat_map(|server| server.recorded()).filter_map(|request| request.model).collect();
        assert!(seen.contains("chat"), "{seen:?}");
    }
    Ok(())
}

/// Updates over the pool by choice; else to those that hold the model.
#[tokio::test]
async fn updates_go_over_the_pool_where_asked_for() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(3, workers, |plugin| {
            plugin["pools"][0]["updates"] = json!("pool");
            plugin["pools"][0]["endpoints"][1]["models"] = json!(["llama"]);
        })
        .await?;
        let update = async || rig.chat_anew(&[("x-model-id", "llama"), ("x-request-type", "update")], "llama").await;
        let shares = rig.shares(60, update).await?;
        // None is missed but by chance (2/3)^60.
        assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
    }
    Ok(())
}
