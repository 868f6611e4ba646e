//! Envoy's admin interface.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Client, Reply};

/// One Envoy's admin interface.
#[derive(Debug, Clone)]
pub struct Admin {
    address: SocketAddr,
    client: Client,
}

impl Admin {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, client: Client::http1() }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Any page, for instance `/clusters?format=json`; an answer other than 200 is an error.
    pub async fn get(&self, path: &str) -> Result<Reply> {
        let reply = self.client.get(&format!("http://{}{path}", self.address)).await?;
        if reply.status != 200 {
            bail!("admin {path} answered {}: {}", reply.status, reply.text());
        }
        Ok(reply)
    }

    async fn json(&self, path: &str) -> Result<Value> {
        self.get(path).await?.json().with_context(|| format!("admin {path}"))
    }

    /// Whether Envoy serves: all listeners and clusters have what they waited for.
    pub async fn ready(&self) -> Result<bool> {
        Ok(self.get("/ready").await?.text().trim() == "LIVE")
    }

    /// The address a listener is bound to; none while it has none.
    pub async fn listener(&self, name: &str) -> Result<Option<SocketAddr>> {
        let listeners = self.json("/listeners?format=json").await?;
        let found = listeners["listener_statuses"].as_array().into_iter().flatten();
        let Some(status) = found.into_iter().find(|status| status["name"] == name) else {
            return Ok(None);
        };
        let address = &status["local_address"]["socket_address"];
        let ip = address["address"].as_str().context("a listener without an address")?;
        let port = address["port_value"].as_u64().unwrap_or(0);
        if port == 0 {
            return Ok(None);
        }
        Ok(Some(SocketAddr::new(ip.parse()?, u16::try_from(port)?)))
    }

    /// All counters and gauges whose names start so.
    pub async fn stats(&self, prefix: &str) -> Result<BTreeMap<String, u64>> {
        self.read_stats("", prefix).await
    }

    /// A counter.
    ///
    /// # Errors
    /// When Envoy has no counter of that name: a wrong name must not pass for zero.
    pub async fn counter(&self, name: &str) -> Result<u64> {
        let found = self.read_stats("&type=Counters", name).await?.remove(name);
        found.with_context(|| format!("Envoy has no counter {name}"))
    }

    /// A counter that Envoy makes only when it first counts: zero until then.
    pub async fn lazy_counter(&self, name: &str) -> Result<u64> {
        Ok(self.read_stats("&type=Counters", name).await?.remove(name).unwrap_or(0))
    }

    /// A gauge.
    ///
    /// # Errors
    /// When Envoy has no gauge of that name.
    pub async fn gauge(&self, name: &str) -> Result<u64> {
        let found = self.read_stats("&type=Gauges", name).await?.remove(name);
        found.with_context(|| format!("Envoy has no gauge {name}"))
    }

    async fn read_stats(&self, kind: &str, prefix: &str) -> Result<BTreeMap<String, u64>> {
        let page = self.json(&format!("/stats?format=json{kind}")).await?;
        let stats = page["stats"].as_array().context("the stats page has no stats")?;
        let numbers = stats.iter().filter_map(|stat| {
            let name = stat["name"].as_str()?;
            let value = stat["value"].as_u64()?;
            name.starts_with(prefix).then(|| (name.to_owned(), value))
        });
        Ok(numbers.collect())
    }

    /// The configuration that is at work, ECDS and endpoints included.
    pub async fn config_dump(&self) -> Result<Value> {
        self.json("/config_dump?include_eds").await
    }

    /// Every cluster with its hosts, their counters and health.
    pub async fn clusters(&self) -> Result<Value> {
        self.json("/clusters?format=json").await
    }
}
