//! `envoy/docker-compose.yaml` and `envoy/compose/` say the same as the configuration that they are made from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_tests::demo;
use warmroute_tests::harness::config::{
    CLUSTER, FILTER, LISTENER, at, cluster, http_filter, plugin_config, shipped_bootstrap, shipped_filter,
};
use warmroute_tests::harness::repository_root;

/// What a container sees elsewhere than the machine does; nothing else may differ.
const MAY_DIFFER: [&str; 6] = [
    "/socket_address/address",
    "/socket_address/port_value",
    "/path_config_source/path",
    "/watched_directory/path",
    "/code/local/filename",
    "/endpoints/*/address",
];

fn read(path: &str) -> Result<Value> {
    let text = std::fs::read_to_string(repository_root().join(path)).with_context(|| format!("cannot read {path}"))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{path} is not YAML"))
}

/// The ECDS file with the plugin configuration, a JSON text in it, as a part of the tree.
fn with_plugin_config(mut filter: Value) -> Result<Value> {
    let plugin = plugin_config(&filter)?;
    *at(&mut filter, "/resources/0/typed_config/config/configuration/value")? = plugin;
    Ok(filter)
}

/// The places where two trees differ, as JSON pointers; the indices of lists are `*` when both have the same length.
fn differences(left: &Value, right: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(left, right, "", &mut found);
    found
}

fn collect(left: &Value, right: &Value, place: &str, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<_> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let place = format!("{place}/{key}");
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => collect(left, right, &place, found),
                    _ => found.push(format!("{place} (in one only)")),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (left, right) in left.iter().zip(right) {
                collect(left, right, &format!("{place}/*"), found);
            }
        }
        _ if left == right => {}
        _ => found.push(place.to_owned()),
    }
}

fn drift(left: &Value, right: &Value) -> Vec<String> {
    let mut found = differences(left, right);
    found.retain(|place| !MAY_DIFFER.iter().any(|end| place.ends_with(end)));
    found
}

#[test]
fn envoy_is_configured_as_in_the_shipped_file_but_for_addresses_and_paths() -> Result<()> {
    assert_eq!(drift(&shipped_bootstrap()?, &read("envoy/compose/envoy.yaml")?), Vec::<String>::new());
    Ok(())
}

#[test]
fn the_filter_is_configured_as_in_the_shipped_file_but_for_addresses_and_paths() -> Result<()> {
    let shipped = with_plugin_config(shipped_filter()?)?;
    let compose = with_plugin_config(read("envoy/compose/filter.yaml")?)?;
    assert_eq!(drift(&shipped, &compose), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_changed_a_missing_and_an_extra_setting_are_drift_and_an_address_is_not() {
    let shipped = json!({"clusters": [{"timeout": "1s", "socket_address": {"address": "127.0.0.1", "port_value": 1}}]});
    let address = json!({"address": "172.30.213.100", "port_value": 8000});
    let drift = |cluster: Value| drift(&shipped, &json!({"clusters": [cluster]}));

    assert_eq!(drift(json!({"timeout": "1s", "socket_address": address})), Vec::<String>::new());
    assert_eq!(drift(json!({"timeout": "2s", "socket_address": address})), ["/clusters/*/timeout"]);
    assert_eq!(drift(json!({"socket_address": address})), ["/clusters/*/timeout (in one only)"]);
    assert_eq!(
        drift(json!({"timeout": "1s", "socket_address": address, "lb_policy": "RANDOM"})),
        ["/clusters/*/lb_policy (in one only)"]
    );
}

#[test]
fn a_longer_list_is_drift() {
    assert_eq!(drift(&json!({"clusters": [{}]}), &json!({"clusters": [{}, {}]})), ["/clusters"]);
}

/// Service name → address, of the model servers of the compose file.
fn containers(compose: &Value) -> Result<BTreeMap<String, String>> {
    let services = compose["services"].as_object().context("no services")?;
    let servers = services.iter().filter(|(name, _)| *name != "envoy");
    let address = |service: &Value| Some(format!("{}:8000", service["networks"]["models"]["ipv4_address"].as_str()?));
    servers
        .map(|(name, service)| {
            Ok((name.clone(), address(service).with_context(|| format!("{name} has no fixed address"))?))
        })
        .collect()
}

#[test]
fn containers_hosts_and_the_plugin_agree_on_every_endpoint() -> Result<()> {
    let containers = containers(&read("envoy/docker-compose.yaml")?)?;
    assert_eq!(containers.len(), demo::ENDPOINTS);

    let plugin = plugin_config(&read("envoy/compose/filter.yaml")?)?;
    let endpoints = plugin["pools"][0]["endpoints"].as_array().context("no endpoints")?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
    let known = endpoints.iter().map(|endpoint| Ok((text(&endpoint["id"])?, text(&endpoint["address"])?)));
    assert_eq!(known.collect::<Result<BTreeMap<_, _>>>()?, containers);

    let mut envoy = read("envoy/compose/envoy.yaml")?;
    let hosts = at(cluster(&mut envoy, CLUSTER)?, "/load_assignment/endpoints/0/lb_endpoints")?;
    let hosts = hosts.as_array().context("no hosts")?.iter().map(|host| {
        let address = &host["endpoint"]["address"]["socket_address"];
        Ok(format!("{}:{}", text(&address["address"])?, address["port_value"]))
    });
    assert_eq!(hosts.collect::<Result<Vec<_>>>()?, containers.into_values().collect::<Vec<_>>());
    Ok(())
}

#[test]
fn the_containers_start_like_the_servers_of_the_demo() -> Result<()> {
    let compose = read("envoy/docker-compose.yaml")?;
    for (index, (name, address)) in containers(&compose)?.into_iter().enumerate() {
        let command = compose["services"][&name]["command"].as_str().context("no command")?;
        let resident = demo::resident(index).join(",");
        assert!(command.starts_with(&format!("--listen {address} --resident {resident} ")), "{name}: {command}");
    }
    Ok(())
}

#[test]
fn ports_are_published_on_the_loopback_address_only() -> Result<()> {
    let compose = read("envoy/docker-compose.yaml")?;
    for (name, service) in compose["services"].as_object().context("no services")? {
        for port in service["ports"].as_array().with_context(|| format!("{name} publishes nothing"))? {
            assert!(port.as_str().is_some_and(|port| port.starts_with("127.0.0.1:")), "{name}: {port}");
        }
    }
    Ok(())
}

#[test]
fn every_file_that_the_configuration_names_is_mounted() -> Result<()> {
    let compose = read("envoy/docker-compose.yaml")?;
    let volumes = compose["services"]["envoy"]["volumes"].as_array().context("Envoy has no volumes")?;
    let targets: Vec<_> = volumes.iter().filter_map(|volume| volume["target"].as_str()).collect();

    let mut envoy = read("envoy/compose/envoy.yaml")?;
    let filter = http_filter(&mut envoy, LISTENER, FILTER)?;
    let file = at(filter, "/config_discovery/config_source/path_config_source/path")?.as_str().context("no text")?;
    let name = file.strip_prefix(&format!("{}/", targets[0])).context("the ECDS file is not in the first volume")?;
    assert!(repository_root().join("envoy/compose").join(name).is_file(), "{file}");

    let module = read("envoy/compose/filter.yaml")?;
    let module = module.pointer("/resources/0/typed_config/config/vm_config/code/local/filename");
    let module = Path::new(module.and_then(Value::as_str).context("no module")?);
    assert_eq!(module.parent(), Some(Path::new(targets[1])));
    assert_eq!(volumes[1]["source"], "../target/wasm");
    Ok(())
}
