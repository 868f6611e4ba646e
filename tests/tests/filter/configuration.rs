//! New configurations while requests run: good ones take over at once, bad ones change nothing.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_tests::harness::{ConfigUpdate, config, eventually};

use warmroute_tests::mock::proto::ModelInferRequest;
use warmroute_tests::mock::proto::grpc_inference_service_client::GrpcInferenceServiceClient;

use crate::rig::{Rig, SOON, chat_body, hang_one, model_at, pool, ring_order, servers};

#[tokio::test]
async fn a_bad_configuration_is_refused_by_path_and_the_old_one_stays() -> Result<()> {
    let mut rig = Rig::start(3).await?;
    let addresses = rig.addresses();
    let expected = ring_order(3, b"llama")[0];
    for (bad, path) in [
        (pool(&addresses, json!({"virtual_nodes": 0})), "pools[0].virtual_nodes"),
        (pool(&addresses, json!({"replica": 2})), "pools[0].replica"),
        (
            json!({"pools": [{"cluster": config::CLUSTER, "endpoints": [{"address": "gpu-0:80"}]}]}),
            "pools[0].endpoints[0].address",
        ),
        (json!({"pools": [{"endpoints": []}]}), "pools[0]: missing field"),
        (
            pool(&addresses, json!({"payload_classes": [{"name": "batch", "above_bytes": 1, "labels": ["gpu=none"]}]})),
            "pools[0].payload_classes[0].labels[0]",
        ),
        (Value::String("{\"pools\": [".into()), "pools"),
        (Value::String("\u{fffd}".into()), "must be a JSON object"),
    ] {
        let ConfigUpdate::Rejected(log) = rig.envoy.write_plugin_config(&bad).await? else {
            anyhow::bail!("{bad} was taken");
        };
        assert!(log.contains("configuration refused") && log.contains(path), "{path} is not named in: {log}");
        let reply = rig.chat("llama").await?;
        assert_eq!(rig.served_by(&reply)?, expected, "{bad}");
    }
    rig.await_count("served.pick", 7).await
}

#[tokio::test]
async fn a_new_configuration_takes_over_without_losing_a_request() -> Result<()> {
    let mut rig = Rig::start(3).await?;
    let model = model_at(3, 1);
    let (client, url) = (rig.client.clone(), rig.url("/v1/chat/completions"));
    let body = chat_body(&model);
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let headers_model = model.clone();
    let traffic = tokio::spawn(async move {
        let mut served = 0;
        while stopped.try_recv().is_err() {
            let reply = client.post(&url, &[("x-model-id", &headers_model)], &body).await?;
            anyhow::ensure!(reply.status == 200, "{}: {}", reply.status, reply.text());
            served += 1;
        }
        Ok(served)
    });
    for round in 0..6 {
        let mut plugin = pool(&rig.addresses(), json!({}));
        plugin["pools"][0]["endpoints"][1]["unhealthy"] = json!(round % 2 == 0);
        assert_eq!(rig.envoy.write_plugin_config(&plugin).await?, ConfigUpdate::Applied);
        let expected = if round % 2 == 0 { ring_order(3, model.as_bytes())[1] } else { 1 };
        eventually(SOON, "the new configuration steers", || async {
            let reply = rig.chat(&model).await?;
            Ok((rig.served_by(&reply)? == expected).then_some(()))
        })
        .await?;
    }
    assert!(stop.send(()).is_ok());
    let served: u32 = traffic.await??;
    assert!(served > 0);
    rig.await_in_flight(0).await
}

/// A request that the old configuration sent is still counted where the new one looks.
#[tokio::test]
async fn requests_in_flight_outlive_a_configuration() -> Result<()> {
    let mut rig = Rig::start(2).await?;
    let (hanging, busy) = hang_one(&rig).await?;
    // The same endpoints under other ids, in the other order, by another strategy.
    let mut plugin = pool(&rig.addresses(), json!({"strategy": "p2c"}));
    let endpoints = plugin["pools"][0]["endpoints"].as_array_mut().context("no list")?;
    endpoints.reverse();
    for (n, endpoint) in endpoints.iter_mut().enumerate() {
        endpoint["id"] = json!(format!("renamed-{n}"));
    }
    assert_eq!(rig.envoy.write_plugin_config(&plugin).await?, ConfigUpdate::Applied);
    eventually(SOON, "the new configuration steers", || async {
        rig.chat("llama").await?;
        Ok((rig.count("pick.p2c").await? > 0).then_some(()))
    })
    .await?;
    let shares = rig.shares(20, async || rig.chat("llama").await).await?;
    assert_eq!(shares[busy], 0, "{shares:?}");
    hanging.abort();
    rig.await_in_flight(0).await
}

/// Another VM takes over (as a new build of the filter would) while a request runs in the old one: its end is told.
#[tokio::test]
async fn requests_in_flight_outlive_their_vm() -> Result<()> {
    let mut rig = Rig::start(2).await?;
    let (hanging, _) = hang_one(&rig).await?;
    rig.await_in_flight(1).await?;
    let mut filter = config::shipped_filter()?;
    config::set_wasm(&mut filter, &warmroute_tests::harness::filter_wasm()?)?;
    config::set_plugin_config(&mut filter, &pool(&rig.addresses(), json!({})))?;
    let vm = config::at(&mut filter, "/resources/0/typed_config/config/vm_config")?;
    vm["configuration"] = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "another VM"});
    assert_eq!(rig.envoy.write_filter(filter).await?, ConfigUpdate::Applied);
    hanging.abort();
    rig.await_in_flight(0).await?;
    rig.await_count("outcome.neutral", 1).await
}

/// Envoy hands a Struct over as protobuf, not as JSON: the refusal says what to write instead.
#[tokio::test]
async fn a_struct_is_refused_with_what_to_write_instead() -> Result<()> {
    let mut rig = Rig::start(3).await?;
    let mut filter = config::shipped_filter()?;
    config::set_wasm(&mut filter, &warmroute_tests::harness::filter_wasm()?)?;
    *config::at(&mut filter, "/resources/0/typed_config/config/configuration")? =
        json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": pool(&rig.addresses(), json!({}))});
    let ConfigUpdate::Rejected(log) = rig.envoy.write_filter(filter).await? else { anyhow::bail!("it was taken") };
    assert!(log.contains("must be a JSON object, as a google.protobuf.StringValue"), "{log}");
    assert_eq!(rig.served_by(&rig.chat("llama").await?)?, ring_order(3, b"llama")[0], "the old one stays");
    Ok(())
}

/// A fresh Envoy has no last good configuration: traffic passes by Envoy's own policy.
#[tokio::test]
async fn a_fresh_envoy_with_a_bad_configuration_still_serves() -> Result<()> {
    let rig = Rig::with(servers(3, "127.0.0.1:0").await?, |envoy, _| {
        envoy.plugin_config(json!({"pools": 7})).accept_rejected_filter()
    })
    .await?;
    let shares = rig.shares(60, async || rig.chat("llama").await).await?;
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
    assert!(rig.envoy.log()?.contains("pools: invalid type"), "the path is in the log");
    Ok(())
}

/// The shipped filter with one host call taken away from it, as Envoy's capability restriction does: each call of it
/// fails.
fn without_call(rig: &Rig, refused: &str) -> Result<Value> {
    const CALLS: [&str; 30] = [
        "_initialize",
        "clock_time_get",
        "environ_get",
        "environ_sizes_get",
        "fd_write",
        "proc_exit",
        "proxy_abi_version_0_2_1",
        "proxy_define_metric",
        "proxy_get_buffer_bytes",
        "proxy_get_current_time_nanoseconds",
        "proxy_get_header_map_pairs",
        "proxy_get_header_map_value",
        "proxy_get_property",
        "proxy_increment_metric",
        "proxy_log",
        "proxy_on_configure",
        "proxy_on_context_create",
        "proxy_on_delete",
        "proxy_on_log",
        "proxy_on_memory_allocate",
        "proxy_on_request_headers",
        "proxy_on_tick",
        "proxy_on_vm_start",
        "proxy_remove_header_map_value",
        "proxy_replace_header_map_value",
        "proxy_send_local_response",
        "proxy_set_effective_context",
        "proxy_set_tick_period_milliseconds",
        "random_get",
        "sched_yield",
    ];
    anyhow::ensure!(CALLS.contains(&refused), "{refused} is not among the calls");
    let allowed = CALLS.into_iter().filter(|call| *call != refused).map(|call| (call.to_owned(), json!({})));
    let mut filter = config::shipped_filter()?;
    config::set_wasm(&mut filter, &warmroute_tests::harness::filter_wasm()?)?;
    config::set_plugin_config(&mut filter, &pool(&rig.addresses(), json!({})))?;
    config::at(&mut filter, "/resources/0/typed_config/config")?["capability_restriction_config"] =
        json!({"allowed_capabilities": allowed.collect::<serde_json::Map<_, _>>()});
    Ok(filter)
}

/// A host call that fails at the headers: Envoy's own policy serves, it is counted, and warned of once in ten seconds.
#[tokio::test]
async fn a_failed_host_call_leaves_the_choice_to_envoy() -> Result<()> {
    let mut rig = Rig::start(3).await?;
    let filter = without_call(&rig, "proxy_get_header_map_pairs")?;
    assert_eq!(rig.envoy.write_filter(filter).await?, ConfigUpdate::Applied);
    eventually(SOON, "the new filter is at work", || async {
        assert_eq!(rig.chat("llama").await?.status, 200);
        Ok((rig.count("pass.host_error").await? > 0).then_some(()))
    })
    .await?;
    let shares = rig.shares(60, async || rig.chat("llama").await).await?;
    assert!(shares.iter().all(|&share| share > 0), "by Envoy's own policy: {shares:?}");
    let warnings = rig.envoy.log()?.matches("Envoy's own policy chooses").count();
    assert!((1..=10).contains(&warnings), "{warnings}");
    Ok(())
}

/// A host call that fails at the end: the request is steered and served, its end is counted as unread, and nobody is
/// charged for it.
#[tokio::test]
async fn an_end_that_cannot_be_read_charges_nobody() -> Result<()> {
    let mut rig = Rig::start(3).await?;
    let filter = without_call(&rig, "proxy_get_header_map_value")?;
    assert_eq!(rig.envoy.write_filter(filter).await?, ConfigUpdate::Applied);
    let channel = tonic::transport::Channel::from_shared(rig.envoy.base_url())?.connect().await?;
    let grpc = GrpcInferenceServiceClient::new(channel);
    eventually(SOON, "the new filter is at work", || async {
        let request = ModelInferRequest { model_name: "llama".into(), ..Default::default() };
        grpc.clone().model_infer(request).await?;
        Ok((rig.count("end_unread").await? > 0).then_some(()))
    })
    .await?;
    assert_eq!(rig.count("outcome.failure").await?, 0);
    let warnings = rig.envoy.log()?.matches("end_unread").count();
    assert!((1..=10).contains(&warnings), "{warnings}");
    rig.await_in_flight(0).await
}
