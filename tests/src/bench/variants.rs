//! The Envoys that are compared.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Value, json};

use crate::harness::{Envoy, config, repository_root};

const HOSTS: usize = 8;
const TYPE: &str = "type.googleapis.com/envoy.extensions";
/// The shipped configuration's way of turning the picks into metadata.
const TO_METADATA: &str = "envoy.filters.http.header_to_metadata";
/// What the filter tells clients.
const RESPONSES: &str = "response_headers_to_add";
const SERVED_BY: &str = "x-served-by";

/// What is measured. Each is the shipped configuration with something left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// What a user has without Warmroute: least_request, no other HTTP filter than the router.
    Plain,
    /// Envoy's part of obeying a pick, without a filter that makes one: the client names the endpoints.
    Override,
    /// All of the shipped configuration around a wasm filter that does nothing.
    Empty,
    /// The shipped configuration.
    Warmroute,
    /// The same with another build of the filter, to see what a change costs.
    Other,
}

impl Variant {
    pub const ALL: [Self; 5] = [Self::Plain, Self::Override, Self::Empty, Self::Warmroute, Self::Other];

    /// Whether the filter in it picks.
    pub(super) fn picks(self) -> bool {
        matches!(self, Self::Warmroute | Self::Other)
    }

    /// As the table and the report call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Override => "override",
            Self::Empty => "empty",
            Self::Warmroute => "warmroute",
            Self::Other => "other",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Plain => "least_request",
            Self::Override => "override_host without wasm",
            Self::Empty => "an empty Rust filter",
            Self::Warmroute => "Warmroute",
            Self::Other => "the other build of Warmroute",
        }
    }

    /// Starts an Envoy that sends to `hosts` this way. `other` is the module of [`Variant::Other`].
    pub(super) async fn start(self, hosts: &[SocketAddr], other: Option<&Path>) -> Result<Envoy> {
        let builder = Envoy::builder().endpoints(hosts).log_level("warning");
        let builder = match self {
            Self::Plain | Self::Override => builder.without_filter(),
            Self::Empty => builder.wasm(repository_root().join("target/wasm/warmroute_empty_filter.wasm")),
            Self::Warmroute => builder,
            Self::Other => builder.wasm(other.context("no other build is given")?),
        };
        let builder = builder.edit(move |bootstrap| self.edit(bootstrap));
        builder.start().await.with_context(|| format!("cannot start the variant {}", self.name()))
    }

    fn edit(self, bootstrap: &mut Value) -> Result<()> {
        let manager = config::http_manager(bootstrap, config::LISTENER)?;
        remove(manager, "access_log")?;
        if !self.picks() {
            remove(config::at(manager, "/route_config")?, RESPONSES)?;
        }
        match self {
            Self::Plain => {
                remove(config::http_manager(bootstrap, config::LISTENER)?, "early_header_mutation_extensions")?;
                config::remove_http_filter(bootstrap, config::LISTENER, TO_METADATA)?;
                let cluster = config::cluster(bootstrap, config::CLUSTER)?;
                *config::at(cluster, "/load_balancing_policy/policies/0/typed_extension_config")? = json!({
                    "name": "envoy.load_balancing_policies.least_request",
                    "typed_config": {"@type": format!("{TYPE}.load_balancing_policies.least_request.v3.LeastRequest")},
                });
            }
            Self::Override => {
                // The mutation stays, since it costs too, but spares the client's header.
                let manager = config::http_manager(bootstrap, config::LISTENER)?;
                let mutation = "/early_header_mutation_extensions/0/typed_config/mutations/0/remove";
                *config::at(manager, mutation)? = "x-absent".into();
            }
            Self::Empty | Self::Warmroute | Self::Other => {}
        }
        Ok(())
    }
}

fn remove(object: &mut Value, key: &str) -> Result<()> {
    let fields = object.as_object_mut().context("not an object")?;
    fields.remove(key).with_context(|| format!("the shipped configuration has no {key}"))?;
    Ok(())
}

/// The upstream: one Envoy with a listener per host, which answers by itself.
#[derive(Debug)]
pub(super) struct Upstream {
    pub envoy: Envoy,
    pub hosts: Vec<SocketAddr>,
}

impl Upstream {
    pub(super) async fn start() -> Result<Self> {
        let envoy = Envoy::builder().without_filter().log_level("warning").edit(answer_directly).start().await;
        let envoy = envoy.context("cannot start the upstream")?;
        let mut hosts = vec![envoy.address()];
        for index in 1..HOSTS {
            let address = envoy.admin().listener(&host_name(index)).await?;
            hosts.push(address.with_context(|| format!("the upstream's listener {index} has no address"))?);
        }
        Ok(Self { envoy, hosts })
    }
}

fn host_name(index: usize) -> String {
    format!("host-{index}")
}

fn answer_directly(bootstrap: &mut Value) -> Result<()> {
    let manager = config::http_manager(bootstrap, config::LISTENER)?;
    remove(manager, "access_log")?;
    // An answer before the end of the request would close the connection: the body is read first.
    manager["http_filters"] = json!([
        {"name": "buffer", "typed_config":
            {"@type": format!("{TYPE}.filters.http.buffer.v3.Buffer"), "max_request_bytes": 65536}},
        {"name": "router", "typed_config": {"@type": format!("{TYPE}.filters.http.router.v3.Router")}},
    ]);
    *config::at(manager, "/route_config/virtual_hosts/0/routes")? = json!([{
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": "{\"choices\":[]}"}},
        "response_headers_to_add":
            [{"header": {"key": SERVED_BY, "value": "%DOWNSTREAM_LOCAL_ADDRESS%"}}],
    }]);
    let first = config::listener(bootstrap, config::LISTENER)?.clone();
    let listeners = config::at(bootstrap, "/static_resources/listeners")?.as_array_mut();
    let listeners = listeners.context("the listeners are no list")?;
    for index in 1..HOSTS {
        let mut copy = first.clone();
        copy["name"] = host_name(index).into();
        listeners.push(copy);
    }
    Ok(())
}

/// The list of endpoints that the clients of [`Variant::Override`] ask for, per model: as long as Warmroute's.
pub(super) fn destinations(hosts: &[SocketAddr], models: usize) -> Vec<String> {
    (0..models)
        .map(|model| {
            let list: Vec<_> = hosts.iter().cycle().skip(model % hosts.len().max(1)).take(3).collect();
            list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        })
        .collect()
}

/// Sends each model some requests and fails unless the variant chooses endpoints as it should.
pub(super) async fn check_choices(variant: Variant, envoy: &Envoy, destinations: &[String]) -> Result<()> {
    const TRIES: usize = 12;
    let client = crate::harness::Client::http1();
    let url = format!("{}/v1/chat/completions", envoy.base_url());
    for (index, destination) in destinations.iter().enumerate() {
        let model = super::wrk::model(index);
        let headers = [("x-model-id", model.as_str()), ("x-gateway-destination-endpoint", destination.as_str())];
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..TRIES {
            let reply = client.post(&url, &headers, &json!({"model": model})).await?;
            if reply.status != 200 {
                bail!("{} answers {}: {}", variant.name(), reply.status, reply.text());
            }
            seen.insert(reply.header(SERVED_BY).context("the upstream does not say who it is")?.to_owned());
        }
        let asked = destination.split(',').next().unwrap_or_default();
        match variant {
            Variant::Override if seen.iter().any(|host| host != asked) => {
                bail!("{model} was to be served by {asked}, but {seen:?} served it");
            }
            // Two replicas hold a model.
            Variant::Warmroute | Variant::Other if seen.len() > 2 => {
                bail!("{model} was served by {seen:?}: not steered")
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edit_finds_its_place_in_the_shipped_configuration() -> Result<()> {
        for variant in Variant::ALL {
            let mut bootstrap = config::shipped_bootstrap()?;
            variant.edit(&mut bootstrap)?;
            let text = bootstrap.to_string();
            assert_eq!(text.contains("override_host"), variant != Variant::Plain, "{variant:?}");
            assert_eq!(text.contains(TO_METADATA), variant != Variant::Plain, "{variant:?}");
            assert!(!text.contains("access_log"), "{variant:?}");
        }
        answer_directly(&mut config::shipped_bootstrap()?)
    }

    #[test]
    fn destinations_are_three_distinct_hosts_and_start_at_each_in_turn() {
        let hosts: Vec<SocketAddr> = (1..=4).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        let lists = destinations(&hosts, 6);
        assert_eq!(lists[3], "127.0.0.1:4,127.0.0.1:1,127.0.0.1:2");
        assert_eq!(lists[4], lists[0]);
    }
}
