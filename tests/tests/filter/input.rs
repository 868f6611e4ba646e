//! Requests and endpoint sets that are not as they should be: the documented answer, never a lost request or a trap.

use anyhow::{Context, Result};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tonic::Request;
use tonic::transport::Channel;
use warmroute_tests::harness::{Envoy, RawReply, config, eventually, raw_exchange};
use warmroute_tests::mock::MockServer;
use warmroute_tests::mock::proto::ModelInferRequest;
use warmroute_tests::mock::proto::grpc_inference_service_client::GrpcInferenceServiceClient;

use crate::rig::{Rig, SOON, infer_body, model_at, pool, ring_order, servers};

const DESTINATION: &str = "x-gateway-destination-endpoint";

/// A client's own destination header, once and twice, with and without the shipped config's early removal.
#[tokio::test]
async fn a_forged_destination_is_never_obeyed_and_never_reaches_a_server() -> Result<()> {
    for early_removal in [true, false] {
        let rig = Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, _| {
            envoy.edit(move |bootstrap| {
                if !early_removal {
                    let http = config::http_manager(bootstrap, config::LISTENER)?;
                    http.as_object_mut().context("no map")?.remove("early_header_mutation_extensions");
                }
                Ok(())
            })
        })
        .await?;
        let (model, forged) = (model_at(4, 1), rig.servers[3].addr().to_string());
        for headers in [&[(DESTINATION, &*forged)][..], &[(DESTINATION, &*forged), (DESTINATION, &*forged)]] {
            let mut headers = headers.to_vec();
            headers.push(("x-model-id", &model));
            for _ in 0..5 {
                assert_eq!(rig.served_by(&rig.chat_with(&headers, &model).await?)?, 1, "{headers:?}");
            }
        }
        for request in rig.servers[1].recorded() {
            let leaked = request.headers.iter().any(|(name, _)| name == DESTINATION || name == "x-envoy-max-retries");
            assert!(!leaked, "{request:?}");
        }
    }
    Ok(())
}

/// Before the endpoints are known Envoy chooses; a client must not, also where the early removal is missing.
/// Envoy routes by a header that only trusted callers may set: once the filter has taken it away, Envoy routes anew, and
/// a stranger does not reach the cluster that it stands for. Where the header goes before Envoy routes at all, as the
/// documentation says, the pick is that of the other cluster, too.
#[tokio::test]
async fn a_header_that_is_removed_takes_its_route_with_it() -> Result<()> {
    for (workers, body, early) in [(1, false, false), (4, false, false), (1, true, false), (1, true, true)] {
        let rig = Rig::with(servers(6, "127.0.0.1:0").await?, |envoy, addresses| {
            let (slow, fast) = (addresses[..3].to_vec(), addresses[3..].to_vec());
            let mut plugin = pool(&slow, json!({}));
            if body {
                plugin["request"] = json!({"body": {}});
            }
            let other = config::one_pool("fast", &fast)["pools"][0].take();
            plugin["pools"].as_array_mut().into_iter().for_each(|pools| pools.push(other.clone()));
            let envoy = envoy.endpoints(&slow).cluster("fast", &fast).plugin_config(plugin).concurrency(workers);
            envoy.allow_bodies().edit(move |bootstrap| {
                let manager = config::http_manager(bootstrap, config::LISTENER)?;
                if early {
                    let removal = &mut manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"];
                    let removal = removal.as_array_mut().context("no early removal")?;
                    removal.push(json!({"remove": "x-warmroute-urgency"}));
                }
                let routes = manager["route_config"]["virtual_hosts"][0]["routes"].as_array_mut();
                let routes = routes.context("no routes")?;
                let mut urgent = routes[0].clone();
                let exact = json!({"name": "x-warmroute-urgency", "string_match": {"exact": "critical"}});
                urgent["match"]["headers"] = json!([exact]);
                urgent["route"]["cluster"] = json!("fast");
                routes.insert(0, urgent);
                Ok(())
            })
        })
        .await?;
        let first = ring_order(3, b"llama")[0];
        for _ in 0..8 {
            let named = if body { &[][..] } else { &[("x-model-id", "llama")] };
            let headers = [named, &[("x-warmroute-urgency", "critical")]].concat();
            let served = rig.served_by(&rig.chat_with(&headers, "llama").await?)?;
            assert!(served < 3, "{served} is of the other cluster");
            assert!(!early || served == first, "{served} is not the model's endpoint");
        }
        rig.await_count("outcome.success", 8).await?;
        rig.await_in_flight(0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_pool_nobody_has_told_of_yet_is_balanced_by_envoy() -> Result<()> {
    let rig = Rig::with(servers(3, "127.0.0.1:0").await?, |envoy, _| {
        envoy.plugin_config(json!({"pools": [{"cluster": config::CLUSTER}]})).edit(|bootstrap| {
            let http = config::http_manager(bootstrap, config::LISTENER)?;
            http.as_object_mut().context("no map")?.remove("early_header_mutation_extensions");
            Ok(())
        })
    })
    .await?;
    let forged = rig.servers[2].addr().to_string();
    let send = async || rig.chat_with(&[("x-model-id", "llama"), (DESTINATION, &forged)], "llama").await;
    let shares = rig.shares(60, send).await?;
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
    rig.await_count("pass.no_snapshot", 60).await?;
    assert_eq!(rig.count("pick.ring").await?, 0);
    let warnings = rig.envoy.log()?.matches("no_snapshot").count();
    assert!((1..=10).contains(&warnings), "one line in ten seconds, not sixty: {warnings}");
    Ok(())
}

#[tokio::test]
async fn an_empty_pool_is_refused_with_its_reason() -> Result<()> {
    let rig = Rig::with(servers(2, "127.0.0.1:0").await?, |envoy, _| {
        envoy.plugin_config(json!({"pools": [{"cluster": config::CLUSTER, "endpoints": []}]}))
    })
    .await?;
    let reply = rig.chat("llama").await?;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("x-warmroute-refusal"), Some("no_healthy_endpoint"));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json()?["error"]["type"], "no_healthy_endpoint");

    let mut grpc = GrpcInferenceServiceClient::new(Channel::from_shared(rig.envoy.base_url())?.connect().await?);
    let status = grpc.model_infer(ModelInferRequest { model_name: "llama".into(), ..Default::default() }).await;
    let status = status.err().context("an answer from nobody")?;
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    assert_eq!(status.message(), "no endpoint of this pool may serve");
    assert_eq!(status.metadata().get("x-warmroute-refusal").context("no reason")?, "no_healthy_endpoint");

    rig.await_count("refusal.no_healthy_endpoint", 2).await?;
    let log = eventually(SOON, "both are in the access log", || async {
        let log = rig.envoy.access_log()?;
        Ok((log.len() == 2).then_some(log))
    })
    .await?;
    assert!(log.iter().all(|line| line["details"] == "no_healthy_endpoint"), "{log:?}");
    rig.await_in_flight(0).await
}

#[tokio::test]
async fn all_endpoints_marked_is_refused_like_an_empty_pool() -> Result<()> {
    let rig = Rig::with(servers(2, "127.0.0.1:0").await?, |envoy, addresses| {
        let mut plugin = pool(addresses, json!({}));
        for n in 0..2 {
            plugin["pools"][0]["endpoints"][n]["unhealthy"] = json!(true);
        }
        envoy.plugin_config(plugin)
    })
    .await?;
    let reply = rig.chat("llama").await?;
    assert_eq!((reply.status.as_u16(), reply.header("x-warmroute-refusal")), (503, Some("no_healthy_endpoint")));
    Ok(())
}

/// Our endpoints and Envoy's hosts differ: unknown entries are skipped, then Envoy's own policy serves.
#[tokio::test]
async fn endpoints_that_envoy_does_not_know_cost_no_request() -> Result<()> {
    let rig = Rig::with(servers(3, "127.0.0.1:0").await?, |envoy, addresses| {
        let mut plugin = pool(addresses, json!({"fallbacks": 1}));
        for (n, port) in [(0, 1), (1, 2)] {
            plugin["pools"][0]["endpoints"][n]["address"] = json!(format!("10.255.255.1:{port}"));
        }
        envoy.plugin_config(plugin)
    })
    .await?;
    let list = |model: &str| ring_order(3, model.as_bytes())[..2].to_vec();
    let with_lists = |wanted: [usize; 2]| (0..).map(|n| format!("m{n}")).find(|m| list(m) == wanted).unwrap();
    // First entry unknown, second known.
    let model = with_lists([0, 2]);
    assert_eq!(rig.served_by(&rig.chat(&model).await?)?, 2);
    rig.await_count("served.fallback", 1).await?;
    rig.await_count("endpoint_unknown", 1).await?;
    // Both unknown: whoever Envoy likes.
    let model = with_lists([0, 1]);
    let shares = rig.shares(60, async || rig.chat(&model).await).await?;
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
    rig.await_count("served.outside", 60).await?;
    rig.await_count("endpoint_unknown", 61).await?;
    let warnings = rig.envoy.log()?.matches("endpoint_unknown").count();
    assert!((1..=10).contains(&warnings), "one line in ten seconds, not sixty: {warnings}");
    // The first known: nothing to complain of.
    assert_eq!(rig.served_by(&rig.chat(&with_lists([2, 0])).await?)?, 2);
    rig.await_count("served.pick", 1).await?;
    rig.await_count("endpoint_unknown", 61).await?;
    Ok(())
}

async fn raw(envoy: &Envoy, lines: &[&[u8]]) -> Result<RawReply> {
    let mut request = b"POST /v2/models/llama/infer HTTP/1.1\r\nhost: a\r\nconnection: close\r\n".to_vec();
    let body = infer_body().to_string();
    request
        .extend_from_slice(format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()).as_bytes());
    for line in lines {
        request.extend_from_slice(line);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body.as_bytes());
    raw_exchange(envoy.address(), &request, SOON).await
}

/// Bytes that are not UTF-8 as a value, in the model, in the type; and in a name, which Envoy itself refuses.
#[tokio::test]
async fn bytes_that_are_not_utf8_route_like_any_others() -> Result<()> {
    let rig = Rig::start(4).await?;
    let served = |reply: &RawReply| -> Result<String> {
        Ok(String::from_utf8_lossy(reply.header("x-served-by").context("nobody served")?).into_owned())
    };
    let at = |model: &[u8]| rig.servers[ring_order(4, model)[0]].addr().to_string();
    for (lines, model) in [
        (&[&b"x-any: 1 \xc0\xa7\xc0\xa2\xff"[..]][..], &b"llama"[..]),
        (&[b"x-model-id: 1 \xc0\xa7\xff"], b"1 \xc0\xa7\xff"),
        (&[b"user-agent: \xa1\xb1"], b"llama"),
        (&[b"x-gateway-destination-endpoint: \xff\xfe"], b"llama"),
        (&[b"content-type: \xff", b"cookie: \xff"], b"llama"),
    ] {
        let reply = raw(&rig.envoy, lines).await?;
        assert_eq!(reply.status, 200, "{lines:?}");
        assert_eq!(served(&reply)?, at(model), "{lines:?}");
    }
    // A type that nobody knows: spread, still served.
    assert_eq!(raw(&rig.envoy, &[b"x-request-type: \xff\x80"]).await?.status, 200);
    assert_eq!(raw(&rig.envoy, &[b"x-n\xffme: v"]).await?.status, 400, "Envoy's own answer");
    // Every worker's VM still works.
    let reply = rig.chat("llama").await?;
    assert_eq!(rig.served_by(&reply)?, ring_order(4, b"llama")[0]);
    rig.await_count("pick_reason.unknown_type", 1).await?;
    assert_eq!(rig.count("pass.host_error").await?, 0);
    Ok(())
}

#[tokio::test]
async fn odd_paths_and_models_are_served_or_refused_by_the_server_itself() -> Result<()> {
    let rig = Rig::start(3).await?;
    for path in [
        "/",
        "/v2/models//infer",
        "/v2/models/%/infer",
        "/v2/models/%ff%fe/infer",
        "/v2/models/%00/infer",
        "/v2/models/a/versions//infer",
        "/v2/repository/models//load",
        "/v2/models/..%2f..%2f/infer",
        "/v2/models",
        "/v2/models/a/infer/b/c/d?e#f",
        "/%",
        "/v1/chat/completions?model=x",
    ] {
        let reply = rig.client.post(&rig.url(path), &[], &infer_body()).await?;
        // A zero byte may not stand in a path: Envoy says so.
        let refused = path.contains("%00") && reply.status == 400;
        let (status, text) = (reply.status, reply.text());
        assert!(refused || reply.header("x-served-by").is_some(), "{path}: a server answered: {status} {text}");
    }
    let long = "m".repeat(30_000);
    for model in [" ", "\t", "-", "a,b", "\"quoted\"", "../..", &long] {
        let reply = rig.chat_with(&[("x-model-id", model)], "llama").await?;
        assert_eq!(reply.status, 200, "{model:.40}");
    }
    // Each of the twelve paths but the refused one, and seven models.
    rig.await_count("served.pick", 18).await?;
    assert_eq!(rig.count("pass.host_error").await?, 0);
    rig.await_in_flight(0).await
}

/// Names that clients invent reach neither stat names nor the filter's memory.
#[tokio::test]
async fn ten_thousand_model_names_leave_stats_and_memory_bounded() -> Result<()> {
    const SEED: u64 = 11;
    let rig = Rig::start(4).await?;
    let mut names = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut send = async |count: usize| -> Result<()> {
        for _ in 0..count {
            // 2 KiB that nothing can share or compress.
            let model: String = (0..128).map(|_| format!("{:016x}", names.next_u64())).collect();
            let reply = rig.client.get_with(&rig.url("/v2/health/ready"), &[("x-model-id", &model)]).await?;
            assert_eq!(reply.status, 200);
        }
        Ok(())
    };
    send(2_000).await?;
    let stats = rig.envoy.admin().stats("").await?.len();
    let before = resident_kib(&rig.envoy)?;
    send(10_000).await?;
    rig.await_count("outcome.success", 12_000).await?;
    assert_eq!(rig.envoy.admin().stats("").await?.len(), stats, "no new stats (seed {SEED})");
    let grown = resident_kib(&rig.envoy)?.saturating_sub(before);
    // The names are 20 MiB of text; the heap's own noise is far below a quarter of that.
    assert!(grown < 5 * 1_024, "Envoy grew by {grown} KiB (seed {SEED})");
    Ok(())
}

/// Resident memory of the Envoy process, in KiB.
fn resident_kib(envoy: &Envoy) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", envoy.process_id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

#[tokio::test]
async fn a_grpc_call_without_metadata_is_spread() -> Result<()> {
    let rig = Rig::start(3).await?;
    let mut grpc = GrpcInferenceServiceClient::new(Channel::from_shared(rig.envoy.base_url())?.connect().await?);
    for _ in 0..60 {
        grpc.model_infer(Request::new(ModelInferRequest { model_name: "llama".into(), ..Default::default() })).await?;
    }
    rig.await_count("pick_reason.no_model", 60).await?;
    let shares: Vec<_> = rig.servers.iter().map(|server| server.stats().requests).collect();
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
    Ok(())
}

/// A client's x-envoy-* headers would set time-outs, retries and hedges. Nobody is trusted with them.
#[tokio::test]
async fn clients_cannot_arm_envoy() -> Result<()> {
    let rig = Rig::start(3).await?;
    for server in &rig.servers {
        server.set_faults(serde_json::from_value(json!({"status": 500, "delay_ms": 300}))?).await?;
    }
    let headers = [
        ("x-model-id", "llama"),
        ("x-envoy-upstream-rq-timeout-ms", "50"),
        ("x-envoy-upstream-rq-per-try-timeout-ms", "50"),
        ("x-envoy-hedge-on-per-try-timeout", "true"),
        ("x-envoy-retry-on", "5xx,reset"),
        ("x-envoy-max-retries", "5"),
        ("x-forwarded-for", "10.0.0.1"),
    ];
    let reply = rig.chat_with(&headers, "llama").await?;
    assert_eq!(reply.status, 500, "neither timed out nor retried: {}", reply.text());
    let tries: u64 = rig.servers.iter().map(|server| server.stats().requests).sum();
    assert_eq!(tries, 1);
    let seen = rig.servers.iter().flat_map(MockServer::recorded).next().context("not recorded")?;
    // What Envoy itself tells its upstream stays: whom it took for the client, and how long it will wait.
    let own = ["x-envoy-external-address", "x-envoy-expected-rq-timeout-ms"];
    let armed = seen.headers.iter().find(|(name, _)| name.starts_with("x-envoy-") && !own.contains(&name.as_str()));
    assert_eq!(armed, None, "nothing of it reaches a server");
    Ok(())
}

/// A whole HTTP/2 connection that sends one POST without a body, by hand: client libraries refuse such paths.
fn http2_post(path: &[u8]) -> Vec<u8> {
    let field = |name: &[u8], value: &[u8]| {
        // A literal that is not indexed, lengths below 127 in one byte, no Huffman code.
        [&[0, name.len() as u8], name, &[value.len() as u8], value].concat()
    };
    let headers = [
        field(b":method", b"POST"),
        field(b":scheme", b"http"),
        field(b":authority", b"a"),
        field(b":path", path),
        field(b"x-model-id", b"m"),
    ]
    .concat();
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    const END_OF_HEADERS_AND_STREAM: u8 = 5;
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_OF_HEADERS_AND_STREAM, 1, &headers),
    ]
    .concat()
}

/// Over HTTP/2 a path may carry any byte. One that may not stand in a path must not reach a server as it is: one that
/// ends its connection for it would take other clients' requests along.
#[tokio::test]
async fn a_bad_byte_in_an_http2_path_harms_nobody() -> Result<()> {
    let rig = Rig::start(3).await?;
    let paths = [&b"/v2/models/m\xff/infer"[..], b"/v1/\xff\xfe", b"/v2/models/\xc3\xa9/infer", b"/v1/a b"];
    for (n, path) in paths.into_iter().enumerate() {
        let mut stream = tokio::net::TcpStream::connect(rig.envoy.address()).await?;
        stream.write_all(&http2_post(path)).await?;
        eventually(SOON, "it has ended", || async { Ok((rig.envoy.access_log()?.len() > n).then_some(())) }).await?;
    }
    for line in rig.envoy.access_log()? {
        assert!(line["status"] != 503 && line["attempts"].as_u64() <= Some(1), "refused once, not repeated: {line}");
    }
    for seen in rig.servers.iter().flat_map(MockServer::recorded) {
        assert!(seen.path.bytes().all(|byte| byte.is_ascii_graphic()), "{seen:?}");
    }
    // Up to date with the counts.
    assert_eq!(rig.chat("m").await?.status, 200);
    rig.await_count("outcome.success", 1).await?;
    assert_eq!(rig.count("attempt_failed").await? + rig.count("outcome.failure").await?, 0);
    Ok(())
}

/// Slashes and dots that mean nothing do not hide a model.
#[tokio::test]
async fn a_path_is_read_in_its_normal_form() -> Result<()> {
    let rig = Rig::start(4).await?;
    for path in ["//v2/models/llama/infer", "/v2/models/x/../llama/infer", "/v2//models/llama/./infer"] {
        let mut request = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n").into_bytes();
        let body = infer_body().to_string();
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(body.as_bytes());
        let reply = raw_exchange(rig.envoy.address(), &request, SOON).await?;
        let served = reply.header("x-served-by").context("nobody served")?;
        let expected = rig.servers[ring_order(4, b"llama")[0]].addr().to_string();
        assert_eq!(String::from_utf8_lossy(served), expected, "{path}");
    }
    Ok(())
}
