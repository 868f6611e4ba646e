//! A client that leaves stops its work at once and gives its place to the next.

use futures_util::StreamExt;
use reqwest::Client;
use serde_json::json;
use warmroute_tests::mock::MockServer;

use crate::client::{FOR_EVER, chat, eventually, faults, http1, http2, open_stream, post};

#[tokio::test]
async fn leaving_a_running_request_frees_its_place() {
    for client in [http1(), http2()] {
        let server = MockServer::builder().resident(["m"]).service(FOR_EVER).start().await.expect("start");
        tokio::select! {
            _ = chat(&client, &server, "m") => panic!("an answer"),
            () = eventually(&server, "the running request", |s| s.running == 1) => {}
        }
        eventually(&server, "the free place", |s| s.running == 0 && s.in_flight == 0).await;
        assert_eq!(server.stats().cancelled, 1);
    }
}

#[tokio::test]
async fn leaving_the_queue_frees_the_entry() {
    for client in [http1(), http2()] {
        let server = MockServer::builder().resident(["m"]).token(FOR_EVER).start().await.expect("start");
        let stream = open_stream(&client, &server, "m").await;
        tokio::select! {
            _ = chat(&client, &server, "m") => panic!("an answer"),
            () = eventually(&server, "the queued request", |s| s.queued == 1) => {}
        }
        eventually(&server, "the free queue", |s| s.queued == 0 && s.in_flight == 1).await;
        assert_eq!((server.stats().cancelled, server.stats().running), (1, 1));
        drop(stream);
        eventually(&server, "the free place", |s| s.running == 0 && s.in_flight == 0).await;
        assert_eq!(server.stats().cancelled, 2);
    }
}

async fn leave_mid_stream(client: Client) {
    let server = MockServer::builder().resident(["m"]).token(FOR_EVER).start().await.expect("start");
    let mut events = open_stream(&client, &server, "m").await.bytes_stream();
    let first = events.next().await.expect("an event").expect("an event");
    assert!(first.starts_with(b"data: {"));
    drop(events);
    drop(client);
    eventually(&server, "the free place", |s| s.running == 0 && s.in_flight == 0).await;
    assert_eq!(server.stats().cancelled, 1);
}

#[tokio::test]
async fn leaving_between_two_tokens_frees_the_place() {
    leave_mid_stream(http1()).await;
    leave_mid_stream(http2()).await;
}

#[tokio::test]
async fn the_next_in_the_queue_runs_when_the_first_leaves() {
    let server = MockServer::builder().resident(["m"]).token(FOR_EVER).start().await.expect("start");
    let client = http2();
    let stream = open_stream(&client, &server, "m").await;
    let short = json!({ "model": "m", "max_tokens": 1 });
    let next = post(&client, &server, "/v1/completions", &short);
    let leave = async {
        eventually(&server, "the queued request", |s| s.queued == 1).await;
        drop(stream);
    };
    let (answer, ()) = tokio::join!(next, leave);
    assert_eq!(answer.expect("an answer").status(), 200);
}

#[tokio::test]
async fn hundreds_of_cancelled_requests_leave_nothing_behind_and_the_connection_usable() {
    let server = MockServer::builder().resident(["m"]).service(FOR_EVER).concurrency(4).start().await.expect("start");
    let client = http2();
    for round in 1..=3 {
        tokio::select! {
            _ = futures_util::future::join_all((0..300).map(|_| chat(&client, &server, "m"))) => panic!("answers"),
            () = eventually(&server, "the full house", |s| s.in_flight == 300) => {}
        }
        eventually(&server, "the empty house", |s| s.in_flight == 0 && s.running == 0 && s.queued == 0).await;
        assert_eq!(server.stats().cancelled, 300 * round);
    }
    let answer = client.get(format!("{}/health", server.base_url())).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_hung_request_is_in_flight_until_its_client_leaves() {
    for client in [http1(), http2()] {
        let server = MockServer::builder().start().await.expect("start");
        server.set_faults(faults(json!({ "hang": true }))).await.expect("faults");
        tokio::select! {
            _ = chat(&client, &server, "m") => panic!("an answer"),
            () = eventually(&server, "the hung request", |s| s.in_flight == 1) => {}
        }
        eventually(&server, "the end", |s| s.in_flight == 0).await;
        assert_eq!(server.stats().cancelled, 1);
    }
}
