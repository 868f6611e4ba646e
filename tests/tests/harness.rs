//! The shipped Envoy configuration, and the harness that runs it, without regard to what the filter decides.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use warmroute_tests::harness::{
    Client, ConfigUpdate, Envoy, config, envoy_binary, eventually, process, raw_exchange, repository_root,
};

const SOON: Duration = Duration::from_secs(10);

/// A server that answers every request with its own address and what it got; `status` when asked for.
async fn upstream_at(ip: &str) -> Result<SocketAddr> {
    let listener = TcpListener::bind((ip, 0)).await?;
    let address = listener.local_addr()?;
    let answer = move |request: Request| async move {
        let header = |name: &str| request.headers().get(name).map(|value| value.as_bytes().to_vec());
        let status = header("x-answer").and_then(|code| StatusCode::from_bytes(&code).ok());
        let seen = json!({
            "address": address.to_string(),
            "version": format!("{:?}", request.version()),
            "destination": header("x-gateway-destination-endpoint"),
            "model": header("x-model-id"),
        });
        (status.unwrap_or(StatusCode::OK), axum::Json(seen))
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    Ok(address)
}

async fn upstreams(count: usize) -> Result<Vec<SocketAddr>> {
    let mut addresses = Vec::new();
    for _ in 0..count {
        addresses.push(upstream_at("127.0.0.1").await?);
    }
    Ok(addresses)
}

/// How many of `count` requests each upstream served; every one has to succeed.
async fn shares(client: &Client, url: &str, count: usize) -> Result<BTreeMap<String, usize>> {
    let mut shares = BTreeMap::new();
    for _ in 0..count {
        let reply = client.get(url).await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let served = reply.json()?["address"].as_str().context("no address")?.to_owned();
        *shares.entry(served).or_default() += 1;
    }
    Ok(shares)
}

#[test]
fn the_shipped_configuration_is_valid_without_a_warning() -> Result<()> {
    let mut command = Command::new(envoy_binary()?);
    command.current_dir(repository_root()).args(["--mode", "validate", "-c", "envoy/envoy.yaml"]);
    let output = command.output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let complaints = ["[warning]", "[error]", "[critical]"];
    let complaint = log.lines().find(|line| complaints.iter().any(|level| line.contains(level)));
    assert_eq!(complaint, None);
    Ok(())
}

#[test]
fn the_limits_of_the_cluster_are_the_promised_ones() -> Result<()> {
    let mut bootstrap = config::shipped_bootstrap()?;
    let cluster = config::cluster(&mut bootstrap, config::CLUSTER)?;
    assert_eq!(cluster["connect_timeout"], "0.5s");
    let thresholds = json!([
        {"priority": "DEFAULT", "max_connections": 100, "max_pending_requests": 100, "max_requests": 1000,
         "max_retries": 5},
        {"priority": "HIGH", "max_pending_requests": 10, "max_requests": 50},
    ]);
    assert_eq!(cluster["circuit_breakers"]["thresholds"], thresholds);
    let outliers = json!({
        "consecutive_5xx": 5, "consecutive_gateway_failure": 5, "enforcing_consecutive_gateway_failure": 100,
        "interval": "1s", "base_ejection_time": "30s", "max_ejection_percent": 50,
        "success_rate_minimum_hosts": 3, "success_rate_request_volume": 100, "success_rate_stdev_factor": 1900,
    });
    assert_eq!(cluster["outlier_detection"], outliers);
    Ok(())
}

#[test]
fn the_shipped_route_retries_nothing_that_reached_a_model_and_cuts_no_stream() -> Result<()> {
    let mut bootstrap = config::shipped_bootstrap()?;
    let route = config::route(&mut bootstrap, config::LISTENER)?;
    assert_eq!(route["retry_policy"]["retry_on"], "connect-failure,refused-stream");
    assert_eq!(route["retry_policy"]["num_retries"], 2);
    assert_eq!(route["timeout"], "0s");
    Ok(())
}

#[test]
fn the_shipped_filter_lists_the_hosts_of_the_shipped_cluster() -> Result<()> {
    let plugin_config = config::plugin_config(&config::shipped_filter()?)?;
    let pool = &plugin_config["pools"][0];
    assert_eq!(pool["cluster"], config::CLUSTER);

    let mut bootstrap = config::shipped_bootstrap()?;
    let cluster = config::cluster(&mut bootstrap, config::CLUSTER)?;
    let hosts = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array().context("no hosts")?;
    let address = |host: &Value| {
        let socket = &host["endpoint"]["address"]["socket_address"];
        format!("{}:{}", socket["address"].as_str().unwrap_or_default(), socket["port_value"])
    };
    let expected: Vec<_> = hosts
        .iter()
        .enumerate()
        .map(|(index, host)| json!({"id": format!("gpu-{index}"), "address": address(host)}))
        .collect();
    assert_eq!(pool["endpoints"], json!(expected));
    Ok(())
}

#[tokio::test]
async fn without_a_module_that_loads_a_fresh_envoy_serves_by_its_own_policy() -> Result<()> {
    let endpoints = upstreams(3).await?;
    let folder = tempfile::tempdir()?;
    let damaged = folder.path().join("damaged.wasm");
    std::fs::write(&damaged, b"\0asm and no more")?;
    for module in [folder.path().join("missing.wasm"), damaged] {
        let builder = Envoy::builder().endpoints(&endpoints).wasm(module);
        let envoy = builder.accept_rejected_filter().start().await?;
        let served = shares(&Client::http1(), &envoy.base_url(), 60).await?;
        assert_eq!(served.len(), 3, "{served:?}");
        let rejected = "extension_config_discovery.http_filter.warmroute.update_rejected";
        assert_eq!(envoy.admin().counter(rejected).await?, 1);
    }
    Ok(())
}

#[tokio::test]
async fn a_refused_filter_fails_the_start_with_envoys_reason() -> Result<()> {
    let started = Envoy::builder().wasm("/nowhere/filter.wasm").start().await;
    let error = format!("{:#}", started.err().context("it started")?);
    assert!(error.contains("Invalid path: /nowhere/filter.wasm"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_configuration_that_envoy_refuses_fails_the_start_with_envoys_reason() -> Result<()> {
    let builder = Envoy::builder().without_filter().edit(|bootstrap| {
        config::cluster(bootstrap, config::CLUSTER)?["no_such_field"] = true.into();
        Ok(())
    });
    let error = format!("{:#}", builder.start().await.err().context("it started")?);
    assert!(error.contains("no_such_field"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_new_filter_configuration_is_taken_by_rename_and_a_wrong_one_refused() -> Result<()> {
    let endpoints = upstreams(2).await?;
    let mut envoy = Envoy::builder().endpoints(&endpoints).start().await?;
    let reversed: Vec<_> = endpoints.iter().rev().copied().collect();
    let other = config::one_pool(config::CLUSTER, &reversed);
    assert_eq!(envoy.write_plugin_config(&other).await?, ConfigUpdate::Applied);

    let update = envoy.write_plugin_config(&json!("{\"pools\": ")).await?;
    let ConfigUpdate::Rejected(log) = update else { panic!("{update:?}") };
    assert!(log.contains("rejected"), "{log}");
    let draining = envoy.admin().gauge("listener_manager.total_listeners_draining").await?;
    assert_eq!(draining, 0);
    shares(&Client::http1(), &envoy.base_url(), 4).await?;
    Ok(())
}

#[tokio::test]
async fn a_clients_own_destination_is_neither_obeyed_nor_passed_on() -> Result<()> {
    let endpoints = upstreams(2).await?;
    let envoy = Envoy::builder().endpoints(&endpoints).without_filter().start().await?;
    let forged = endpoints[0].to_string();
    let mut served = BTreeMap::<String, usize>::new();
    for _ in 0..40 {
        let headers = [("x-gateway-destination-endpoint", forged.as_str())];
        let seen = Client::http1().get_with(&envoy.base_url(), &headers).await?.json()?;
        assert_eq!(seen["destination"], Value::Null);
        *served.entry(seen["address"].to_string()).or_default() += 1;
    }
    // least_request over two idle hosts is a coin: 40 times the same side has a chance of 2 in 10^12.
    assert_eq!(served.len(), 2, "{served:?}");
    Ok(())
}

#[tokio::test]
async fn the_round_robin_listener_takes_turns() -> Result<()> {
    let endpoints = upstreams(3).await?;
    let envoy = Envoy::builder().endpoints(&endpoints).without_filter().round_robin().start().await?;
    let url = envoy.round_robin_url().context("no second listener")?;
    let served = shares(&Client::http1(), &url, 30).await?;
    let expected = endpoints.iter().map(|endpoint| (endpoint.to_string(), 10)).collect();
    assert_eq!(served, expected);
    Ok(())
}

#[tokio::test]
async fn a_weighted_route_reaches_each_cluster() -> Result<()> {
    let endpoints = upstreams(2).await?;
    let builder = Envoy::builder().endpoints(&endpoints[..1]).cluster("canary", &endpoints[1..]);
    let weights = [(config::CLUSTER, 50), ("canary", 50)];
    let envoy = builder.weighted_route(&weights).without_filter().start().await?;
    let served = shares(&Client::http1(), &envoy.base_url(), 60).await?;
    assert_eq!(served.len(), 2, "{served:?}");
    Ok(())
}

#[tokio::test]
async fn requests_go_up_in_the_protocol_they_came_in() -> Result<()> {
    let endpoints = upstreams(1).await?;
    let envoy = Envoy::builder().endpoints(&endpoints).without_filter().concurrency(2).start().await?;
    for (client, version) in [(Client::http1(), "HTTP/1.1"), (Client::http2(), "HTTP/2.0")] {
        let reply = client.get(&envoy.base_url()).await?;
        assert_eq!(format!("{:?}", reply.version), version);
        assert_eq!(reply.json()?["version"], version);
    }
    Ok(())
}

#[tokio::test]
async fn an_ipv6_endpoint_serves() -> Result<()> {
    let endpoint = upstream_at("::1").await?;
    let envoy = Envoy::builder().endpoints(&[endpoint]).without_filter().start().await?;
    let served = shares(&Client::http1(), &envoy.base_url(), 1).await?;
    assert_eq!(served, BTreeMap::from([(endpoint.to_string(), 1)]));
    Ok(())
}

#[tokio::test]
async fn header_bytes_that_are_not_utf8_arrive_and_are_logged() -> Result<()> {
    let endpoints = upstreams(1).await?;
    let envoy = Envoy::builder().endpoints(&endpoints).without_filter().start().await?;
    let request = b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-model-id: \xff\xfe\r\n\r\n";
    let reply = raw_exchange(envoy.address(), request, SOON).await?;
    assert_eq!(reply.status, 200);
    let seen: Value = serde_json::from_slice(&reply.body)?;
    assert_eq!(seen["model"], json!([0xff, 0xfe]));

    let line =
        eventually(SOON, "the access log has the request", || async { Ok(envoy.access_log()?.into_iter().next()) });
    let line = line.await?;
    assert_eq!((&line["path"], &line["status"]), (&json!("/x"), &json!(200)));
    assert_eq!(line["endpoint"], endpoints[0].to_string());
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_refuses_connections_is_retried_elsewhere() -> Result<()> {
    // Bound but not listening: refuses, and nobody else can take the port.
    let socket = TcpSocket::new_v4()?;
    socket.bind("127.0.0.1:0".parse()?)?;
    let serving = upstreams(1).await?;
    let endpoints = [socket.local_addr()?, serving[0]];
    let envoy = Envoy::builder().endpoints(&endpoints).without_filter().start().await?;
    let served = shares(&Client::http1(), &envoy.base_url(), 20).await?;
    assert_eq!(served, BTreeMap::from([(serving[0].to_string(), 20)]));
    Ok(())
}

#[tokio::test]
async fn a_plain_503_is_not_repeated() -> Result<()> {
    let endpoints = upstreams(2).await?;
    let envoy = Envoy::builder().endpoints(&endpoints).without_filter().start().await?;
    let reply = Client::http1().get_with(&envoy.base_url(), &[("x-answer", "503")]).await?;
    assert_eq!(reply.status, 503);
    let admin = envoy.admin();
    assert_eq!(admin.counter("cluster.model-servers.upstream_rq_total").await?, 1);
    assert_eq!(admin.counter("cluster.model-servers.upstream_rq_retry").await?, 0);
    Ok(())
}

#[tokio::test]
async fn dropping_the_guard_ends_the_process() -> Result<()> {
    let envoy = Envoy::builder().without_filter().start().await?;
    let (id, address) = (envoy.process_id(), envoy.address());
    drop(envoy);
    assert!(process::send(id, rustix::process::Signal::WINCH).is_err());
    assert!(Client::http1().get(&format!("http://{address}")).await.is_err());
    Ok(())
}

#[tokio::test]
async fn waiting_ends_with_the_value_or_with_what_was_awaited() -> Result<()> {
    let mut left = 3;
    let value = eventually(SOON, "three tries", || {
        left -= 1;
        async move { Ok((left == 0).then_some("done")) }
    });
    assert_eq!(value.await?, "done");
    let never = eventually::<(), _, _>(Duration::ZERO, "rain", || async { anyhow::bail!("sunshine") });
    let error = format!("{:#}", never.await.err().context("it rained")?);
    assert!(error.contains("rain") && error.contains("sunshine"), "{error}");
    Ok(())
}
