use serde_json::{Value, json};
use warmroute_tests::mock::MockServer;

use crate::client::{chat, header, http1, http2, post};

async fn server() -> MockServer {
    MockServer::builder().resident(["m"]).models(["m", "n"]).record(2).start().await.expect("start")
}

#[tokio::test]
async fn a_chat_is_answered_in_openai_shape_over_both_http_versions() {
    let server = server().await;
    for client in [http1(), http2()] {
        let answer = chat(&client, &server, "m").await;
        assert_eq!(answer.status(), 200);
        assert_eq!(header(&answer, "x-served-by"), server.addr().to_string());
        let body: Value = answer.json().await.expect("json");
        assert_eq!(body["object"], "chat.completion");
        assert_eq!(body["model"], "m");
        assert_eq!(body["choices"][0]["message"], json!({ "role": "assistant", "content": "t0 t1 " }));
        assert_eq!(body["choices"][0]["finish_reason"], "length");
        assert_eq!(body["usage"]["completion_tokens"], 2);
        let sum = body["usage"]["prompt_tokens"].as_u64().expect("count") + 2;
        assert_eq!(body["usage"]["total_tokens"], sum);
    }
}

#[tokio::test]
async fn a_stream_is_one_event_a_token_then_reason_usage_and_done() {
    let server = server().await;
    for client in [http1(), http2()] {
        let body = json!({
            "model": "m", "messages": [], "stream": true, "max_tokens": 3,
            "stream_options": { "include_usage": true },
        });
        let answer = post(&client, &server, "/v1/chat/completions", &body).await.expect("answer");
        assert_eq!(header(&answer, "content-type"), "text/event-stream");
        assert_eq!(header(&answer, "x-mock-cold"), "false");
        let text = answer.text().await.expect("text");
        let events: Vec<&str> = text.split_terminator("\n\n").map(|e| e.strip_prefix("data: ").expect(e)).collect();
        let (done, chunks) = events.split_last().expect("events");
        assert_eq!(*done, "[DONE]");
        let chunks: Vec<Value> = chunks.iter().map(|c| serde_json::from_str(c).expect(c)).collect();
        assert!(chunks.iter().all(|c| c["object"] == "chat.completion.chunk" && c["model"] == "m"));
        let deltas: Vec<&Value> = chunks[..3].iter().map(|c| &c["choices"][0]["delta"]).collect();
        assert_eq!(deltas[0], &json!({ "role": "assistant", "content": "t0 " }));
        assert_eq!(deltas[2], &json!({ "content": "t2 " }));
        assert_eq!(chunks[3]["choices"][0]["finish_reason"], "length");
        assert_eq!(chunks[4]["choices"], json!([]));
        assert_eq!(chunks[4]["usage"]["completion_tokens"], 3);
        assert_eq!(chunks.len(), 5);
    }
    let stats = server.stats();
    assert_eq!((stats.requests, stats.in_flight, stats.cancelled), (2, 0, 0));
}

#[tokio::test]
async fn completions_and_embeddings_and_models_answer_in_their_shapes() {
    let (server, client) = (server().await, http1());
    let body = json!({ "model": "n", "prompt": "hello", "max_tokens": 1 });
    let answer = post(&client, &server, "/v1/completions", &body).await.expect("answer");
    let body: Value = answer.json().await.expect("json");
    assert_eq!((&body["object"], &body["choices"][0]["text"]), (&json!("text_completion"), &json!("t0 ")));

    let body = json!({ "model": "n", "input": ["one", "two"] });
    let answer = post(&client, &server, "/v1/embeddings", &body).await.expect("answer");
    let body: Value = answer.json().await.expect("json");
    assert_eq!(body["data"].as_array().expect("data").len(), 2);
    assert_eq!(body["data"][1]["index"], 1);

    let answer = client.get(format!("{}/v1/models", server.base_url())).send().await.expect("answer");
    let body: Value = answer.json().await.expect("json");
    let ids: Vec<&Value> = body["data"].as_array().expect("data").iter().map(|m| &m["id"]).collect();
    assert_eq!(ids, ["m", "n"]);
}

#[tokio::test]
async fn the_model_of_the_body_comes_before_the_header() {
    let (server, client) = (server().await, http1());
    let url = format!("{}/v1/chat/completions", server.base_url());
    let ask = |body: Value| client.post(&url).header("x-model-id", "n").json(&body).send();
    let body: Value = ask(json!({ "model": "m" })).await.expect("answer").json().await.expect("json");
    assert_eq!(body["model"], "m");
    let body: Value = ask(json!({})).await.expect("answer").json().await.expect("json");
    assert_eq!(body["model"], "n");
}

#[tokio::test]
async fn what_a_real_server_refuses_is_refused_with_its_status() {
    let (server, client) = (server().await, http1());
    let cases = [
        (r#"{"model": "x"}"#, 404),
        (r#"{"messages": []}"#, 400),
        (r#"{"model": 5}"#, 400),
        (r#"{"model": "m", "max_tokens": 0}"#, 400),
        (r#"{"model": "m", "max_tokens": 1000000000}"#, 400),
        (r#"{"model": "m", "stream": "yes"}"#, 400),
        (r#"{"model": "m"} {}"#, 400),
        ("{", 400),
        ("", 400),
        ("\u{0}", 400),
    ];
    for (body, status) in cases {
        let url = format!("{}/v1/chat/completions", server.base_url());
        let answer = client.post(url).body(body).send().await.expect("answer");
        assert_eq!(answer.status(), status, "{body}");
        assert_eq!(header(&answer, "x-served-by"), server.addr().to_string());
        let error: Value = answer.json().await.expect("json");
        assert!(error["error"]["message"].is_string(), "{body}: {error}");
        assert_eq!(error["error"]["code"], status, "{body}");
    }
    let stats = server.stats();
    assert_eq!((stats.requests, stats.in_flight, stats.cancelled), (cases.len() as u64, 0, 0));
    assert_eq!(stats.resident_models, ["m"]);
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_json_errors() {
    let (server, client) = (server().await, http1());
    for (method, path, status) in [
        ("GET", "/", 404),
        ("POST", "/generate", 404),
        ("GET", "/v1/chat/completions", 405),
        ("GET", "/mock/nothing", 404),
        ("PUT", "/health", 405),
    ] {
        let method = method.parse().expect("method");
        let request = client.request(method, format!("{}{path}", server.base_url()));
        let answer = request.header("x-model-id", "m").send().await.expect("answer");
        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(header(&answer, "x-served-by"), server.addr().to_string());
        let error: Value = answer.json().await.expect("json");
        assert!(!error["error"].is_null(), "{path}");
    }
    assert_eq!(server.stats().requests, 0);
    assert_eq!(server.stats().other_requests, 4);
}

#[tokio::test]
async fn an_ipv6_server_says_its_address_in_brackets() {
    let server = MockServer::builder().listen("[::1]:0").start().await.expect("start");
    let answer = chat(&http1(), &server, "m").await;
    assert_eq!(header(&answer, "x-served-by"), format!("[::1]:{}", server.addr().port()));
}

#[tokio::test]
async fn the_last_requests_are_kept_as_they_arrived() {
    let (server, client) = (server().await, http1());
    chat(&client, &server, "m").await;
    let odd = reqwest::header::HeaderValue::from_bytes(b"a\xffb").expect("value");
    let url = format!("{}/v1/chat/completions?q=1", server.base_url());
    let request = client.post(&url).header("x-odd", odd).json(&json!({ "model": "n" }));
    assert_eq!(request.send().await.expect("answer").status(), 200);
    client.get(format!("{}/health", server.base_url())).send().await.expect("answer");

    let answer = client.get(format!("{}/mock/requests", server.base_url())).send().await.expect("answer");
    let listed: Value = answer.json().await.expect("json");
    assert_eq!(listed.as_array().expect("list").len(), 2);
    assert_eq!(listed[0]["path"], "/v1/chat/completions?q=1");
    assert_eq!(listed[0]["model"], "n");
    assert_eq!(listed[0]["headers_hex"], json!([["x-odd", "61ff62"]]));
    assert!(listed[0]["headers"].as_array().expect("headers").contains(&json!(["x-odd", "a\u{fffd}b"])));
    assert_eq!((&listed[1]["method"], &listed[1]["path"]), (&json!("GET"), &json!("/health")));
    assert_eq!(server.recorded().len(), 2);
}
