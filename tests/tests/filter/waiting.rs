//! Requests that wait for their bodies, and what else can happen to them in the meantime.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use warmroute_tests::harness::{ConfigUpdate, Envoy, EnvoyBuilder, config, eventually};

use crate::rig::{Rig, SOON, pool, ring_order, servers};

const WHOLE: &[u8] = br#"{"model": "llama", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}"#;
/// As far as this goes, the name may still come.
const BEGUN: &[u8] = br#"{"messages": [{"role": "user", "#;

/// A request over a connection of its own whose frames are sent one by one, and whose end is the sender's.
struct Slow {
    frames: mpsc::Sender<Frame<Bytes>>,
    answer: JoinHandle<Result<Response<Incoming>>>,
}

impl Slow {
    async fn begin(to: SocketAddr, headers: &[(&str, &str)]) -> Result<Self> {
        Self::begin_as("POST", to, headers).await
    }

    async fn begin_as(method: &str, to: SocketAddr, headers: &[(&str, &str)]) -> Result<Self> {
        let (frames, receiver) = mpsc::channel(8);
        let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|frame| (Ok::<_, Infallible>(frame), receiver))
        });
        let request = Request::builder().method(method).uri(format!("http://{to}/v1/chat/completions"));
        let mut request = request.body(StreamBody::new(Box::pin(stream)))?;
        for (name, value) in [&[("content-type", "application/json")][..], headers].concat() {
            request.headers_mut().insert(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
        }
        let io = TokioIo::new(TcpStream::connect(to).await?);
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        let answer = tokio::spawn(async move {
            let answer = tokio::time::timeout(SOON, sender.send_request(request)).await;
            answer.context("no answer")?.context("no response")
        });
        Ok(Self { frames, answer })
    }

    async fn data(&self, bytes: &'static [u8]) -> Result<()> {
        Ok(self.frames.send(Frame::data(Bytes::from_static(bytes))).await?)
    }

    async fn trailers(&self) -> Result<()> {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        Ok(self.frames.send(Frame::trailers(trailers)).await?)
    }

    /// Ends the body and reads the head of the answer.
    async fn answer(self) -> Result<Response<Incoming>> {
        drop(self.frames);
        self.answer.await?
    }
}

async fn rig(workers: usize, change: impl FnOnce(EnvoyBuilder, &mut Value) -> EnvoyBuilder) -> Result<Rig> {
    Rig::with(servers(5, "127.0.0.1:0").await?, |envoy, addresses| {
        let mut plugin = pool(addresses, json!({}));
        plugin["request"] = json!({"body": {}});
        let envoy = change(envoy, &mut plugin);
        envoy.plugin_config(plugin).concurrency(workers)
    })
    .await
}

/// A request of which only the headers have come, known to wait since all requests before it have ended.
async fn waiting(rig: &Rig, headers: &[(&str, &str)]) -> Result<Slow> {
    let before = rig.envoy.admin().counter("http.inference.downstream_rq_total").await?;
    let slow = Slow::begin(rig.envoy.address(), headers).await?;
    eventually(SOON, "Envoy has the request", || async {
        let now = rig.envoy.admin().counter("http.inference.downstream_rq_total").await?;
        Ok((now > before).then_some(()))
    })
    .await?;
    Ok(slow)
}

/// Trailers end a body whose model is not found: the request goes on once, along a list of ours, and not along one that
/// the client wrote.
#[tokio::test]
async fn trailers_end_the_body() -> Result<()> {
    for (workers, data) in [(1, true), (1, false), (4, true), (4, false)] {
        let rig = rig(workers, |envoy, plugin| {
            plugin["pools"][0]["endpoints"][4]["draining"] = json!(true);
            envoy.allow_bodies().edit(|bootstrap| {
                let http = config::http_manager(bootstrap, config::LISTENER)?;
                http.as_object_mut().context("no map")?.remove("early_header_mutation_extensions");
                Ok(())
            })
        })
        .await?;
        let drained = rig.addresses()[4].to_string();
        for _ in 0..4 {
            let slow = Slow::begin(rig.envoy.address(), &[("x-gateway-destination-endpoint", &drained)]).await?;
            if data {
                slow.data(BEGUN).await?;
            }
            slow.trailers().await?;
            // The server's own verdict over half a body.
            assert_eq!(slow.answer().await?.status(), 400);
        }
        rig.await_count("body_no_model", 4).await?;
        rig.await_count("pick_reason.no_model", 4).await?;
        rig.await_in_flight(0).await?;
        assert_eq!(rig.count("body_overdue").await?, 0);
        for list in rig.await_lists(4).await? {
            assert!(!list.contains(&4), "the drained endpoint in {list:?}");
        }
        let reply = rig.chat_with(&[], "llama").await?;
        assert_eq!(rig.served_by(&reply)?, ring_order(5, b"llama").into_iter().find(|n| *n != 4).context("none")?);
    }
    Ok(())
}

/// Three clients whose bodies come late, before any other body came at all, are no reason to read no bodies any more.
#[tokio::test]
async fn slow_clients_do_not_switch_body_reading_off() -> Result<()> {
    let rig = rig(1, |envoy, _| envoy.allow_bodies()).await?;
    for n in 1..=3 {
        let slow = Slow::begin(rig.envoy.address(), &[]).await?;
        rig.await_count("body_overdue", n).await?;
        // What comes at once would have been held back by Envoy; this client takes its time.
        tokio::time::sleep(Duration::from_millis(200)).await;
        slow.data(WHOLE).await?;
        assert_eq!(slow.answer().await?.status(), 200);
    }
    for _ in 0..5 {
        let reply = rig.chat_with(&[], "llama").await?;
        assert_eq!(rig.served_by(&reply)?, ring_order(5, b"llama")[0]);
    }
    rig.await_count("body_model", 5).await?;
    assert_eq!(rig.count("body_unread").await?, 0);
    Ok(())
}

/// Where Envoy holds bodies back, one request in ten seconds waits to see whether it still does.
#[tokio::test]
async fn body_reading_that_was_given_up_is_tried_again() -> Result<()> {
    let rig = rig(1, |envoy, _| envoy).await?;
    eventually(SOON, "a fourth request waited", || async {
        assert_eq!(rig.chat_with(&[], "llama").await?.status, 200);
        Ok((rig.count("body_overdue").await? == 4).then_some(()))
    })
    .await?;
    assert!(rig.count("body_unread").await? > 0, "those in between went on at once");
    Ok(())
}

/// Nobody may serve: the refusal comes at a tick, from outside of the request's own callbacks.
#[tokio::test]
async fn a_request_that_waited_in_vain_can_be_refused() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(workers, |envoy, plugin| {
            (0..5).for_each(|n| plugin["pools"][0]["endpoints"][n]["unhealthy"] = json!(true));
            envoy.allow_bodies()
        })
        .await?;
        for n in 1..=3 {
            let slow = Slow::begin(rig.envoy.address(), &[]).await?;
            rig.await_count("refusal.no_healthy_endpoint", n).await?;
            let answer = slow.answer().await?;
            assert_eq!(answer.status(), 503);
            assert_eq!(answer.headers()["x-warmroute-refusal"], "no_healthy_endpoint");
        }
        rig.await_count("body_overdue", 3).await?;
        rig.await_in_flight(0).await?;
    }
    Ok(())
}

/// A server that answers with what it got.
async fn echo() -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = axum::Router::new().fallback(async |body: Bytes| body);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// A client that is silent in the middle of its body is waited for: sent on at a tick, what had come of the body would
/// reach the server twice, and what it takes for surplus would be the next request on that connection.
#[tokio::test]
async fn a_body_that_pauses_arrives_whole_and_once() -> Result<()> {
    let rest: &[u8] = br#""content": "x"}], "model": "llama"}"#;
    let whole = [BEGUN, rest].concat();
    let servers = [echo().await?];
    let mut plugin = pool(&servers, json!({}));
    plugin["request"] = json!({"body": {}});
    let envoy = Envoy::builder().endpoints(&servers).plugin_config(plugin).allow_bodies().start().await?;
    let length = whole.len().to_string();
    for (n, headers) in [&[("content-length", &*length)][..], &[]].into_iter().enumerate() {
        let paused = Slow::begin(envoy.address(), headers).await?;
        paused.data(BEGUN).await?;
        // Came later and sends nothing: when it is sent on, the first one has waited longer than that.
        let silent = Slow::begin(envoy.address(), &[]).await?;
        let overdue = envoy.admin().counter("wasmcustom.warmroute.body_overdue");
        assert_eq!(overdue.await?, n as u64, "nobody has waited long enough yet");
        eventually(SOON, "the silent one is sent on", || async {
            let overdue = envoy.admin().counter("wasmcustom.warmroute.body_overdue").await?;
            Ok((overdue > n as u64).then_some(()))
        })
        .await?;
        assert_eq!(silent.answer().await?.status(), 200);
        paused.data(rest).await?;
        let answer = paused.answer().await?;
        assert_eq!(answer.status(), 200);
        let got = answer.into_body().collect().await?.to_bytes();
        assert_eq!(got.escape_ascii().to_string(), whole.escape_ascii().to_string(), "{headers:?}");
    }
    let admin = envoy.admin();
    eventually(SOON, "both models are counted", || async {
        Ok((admin.counter("wasmcustom.warmroute.body_model").await? == 2).then_some(()))
    })
    .await?;
    assert_eq!(admin.counter("wasmcustom.warmroute.body_overdue").await?, 2, "the silent ones alone");
    assert_eq!(admin.counter("cluster.model-servers.upstream_rq_total").await?, 4);
    Ok(())
}

/// The request goes its way by the configuration that it came under, and the next one by the new.
#[tokio::test]
async fn a_configuration_may_be_replaced_while_a_request_waits() -> Result<()> {
    let mut rig = rig(1, |envoy, _| envoy.allow_bodies()).await?;
    // Bodies are known to come: the next one may take seconds.
    assert_eq!(rig.chat_with(&[], "llama").await?.status, 200);
    let order = ring_order(5, b"llama");
    let slow = waiting(&rig, &[]).await?;
    let mut plugin = pool(&rig.addresses(), json!({}));
    plugin["request"] = json!({"body": {}});
    plugin["pools"][0]["endpoints"][order[0]]["draining"] = json!(true);
    assert_eq!(rig.envoy.write_plugin_config(&plugin).await?, ConfigUpdate::Applied);
    slow.data(WHOLE).await?;
    let answer = slow.answer().await?;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-served-by"], rig.addresses()[order[0]].to_string());
    let reply = rig.chat_with(&[], "llama").await?;
    assert_eq!(rig.served_by(&reply)?, order[1]);
    rig.await_in_flight(0).await
}

/// A form is not read, and neither is what a method says that has no body for us, or a client that waits for the server's
/// word.
#[tokio::test]
async fn requests_without_a_body_to_read_do_not_wait() -> Result<()> {
    let rig = rig(1, |envoy, _| {
        envoy.allow_bodies().edit(|bootstrap| {
            config::http_manager(bootstrap, config::LISTENER)?["proxy_100_continue"] = json!(true);
            Ok(())
        })
    })
    .await?;
    let form = ("content-type", "multipart/form-data; boundary=x");
    let expects = ("expect", "100-continue");
    let cases = [("POST", &[form][..]), ("DELETE", &[]), ("POST", &[expects])];
    for (n, (method, headers)) in cases.into_iter().enumerate() {
        let slow = Slow::begin_as(method, rig.envoy.address(), headers).await?;
        // Routed before any of the body is there.
        rig.await_count("pick_reason.no_model", n as u64 + 1).await?;
        assert!(slow.answer().await?.status().is_client_error(), "the server's own verdict");
    }
    assert_eq!(rig.count("body_overdue").await?, 0);
    Ok(())
}
