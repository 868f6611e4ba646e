//! What the filter makes of a request's end: who served, how it went, and nothing left in flight.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use warmroute_tests::harness::{Client, Envoy, config, eventually};
use warmroute_tests::mock::MockServer;
use warmroute_tests::mock::proto::ModelInferRequest;
use warmroute_tests::mock::proto::grpc_inference_service_client::GrpcInferenceServiceClient;

use crate::rig::{Rig, SOON, chat_body};

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

fn stream_request(rig: &Rig, tokens: u32) -> Result<http::Request<Full<Bytes>>> {
    let body =
        json!({"model": "m", "stream": true, "max_tokens": tokens, "messages": [{"role": "user", "content": "x"}]});
    let request = http::Request::post(rig.url("/v1/chat/completions"))
        .header("x-model-id", "m")
        .header("content-type", "application/json");
    Ok(request.body(Full::new(body.to_string().into()))?)
}

/// A stream is in flight until its end, passes whole, and counts once.
#[tokio::test]
async fn a_stream_counts_once_when_it_ends() -> Result<()> {
    let server = MockServer::builder().token(Duration::from_millis(20)).start().await?;
    let rig = Rig::with(vec![server], |envoy, _| envoy).await?;
    let response = rig.client.open(stream_request(&rig, 100)?).await?;
    assert_eq!(response.status(), 200);
    rig.await_in_flight(1).await?;
    assert_eq!(rig.count("outcome.success").await?, 0, "not before its end");
    let mut events = 0;
    let mut stream = response.into_body().into_data_stream();
    while let Some(chunk) = stream.next().await {
        events += String::from_utf8_lossy(&chunk?).matches("data: ").count();
    }
    assert!(events > 100, "the stream came whole: {events}");
    rig.await_in_flight(0).await?;
    rig.await_count("outcome.success", 1).await?;
    rig.await_count("served.pick", 1).await
}

/// The client hangs up in the middle of an answer, on HTTP/1.1, HTTP/2 and gRPC: not the endpoint's doing.
#[tokio::test]
async fn a_client_that_leaves_a_stream_is_neutral() -> Result<()> {
    let server = MockServer::builder().token(Duration::from_secs(60)).service(Duration::ZERO).start().await?;
    let rig = Rig::with(vec![server], |envoy, _| envoy).await?;
    for (n, client) in [Client::http1(), Client::http2()].into_iter().enumerate() {
        let response = client.open(stream_request(&rig, 100)?).await?;
        assert_eq!(response.status(), 200, "the headers are there");
        rig.await_in_flight(1).await?;
        drop(response);
        drop(client);
        rig.await_count("outcome.neutral", n as u64 + 1).await?;
        rig.await_in_flight(0).await?;
    }
    let mut grpc = GrpcInferenceServiceClient::new(Channel::from_shared(rig.envoy.base_url())?.connect().await?);
    let request = ModelInferRequest { model_name: "m".into(), ..Default::default() };
    let (requests, sent) = tokio::sync::mpsc::channel(2);
    requests.send(request.clone()).await?;
    let mut answers = grpc.model_stream_infer(ReceiverStream::new(sent)).await?.into_inner();
    assert!(answers.message().await?.is_some(), "headers and a message are there");
    fault(&rig, json!({"delay_ms": 60_000})).await?;
    requests.send(request).await?;
    drop(requests);
    drop(answers);
    rig.await_count("outcome.neutral", 3).await?;
    assert_eq!(rig.count("outcome.failure").await?, 0);
    assert_eq!(rig.count("outcome.success").await?, 0);
    rig.await_in_flight(0).await
}

/// Time-outs of Envoy's: before the headers, and of a stream that falls silent after them.
#[tokio::test]
async fn an_endpoint_that_falls_silent_has_failed() -> Result<()> {
    let server = MockServer::builder().token(Duration::from_secs(600)).start().await?;
    let rig = Rig::with(vec![server], |envoy, _| {
        envoy.edit(|bootstrap| {
            config::route(bootstrap, config::LISTENER)?["idle_timeout"] = json!("0.3s");
            Ok(())
        })
    })
    .await?;
    let response = rig.client.open(stream_request(&rig, 100)?).await?;
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.is_err(), "Envoy gave up in the middle");
    rig.await_count("outcome.failure", 1).await?;
    fault(&rig, json!({"hang": true})).await?;
    assert_eq!(rig.chat("m").await?.status, 504);
    rig.await_count("outcome.failure", 2).await?;
    assert_eq!(rig.count("outcome.success").await?, 0);
    rig.await_in_flight(0).await
}

/// Every steered request adds its time: with 30 ms of service each, 20 of them take at least 600 ms.
#[tokio::test]
async fn the_service_time_of_steered_requests_adds_up() -> Result<()> {
    let server = MockServer::builder().service(Duration::from_millis(30)).start().await?;
    let rig = Rig::with(vec![server], |envoy, _| envoy).await?;
    for n in 0..20 {
        rig.chat(&format!("model-{n}")).await?;
    }
    rig.await_count("outcome.success", 20).await?;
    let total = rig.count("service_time_us_total").await?;
    assert!(total >= 600_000, "{total}");
    Ok(())
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

/// What a client sends and what a server answers pass byte by byte; the filter sees neither.
#[tokio::test]
async fn bodies_pass_whole() -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let echo = listener.local_addr()?;
    let answer = axum::Router::new().fallback(async |body: Bytes| body);
    tokio::spawn(async move { axum::serve(listener, answer).await });
    let envoy = Envoy::builder().endpoints(&[echo]).start().await?;
    let body: Bytes = (0..700_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for client in [Client::http1(), Client::http2()] {
        let url = format!("{}/v1/chat/completions", envoy.base_url());
        let request = http::Request::post(url).header("x-model-id", "m").body(Full::new(body.clone()))?;
        let reply = client.send(request).await?;
        assert_eq!(reply.status, 200);
        assert!(reply.body == body, "{} bytes came back of {}", reply.body.len(), body.len());
    }
    Ok(())
}
