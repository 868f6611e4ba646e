//! Both subcommands with the proxies' configuration.

use crate::run::{demo, file, ids, ring, run};
use serde_json::{Value, json};

fn with_config(subcommand: &str, config: &Value, more: &[&str]) -> Value {
    let (_folder, path) = file(config.to_string().as_bytes());
    let base = [subcommand, "--format", "json", "--config", path.to_str().unwrap()];
    run(&[&base, more].concat()).json()
}

fn endpoints() -> Vec<Value> {
    (0..8).map(|n| json!({"id": format!("gpu-{n}"), "address": format!("127.0.0.1:{}", 8001 + n)})).collect()
}

fn plugin(pool: Value) -> Value {
    let mut whole = json!({"cluster": "model-servers", "endpoints": endpoints()});
    whole.as_object_mut().unwrap().extend(pool.as_object().unwrap().clone());
    json!({"pools": [whole]})
}

#[test]
fn a_configuration_answers_like_the_same_list() {
    let answer = with_config("ring", &plugin(json!({})), &["--key", "bert"]);
    assert_eq!(answer["keys"], ring(&demo(), &["bert"], &["--replicas", "3"])["keys"]);
    assert_eq!((&answer["cluster"], &answer["replicas"]), (&"model-servers".into(), &3.into()), "two fallbacks");
}

#[test]
fn fallbacks_and_virtual_nodes_are_the_pools_until_told_otherwise() {
    let config = plugin(json!({"fallbacks": 4, "max_retries": 1, "virtual_nodes": 7}));
    let answer = with_config("ring", &config, &["--key", "bert"]);
    assert_eq!(answer["keys"], ring(&demo(), &["bert"], &["--replicas", "5", "--virtual-nodes", "7"])["keys"]);
    let answer = with_config("ring", &config, &["--key", "bert", "--replicas", "2", "--virtual-nodes", "150"]);
    assert_eq!(ids(&answer, 0), ["gpu-7", "gpu-5"]);
    assert_eq!(answer["virtual_nodes"], 150);
}

/// gpu-7 is the first for bert; with no active node it is off the ring, and the second is the first.
#[test]
fn active_nodes_count_as_in_the_proxies() {
    let mut pool = endpoints();
    pool[7]["active_nodes"] = 0.into();
    pool[0]["active_nodes"] = 15.into();
    pool[1]["weight"] = 2.into();
    let config = plugin(json!({"endpoints": pool}));
    assert_eq!(ids(&with_config("ring", &config, &["--key", "bert", "--replicas", "8"]), 0).len(), 7);
    let shares = with_config("distribution", &config, &[]);
    let nodes: Vec<_> = shares["shares"].as_array().unwrap().iter().map(|share| share["nodes"].clone()).collect();
    assert_eq!(nodes, [15, 300, 150, 150, 150, 150, 150, 0]);
    assert_eq!(shares["shares"][7]["share"], 0.0);
}

#[test]
fn those_that_are_passed_over_are_marked_and_stay_on_the_ring() {
    let mut pool = endpoints();
    pool[7]["unhealthy"] = true.into();
    pool[5]["draining"] = true.into();
    pool[1]["serves"] = json!(["gpt"]);
    let config = plugin(json!({"endpoints": pool}));
    let answer = with_config("ring", &config, &["--key", "bert", "--replicas", "4"]);
    assert_eq!(ids(&answer, 0)[..3], ["gpu-7", "gpu-5", "gpu-1"]);
    let skipped: Vec<_> = (0..4).map(|n| answer["keys"][0]["endpoints"][n]["skipped"].clone()).collect();
    assert_eq!(skipped, [json!("marked_unhealthy"), json!("draining"), json!("model_not_served"), Value::Null]);
    let shares = with_config("distribution", &config, &[]);
    assert_eq!(shares["shares"][5]["skipped"], "draining");
    assert_eq!(shares["shares"][1]["skipped"], Value::Null, "it depends on the model");
}

#[test]
fn an_alias_is_where_its_model_is() {
    let mut config = plugin(json!({}));
    config["request"] = json!({"aliases": {"chat": "bert"}});
    let answer = with_config("ring", &config, &["--key", "chat", "--key", "bert"]);
    let (alias, model) = (&answer["keys"][0], &answer["keys"][1]);
    assert_eq!((&alias["key"], &alias["routed_as"]), (&"chat".into(), &"bert".into()));
    assert_eq!((&alias["hash"], &alias["endpoints"]), (&model["hash"], &model["endpoints"]));
    let (_folder, path) = file(config.to_string().as_bytes());
    let text = run(&["ring", "--config", path.to_str().unwrap(), "--key", "chat"]).answer();
    assert!(text.starts_with("chat → bert (hash 15c1a1a21a5d4ece)\n"), "{text}");
}

#[test]
fn a_model_that_does_not_go_by_the_ring_is_told() {
    let models = json!([{"id": "bert", "strategy": "p2c"}, {"id": "gpt", "strategy": "hash"}]);
    let config = plugin(json!({"models": models}));
    let keys = ["--key", "bert", "--key", "gpt", "--key", "llama"];
    let answer = with_config("ring", &config, &keys);
    assert_eq!([0, 1, 2].map(|n| answer["keys"][n]["strategy"].clone()), ["p2c", "hash", "ring"]);
    let (_folder, path) = file(config.to_string().as_bytes());
    let text = run(&[&["ring", "--config", path.to_str().unwrap()], &keys[..]].concat()).answer();
    let notes: Vec<_> = text.split("\n\n").map(|block| block.contains("\n  note: ")).collect();
    assert_eq!(notes, [true, true, false], "{text}");
}

#[test]
fn one_of_several_pools_is_named_by_its_cluster() {
    let other = json!({"cluster": "other", "endpoints": [{"address": "10.0.0.1:80"}]});
    let mut config = plugin(json!({}));
    config["pools"].as_array_mut().unwrap().push(other);
    for (cluster, first) in [("model-servers", "gpu-7"), ("other", "10.0.0.1:80")] {
        let answer = with_config("ring", &config, &["--key", "bert", "--cluster", cluster]);
        assert_eq!((answer["cluster"].as_str(), &*ids(&answer, 0)[0]), (Some(cluster), first));
    }
}
