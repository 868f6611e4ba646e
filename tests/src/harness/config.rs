//! The shipped Envoy configuration as JSON (which Envoy reads as well as YAML), and ways into it for edits.
//!
//! Every accessor fails with the name it looked for, so a change of the shipped files breaks an edit loudly.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::repository_root;

/// The cluster, and so the pool, of the shipped configuration.
pub const CLUSTER: &str = "model-servers";
/// The listener of the shipped configuration.
pub const LISTENER: &str = "inference";
/// Listener and cluster that [`add_round_robin`] puts beside them.
pub const ROUND_ROBIN: &str = "round-robin";
/// The name of the filter, of its ECDS resource and of its metadata namespace.
pub const FILTER: &str = "warmroute";

/// `envoy/envoy.yaml`.
pub fn shipped_bootstrap() -> Result<Value> {
    read("envoy/envoy.yaml")
}

/// `envoy/filter.yaml`: the ECDS response with the filter's configuration.
pub fn shipped_filter() -> Result<Value> {
    read("envoy/filter.yaml")
}

fn read(path: &str) -> Result<Value> {
    let text = std::fs::read_to_string(repository_root().join(path));
    let text = text.with_context(|| format!("cannot read {path}"))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{path} is not YAML"))
}

/// The value at a JSON pointer.
pub fn at<'a>(value: &'a mut Value, pointer: &str) -> Result<&'a mut Value> {
    value.pointer_mut(pointer).with_context(|| format!("the configuration has no {pointer}"))
}

/// The element of the list at `pointer` that has this `name`.
pub fn named<'a>(value: &'a mut Value, pointer: &str, name: &str) -> Result<&'a mut Value> {
    let list = at(value, pointer)?.as_array_mut();
    let list = list.with_context(|| format!("{pointer} is not a list"))?;
    let found = list.iter_mut().find(|item| item["name"] == name);
    found.with_context(|| format!("{pointer} has no element named {name}"))
}

fn push(value: &mut Value, pointer: &str, item: Value) -> Result<()> {
    let list = at(value, pointer)?.as_array_mut();
    list.with_context(|| format!("{pointer} is not a list"))?.push(item);
    Ok(())
}

/// A listener of the bootstrap.
pub fn listener<'a>(bootstrap: &'a mut Value, name: &str) -> Result<&'a mut Value> {
    named(bootstrap, "/static_resources/listeners", name)
}

/// A cluster of the bootstrap.
pub fn cluster<'a>(bootstrap: &'a mut Value, name: &str) -> Result<&'a mut Value> {
    named(bootstrap, "/static_resources/clusters", name)
}

/// The HTTP connection manager of a listener.
pub fn http_manager<'a>(bootstrap: &'a mut Value, name: &str) -> Result<&'a mut Value> {
    at(listener(bootstrap, name)?, "/filter_chains/0/filters/0/typed_config")
}

/// The action of a listener's first route.
pub fn route<'a>(bootstrap: &'a mut Value, name: &str) -> Result<&'a mut Value> {
    let manager = http_manager(bootstrap, name)?;
    at(manager, "/route_config/virtual_hosts/0/routes/0/route")
}

/// An HTTP filter of a listener.
pub fn http_filter<'a>(bootstrap: &'a mut Value, name: &str, filter: &str) -> Result<&'a mut Value> {
    named(http_manager(bootstrap, name)?, "/http_filters", filter)
}

/// Takes an HTTP filter out of a listener.
pub fn remove_http_filter(bootstrap: &mut Value, name: &str, filter: &str) -> Result<()> {
    http_filter(bootstrap, name, filter)?;
    let filters = at(http_manager(bootstrap, name)?, "/http_filters")?.as_array_mut();
    if let Some(filters) = filters {
        filters.retain(|item| item["name"] != filter);
    }
    Ok(())
}

/// Makes an address of the configuration `address`.
pub fn set_address(value: &mut Value, address: SocketAddr) -> Result<()> {
    *at(value, "/address")? = envoy_address(address);
    Ok(())
}

/// Makes `endpoints` the hosts of a cluster.
pub fn set_endpoints(bootstrap: &mut Value, name: &str, endpoints: &[SocketAddr]) -> Result<()> {
    let hosts: Vec<_> =
        endpoints.iter().map(|endpoint| json!({"endpoint": {"address": envoy_address(*endpoint)}})).collect();
    cluster(bootstrap, name)?["load_assignment"] =
        json!({"cluster_name": name, "endpoints": [{"lb_endpoints": hosts}]});
    Ok(())
}

/// Adds a cluster that is like [`CLUSTER`] in all but its name and hosts.
pub fn add_cluster(bootstrap: &mut Value, name: &str, endpoints: &[SocketAddr]) -> Result<()> {
    let mut copy = cluster(bootstrap, CLUSTER)?.clone();
    copy["name"] = name.into();
    push(bootstrap, "/static_resources/clusters", copy)?;
    set_endpoints(bootstrap, name, endpoints)
}

/// Sends a listener's requests to several clusters by weight.
pub fn set_weighted_route(bootstrap: &mut Value, name: &str, weights: &[(String, u32)]) -> Result<()> {
    let clusters: Vec<_> = weights.iter().map(|(cluster, weight)| json!({"name": cluster, "weight": weight})).collect();
    let action = route(bootstrap, name)?;
    if let Some(fields) = action.as_object_mut() {
        fields.remove("cluster");
    }
    action["weighted_clusters"] = json!({"clusters": clusters});
    Ok(())
}

/// Adds a second listener whose cluster has the same hosts and limits, without the filter and by round robin:
/// what the same Envoy does with the same endpoints on its own.
pub fn add_round_robin(bootstrap: &mut Value, address: SocketAddr) -> Result<()> {
    let mut plain = cluster(bootstrap, CLUSTER)?.clone();
    plain["name"] = ROUND_ROBIN.into();
    plain["load_assignment"]["cluster_name"] = ROUND_ROBIN.into();
    plain["load_balancing_policy"] = json!({"policies": [{"typed_extension_config": {
        "name": "envoy.load_balancing_policies.round_robin",
        "typed_config": {"@type":
            "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
    }}]});
    push(bootstrap, "/static_resources/clusters", plain)?;

    let mut copy = listener(bootstrap, LISTENER)?.clone();
    copy["name"] = ROUND_ROBIN.into();
    set_address(&mut copy, address)?;
    push(bootstrap, "/static_resources/listeners", copy)?;
    remove_http_filter(bootstrap, ROUND_ROBIN, FILTER)?;
    http_manager(bootstrap, ROUND_ROBIN)?["stat_prefix"] = "round_robin".into();
    route(bootstrap, ROUND_ROBIN)?["cluster"] = ROUND_ROBIN.into();
    Ok(())
}

/// Points the filter's discovery to a file in a folder that holds nothing else.
pub fn set_discovery(bootstrap: &mut Value, file: &Path, folder: &Path) -> Result<()> {
    let filter = http_filter(bootstrap, LISTENER, FILTER)?;
    let source = at(filter, "/config_discovery/config_source/path_config_source")?;
    source["path"] = text(file)?.into();
    source["watched_directory"]["path"] = text(folder)?.into();
    Ok(())
}

/// The plugin configuration in an ECDS response, as the JSON that the filter reads.
pub fn plugin_config(filter: &Value) -> Result<Value> {
    let found = filter.pointer("/resources/0/typed_config/config/configuration/value");
    let found = found.and_then(Value::as_str).context("the ECDS file has no configuration")?;
    serde_json::from_str(found).context("the filter's configuration is not JSON")
}

/// Replaces the plugin configuration in an ECDS response. A string goes in as it is, so it may be malformed.
pub fn set_plugin_config(filter: &mut Value, config: &Value) -> Result<()> {
    let value = config.as_str().map_or_else(|| config.to_string(), str::to_owned);
    *at(filter, "/resources/0/typed_config/config/configuration/value")? = value.into();
    Ok(())
}

/// Lets the filter in an ECDS response read bodies while the headers wait.
pub fn allow_bodies(filter: &mut Value) -> Result<()> {
    at(filter, "/resources/0/typed_config/config")?["allow_on_headers_stop_iteration"] = true.into();
    Ok(())
}

/// Replaces the module's path in an ECDS response.
pub fn set_wasm(filter: &mut Value, path: &Path) -> Result<()> {
    let pointer = "/resources/0/typed_config/config/vm_config/code/local/filename";
    *at(filter, pointer)? = text(path)?.into();
    Ok(())
}

/// A plugin configuration with one pool: `endpoints` in this order are `gpu-0`, `gpu-1`, …
pub fn one_pool(cluster: &str, endpoints: &[SocketAddr]) -> Value {
    let endpoints: Vec<_> = endpoints
        .iter()
        .enumerate()
        .map(|(index, address)| json!({"id": format!("gpu-{index}"), "address": address.to_string()}))
        .collect();
    json!({"pools": [{"cluster": cluster, "endpoints": endpoints}]})
}

fn envoy_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}

fn text(path: &Path) -> Result<&str> {
    match path.to_str() {
        Some(path) => Ok(path),
        None => bail!("the path {} is not UTF-8", path.display()),
    }
}
