use std::time::Duration;

use futures_util::future::join_all;
use warmroute_tests::mock::MockServer;

use crate::client::{FOR_EVER, chat, eventually, http1, is_cold, open_stream, post};

#[tokio::test]
async fn warm_and_cold_requests_are_told_apart() {
    let server = MockServer::builder().capacity(2).resident(["a"]).start().await.expect("start");
    let client = http1();
    assert!(!is_cold(&chat(&client, &server, "a").await));
    assert!(is_cold(&chat(&client, &server, "b").await));
    assert!(!is_cold(&chat(&client, &server, "b").await));
    let stats = server.stats();
    assert_eq!((stats.requests, stats.cold_loads, stats.in_flight), (3, 1, 0));
    assert_eq!(stats.resident_models, ["b", "a"]);
    assert_eq!(stats.requests_by_model.get("b"), Some(&2));
}

#[tokio::test]
async fn the_least_recently_used_model_gives_way() {
    let server = MockServer::builder().capacity(3).resident(["a", "b", "c"]).start().await.expect("start");
    let client = http1();
    for model in ["c", "d", "e"] {
        chat(&client, &server, model).await;
    }
    assert_eq!(server.stats().resident_models, ["e", "d", "c"]);
    assert_eq!(server.stats().cold_loads, 2);
}

#[tokio::test]
async fn concurrent_requests_for_a_cold_model_share_one_load() {
    let builder = MockServer::builder().capacity(1).concurrency(8).load(Duration::from_millis(100));
    let server = builder.start().await.expect("start");
    let client = http1();
    let answers = join_all((0..8).map(|_| chat(&client, &server, "m"))).await;
    assert!(answers.iter().any(is_cold));
    assert!(answers.iter().all(|answer| answer.status() == 200));
    assert_eq!(server.stats().cold_loads, 1);
    assert_eq!(server.stats().requests, 8);
}

#[tokio::test]
async fn a_model_in_use_is_not_evicted_and_its_successor_waits() {
    let builder = MockServer::builder().capacity(1).resident(["a"]).concurrency(3).token(FOR_EVER);
    let server = builder.start().await.expect("start");
    let client = http1();
    let stream = open_stream(&client, &server, "a").await;
    let body = serde_json::json!({ "model": "b", "max_tokens": 1 });
    let waiting = post(&client, &server, "/v1/completions", &body);
    let checks = async {
        eventually(&server, "the second request in its place", |s| s.running == 2).await;
        let stats = server.stats();
        assert_eq!((stats.cold_loads, stats.resident_models), (0, vec!["a".to_owned()]));
        drop(stream);
    };
    let (answer, ()) = tokio::join!(waiting, checks);
    assert!(is_cold(&answer.expect("an answer")));
    assert_eq!(server.stats().resident_models, ["b"]);
}

#[tokio::test]
async fn a_load_goes_on_when_the_client_that_caused_it_leaves() {
    let builder = MockServer::builder().capacity(1).load(Duration::from_millis(100));
    let server = builder.start().await.expect("start");
    let client = http1();
    let request = chat(&client, &server, "m");
    let until_loading = eventually(&server, "the load", |s| s.cold_loads == 1);
    tokio::select! {
        _ = request => panic!("answered before its load"),
        () = until_loading => {}
    }
    eventually(&server, "the end of the load", |s| s.resident_models == ["m"]).await;
    let stats = server.stats();
    assert_eq!((stats.cancelled, stats.in_flight, stats.running), (1, 0, 0));
}

#[tokio::test]
async fn a_reset_gives_the_same_start_again() {
    let server = MockServer::builder().capacity(2).resident(["a", "b"]).start().await.expect("start");
    let client = http1();
    chat(&client, &server, "c").await;
    let url = format!("{}/mock/reset", server.base_url());
    let body = serde_json::json!({ "resident": ["a", "b"] });
    let answer = client.post(&url).json(&body).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
    let stats = server.stats();
    assert_eq!((stats.requests, stats.cold_loads, stats.max_in_flight), (0, 0, 0));
    assert_eq!(stats.resident_models, ["a", "b"]);
    assert!(stats.requests_by_model.is_empty());

    chat(&client, &server, "a").await;
    let answer = client.post(&url).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(server.stats().requests, 0);
    assert_eq!(server.stats().resident_models, ["a", "b"]);

    for bad in [r#"{"resident": ["a", "b", "c"]}"#, r#"{"resident": ["a", "a"]}"#, r#"{"residents": []}"#, "{"] {
        let answer = client.post(&url).body(bad).send().await.expect("answer");
        assert_eq!(answer.status(), 400, "{bad}");
    }
}
