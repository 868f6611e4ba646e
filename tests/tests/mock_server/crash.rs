use std::io::ErrorKind;

use serde_json::json;
use tokio::net::TcpStream;
use warmroute_tests::mock::{Faults, MockServer};

use crate::client::{FOR_EVER, chat, eventually, faults, header, http1, http2, is_cold, open_stream, try_chat};

async fn refused(server: &MockServer) -> bool {
    TcpStream::connect(server.addr()).await.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[tokio::test]
async fn a_crash_cuts_every_connection_and_closes_the_port() {
    for client in [http1(), http2()] {
        let builder = MockServer::builder().resident(["m"]).token(FOR_EVER).concurrency(2);
        let server = builder.start().await.expect("start");
        let mut stream = open_stream(&client, &server, "m").await;
        stream.chunk().await.expect("an event").expect("an event");
        let waiting = async { try_chat(&client, &server, "m").await.expect_err("a cut") };
        let crash = async {
            eventually(&server, "both requests", |s| s.in_flight == 2).await;
            server.crash().await;
        };
        tokio::join!(waiting, crash);
        assert!(refused(&server).await);
        stream.chunk().await.expect_err("a cut");
        let stats = server.stats();
        assert_eq!((stats.in_flight, stats.running, stats.cancelled), (0, 0, 0));
        assert_eq!(stats.resident_models, [""; 0]);
        server.crashed().await;
    }
}

#[tokio::test]
async fn a_server_comes_back_on_its_port_with_an_empty_memory_and_no_faults() {
    let server = MockServer::builder().resident(["m"]).start().await.expect("start");
    let client = http1();
    assert!(!is_cold(&chat(&client, &server, "m").await));
    server.set_faults(faults(json!({ "delay_ms": 1 }))).await.expect("faults");
    let addr = server.addr();
    server.crash().await;
    assert!(refused(&server).await);
    server.restart().await.expect("restart");
    assert_eq!(server.addr(), addr);
    let answer = chat(&client, &server, "m").await;
    assert!(is_cold(&answer));
    assert_eq!(header(&answer, "x-served-by"), addr.to_string());
    assert_eq!(server.faults(), Faults::default());
    let stats = server.stats();
    assert_eq!((stats.lives, stats.requests, stats.cold_loads), (2, 2, 1));
}

#[tokio::test]
async fn the_order_to_crash_is_answered_by_a_server_that_is_already_dead() {
    for client in [http1(), http2()] {
        let server = MockServer::builder().resident(["m"]).start().await.expect("start");
        let url = format!("{}/mock/faults", server.base_url());
        let answer = client.post(&url).json(&json!({ "crash": true })).send().await.expect("answer");
        assert_eq!(answer.status(), 200);
        assert!(refused(&server).await);
        server.restart().await.expect("restart");
        assert!(is_cold(&chat(&client, &server, "m").await));
    }
}

#[tokio::test]
async fn a_restart_time_brings_the_server_back_by_itself() {
    let server = MockServer::builder().resident(["m"]).start().await.expect("start");
    let client = http1();
    let url = format!("{}/mock/faults", server.base_url());
    let order = json!({ "crash": true, "restart_after_ms": 50 });
    assert_eq!(client.post(&url).json(&order).send().await.expect("answer").status(), 200);
    eventually(&server, "the next life", |s| s.lives == 2).await;
    let mut answer = try_chat(&client, &server, "m").await;
    for _ in 0..2_000 {
        if answer.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        answer = try_chat(&client, &server, "m").await;
    }
    assert!(is_cold(&answer.expect("an answer")));
}

#[tokio::test]
async fn a_port_is_kept_over_many_crashes() {
    let server = MockServer::builder().start().await.expect("start");
    for life in 2..20 {
        server.crash().await;
        server.restart().await.expect("restart");
        assert_eq!(chat(&http1(), &server, "m").await.status(), 200);
        assert_eq!(server.stats().lives, life);
    }
}

#[tokio::test]
async fn a_shutdown_and_a_drop_free_the_port() {
    let server = MockServer::builder().start().await.expect("start");
    let addr = server.addr();
    server.shutdown().await;
    let again = MockServer::builder().listen(&addr.to_string()).start().await.expect("the same port");
    again.crash().await;
    again.shutdown().await;
    let again = MockServer::builder().listen(&addr.to_string()).start().await.expect("the same port");
    assert_eq!(again.addr(), addr);
}
