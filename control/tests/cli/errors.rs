//! Bad input: exit code 2, nothing on stdout, and an error that names the argument, the value and what is allowed.

use crate::run::{demo, file, run, run_with_input};
use serde_json::json;

/// The fragments stand in the error in this order.
#[track_caller]
fn refused(arguments: &[&str], fragments: &[&str]) {
    let error = run(arguments).refusal();
    let mut rest = &*error;
    for fragment in fragments {
        let at = rest.find(fragment).unwrap_or_else(|| panic!("no {fragment:?} in {error:?} of {arguments:?}"));
        rest = &rest[at + fragment.len()..];
    }
}

#[test]
fn endpoints_are_checked_one_by_one() {
    for (list, fragments) in [
        ("", &["'--endpoints <LIST>'", "an endpoint is empty", "[id=]ip:port[*weight]"][..]),
        ("10.0.0.1:80,", &["'--endpoints <LIST>'", "an endpoint is empty"]),
        ("localhost:80", &["'localhost:80'", "'--endpoints <LIST>'", "must be ip:port"]),
        // Ids alone: the first is told, with what an endpoint is.
        ("gpu-0,gpu-1,gpu-2", &["'gpu-0'", "'--endpoints <LIST>'", "address \"gpu-0\": must be ip:port"]),
        ("gpu-0=,gpu-1=", &["'gpu-0='", "'--endpoints <LIST>'", "address \"\": must be ip:port"]),
        ("a=10.0.0.1:0", &["'a=10.0.0.1:0'", "port must be 1 to 65535"]),
        ("fd00::1:80", &["'fd00::1:80'", "IPv6 in brackets"]),
        ("=10.0.0.1:80", &["the id is 0 bytes long, allowed are 1 to 256"]),
        ("a=10.0.0.1:80, b=10.0.0.2:80", &["' b=10.0.0.2:80'", "white space"]),
        ("10.0.0.1:80*-1", &["'10.0.0.1:80*-1'", "weight \"-1\"", "from 0 to 10"]),
        ("10.0.0.1:80*NaN", &["weight \"NaN\"", "from 0 to 10"]),
        ("10.0.0.1:80*11", &["weight \"11\"", "from 0 to 10"]),
        ("10.0.0.1:80*0", &["--endpoints: the list has nobody on the ring"]),
        ("10.0.0.1:80,10.0.0.1:80", &["--endpoints: the address \"10.0.0.1:80\" is there twice"]),
        ("[::1]:80,a=[0::1]:80", &["--endpoints: the address \"[::1]:80\" is there twice"]),
        ("a=10.0.0.1:80,a=10.0.0.2:80", &["--endpoints: the id \"a\" is there twice, must be there once"]),
    ] {
        refused(&["ring", "--key", "bert", "--endpoints", list], fragments);
        refused(&["distribution", "--endpoints", list], fragments);
    }
}

#[test]
fn numbers_and_names_are_checked() {
    let endpoints = demo().join(",");
    let ring = ["ring", "--endpoints", &endpoints, "--key", "bert"];
    for (more, fragments) in [
        (["--replicas", "0"], &["'0'", "'--replicas <N>'", "1..=10000"][..]),
        (["--replicas", "10001"], &["'10001'", "'--replicas <N>'", "1..=10000"]),
        (["--replicas", "two"], &["'two'", "'--replicas <N>'"]),
        (["--virtual-nodes", "0"], &["'0'", "'--virtual-nodes <N>'", "1..=1000"]),
        (["--virtual-nodes", "1001"], &["'1001'", "'--virtual-nodes <N>'", "1..=1000"]),
        (["--key", ""], &["''", "'--key <KEY>'", "a key is empty, must have at least one character"]),
        (["--format", "xml"], &["'xml'", "'--format <FORMAT>'", "text, json"]),
        (["--cluster", "x"], &["--endpoints", "cannot be used with", "--cluster"]),
        (["--config", "x"], &["--endpoints", "cannot be used with", "--config"]),
    ] {
        refused(&[&ring[..], &more].concat(), fragments);
    }
    refused(&["ring", "--key", "bert"], &["required", "--endpoints <LIST>|--config <FILE>"]);
    refused(&["ring", "--endpoints", &endpoints], &["required", "--key <KEY>"]);
    refused(&["distribution", "--cluster", "x"], &["required", "--endpoints <LIST>|--config <FILE>"]);
}

#[test]
fn keys_are_read_to_the_last_or_not_at_all() {
    let endpoints = demo().join(",");
    let of = ["distribution", "--endpoints", &endpoints, "--keys"];
    let (folder, path) = file(b"bert\n\ngpt\n");
    let missing = folder.path().join("missing.txt");
    refused(&[&of[..], &[path.to_str().unwrap()]].concat(), &["--keys: line 2 of", "plugin.json", "is empty"]);
    refused(&[&of[..], &[missing.to_str().unwrap()]].concat(), &["--keys: cannot read", "missing.txt"]);
    refused(&[&of[..], &[folder.path().to_str().unwrap()]].concat(), &["--keys: cannot read"]);
    let error = run_with_input(&[&of[..], &["-"]].concat(), b"").refusal();
    assert_eq!(error, "error: --keys: stdin has no key, must have at least one\n");
}

/// What of a configuration is refused, or has no ring to ask.
#[test]
fn a_configuration_is_refused_as_the_proxies_would_or_says_why_there_is_no_ring() {
    let endpoint = |address: &str| json!({"address": address});
    let one = [endpoint("10.0.0.1:80")];
    for (config, fragments) in [
        ("[]".to_owned(), &["the proxies would refuse", "plugin.json", "\n  .: must be a JSON object"][..]),
        ("{\"pools\": [".to_owned(), &["the proxies would refuse", "EOF"]),
        (json!({"pool": []}).to_string(), &["pool: unknown field `pool`"]),
        (String::new(), &["names no pool, must name at least one"]),
        (
            json!({"pools": [{"cluster": "a", "fallbacks": 9, "endpoints": [endpoint("b:1")]}]}).to_string(),
            &[
                "\n  pools[0].endpoints[0].address: \"b:1\": must be ip:port",
                "\n  pools[0].fallbacks: 9 is out of range",
            ],
        ),
        (json!({"pools": [{"cluster": "a"}]}).to_string(), &["the pool \"a\" of", "has no `endpoints`"]),
        (json!({"pools": [{"cluster": "a", "endpoints": []}]}).to_string(), &["has an empty list of endpoints"]),
        (
            json!({"pools": [{"cluster": "a", "endpoints": [{"address": "10.0.0.1:80", "weight": 0}]}]}).to_string(),
            &["has nobody on the ring"],
        ),
        (
            json!({"pools": [{"cluster": "a", "endpoints": one, "strategy": "p2c"}]}).to_string(),
            &["the pool \"a\" of", "has no ring", "\"homes\", \"ring\" and \"hash\""],
        ),
        (
            json!({"pools": [{"cluster": "a", "endpoints": one}, {"cluster": "b"}]}).to_string(),
            &["has 2 pools; say which one by --cluster: \"a\", \"b\""],
        ),
    ] {
        let (_folder, path) = file(config.as_bytes());
        let path = path.to_str().unwrap();
        let fragments = [&["--config: "][..], fragments].concat();
        refused(&["ring", "--key", "bert", "--config", path], &fragments);
        refused(&["distribution", "--config", path], &fragments);
    }
}

#[test]
fn what_a_configuration_does_not_have_is_told_with_what_it_has() {
    let (folder, path) = file(br#"{"pools": [{"cluster": "a"}, {"cluster": "b\u001b"}]}"#);
    let path = path.to_str().unwrap();
    refused(
        &["ring", "--key", "bert", "--config", path, "--cluster", "c"],
        &["--cluster: \"c\" is no cluster of", "it has \"a\", \"b\\u{1b}\""],
    );
    let missing = folder.path().join("missing.json");
    refused(&["distribution", "--config", missing.to_str().unwrap()], &["--config: cannot read", "missing.json"]);
}
