//! Which endpoint a request goes to.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::json;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use warmroute_core::endpoint::Endpoint;
use warmroute_core::hash::hash;
use warmroute_core::ring::Ring;
use warmroute_tests::harness::{Client, ConfigUpdate, Reply, config, eventually};
use warmroute_tests::mock::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use warmroute_tests::mock::proto::{ModelInferRequest, RepositoryModelLoadRequest};

use crate::rig::{Rig, SOON, hang_one, infer_body, model_at, pool, ring_order, servers};

/// Worker threads that every item is tried with.
const WORKERS: [usize; 2] = [1, 4];

/// `count` servers behind the shipped configuration.
async fn start(count: usize, workers: usize) -> Result<Rig> {
    Rig::with(servers(count, "127.0.0.1:0").await?, |envoy, _| envoy.concurrency(workers)).await
}

/// For one model, by any worker.
async fn llama(rig: &Rig) -> Result<Reply> {
    rig.chat_anew(&[("x-model-id", "llama")], "llama").await
}

#[tokio::test]
async fn a_model_in_the_header_goes_to_its_endpoint_on_the_ring() -> Result<()> {
    for workers in WORKERS {
        let rig = start(5, workers).await?;
        let mut used = BTreeSet::new();
        for n in 0..30 {
            let model = format!("model-{n}");
            for header in ["x-model-id", "model-id"] {
                let reply = rig.chat_anew(&[(header, &model)], &model).await?;
                assert_eq!(reply.status, 200, "{}", reply.text());
                assert_eq!(
                    rig.served_by(&reply)?,
                    ring_order(5, model.as_bytes())[0],
                    "{model} by {header} on {workers} workers"
                );
            }
            used.insert(ring_order(5, model.as_bytes())[0]);
        }
        assert_eq!(used.len(), 5, "the models reach every endpoint");
        rig.await_count("served.pick", 60).await?;
        rig.await_count("pick.ring", 60).await?;
        rig.await_count("pick_reason.model", 60).await?;
        rig.await_count("outcome.success", 60).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_model_in_the_path_goes_where_its_header_would_send_it() -> Result<()> {
    for workers in WORKERS {
        let rig = start(5, workers).await?;
        for (path, model) in [
            ("/v2/models/llama/infer", "llama"),
            ("/v2/models/llama/versions/2/infer?x=1", "llama"),
            ("/v2/models/org%2Fqwen/infer", "org/qwen"),
            ("/v2/models/bert/infer", "bert"),
        ] {
            let reply = Client::http1().post(&rig.url(path), &[], &infer_body()).await?;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            assert_eq!(rig.served_by(&reply)?, ring_order(5, model.as_bytes())[0], "{path} on {workers} workers");
        }
    }
    Ok(())
}

/// Paths of TensorFlow Serving and of Azure. The servers know neither: Envoy rewrites them, behind the filter.
#[tokio::test]
async fn a_model_in_another_protocols_path_goes_where_its_header_would_send_it() -> Result<()> {
    let paths = [
        ("/v1/models/llama:predict", "llama"),
        ("/v1/models/bert:predict?x=1", "bert"),
        ("/v1/models/qwen/versions/3:predict", "qwen"),
        ("/v1/models/org%2Fmixtral:predict", "org/mixtral"),
        ("/openai/deployments/gpt-4o/chat/completions?api-version=1", "gpt-4o"),
        ("/openai/deployments/phi/chat/completions", "phi"),
    ];
    for workers in WORKERS {
        let rig = Rig::with(servers(5, "127.0.0.1:0").await?, |envoy, _| {
            envoy.concurrency(workers).edit(|bootstrap| {
                config::route(bootstrap, config::LISTENER)?["regex_rewrite"] = json!({
                    "pattern": {"regex": "^/(v1/models|openai/deployments)/([^/:]+).*$"},
                    "substitution": "/v2/models/\\2/infer",
                });
                Ok(())
            })
        })
        .await?;
        for (path, model) in paths {
            let reply = Client::http1().post(&rig.url(path), &[], &infer_body()).await?;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            assert_eq!(rig.served_by(&reply)?, ring_order(5, model.as_bytes())[0], "{path} on {workers} workers");
        }
        rig.await_count("pick_reason.model", paths.len() as u64).await?;
    }
    Ok(())
}

/// Whose the models are while the last of four endpoints has so many of its 150 points on the ring, computed natively.
fn owners_while_joining(models: &[String], active: u32) -> Vec<usize> {
    let mut endpoints: Vec<_> =
        (0..4).map(|n| Endpoint::new(format!("gpu-{n}"), format!("10.0.0.1:{}", n + 1).parse().unwrap())).collect();
    endpoints[3].active_nodes = Some(active);
    let ring = Ring::new(&endpoints, 150);
    models.iter().map(|model| ring.walk(hash(model.as_bytes())).next().unwrap().position()).collect()
}

/// Each step gives it some models of the others, and moves none among them.
#[tokio::test]
async fn an_endpoint_joins_the_ring_in_steps_by_its_active_nodes() -> Result<()> {
    let models: Vec<_> = (0..40).map(|n| format!("model-{n}")).collect();
    let plugin = |addresses: &[_], active: u32| {
        let mut plugin = pool(addresses, json!({}));
        plugin["pools"][0]["endpoints"][3]["active_nodes"] = json!(active);
        plugin
    };
    for workers in WORKERS {
        let mut rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, addresses| {
            envoy.plugin_config(plugin(addresses, 0)).concurrency(workers)
        })
        .await?;
        let mut before = owners_while_joining(&models, 0);
        assert!(!before.contains(&3));
        for active in [0, 40, 100, 150] {
            let expected = owners_while_joining(&models, active);
            let moved: Vec<_> = before.iter().zip(&expected).filter(|(before, now)| before != now).collect();
            assert!(moved.iter().all(|(_, now)| **now == 3), "{moved:?}");
            assert_eq!(moved.is_empty(), active == 0, "every step moves some");
            if active > 0 {
                let update = plugin(&rig.addresses(), active);
                assert_eq!(rig.envoy.write_plugin_config(&update).await?, ConfigUpdate::Applied);
            }
            eventually(SOON, "every worker is at this step", || async {
                let mut found = Vec::new();
                for model in &models {
                    found.push(rig.served_by(&rig.chat_anew(&[("x-model-id", model)], model).await?)?);
                }
                Ok((found == expected).then_some(()))
            })
            .await?;
            before = expected;
        }
        let whole: Vec<_> = models.iter().map(|model| ring_order(4, model.as_bytes())[0]).collect();
        assert_eq!(before, whole, "{workers} workers");
    }
    Ok(())
}

#[tokio::test]
async fn the_list_has_the_next_endpoints_of_the_ring_in_order() -> Result<()> {
    for workers in WORKERS {
        let rig = Rig::with(servers(6, "127.0.0.1:0").await?, |envoy, addresses| {
            envoy.plugin_config(pool(addresses, json!({"fallbacks": 3}))).concurrency(workers)
        })
        .await?;
        let models: Vec<_> = (0..12).map(|n| format!("model-{n}")).collect();
        for model in &models {
            assert_eq!(rig.chat_anew(&[("x-model-id", model)], model).await?.status, 200);
        }
        let mut lists = rig.await_lists(models.len()).await?;
        let mut expected: Vec<_> = models.iter().map(|model| ring_order(6, model.as_bytes())[..4].to_vec()).collect();
        // Workers log in whatever order.
        lists.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lists, expected, "{workers} workers");
    }
    Ok(())
}

#[tokio::test]
async fn a_refused_connection_falls_through_the_list_in_order() -> Result<()> {
    for workers in WORKERS {
        let rig = start(4, workers).await?;
        let order = ring_order(4, b"llama");
        rig.servers[order[0]].crash().await;
        assert_eq!(rig.served_by(&llama(&rig).await?)?, order[1]);
        rig.servers[order[1]].crash().await;
        assert_eq!(rig.served_by(&llama(&rig).await?)?, order[2]);
        rig.await_count("served.fallback", 2).await?;
        rig.await_count("outcome.success", 2).await?;
        // One endpoint in vain before the first answer, two before the second.
        rig.await_count("attempt_failed", 3).await?;
        assert_eq!(rig.count("endpoint_unknown").await?, 0);
        // The list is at its end, and the fourth endpoint, which is well, is not in it: no attempt leaves the list.
        rig.servers[order[2]].crash().await;
        let reply = llama(&rig).await?;
        assert_eq!(reply.status, 503, "{}", reply.text());
        rig.await_count("outcome.failure", 1).await?;
        assert_eq!(rig.servers[order[3]].stats().requests, 0);
    }
    Ok(())
}

#[tokio::test]
async fn retries_are_bounded_by_the_list_and_the_configuration() -> Result<()> {
    for workers in WORKERS {
        for (fields, attempts) in [
            (json!({"fallbacks": 0}), 1),
            (json!({"fallbacks": 2, "max_retries": 0}), 1),
            (json!({"fallbacks": 2, "max_retries": 1}), 2),
            // Up, too: the route says 2.
            (json!({"fallbacks": 3, "max_retries": 3}), 4),
        ] {
            let rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, addresses| {
                envoy.plugin_config(pool(addresses, fields.clone())).concurrency(workers)
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
            assert_eq!(log["attempts"], attempts, "{fields} on {workers} workers");
        }
    }
    Ok(())
}

#[tokio::test]
async fn updates_unknown_types_and_requests_without_a_model_spread_over_the_pool() -> Result<()> {
    for workers in WORKERS {
        let rig = start(3, workers).await?;
        let load = async || Client::http1().post(&rig.url("/v2/repository/models/llama/load"), &[], &json!({})).await;
        let update = async || rig.chat_anew(&[("x-model-id", "llama"), ("x-request-type", "update")], "llama").await;
        let strange = async || rig.chat_anew(&[("x-model-id", "llama"), ("request-type", "train")], "llama").await;
        let nameless = async || rig.chat_anew(&[], "llama").await;
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
    }
    Ok(())
}

#[tokio::test]
async fn updates_of_a_model_stay_with_the_endpoints_that_hold_it() -> Result<()> {
    for workers in WORKERS {
        let rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, addresses| {
            let mut plugin = pool(addresses, json!({}));
            plugin["pools"][0]["endpoints"][1]["models"] = json!(["llama"]);
            plugin["pools"][0]["endpoints"][2]["models"] = json!(["llama", "bert"]);
            envoy.plugin_config(plugin).concurrency(workers)
        })
        .await?;
        let update = async || rig.chat_anew(&[("x-model-id", "llama"), ("x-request-type", "update")], "llama").await;
        let shares = rig.shares(60, update).await?;
        assert_eq!((shares[0], shares[3]), (0, 0), "{shares:?}");
        assert!(shares[1] > 0 && shares[2] > 0, "{shares:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_marked_by_hand_gets_nothing_and_the_next_of_the_ring_serves() -> Result<()> {
    for workers in WORKERS {
        let order = ring_order(4, b"llama");
        let marked = order[0];
        let rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, addresses| {
            let mut plugin = pool(addresses, json!({}));
            plugin["pools"][0]["endpoints"][marked]["unhealthy"] = json!(true);
            envoy.plugin_config(plugin).concurrency(workers)
        })
        .await?;
        assert_eq!(rig.served_by(&llama(&rig).await?)?, order[1]);
        let spread = rig.shares(60, async || rig.chat_anew(&[], "llama").await).await?;
        assert_eq!(spread[marked], 0, "{spread:?}");
    }
    Ok(())
}

/// With two endpoints both are always compared: while one has a request in flight, the other gets the next ones of the
/// same worker; other workers do not see it. HTTP/2, so that all requests of the client have one connection and worker.
#[tokio::test]
async fn p2c_prefers_the_endpoint_with_fewer_requests_in_flight() -> Result<()> {
    for workers in WORKERS {
        let mut rig = Rig::with(servers(2, "127.0.0.1:0").await?, |envoy, addresses| {
            envoy.plugin_config(pool(addresses, json!({"strategy": "p2c"}))).concurrency(workers)
        })
        .await?;
        rig.client = Client::http2();
        let (hanging, busy) = hang_one(&rig).await?;
        let shares = rig.shares(20, async || rig.chat("llama").await).await?;
        assert_eq!(shares[busy], 0, "{workers} workers: {shares:?}");
        let shares = rig.shares(60, async || llama(&rig).await).await?;
        // Three in four of these connections are other workers', and each of theirs goes there by 1/2: none but by chance
        // (5/8)^60.
        assert_eq!(shares[busy] > 0, workers > 1, "{workers} workers: {shares:?}");
        hanging.abort();
        rig.await_in_flight(0).await?;
        // Free again: of 60 picks among two idle endpoints each gets some but by chance 2^-59.
        let shares = rig.shares(60, async || rig.chat("llama").await).await?;
        assert!(shares.iter().all(|&share| share > 0), "{workers} workers: {shares:?}");
        rig.await_count("pick_reason.model", 141).await?;
    }
    Ok(())
}

#[tokio::test]
async fn grpc_calls_of_one_connection_go_each_to_its_models_endpoint() -> Result<()> {
    for workers in WORKERS {
        let rig = start(4, workers).await?;
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
            assert_eq!(served, rig.servers[expected].addr().to_string(), "{model} on {workers} workers");
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
        rig.await_count("outcome.success", 60).await?;
    }
    Ok(())
}

#[tokio::test]
async fn ipv6_endpoints_are_found() -> Result<()> {
    for workers in WORKERS {
        let rig = Rig::with(servers(3, "[::1]:0").await?, |envoy, _| envoy.concurrency(workers)).await?;
        for n in 0..10 {
            let model = format!("model-{n}");
            let reply = rig.chat_anew(&[("x-model-id", &model)], &model).await?;
            assert_eq!(rig.served_by(&reply)?, ring_order(3, model.as_bytes())[0], "{model} on {workers} workers");
        }
        rig.await_count("served.pick", 10).await?;
        assert_eq!(rig.count("endpoint_unknown").await?, 0);
    }
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
    for workers in WORKERS {
        let mut rig = Rig::with(servers(3, "127.0.0.1:0").await?, |envoy, addresses| {
            envoy.plugin_config(config::one_pool("another-cluster", addresses)).concurrency(workers)
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
    }
    Ok(())
}

/// The route draws the cluster; the filter picks inside it.
#[tokio::test]
async fn picks_stay_inside_the_cluster_that_the_route_drew() -> Result<()> {
    for workers in WORKERS {
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
                .concurrency(workers)
        })
        .await?;
        let first = ring_order(2, b"llama")[0];
        let shares = rig.shares(200, async || llama(&rig).await).await?;
        // 200 · 0.3 = 60, standard deviation 6.5: within five of them.
        let canary = shares[2 + first];
        assert!((28..=92).contains(&canary), "{shares:?}");
        assert_eq!(shares[first] + canary, 200, "only the ring's first endpoint of each cluster: {shares:?}");
        rig.await_count("served.pick", 200).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_first_of_two_models_in_one_header_counts() -> Result<()> {
    for workers in WORKERS {
        let rig = start(4, workers).await?;
        let (a, b) = (model_at(4, 0), model_at(4, 3));
        let reply = rig.chat_anew(&[("x-model-id", &a), ("x-model-id", &b)], &a).await?;
        assert_eq!(rig.served_by(&reply)?, 0);
        let reply = rig.chat_anew(&[("model-id", &a), ("x-model-id", &b)], &a).await?;
        assert_eq!(rig.served_by(&reply)?, 3, "the first configured header before the second");
    }
    Ok(())
}
