//! Which endpoint a request goes to.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::json;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use warmroute_tests::harness::{Client, ConfigUpdate, config, eventually};
use warmroute_tests::mock::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use warmroute_tests::mock::proto::{ModelInferRequest, RepositoryModelLoadRequest};

use crate::rig::{Rig, SOON, infer_body, model_at, pool, ring_order, servers};

#[tokio::test]
async fn a_model_in_the_header_goes_to_its_endpoint_on_the_ring() -> Result<()> {
    let rig = Rig::start(5).await?;
    let mut used = BTreeSet::new();
    for n in 0..30 {
        let model = format!("model-{n}");
        for header in ["x-model-id", "model-id"] {
            let reply = rig.chat_with(&[(header, &model)], &model).await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert_eq!(rig.served_by(&reply)?, ring_order(5, model.as_bytes())[0], "{model} by {header}");
        }
        used.insert(ring_order(5, model.as_bytes())[0]);
    }
    assert_eq!(used.len(), 5, "the models reach every endpoint");
    rig.await_count("served.pick", 60).await?;
    rig.await_count("pick.ring", 60).await?;
    rig.await_count("pick_reason.model", 60).await?;
    rig.await_count("outcome.success", 60).await?;
    Ok(())
}

#[tokio::test]
async fn a_model_in_the_path_goes_where_its_header_would_send_it() -> Result<()> {
    let rig = Rig::start(5).await?;
    for (path, model) in [
        ("/v2/models/llama/infer", "llama"),
        ("/v2/models/llama/versions/2/infer?x=1", "llama"),
        ("/v2/models/org%2Fqwen/infer", "org/qwen"),
        ("/v2/models/bert/infer", "bert"),
    ] {
        let reply = rig.client.post(&rig.url(path), &[], &infer_body()).await?;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        assert_eq!(rig.served_by(&reply)?, ring_order(5, model.as_bytes())[0], "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn the_list_has_the_next_endpoints_of_the_ring_in_order() -> Result<()> {
    let rig = Rig::with(servers(6, "127.0.0.1:0").await?, |envoy, addresses| {
        envoy.plugin_config(pool(addresses, json!({"fallbacks": 3})))
    })
    .await?;
    let models: Vec<_> = (0..12).map(|n| format!("model-{n}")).collect();
    for model in &models {
        assert_eq!(rig.chat(model).await?.status, 200);
    }
    let lists = rig.await_lists(models.len()).await?;
    for (model, list) in models.iter().zip(lists) {
        assert_eq!(list, ring_order(6, model.as_bytes())[..4], "{model}");
    }
    Ok(())
}

#[tokio::test]
async fn a_refused_connection_falls_through_the_list_in_order() -> Result<()> {
    let rig = Rig::start(4).await?;
    let order = ring_order(4, b"llama");
    rig.servers[order[0]].crash().await;
    assert_eq!(rig.served_by(&rig.chat("llama").await?)?, order[1]);
    rig.servers[order[1]].crash().await;
    assert_eq!(rig.served_by(&rig.chat("llama").await?)?, order[2]);
    rig.await_count("served.fallback", 2).await?;
    rig.await_count("outcome.success", 2).await?;
    // One endpoint in vain before the first answer, two before the second.
    rig.await_count("attempt_failed", 3).await?;
    assert_eq!(rig.count("endpoint_unknown").await?, 0);
    // The list is at its end, and the fourth endpoint, which is well, is not in it: no attempt leaves the list.
    rig.servers[order[2]].crash().await;
    let reply = rig.chat("llama").await?;
    assert_eq!(reply.status, 503, "{}", reply.text());
    rig.await_count("outcome.failure", 1).await?;
    assert_eq!(rig.servers[order[3]].stats().requests, 0);
    Ok(())
}

#[tokio::test]
async fn retries_are_bounded_by_the_list_and_the_configuration() -> Result<()> {
    for (fields, attempts) in [
        (json!({"fallbacks": 0}), 1),
        (json!({"fallbacks": 2, "max_retries": 0}), 1),
        (json!({"fallbacks": 2, "max_retries": 1}), 2),
        // Up, too: the route says 2.
        (json!({"fallbacks": 3, "max_retries": 3}), 4),
    ] {
        let rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, addresses| {
            envoy.plugin_config(pool(addresses, fields.clone()))
        })
        .await?;
        for server in &rig.servers {
            server.crash().await;
        }
        assert_eq!(rig.chat("llama").await?.status, 503);
        let log = eventually(SOON, "the request is in the access log", || async {
            Ok(rig.envoy.access_log()?.first().cloned())
        })
        .await?;
        assert_eq!(log["attempts"], attempts, "{fields}");
    }
    Ok(())
}

#[tokio::test]
async fn updates_unknown_types_and_requests_without_a_model_spread_over_the_pool() -> Result<()> {
    let rig = Rig::start(3).await?;
    let load = async || rig.client.post(&rig.url("/v2/repository/models/llama/load"), &[], &json!({})).await;
    let update = async || rig.chat_with(&[("x-model-id", "llama"), ("x-request-type", "update")], "llama").await;
    let strange = async || rig.chat_with(&[("x-model-id", "llama"), ("request-type", "train")], "llama").await;
    let nameless = async || rig.chat_with(&[], "llama").await;
    // Of 60 random picks none misses one of three endpoints but by chance (2/3)^60, about 1 in 10^10.
    for shares in [
        rig.shares(60, load).await?,
        rig.shares(60, update).await?,
        rig.shares(60, strange).await?,
        rig.shares(60, nameless).await?,
    ] {
        assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
    }
    rig.await_count("pick.p2c", 240).await?;
    rig.await_count("pick_reason.update", 120).await?;
    rig.await_count("pick_reason.unknown_type", 60).await?;
    rig.await_count("pick_reason.no_model", 60).await?;
    Ok(())
}

#[tokio::test]
async fn updates_of_a_model_stay_with_the_endpoints_that_hold_it() -> Result<()> {
    let rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, addresses| {
        let mut plugin = pool(addresses, json!({}));
        plugin["pools"][0]["endpoints"][1]["models"] = json!(["llama"]);
        plugin["pools"][0]["endpoints"][2]["models"] = json!(["llama", "bert"]);
        envoy.plugin_config(plugin)
    })
    .await?;
    let update = async || rig.chat_with(&[("x-model-id", "llama"), ("x-request-type", "update")], "llama").await;
    let shares = rig.shares(60, update).await?;
    assert_eq!((shares[0], shares[3]), (0, 0), "{shares:?}");
    assert!(shares[1] > 0 && shares[2] > 0, "{shares:?}");
    Ok(())
}

#[tokio::test]
async fn an_endpoint_marked_by_hand_gets_nothing_and_the_next_of_the_ring_serves() -> Result<()> {
    let order = ring_order(4, b"llama");
    let marked = order[0];
    let rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, addresses| {
        let mut plugin = pool(addresses, json!({}));
        plugin["pools"][0]["endpoints"][marked]["unhealthy"] = json!(true);
        envoy.plugin_config(plugin)
    })
    .await?;
    assert_eq!(rig.served_by(&rig.chat("llama").await?)?, order[1]);
    let spread = rig.shares(60, async || rig.chat_with(&[], "llama").await).await?;
    assert_eq!(spread[marked], 0, "{spread:?}");
    Ok(())
}

/// With two endpoints both are always compared: while one has a request in flight, the other gets the next ones.
#[tokio::test]
async fn p2c_prefers_the_endpoint_with_fewer_requests_in_flight() -> Result<()> {
    let rig = Rig::with(servers(2, "127.0.0.1:0").await?, |envoy, addresses| {
        envoy.plugin_config(pool(addresses, json!({"strategy": "p2c"})))
    })
    .await?;
    for server in &rig.servers {
        server.set_faults(serde_json::from_value(json!({"hang": true}))?).await?;
    }
    let client = rig.client.clone();
    let url = rig.url("/v1/chat/completions");
    let body = crate::rig::chat_body("llama");
    let hanging = tokio::spawn(async move { client.post(&url, &[("x-model-id", "llama")], &body).await });
    let busy = eventually(SOON, "one server has the request", || async {
        Ok(rig.servers.iter().position(|server| server.stats().in_flight == 1))
    })
    .await?;
    for server in &rig.servers {
        server.clear_faults();
    }
    let shares = rig.shares(20, async || rig.chat("llama").await).await?;
    assert_eq!(shares[busy], 0, "{shares:?}");
    hanging.abort();
    rig.await_in_flight(0).await?;
    // Free again: of 60 picks among two idle endpoints each gets some but by chance 2^-59.
    let shares = rig.shares(60, async || rig.chat("llama").await).await?;
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
    rig.await_count("pick_reason.model", 81).await?;
    Ok(())
}

#[tokio::test]
async fn grpc_calls_of_one_connection_go_each_to_its_models_endpoint() -> Result<()> {
    let rig = Rig::start(4).await?;
    let channel = Channel::from_shared(rig.envoy.base_url())?.connect().await?;
    let mut client = GrpcInferenceServiceClient::new(channel);
    let mut used = BTreeSet::new();
    for n in 0..20 {
        let model = format!("model-{n}");
        let mut request = Request::new(ModelInferRequest { model_name: model.clone(), ..Default::default() });
        request.metadata_mut().insert("x-model-id", MetadataValue::try_from(&model)?);
        let answer = client.model_infer(request).await?;
        let served = answer.metadata().get("x-served-by").context("no x-served-by")?.to_str()?;
        let expected = ring_order(4, model.as_bytes())[0];
        assert_eq!(served, rig.servers[expected].addr().to_string(), "{model}");
        used.insert(expected);
    }
    assert_eq!(used.len(), 4);
    let connections = rig.envoy.admin().counter("http.inference.downstream_cx_http2_total").await?;
    assert_eq!(connections, 1, "all over one connection");
    let mut loaded_at = BTreeSet::new();
    for _ in 0..40 {
        let load = RepositoryModelLoadRequest { model_name: "llama".into(), ..Default::default() };
        let answer = client.repository_model_load(load).await?;
        loaded_at.insert(answer.metadata().get("x-served-by").context("no x-served-by")?.to_str()?.to_owned());
    }
    assert_eq!(loaded_at.len(), 4, "updates are spread");
    rig.await_count("pick_reason.update", 40).await?;
    rig.await_count("outcome.success", 60).await
}

#[tokio::test]
async fn ipv6_endpoints_are_found() -> Result<()> {
    let rig = Rig::with(servers(3, "[::1]:0").await?, |envoy, _| envoy).await?;
    for n in 0..10 {
        let model = format!("model-{n}");
        let reply = rig.chat(&model).await?;
        assert_eq!(rig.served_by(&reply)?, ring_order(3, model.as_bytes())[0], "{model}");
    }
    rig.await_count("served.pick", 10).await?;
    assert_eq!(rig.count("endpoint_unknown").await?, 0);
    Ok(())
}

#[tokio::test]
async fn every_worker_picks_alike() -> Result<()> {
    let rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, _| envoy.concurrency(2)).await?;
    let expected = ring_order(4, b"llama")[0];
    // A client of its own each time: a new connection, which the kernel gives to either worker.
    for _ in 0..40 {
        let reply = Client::http1()
            .post(&rig.url("/v1/chat/completions"), &[("x-model-id", "llama")], &crate::rig::chat_body("llama"))
            .await?;
        assert_eq!(rig.served_by(&reply)?, expected);
    }
    let workers = rig.envoy.admin().stats("listener.").await?;
    let busy = workers
        .iter()
        .filter(|(name, value)| name.contains(".worker_") && name.ends_with(".downstream_cx_total") && **value > 0);
    assert_eq!(busy.count(), 2, "both workers served: {workers:?}");
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_is_not_ours_is_left_alone() -> Result<()> {
    let mut rig = Rig::with(servers(3, "127.0.0.1:0").await?, |envoy, addresses| {
        envoy.plugin_config(config::one_pool("another-cluster", addresses))
    })
    .await?;
    let shares = rig.shares(60, async || rig.chat("llama").await).await?;
    assert!(shares.iter().all(|&share| share > 0), "by Envoy's own policy: {shares:?}");
    // Requests that are ours bring the counts up to date: as many as carried a list, none for the others.
    assert_eq!(rig.envoy.write_plugin_config(&pool(&rig.addresses(), json!({}))).await?, ConfigUpdate::Applied);
    eventually(SOON, "the new configuration steers, and only its requests are counted", || async {
        rig.chat("llama").await?;
        let (picks, lists) = (rig.count("pick.ring").await?, rig.steered()?);
        Ok((picks > 0 && picks == lists as u64).then_some(()))
    })
    .await?;
    assert!(rig.envoy.access_log()?.len() >= 60 + rig.steered()?);
    assert!(rig.counts().await?.keys().all(|name| !name.starts_with("pass.")), "nothing else was counted");
    Ok(())
}

/// The route draws the cluster; the filter picks inside it.
#[tokio::test]
async fn picks_stay_inside_the_cluster_that_the_route_drew() -> Result<()> {
    let rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, addresses| {
        let (stable, canary) = addresses.split_at(2);
        let mut plugin = config::one_pool("stable", stable);
        let canary_pool = config::one_pool("canary", canary)["pools"][0].clone();
        plugin["pools"].as_array_mut().unwrap().push(canary_pool);
        envoy
            .cluster("stable", stable)
            .cluster("canary", canary)
            .weighted_route(&[("stable", 70), ("canary", 30)])
            .plugin_config(plugin)
    })
    .await?;
    let first = ring_order(2, b"llama")[0];
    let shares = rig.shares(200, async || rig.chat("llama").await).await?;
    // 200 · 0.3 = 60, standard deviation 6.5: within five of them.
    let canary = shares[2 + first];
    assert!((28..=92).contains(&canary), "{shares:?}");
    assert_eq!(shares[first] + canary, 200, "only the ring's first endpoint of each cluster: {shares:?}");
    rig.await_count("served.pick", 200).await
}

#[tokio::test]
async fn the_first_of_two_models_in_one_header_counts() -> Result<()> {
    let rig = Rig::start(4).await?;
    let (a, b) = (model_at(4, 0), model_at(4, 3));
    let reply = rig.chat_with(&[("x-model-id", &a), ("x-model-id", &b)], &a).await?;
    assert_eq!(rig.served_by(&reply)?, 0);
    let reply = rig.chat_with(&[("model-id", &a), ("x-model-id", &b)], &a).await?;
    assert_eq!(rig.served_by(&reply)?, 3, "the first configured header before the second");
    Ok(())
}
