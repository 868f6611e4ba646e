//! Models that only the body names.

use anyhow::{Context, Result};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tonic::transport::Channel;
use warmroute_tests::harness::{EnvoyBuilder, eventually};
use warmroute_tests::mock::MockServer;
use warmroute_tests::mock::proto::ModelInferRequest;
use warmroute_tests::mock::proto::grpc_inference_service_client::GrpcInferenceServiceClient;

use crate::rig::{Rig, SOON, chat_body, pool, ring_order, servers};

async fn rig(body: Value, change: impl FnOnce(EnvoyBuilder) -> EnvoyBuilder) -> Result<Rig> {
    Rig::with(servers(5, "127.0.0.1:0").await?, |envoy, addresses| {
        let mut plugin = pool(addresses, json!({}));
        plugin["request"] = json!({"body": body});
        change(envoy.plugin_config(plugin))
    })
    .await
}

fn first(model: &str) -> usize {
    ring_order(5, model.as_bytes())[0]
}

#[tokio::test]
async fn a_model_in_the_json_body_goes_to_its_endpoint() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(json!({}), |envoy| envoy.allow_bodies().concurrency(workers)).await?;
        for n in 0..10 {
            let model = format!("model-{n}");
            let reply = rig.chat_with(&[], &model).await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert_eq!(rig.served_by(&reply)?, first(&model), "{model} on {workers} workers");
        }
        // The header rules, and then the body is not read.
        let reply = rig.chat_with(&[("x-model-id", "bert")], "llama").await?;
        assert_eq!(rig.served_by(&reply)?, first("bert"));
        rig.await_count("body_model", 10).await?;
        assert_eq!(rig.count("body_overdue").await?, 0);
    }
    Ok(())
}

/// Whatever the server gets is what the client sent: large bodies, and the name at their end.
#[tokio::test]
async fn the_body_arrives_whole() -> Result<()> {
    let rig = rig(json!({}), EnvoyBuilder::allow_bodies).await?;
    for kilobytes in [1, 30, 60] {
        let text = "x".repeat(kilobytes * 1024);
        let body = json!({"messages": [{"role": "user", "content": text}], "max_tokens": 2, "model": "qwen"});
        // As text, in this order: a JSON object would be sorted by name.
        let body = format!(r#"{{"messages":{},"max_tokens":2,"model":"qwen"}}"#, body["messages"]);
        let request = Request::post(rig.url("/v1/chat/completions"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let reply = rig.client.send(request).await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(rig.served_by(&reply)?, first("qwen"), "{kilobytes} KiB");
    }
    rig.await_count("body_model", 3).await
}

/// A body that does not name the model within the limit is a request without a model: it is served, and counted.
#[tokio::test]
async fn past_the_limit_the_request_goes_on_without_a_model() -> Result<()> {
    let rig = rig(json!({"max_bytes": 1024}), EnvoyBuilder::allow_bodies).await?;
    let text = "x".repeat(100 * 1024);
    let body = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}],"max_tokens":2,"model":"qwen"}}"#);
    for broken in [body, "{\"model\": 7}".into(), "{\"model\":".into(), "[]".into()] {
        let request = Request::post(rig.url("/v1/chat/completions"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(broken.clone())))?;
        let reply = rig.client.send(request).await?;
        let whole = broken.len() > 1024;
        // The server's own verdict over the bodies that are wrong.
        assert_eq!(reply.status.as_u16(), if whole { 200 } else { 400 }, "{}", reply.text());
    }
    rig.await_count("body_no_model", 4).await?;
    rig.await_count("pick_reason.no_model", 4).await
}

#[tokio::test]
async fn a_grpc_call_is_routed_by_the_model_name_of_its_message() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(json!({}), |envoy| envoy.allow_bodies().concurrency(workers)).await?;
        let channel = Channel::from_shared(rig.envoy.base_url())?.connect().await?;
        let mut client = GrpcInferenceServiceClient::new(channel);
        for n in 0..12 {
            let model = format!("model-{n}");
            let request = ModelInferRequest { model_name: model.clone(), ..Default::default() };
            let answer = client.model_infer(request).await?;
            let served = answer.metadata().get("x-served-by").context("no x-served-by")?.to_str()?;
            assert_eq!(served, rig.servers[first(&model)].addr().to_string(), "{model} on {workers} workers");
        }
        rig.await_count("body_model", 12).await?;
        rig.await_count("outcome.success", 12).await?;
    }
    Ok(())
}

/// A body that names two models is read by the filter as the first and by servers as the last: its 404 says nothing of
/// the first, and moves nobody else's requests.
#[tokio::test]
async fn a_body_that_names_two_models_marks_neither() -> Result<()> {
    for workers in [1, 4] {
        let order = ring_order(3, b"llama");
        let mut servers = Vec::new();
        for _ in 0..3 {
            let server = MockServer::builder().capacity(100).models(["llama"]).start().await?;
            servers.push(server);
        }
        let rig = Rig::with(servers, |envoy, addresses| {
            let mut plugin = pool(addresses, json!({}));
            plugin["request"] = json!({"body": {}});
            envoy.plugin_config(plugin).allow_bodies().concurrency(workers)
        })
        .await?;
        let send = async |body: &'static str| {
            let request = Request::post(rig.url("/v1/chat/completions"))
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from_static(body.as_bytes())))?;
            rig.client.send(request).await
        };
        for body in [
            r#"{"model":"llama","messages":[{"role":"user","content":"x"}],"max_tokens":1,"model":"none"}"#,
            r#"{"model":"llama","model":"none","messages":[{"role":"user","content":"x"}],"max_tokens":1}"#,
        ] {
            let reply = send(body).await?;
            assert_eq!((reply.status.as_u16(), rig.served_by(&reply)?), (404, order[0]), "{}", reply.text());
        }
        rig.await_count("outcome.neutral", 2).await?;
        // The same client, so the same worker, which would have the mark.
        let reply = send(r#"{"model":"llama","messages":[{"role":"user","content":"x"}],"max_tokens":1}"#).await?;
        assert_eq!((reply.status.as_u16(), rig.served_by(&reply)?), (200, order[0]), "{}", reply.text());
    }
    Ok(())
}

/// … and one that names one that the server does not know marks it.
#[tokio::test]
async fn a_body_with_one_model_that_is_unknown_marks_the_endpoint() -> Result<()> {
    let order = ring_order(3, b"llama");
    let mut servers = Vec::new();
    for n in 0..3 {
        let models = if n == order[0] { ["bert"] } else { ["llama"] };
        servers.push(MockServer::builder().capacity(100).models(models).start().await?);
    }
    let rig = Rig::with(servers, |envoy, addresses| {
        let mut plugin = pool(addresses, json!({}));
        plugin["request"] = json!({"body": {}});
        envoy.plugin_config(plugin).allow_bodies().concurrency(1)
    })
    .await?;
    let reply = rig.chat_with(&[], "llama").await?;
    assert_eq!((reply.status.as_u16(), rig.served_by(&reply)?), (404, order[0]));
    rig.await_count("outcome.neutral", 1).await?;
    let reply = rig.chat_with(&[], "llama").await?;
    assert_eq!((reply.status.as_u16(), rig.served_by(&reply)?), (200, order[1]));
    Ok(())
}

/// Without `allow_on_headers_stop_iteration` no body comes: requests wait for a moment, are served, and after a few of
/// them no body is asked for any more.
#[tokio::test]
async fn where_envoy_hands_no_body_over_requests_are_served_all_the_same() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(json!({}), |envoy| envoy.concurrency(workers)).await?;
        // One connection, so one worker: it gives up after three.
        for _ in 0..6 {
            let reply = rig.chat_with(&[], "llama").await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        rig.await_count("body_overdue", 3).await?;
        rig.await_count("pick_reason.no_model", 6).await?;
        rig.await_in_flight(0).await?;
        let log = eventually(SOON, "the warning", || async {
            let log = rig.envoy.log()?;
            Ok(log.contains("body_overdue").then_some(log))
        })
        .await?;
        assert!(log.contains("allow_on_headers_stop_iteration"), "{log}");
        let reply = rig.chat("llama").await?;
        assert_eq!(rig.served_by(&reply)?, first("llama"), "named models go their way");
    }
    Ok(())
}

/// A client that leaves while its request waits for its body leaves nothing behind.
#[tokio::test]
async fn a_client_that_leaves_while_its_body_is_awaited_is_forgotten() -> Result<()> {
    use tokio::io::AsyncWriteExt;
    let rig = rig(json!({}), EnvoyBuilder::allow_bodies).await?;
    for _ in 0..20 {
        let mut stream = tokio::net::TcpStream::connect(rig.envoy.address()).await?;
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 400\r\n\r\n{\"mess";
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
    }
    let reply = rig.chat_with(&[], "llama").await?;
    assert_eq!(rig.served_by(&reply)?, first("llama"));
    rig.await_in_flight(0).await?;
    assert_eq!(chat_body("llama")["model"], "llama");
    rig.await_count("outcome.success", 1).await
}
