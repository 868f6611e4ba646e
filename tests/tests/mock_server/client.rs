//! Clients for the tests, and waiting for a state.

use std::time::Duration;

use reqwest::{Client, Response};
use serde_json::{Value, json};
use warmroute_tests::mock::{Faults, MockServer, StatsSnapshot};

/// Longer than any machine needs: reached only when the state never comes.
const DEADLINE: Duration = Duration::from_secs(20);

/// A time that a test never waits out.
pub const FOR_EVER: Duration = Duration::from_secs(3600);

/// Waits until the server's stats fulfil `state`.
pub async fn eventually(server: &MockServer, what: &str, state: impl Fn(&StatsSnapshot) -> bool) {
    let waiting = async {
        while !state(&server.stats()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, waiting).await.is_err() {
        panic!("{what} never came: {:?}", server.stats());
    }
}

pub fn http1() -> Client {
    Client::builder().http1_only().build().expect("client")
}

/// HTTP/2 without TLS, no upgrade.
pub fn http2() -> Client {
    Client::builder().http2_prior_knowledge().build().expect("client")
}

pub async fn chat(client: &Client, server: &MockServer, model: &str) -> Response {
    try_chat(client, server, model).await.expect("an answer")
}

pub async fn try_chat(client: &Client, server: &MockServer, model: &str) -> reqwest::Result<Response> {
    let body = json!({ "model": model, "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 2 });
    post(client, server, "/v1/chat/completions", &body).await
}

/// A chat whose answer comes token by token; with a server whose tokens take for ever it holds its place.
pub async fn open_stream(client: &Client, server: &MockServer, model: &str) -> Response {
    let body = json!({ "model": model, "messages": [], "max_tokens": 2, "stream": true });
    let response = post(client, server, "/v1/chat/completions", &body).await.expect("a head");
    assert_eq!(response.status(), 200);
    response
}

pub async fn post(client: &Client, server: &MockServer, path: &str, body: &Value) -> reqwest::Result<Response> {
    client.post(format!("{}{path}", server.base_url())).json(body).send().await
}

pub fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).unwrap_or_else(|| panic!("no {name}")).to_str().expect("text")
}

pub fn is_cold(response: &Response) -> bool {
    match header(response, "x-mock-cold") {
        "true" => true,
        "false" => false,
        other => panic!("x-mock-cold: {other}"),
    }
}

pub fn faults(value: Value) -> Faults {
    serde_json::from_value(value).expect("faults")
}
