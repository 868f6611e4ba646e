//! What the filter makes of a request's end: who served, how it went, and nothing left in flight.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tonic::transport::Channel;
use warmroute_tests::harness::{Client, config, eventually};
use warmroute_tests::mock::MockServer;
use warmroute_tests::mock::proto::ModelInferRequest;
use warmroute_tests::mock::proto::grpc_inference_service_client::GrpcInferenceServiceClient;

use crate::rig::{Rig, SOON, chat_body, servers};

async fn fault(rig: &Rig, faults: Value) -> Result<()> {
    for server in &rig.servers {
        server.set_faults(serde_json::from_value(faults.clone())?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn clients_that_leave_release_what_they_had_in_flight() -> Result<()> {
    let rig = Rig::start(2).await?;
    fault(&rig, json!({"hang": true})).await?;
    for client in [Client::http1(), Client::http2()] {
        let mut waiting = Vec::new();
        for n in 0..20 {
            let (client, url) = (client.clone(), rig.url("/v1/chat/completions"));
            let model = format!("model-{n}");
            waiting.push(tokio::spawn(async move {
                client.post(&url, &[("x-model-id", &model)], &chat_body(&model)).await
            }));
        }
        rig.await_in_flight(20).await?;
        waiting.iter().for_each(|request| request.abort());
        rig.await_in_flight(0).await?;
    }
    rig.await_count("outcome.neutral", 40).await?;
    assert_eq!(rig.count("outcome.failure").await?, 0, "the endpoints did nothing wrong");
    eventually(SOON, "the servers see them go", || async {
        Ok((rig.servers.iter().map(|server| server.stats().cancelled).sum::<u64>() == 40).then_some(()))
    })
    .await
}

#[tokio::test]
async fn every_http_ending_has_its_class() -> Result<()> {
    let rig = Rig::start(2).await?;
    for (n, (faults, class)) in [
        (json!({}), "success"),
        (json!({"status": 500}), "failure"),
        (json!({"status": 503}), "failure"),
        (json!({"status": 503, "retry_after_s": 1}), "back_pressure"),
        (json!({"status": 429, "retry_after_s": 1}), "back_pressure"),
        (json!({"status": 429}), "back_pressure"),
        (json!({"status": 404}), "neutral"),
        (json!({"status": 400}), "neutral"),
        (json!({"reset": "before_headers"}), "failure"),
        (json!({"reset": "after_headers"}), "failure"),
    ]
    .into_iter()
    .enumerate()
    {
        fault(&rig, faults.clone()).await?;
        let before = rig.count(&format!("outcome.{class}")).await?;
        // A reset after the headers is an error to the client as well.
        let _answered = rig.chat("llama").await.is_ok();
        rig.await_count(&format!("outcome.{class}"), before + 1).await.with_context(|| faults.to_string())?;
        let all: u64 =
            rig.counts().await?.iter().filter(|(name, _)| name.starts_with("outcome.")).map(|(_, v)| v).sum();
        assert_eq!(all, n as u64 + 1, "{faults}: counted once");
    }
    rig.await_in_flight(0).await
}

#[tokio::test]
async fn a_grpc_status_is_read_from_trailers_and_from_headers() -> Result<()> {
    let rig = Rig::start(2).await?;
    let mut grpc = GrpcInferenceServiceClient::new(Channel::from_shared(rig.envoy.base_url())?.connect().await?);
    for (status, class) in
        [(0, "success"), (14, "failure"), (13, "failure"), (8, "back_pressure"), (5, "neutral"), (3, "neutral")]
    {
        for trailers_only in [false, true] {
            let faults = if status == 0 {
                json!({})
            } else {
                json!({"grpc_status": status, "grpc_trailers_only": trailers_only})
            };
            fault(&rig, faults).await?;
            let before = rig.count(&format!("outcome.{class}")).await?;
            let answer = grpc.model_infer(ModelInferRequest { model_name: "llama".into(), ..Default::default() }).await;
            assert_eq!(answer.err().map_or(0, |error| error.code() as i32), status);
            rig.await_count(&format!("outcome.{class}"), before + 1)
                .await
                .with_context(|| format!("status {status}"))?;
        }
    }
    fault(&rig, json!({"reset": "after_headers"})).await?;
    let before = rig.count("outcome.failure").await?;
    assert!(grpc.model_infer(ModelInferRequest { model_name: "llama".into(), ..Default::default() }).await.is_err());
    rig.await_count("outcome.failure", before + 1).await
}

/// Envoy can log a stream while it runs. It counts once, when it ends, and is in flight until then.
#[tokio::test]
async fn a_stream_that_is_logged_while_it_runs_counts_once() -> Result<()> {
    let server = MockServer::builder().token(Duration::from_millis(20)).start().await?;
    let rig = Rig::with(vec![server], |envoy, _| {
        envoy.edit(|bootstrap| {
            let http = config::http_manager(bootstrap, config::LISTENER)?;
            http["access_log_options"] =
                json!({"access_log_flush_interval": "0.01s", "flush_access_log_on_new_request": true});
            Ok(())
        })
    })
    .await?;
    let body = json!({"model": "m", "stream": true, "max_tokens": 40, "messages": [{"role": "user", "content": "x"}]});
    let request = http::Request::post(rig.url("/v1/chat/completions"))
        .header("x-model-id", "m")
        .header("content-type", "application/json")
        .body(Full::new(body.to_string().into()))?;
    let response = rig.client.open(request).await?;
    assert_eq!(response.status(), 200);
    eventually(SOON, "the stream is logged while it runs", || async {
        Ok((rig.envoy.access_log()?.len() >= 3).then_some(()))
    })
    .await?;
    assert_eq!(rig.count("outcome.success").await?, 0, "not before its end");
    rig.await_in_flight(1).await?;
    let mut events = 0;
    let mut stream = response.into_body().into_data_stream();
    while let Some(chunk) = stream.next().await {
        events += String::from_utf8_lossy(&chunk?).matches("data: ").count();
    }
    assert!(events > 40, "the stream came whole: {events}");
    rig.await_in_flight(0).await?;
    assert_eq!(rig.count("outcome.success").await?, 1);
    assert_eq!(rig.count("served.pick").await?, 1);
    Ok(())
}

#[tokio::test]
async fn the_service_time_of_every_steered_request_is_recorded() -> Result<()> {
    let rig = Rig::with(servers(2, "127.0.0.1:0").await?, |envoy, _| envoy).await?;
    for n in 0..25 {
        rig.chat(&format!("model-{n}")).await?;
    }
    rig.await_count("outcome.success", 25).await?;
    eventually(SOON, "the histogram has them", || async {
        let page = rig.envoy.admin().get("/stats/prometheus?filter=warmroute").await?.text();
        let line = page.lines().find(|line| line.starts_with("wasmcustom_warmroute_service_time_us_count"));
        let line = line.or_else(|| page.lines().find(|line| line.contains("service_time_us_count")));
        Ok(line.and_then(|line| line.rsplit(' ').next()).filter(|count| *count == "25").map(|_| ()))
    })
    .await
}

/// Nobody there at all: the endpoint is charged, not the client.
#[tokio::test]
async fn a_refused_connection_is_the_endpoints_failure() -> Result<()> {
    let rig = Rig::start(1).await?;
    rig.servers[0].crash().await;
    let reply = rig.chat("llama").await?;
    assert_eq!(reply.status, 503);
    rig.await_count("outcome.failure", 1).await?;
    rig.servers[0].restart().await?;
    eventually(SOON, "it serves again", || async { Ok((rig.chat("llama").await?.status == 200).then_some(())) })
        .await?;
    rig.await_in_flight(0).await
}

/// An answer of many bytes and a body of many bytes pass whole; the filter sees neither.
#[tokio::test]
async fn bodies_pass_whole() -> Result<()> {
    let rig = Rig::start(2).await?;
    let text = "x".repeat(300_000);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 1});
    let request = http::Request::post(rig.url("/v1/chat/completions"))
        .header("x-model-id", "m")
        .header("content-type", "application/json")
        .body(Full::new(body.to_string().into()))?;
    let response = rig.client.open(request).await?;
    assert_eq!(response.status(), 200);
    assert!(!response.into_body().collect().await?.to_bytes().is_empty());
    Ok(())
}
