//! Mock model servers behind one Envoy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use warmroute_core::endpoint::Endpoint;
use warmroute_core::hash::hash;
use warmroute_core::ring::Ring;
use warmroute_tests::harness::{Client, Envoy, EnvoyBuilder, Reply, config, eventually};
use warmroute_tests::mock::MockServer;

pub const SOON: Duration = Duration::from_secs(20);

pub struct Rig {
    pub servers: Vec<MockServer>,
    pub envoy: Envoy,
    pub client: Client,
}

impl Rig {
    /// `count` servers on IPv4 and the shipped configuration.
    pub async fn start(count: usize) -> Result<Self> {
        Self::with(servers(count, "127.0.0.1:0").await?, |envoy, _| envoy).await
    }

    pub async fn with(
        servers: Vec<MockServer>,
        change: impl FnOnce(EnvoyBuilder, &[SocketAddr]) -> EnvoyBuilder,
    ) -> Result<Self> {
        let addresses: Vec<_> = servers.iter().map(MockServer::addr).collect();
        let builder = Envoy::builder().endpoints(&addresses);
        let envoy = change(builder, &addresses).start().await?;
        Ok(Self { servers, envoy, client: Client::http1() })
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(MockServer::addr).collect()
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.envoy.base_url())
    }

    /// A chat request with the model in the header.
    pub async fn chat(&self, model: &str) -> Result<Reply> {
        self.chat_with(&[("x-model-id", model)], model).await
    }

    /// A chat request with these headers; the body names a model, as clients do, and the filter does not read it.
    pub async fn chat_with(&self, headers: &[(&str, &str)], model: &str) -> Result<Reply> {
        self.client.post(&self.url("/v1/chat/completions"), headers, &chat_body(model)).await
    }

    /// [`Self::chat_with`] over a new connection, which the kernel gives to any worker thread.
    pub async fn chat_anew(&self, headers: &[(&str, &str)], model: &str) -> Result<Reply> {
        Client::http1().post(&self.url("/v1/chat/completions"), headers, &chat_body(model)).await
    }

    /// The position of the server that answered.
    pub fn served_by(&self, reply: &Reply) -> Result<usize> {
        let name = reply.header("x-served-by").with_context(|| format!("{}: {}", reply.status, reply.text()))?;
        let address: SocketAddr = name.parse()?;
        self.addresses().iter().position(|candidate| *candidate == address).context("served by a stranger")
    }

    /// How many of `count` requests made by `send` each server answered; each of them has to succeed.
    pub async fn shares(&self, count: usize, send: impl AsyncFn() -> Result<Reply>) -> Result<Vec<usize>> {
        let mut shares = vec![0; self.servers.len()];
        for _ in 0..count {
            let reply = send().await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            shares[self.served_by(&reply)?] += 1;
        }
        Ok(shares)
    }

    /// `wasmcustom.warmroute.{name}`; an error when there is no such counter.
    pub async fn count(&self, name: &str) -> Result<u64> {
        self.envoy.admin().counter(&format!("wasmcustom.warmroute.{name}")).await
    }

    /// Every counter of the filter that is not zero, without its prefix.
    pub async fn counts(&self) -> Result<BTreeMap<String, u64>> {
        let stats = self.envoy.admin().stats("wasmcustom.warmroute.").await?;
        let own = stats.into_iter().filter(|(_, value)| *value > 0);
        Ok(own
            .filter_map(|(name, value)| Some((name.strip_prefix("wasmcustom.warmroute.")?.to_owned(), value)))
            .collect())
    }

    /// Waits until a counter has this value: Envoy ends a request a moment after its client has the answer.
    pub async fn await_count(&self, name: &str, expected: u64) -> Result<()> {
        eventually(SOON, &format!("{name} = {expected}"), || async {
            let count = self.count(name).await?;
            anyhow::ensure!(count <= expected, "{name} is {count}, past {expected}");
            Ok((count == expected).then_some(()))
        })
        .await
    }

    /// How many of the answered requests carried a list of the filter's.
    pub fn steered(&self) -> Result<usize> {
        Ok(self.envoy.access_log()?.iter().filter(|line| line["pick"].is_string()).count())
    }

    pub async fn await_in_flight(&self, expected: u64) -> Result<()> {
        eventually(SOON, &format!("in_flight = {expected}"), || async {
            let gauge = self.envoy.admin().gauge("wasmcustom.warmroute.in_flight").await?;
            Ok((gauge == expected).then_some(()))
        })
        .await
    }

    /// The lists that the filter sent, one a request, as positions of servers.
    pub fn lists(&self) -> Result<Vec<Vec<usize>>> {
        let addresses = self.addresses();
        let position = |text: &str| {
            let address: SocketAddr = text.parse()?;
            addresses.iter().position(|candidate| *candidate == address).context("a stranger in the list")
        };
        let log = self.envoy.access_log()?;
        log.iter().map(|line| line["pick"].as_str().context("no pick")?.split(',').map(position).collect()).collect()
    }

    /// [`Self::lists`] once there are `count` of them.
    pub async fn await_lists(&self, count: usize) -> Result<Vec<Vec<usize>>> {
        eventually(SOON, "the access log has every request", || async {
            let lists = self.lists()?;
            Ok((lists.len() >= count).then_some(lists))
        })
        .await
    }
}

pub async fn servers(count: usize, listen: &str) -> Result<Vec<MockServer>> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(MockServer::builder().listen(listen).capacity(100_000).record(256).start().await?);
    }
    Ok(servers)
}

pub fn chat_body(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2})
}

pub fn infer_body() -> Value {
    json!({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]})
}

/// A plugin configuration of one pool, with further fields of the pool.
pub fn pool(endpoints: &[SocketAddr], fields: Value) -> Value {
    let mut plugin = config::one_pool(config::CLUSTER, endpoints);
    let pool = plugin["pools"][0].as_object_mut();
    if let (Some(pool), Value::Object(fields)) = (pool, fields) {
        pool.extend(fields);
    }
    plugin
}

/// The ring's order of `count` endpoints named `gpu-0`, `gpu-1`, … for a model, computed natively.
pub fn ring_order(count: usize, model: &[u8]) -> Vec<usize> {
    let endpoints: Vec<_> =
        (0..count).map(|n| Endpoint::new(format!("gpu-{n}"), format!("10.0.0.1:{}", n + 1).parse().unwrap())).collect();
    let mut order = Vec::new();
    for endpoint in Ring::new(&endpoints, 150).walk(hash(model)) {
        if !order.contains(&endpoint.position()) {
            order.push(endpoint.position());
        }
    }
    order
}

/// A model whose first endpoint of `count` is `first`.
pub fn model_at(count: usize, first: usize) -> String {
    (0..).map(|n| format!("model-{n}")).find(|model| ring_order(count, model.as_bytes())[0] == first).unwrap()
}

/// A hanging request, and the position of the server that has it.
pub async fn hang_one(rig: &Rig) -> Result<(JoinHandle<Result<Reply>>, usize)> {
    for server in &rig.servers {
        server.set_faults(serde_json::from_value(json!({"hang": true}))?).await?;
    }
    let (client, url) = (rig.client.clone(), rig.url("/v1/chat/completions"));
    let hanging = tokio::spawn(async move { client.post(&url, &[("x-model-id", "llama")], &chat_body("llama")).await });
    let busy = eventually(SOON, "one server has the request", || async {
        Ok(rig.servers.iter().position(|server| server.stats().in_flight == 1))
    })
    .await?;
    rig.servers.iter().for_each(|server| server.clear_faults());
    Ok((hanging, busy))
}
