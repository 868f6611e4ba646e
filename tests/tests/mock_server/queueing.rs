use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use warmroute_tests::mock::MockServer;

use crate::client::{FOR_EVER, chat, eventually, header, http1, http2, open_stream, post};

#[tokio::test]
async fn no_more_requests_run_at_once_than_there_are_places() {
    let builder = MockServer::builder().resident(["m"]).concurrency(2).service(Duration::from_millis(20));
    let server = builder.start().await.expect("start");
    for client in [http1(), http2()] {
        let answers = join_all((0..10).map(|_| chat(&client, &server, "m"))).await;
        assert!(answers.iter().all(|answer| answer.status() == 200));
    }
    let stats = server.stats();
    assert_eq!((stats.max_running, stats.running, stats.queued, stats.in_flight), (2, 0, 0, 0));
    assert!((3..=10).contains(&stats.max_in_flight), "{stats:?}");
    assert_eq!(stats.requests, 20);
}

#[tokio::test]
async fn a_request_beyond_the_queue_is_refused_at_once() {
    let builder = MockServer::builder().resident(["m"]).queue(2).token(FOR_EVER);
    let server = builder.start().await.expect("start");
    let client = http1();
    let stream = open_stream(&client, &server, "m").await;
    let short = json!({ "model": "m", "max_tokens": 1 });
    let waiting = join_all((0..2).map(|_| post(&client, &server, "/v1/completions", &short)));
    let checks = async {
        eventually(&server, "a full queue", |s| s.queued == 2).await;
        let refused = chat(&client, &server, "m").await;
        assert_eq!(refused.status(), 503);
        assert_eq!(header(&refused, "retry-after"), "1");
        assert_eq!(header(&refused, "x-served-by"), server.addr().to_string());
        drop(stream);
    };
    let (answers, ()) = tokio::join!(waiting, checks);
    assert!(answers.into_iter().all(|answer| answer.expect("an answer").status() == 200));
    let stats = server.stats();
    assert_eq!((stats.requests, stats.in_flight, stats.max_in_flight), (4, 0, 4));
}
