use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use warmroute_tests::mock::{Faults, MockServer};

use crate::client::{chat, eventually, faults, header, http1, http2, post, try_chat};

async fn broken(fault: Value) -> MockServer {
    let server = MockServer::builder().resident(["m"]).seed(3).start().await.expect("start");
    server.set_faults(faults(fault)).await.expect("faults");
    server
}

#[tokio::test]
async fn the_share_of_errors_is_exact_over_a_stride() {
    let server = broken(json!({ "error_ratio": 0.2, "status": 502 })).await;
    let client = http1();
    for _ in 0..3 {
        let mut failed = 0;
        for _ in 0..10 {
            let answer = chat(&client, &server, "m").await;
            assert_eq!(header(&answer, "x-served-by"), server.addr().to_string());
            failed += usize::from(answer.status() == 502);
            // Probes have a pattern of their own.
            client.get(format!("{}/health", server.base_url())).send().await.expect("answer");
        }
        assert_eq!(failed, 2);
    }
    assert_eq!(server.stats().requests, 30);
}

#[tokio::test]
async fn back_pressure_says_when_to_come_back() {
    for (fault, status, seconds) in
        [(json!({ "status": 429, "retry_after_s": 7 }), 429, "7"), (json!({ "retry_after_s": 0 }), 503, "0")]
    {
        let server = broken(fault).await;
        let answer = chat(&http1(), &server, "m").await;
        assert_eq!(answer.status(), status);
        assert_eq!(header(&answer, "retry-after"), seconds);
    }
}

#[tokio::test]
async fn errors_have_the_shape_of_their_protocol() {
    let server = broken(json!({ "error_ratio": 1 })).await;
    let client = http1();
    let error: Value = chat(&client, &server, "m").await.json().await.expect("json");
    assert_eq!(error["error"]["code"], 500);
    let answer = post(&client, &server, "/v2/models/m/infer", &json!({})).await.expect("answer");
    let error: Value = answer.json().await.expect("json");
    assert!(error["error"].is_string());
}

#[tokio::test]
async fn everything_but_the_control_paths_fails() {
    let server = broken(json!({ "status": 500 })).await;
    let client = http1();
    let get = |path: &str| client.get(format!("{}{path}", server.base_url())).send();
    for path in ["/health", "/metrics", "/v1/models", "/v2/health/ready", "/nothing"] {
        assert_eq!(get(path).await.expect("answer").status(), 500, "{path}");
    }
    assert_eq!(get("/mock/stats").await.expect("answer").status(), 200);
    let answer = client.delete(format!("{}/mock/faults", server.base_url())).send().await.expect("answer");
    assert_eq!(answer.json::<Value>().await.expect("json"), json!({}));
    assert_eq!(get("/health").await.expect("answer").status(), 200);
}

#[tokio::test]
async fn the_control_paths_show_replace_and_refuse_faults() {
    let server = MockServer::builder().start().await.expect("start");
    let client = http1();
    let url = format!("{}/mock/faults", server.base_url());
    let set = |body: &'static str| client.post(&url).body(body).send();
    assert_eq!(set(r#"{"delay_ms": 5}"#).await.expect("answer").status(), 200);
    assert_eq!(set(r#"{"slow_factor": 2.5}"#).await.expect("answer").status(), 200);
    let shown: Value = client.get(&url).send().await.expect("answer").json().await.expect("json");
    assert_eq!(shown, json!({ "slow_factor": 2.5 }));
    for (body, named) in [
        (r#"{"error_rate": 1}"#, "error_rate"),
        (r#"{"error_ratio": 2}"#, "error_ratio"),
        (r#"{"delay_ms": "5"}"#, "delay_ms"),
        (r#"{"reset": "sometime"}"#, "reset"),
        (r#"{"crash": true, "hang": true}"#, "crash"),
        ("", "EOF"),
    ] {
        let answer = set(body).await.expect("answer");
        assert_eq!(answer.status(), 400, "{body}");
        let text = answer.text().await.expect("text");
        assert!(text.contains(named), "{body}: {text}");
    }
    assert_eq!(server.faults(), Faults { slow_factor: Some(2.5), ..Faults::default() });
}

#[tokio::test]
async fn a_delay_holds_every_request_back_before_anything_else() {
    let server = broken(json!({ "delay_ms": 3_600_000 })).await;
    let client = http1();
    tokio::select! {
        _ = chat(&client, &server, "m") => panic!("an answer"),
        () = eventually(&server, "the request", |s| s.in_flight == 1) => {}
    }
    assert_eq!(server.stats().max_running, 0);
}

#[tokio::test]
async fn a_slow_server_takes_its_factor_longer_and_no_factor_takes_nothing() {
    let builder = MockServer::builder().resident(["m"]).service(Duration::from_secs(36));
    let server = builder.start().await.expect("start");
    server.set_faults(faults(json!({ "slow_factor": 100 }))).await.expect("faults");
    let client = http1();
    tokio::select! {
        _ = chat(&client, &server, "m") => panic!("an answer"),
        () = eventually(&server, "the running request", |s| s.running == 1) => {}
    }
    server.set_faults(faults(json!({ "slow_factor": 0 }))).await.expect("faults");
    assert_eq!(chat(&http2(), &server, "m").await.status(), 200);
}

/// Sends a chat over a bare connection and reads until it ends: what came, and how it ended.
async fn raw_chat(server: &MockServer) -> (String, std::io::Result<usize>) {
    let mut stream = TcpStream::connect(server.addr()).await.expect("connection");
    let request = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}";
    stream.write_all(request.as_bytes()).await.expect("write");
    let mut seen = Vec::new();
    let end = stream.read_to_end(&mut seen).await;
    (String::from_utf8(seen).expect("text"), end)
}

#[tokio::test]
async fn http1_is_reset_before_any_byte_or_after_a_first_piece() {
    let server = broken(json!({ "reset": "before_headers" })).await;
    let (seen, end) = raw_chat(&server).await;
    assert_eq!((seen.as_str(), end.expect_err("a reset").kind()), ("", ErrorKind::ConnectionReset));

    let server = broken(json!({ "reset": "after_headers" })).await;
    let (seen, end) = raw_chat(&server).await;
    assert!(seen.starts_with("HTTP/1.1 200 OK\r\n"), "{seen}");
    assert!(seen.contains("x-served-by: "), "{seen}");
    assert!(seen.ends_with("{\"id\":\r\n"), "{seen}");
    assert_eq!(end.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    eventually(&server, "the end", |s| s.in_flight == 0).await;
    assert_eq!(server.stats().cancelled, 0);
}

fn is_remote_stream_reset(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_reset() && error.is_remote();
        }
        cause = error.source();
    }
    false
}

#[tokio::test]
async fn http2_streams_are_reset_and_their_connection_lives_on() {
    let client = http2();
    let server = broken(json!({ "reset": "before_headers" })).await;
    let error = try_chat(&client, &server, "m").await.expect_err("a reset");
    assert!(is_remote_stream_reset(&error), "{error:?}");
    server.clear_faults();
    assert_eq!(chat(&client, &server, "m").await.status(), 200);

    server.set_faults(faults(json!({ "reset": "after_headers" }))).await.expect("faults");
    let mut answer = chat(&client, &server, "m").await;
    assert_eq!(answer.status(), 200);
    let piece = answer.chunk().await.expect("a piece").expect("a piece");
    assert_eq!(&piece[..], b"{\"id\":");
    let error = answer.chunk().await.expect_err("a reset");
    assert!(is_remote_stream_reset(&error), "{error:?}");
    eventually(&server, "the end", |s| s.in_flight == 0).await;
    let stats = server.stats();
    assert_eq!((stats.requests, stats.cancelled), (3, 0));
}
