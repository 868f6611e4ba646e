use super::*;
use crate::hash::hash;
use crate::request::BodySettings;
use crate::settings::{PlanSource, UpdateScope};
use crate::strategy::StrategyName;
use std::time::Duration;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

mod aliases;
mod fit;
mod headers;
mod requests;
mod shape;

fn problems(json: &str) -> Vec<String> {
    parse(json.as_bytes()).unwrap_err().problems.iter().map(ToString::to_string).collect()
}

fn pool_of(config: &Config) -> &PoolConfig {
    config.pools.iter().find(|pool| &*pool.cluster == "c").unwrap()
}

#[test]
fn nothing_steers_nothing() {
    for empty in ["", "  \n", "{}", r#"{"pools":[]}"#] {
        let config = parse(empty.as_bytes()).unwrap();
        assert_eq!(config.pools.len(), 0, "{empty:?}");
        assert_eq!(&*config.destination_header, "x-gateway-destination-endpoint");
    }
}

#[test]
fn the_default_of_retries_gives_way_to_fewer_fallbacks() {
    for (fallbacks, retries) in [(0, 0), (1, 1), (2, 2), (7, 2)] {
        let config = parse(format!(r#"{{"pools":[{{"cluster":"c","fallbacks":{fallbacks}}}]}}"#).as_bytes()).unwrap();
        assert_eq!(pool_of(&config).settings.max_retries, retries);
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse(br#"{"pools":[{"cluster":"c","endpoints":[{"address":"10.0.0.1:80"}]}]}"#).unwrap();
    let settings = &pool_of(&config).settings;
    assert_eq!(settings.strategy, StrategyName::Ring);
    assert_eq!((settings.virtual_nodes, settings.fallbacks, settings.max_retries), (150, 2, 2));
    let endpoint = &pool_of(&config).endpoints.as_ref().unwrap()[0];
    assert_eq!(&*endpoint.id, "10.0.0.1:80", "the id is the address");
    assert!(!endpoint.marked_unhealthy);
    assert_eq!(endpoint.resident, None);
    assert_eq!(config.request.model_headers, ["x-model-id".into(), "model-id".into()].into());
}

#[test]
fn what_is_given_is_taken() {
    let config = parse(
        br#"{"pools":[{"cluster":"c","strategy":"p2c","virtual_nodes":3,"fallbacks":5,"max_retries":3,"endpoints":[
            {"address":"[FD00::0007]:80","id":"gpu-0","models":["llama"],"unhealthy":true}]}],
            "request":{"model_headers":["m"],"type_headers":[],"destination_header":"d"}}"#,
    )
    .unwrap();
    let settings = &pool_of(&config).settings;
    assert_eq!(settings.strategy, StrategyName::P2c);
    assert_eq!((settings.virtual_nodes, settings.fallbacks, settings.max_retries), (3, 5, 3));
    let endpoint = &pool_of(&config).endpoints.as_ref().unwrap()[0];
    assert_eq!((&*endpoint.id, endpoint.address.as_str()), ("gpu-0", "[fd00::7]:80"));
    assert!(endpoint.marked_unhealthy);
    assert_eq!(endpoint.holds(crate::hash::hash(b"llama")), Some(true));
    assert_eq!(config.request.model_headers, ["m".into()].into());
    assert_eq!(config.request.type_headers, [].into());
    assert_eq!(&*config.destination_header, "d");
}

const EVERYTHING: &str = r#"{
    "pools": [{
        "cluster": "c", "strategy": "homes", "plan": "self", "memory_units": 4, "slots": 8, "load_cost": 25.5,
        "updates": "pool", "panic_threshold_ratio": 0.25,
        "models": [{"id": "bert", "strategy": "round_robin", "size_units": 2, "load_ms": 1500}],
        "payload_classes": [{"name": "batch", "above_bytes": 1000, "weight": 16, "labels": ["tier=batch"]}],
        "endpoints": [{
            "address": "10.0.0.1:80", "serves": ["bert"], "draining": true, "weight": 2, "active_nodes": 7,
            "labels": ["tier=batch", "zone="], "memory_units": 6}]
    }],
    "request": {
        "aliases": {"chat": "llama"}, "default_model": "bert", "trusted": true, "urgency_header": "x-u",
        "hash_header": "x-tenant", "session": {"header": "x-s", "cookie": {"name": "wr", "ttl_seconds": 60}, "address": true},
        "body": {"max_bytes": 4096}
    },
    "explain": {"header": "x-why", "log_ratio": 0.01}
}"#;

#[test]
fn every_field_reaches_its_place() {
    let config = parse(EVERYTHING.as_bytes()).unwrap();
    let pool = pool_of(&config);
    let settings = &pool.settings;
    assert_eq!((settings.strategy, settings.slots, settings.load_cost), (StrategyName::Homes, 8, 25.5));
    assert_eq!((settings.updates, settings.panic_threshold), (UpdateScope::Pool, 0.25));
    let bert = hash(b"bert");
    assert_eq!(settings.strategy_of(bert), StrategyName::RoundRobin);
    let PlanSource::SelfMade(planner) = &settings.plan else { panic!("{:?}", settings.plan) };
    assert_eq!((planner.slots, planner.sizes.get(&bert)), (Some(8), Some(&2)));
    assert_eq!(planner.loads.get(&bert), Some(&Duration::from_millis(1_500)));
    let (_, class) = settings.payload.class_of(Some(1_001)).unwrap();
    assert_eq!((&*class.name, class.weight, &*class.labels), ("batch", 16, &["tier=batch".into()][..]));
    let endpoint = &pool.endpoints.as_ref().unwrap()[0];
    assert!(endpoint.draining && endpoint.servable.allows(bert) && !endpoint.servable.allows(hash(b"llama")));
    assert_eq!((endpoint.weight, endpoint.active_nodes, endpoint.memory_units), (2.0, Some(7), 6));
    assert_eq!(&*endpoint.labels, ["tier=batch".into(), "zone=".into()]);

    let request = &config.request;
    assert_eq!(request.aliases.get(&b"chat"[..]).map(|model| &**model), Some(&b"llama"[..]));
    assert_eq!(request.default_model.as_deref(), Some(&b"bert"[..]));
    assert!(request.trusted && request.needs_client_address());
    let session = request.session.as_ref().unwrap();
    assert_eq!((session.header.as_deref(), session.cookie.as_deref()), (Some("x-s"), Some("wr")));
    assert_eq!(request.urgency_header.as_deref(), Some("x-u"));
    assert_eq!((request.debug_header.as_deref(), request.hash_header.as_deref()), (Some("x-why"), Some("x-tenant")));
    assert_eq!(request.body, Some(BodySettings { max_bytes: 4_096 }));
    assert_eq!(config.session_cookie, Some(SessionCookie { name: "wr".into(), ttl_seconds: 60 }));
    assert_eq!(config.explain.log_ratio, 0.01);
}

/// What costs something or trusts somebody is off until it is asked for.
#[test]
fn features_are_off_unless_asked_for() {
    let config = parse(br#"{"pools":[{"cluster":"c"}]}"#).unwrap();
    let request = &config.request;
    assert!(!request.trusted && request.body.is_none() && request.session.is_none() && request.debug_header.is_none());
    assert_eq!((config.session_cookie, config.explain.log_ratio), (None, 0.0));
    assert!(matches!(pool_of(&parse(br#"{"pools":[{"cluster":"c"}]}"#).unwrap()).settings.plan, PlanSource::None));
    let no_cookie = br#"{"request":{"session":{"cookie":{"name":"wr","ttl_seconds":0}}}}"#;
    assert_eq!(parse(no_cookie).unwrap().session_cookie, None, "read, never set");
}

#[test]
fn a_plan_makes_homes_the_default() {
    let json = |plan: &str| {
        format!(r#"{{"pools":[{{"cluster":"c","plan":{plan},"endpoints":[{{"address":"1.1.1.1:1","id":"a"}}]}}]}}"#)
    };
    let config = parse(json(r#"{"fixed":{"models":[{"id":"m","homes":["a"]}]}}"#).as_bytes()).unwrap();
    let settings = &pool_of(&config).settings;
    let PlanSource::Fixed(plan) = &settings.plan else { panic!("{:?}", settings.plan) };
    assert_eq!((settings.strategy, plan.version), (StrategyName::Homes, 1));
    assert_eq!(*plan.get(hash(b"m")).unwrap().homes, [hash(b"a")]);
    assert_eq!(pool_of(&parse(json("\"self\"").as_bytes()).unwrap()).settings.strategy, StrategyName::Homes);
}

#[test]
fn sessions_need_a_ring_whatever_the_strategy() {
    let ring = |request: &str| {
        let json = format!(r#"{{"pools":[{{"cluster":"c","strategy":"p2c"}}],"request":{request}}}"#);
        pool_of(&parse(json.as_bytes()).unwrap()).settings.needs_ring()
    };
    assert!(ring(r#"{"session":{}}"#));
    assert!(!ring("{}"));
}

#[test]
fn endpoints_left_out_are_not_known_and_an_empty_list_is() {
    let config = parse(br#"{"pools":[{"cluster":"c"}]}"#).unwrap();
    assert_eq!(pool_of(&config).endpoints, None);
    let config = parse(br#"{"pools":[{"cluster":"c","endpoints":[]}]}"#).unwrap();
    assert_eq!(pool_of(&config).endpoints, Some(vec![]));
    assert!(pool_of(&config).settings.needs_ring());
}

#[test]
fn each_mistake_is_named_by_its_path() {
    for (json, path, part) in [
        (r#"{"pool":[]}"#, "pool", "unknown field `pool`"),
        (r#"{"pools":[{"cluster":"c","replica":1}]}"#, "pools[0].replica", "unknown field"),
        (r#"{"pools":[{"endpoints":[]}]}"#, "pools[0]", "missing field `cluster`"),
        (r#"{"pools":[{"cluster":""}]}"#, "pools[0].cluster", "allowed are 1 to 256"),
        (r#"{"pools":[{"cluster":"c"},{"cluster":"c"}]}"#, "pools[1].cluster", "twice"),
        (r#"{"pools":[{"cluster":"c","strategy":"best"}]}"#, "pools[0].strategy", "`ring`"),
        (r#"{"pools":[{"cluster":"c","virtual_nodes":0}]}"#, "pools[0].virtual_nodes", "1 to 1000"),
        (r#"{"pools":[{"cluster":"c","virtual_nodes":-1}]}"#, "pools[0].virtual_nodes", "-1 is less than 0"),
        (r#"{"pools":[{"cluster":"c","fallbacks":8}]}"#, "pools[0].fallbacks", "0 to 7"),
        (r#"{"pools":[{"cluster":"c","fallbacks":300}]}"#, "pools[0].fallbacks", "0 to 7"),
        (
            r#"{"pools":[{"cluster":"c","virtual_nodes":4294967296}]}"#,
            "pools[0].virtual_nodes",
            "is more than 4294967295",
        ),
        (r#"{"pools":[{"cluster":"c","max_retries":"2"}]}"#, "pools[0].max_retries", "invalid type"),
        (
            r#"{"pools":[{"cluster":"c","endpoints":[{"address":"gpu:80"}]}]}"#,
            "pools[0].endpoints[0].address",
            "ip:port",
        ),
        (r#"{"pools":[{"cluster":"c","endpoints":[{}]}]}"#, "pools[0].endpoints[0]", "missing field `address`"),
        (
            r#"{"pools":[{"cluster":"c","endpoints":[{"address":"1.1.1.1:1"},{"address":"1.1.1.1:1","id":"b"}]}]}"#,
            "pools[0].endpoints[1].address",
            "twice",
        ),
        (
            r#"{"pools":[{"cluster":"c","endpoints":[{"address":"1.1.1.1:1","id":"a"},{"address":"1.1.1.2:1","id":"a"}]}]}"#,
            "pools[0].endpoints[1].id",
            "twice",
        ),
        (
            r#"{"pools":[{"cluster":"c","endpoints":[{"address":"1.1.1.1:1","models":[""]}]}]}"#,
            "pools[0].endpoints[0].models[0]",
            "1 to 256",
        ),
        (r#"{"request":{"model_headers":["X-Model"]}}"#, "request.model_headers[0]", "lower case"),
        (
            r#"{"request":{"destination_header":"x-envoy-max-retries"}}"#,
            "request.destination_header",
            "meaning of its own",
        ),
        (r#"{"request":{"destination_header":"host"}}"#, "request.destination_header", "meaning of its own"),
        (r#"{"request":{"destination_header":"content-length"}}"#, "request.destination_header", "meaning of its own"),
        (r#"{"request":{"destination_header":"grpc-timeout"}}"#, "request.destination_header", "meaning of its own"),
        (r#"{"request":{"destination_header":"x-model-id"}}"#, "request.destination_header", "named twice"),
        (r#"{"request":{"model_headers":["content-type"]}}"#, "request.model_headers[0]", "meaning of its own"),
        (r#"{"request":{"model_headers":["host"]}}"#, "request.model_headers[0]", "meaning of its own"),
        (r#"{"request":{"model_headers":["m","m"]}}"#, "request.model_headers[1]", "named twice"),
        (r#"{"request":{"model_headers":["m"],"type_headers":["m"]}}"#, "request.type_headers[0]", "named twice"),
        (r#"{"request":{"model_headers":[":path"]}}"#, "request.model_headers[0]", "no header name"),
        (r#"{"pools":[{"cluster":"c","fallbacks":1,"max_retries":2}]}"#, "pools[0].max_retries", "there are 1"),
        (
            r#"{"pools":[{"cluster":"c","endpoints":[{"address":"1.1.1.1:1","models":[" m"]}]}]}"#,
            "pools[0].endpoints[0].models[0]",
            "white space",
        ),
        (r#"{"request":{"destination_header":""}}"#, "request.destination_header", "1 to 256"),
        (r#"{"pools":[{"cluster":"c","strategy":"homes"}]}"#, "pools[0].strategy", "needs a plan"),
        (
            r#"{"pools":[{"cluster":"c","strategy":"p2c","plan":"self"}]}"#,
            "pools[0].plan",
            "no strategy here reads a plan",
        ),
        (r#"{"pools":[{"cluster":"c","plan":"hub"}]}"#, "pools[0].plan", "`self`"),
        (
            r#"{"pools":[{"cluster":"c","plan":{"fixed":{"models":[{"id":"m","homes":[]}]}}}]}"#,
            "pools[0].plan.fixed.models[0].homes",
            "at least one",
        ),
        (
            r#"{"pools":[{"cluster":"c","plan":{"fixed":{"models":[{"id":"m","homes":["b"]}]}},"endpoints":[{"address":"1.1.1.1:1"}]}]}"#,
            "pools[0].plan.fixed.models[0].homes[0]",
            "id of no endpoint",
        ),
        (
            r#"{"pools":[{"cluster":"c","plan":{"fixed":{"models":[{"id":"m","homes":["a","a"]}]}}}]}"#,
            "pools[0].plan.fixed.models[0].homes[1]",
            "twice",
        ),
        (
            r#"{"pools":[{"cluster":"c","plan":{"fixed":{"models":[{"id":"m","homes":["a"]},{"id":"m","homes":["a"]}]}}}]}"#,
            "pools[0].plan.fixed.models[1].id",
            "twice",
        ),
        (r#"{"pools":[{"cluster":"c","memory_units":0}]}"#, "pools[0].memory_units", "1 to 100000"),
        (r#"{"pools":[{"cluster":"c","slots":0}]}"#, "pools[0].slots", "1 to 4096"),
        (r#"{"pools":[{"cluster":"c","load_cost":-1}]}"#, "pools[0].load_cost", "0 to 100000"),
        (r#"{"pools":[{"cluster":"c","panic_threshold_ratio":1.5}]}"#, "pools[0].panic_threshold_ratio", "0 to 1"),
        (r#"{"pools":[{"cluster":"c","updates":"all"}]}"#, "pools[0].updates", "`holders`"),
        (r#"{"pools":[{"cluster":"c","models":[{"id":"m"},{"id":"m"}]}]}"#, "pools[0].models[1].id", "twice"),
        (
            r#"{"pools":[{"cluster":"c","models":[{"id":"m","size_units":0}]}]}"#,
            "pools[0].models[0].size_units",
            "1 to",
        ),
        (
            r#"{"pools":[{"cluster":"c","models":[{"id":"m","load_ms":3600001}]}]}"#,
            "pools[0].models[0].load_ms",
            "0 to 3600000",
        ),
        (
            r#"{"pools":[{"cluster":"c","payload_classes":[{"name":"a","above_bytes":1},{"name":"b","above_bytes":1}]}]}"#,
            "pools[0].payload_classes[1].above_bytes",
            "twice",
        ),
        (
            r#"{"pools":[{"cluster":"c","payload_classes":[{"name":"a","above_bytes":1,"weight":0}]}]}"#,
            "pools[0].payload_classes[0].weight",
            "1 to 1000",
        ),
        (
            r#"{"pools":[{"cluster":"c","payload_classes":[{"name":"a","above_bytes":1,"labels":["h100"]}]}]}"#,
            "pools[0].payload_classes[0].labels[0]",
            "no label such as",
        ),
        (
            r#"{"pools":[{"cluster":"c","endpoints":[{"address":"1.1.1.1:1","weight":11}]}]}"#,
            "pools[0].endpoints[0].weight",
            "0 to 10",
        ),
        (
            r#"{"pools":[{"cluster":"c","endpoints":[{"address":"1.1.1.1:1","serves":["m "]}]}]}"#,
            "pools[0].endpoints[0].serves[0]",
            "white space",
        ),
        (r#"{"request":{"aliases":{"a":"a"}}}"#, "request.aliases.a", "alias of itself"),
        (r#"{"request":{"aliases":{"":"a"}}}"#, "request.aliases[\"\"]", "1 to 256"),
        (r#"{"request":{"default_model":""}}"#, "request.default_model", "1 to 256"),
        (r#"{"request":{"hash_header":"x-model-id"}}"#, "request.hash_header", "named twice"),
        (r#"{"request":{"hash_header":"cookie"}}"#, "request.hash_header", "meaning of its own"),
        (r#"{"request":{"session":{"header":"X-S"}}}"#, "request.session.header", "lower case"),
        (r#"{"request":{"session":{"cookie":{"name":"a b"}}}}"#, "request.session.cookie.name", "no cookie name"),
        (
            r#"{"request":{"session":{"cookie":{"name":"a","ttl_seconds":31536001}}}}"#,
            "request.session.cookie.ttl_seconds",
            "0 to 31536000",
        ),
        (r#"{"request":{"body":{"max_bytes":63}}}"#, "request.body.max_bytes", "64 to 65536"),
        (r#"{"request":{"body":{"max_bytes":65537}}}"#, "request.body.max_bytes", "64 to 65536"),
        (r#"{"explain":{"log_ratio":2}}"#, "explain.log_ratio", "0 to 1"),
        (r#"{"explain":{"header":"x-request-type"}}"#, "explain.header", "named twice"),
        (r#"{"pools":[]} x"#, ".", "trailing"),
        (r#"{"pools":"#, "pools", "EOF"),
        ("[]", ".", "must be a JSON object"),
    ] {
        let found = problems(json);
        assert_eq!(found.len(), 1, "{json}: {found:?}");
        let (found_path, message) = found[0].split_once(": ").unwrap();
        assert_eq!(found_path, path, "{json}: {message}");
        assert!(message.contains(part), "{json}: {message}");
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let found = problems(
        r#"{"pools":[{"cluster":"c","virtual_nodes":0,"endpoints":[{"address":"x"},{"address":"y"}]},{"cluster":"c"}]}"#,
    );
    assert_eq!(found.len(), 4, "{found:?}");
    let error = parse(br#"{"pools":[{"cluster":"","fallbacks":9}]}"#).unwrap_err();
    assert_eq!(error.to_string().matches("; ").count(), 1, "{error}");
}

#[test]
fn lists_are_bounded() {
    let many = |count: usize, item: &dyn Fn(usize) -> String| (0..count).map(item).collect::<Vec<_>>().join(",");
    let pools = many(1025, &|n| format!(r#"{{"cluster":"c{n}"}}"#));
    assert!(problems(&format!(r#"{{"pools":[{pools}]}}"#))[0].contains("at most 1024"));
    let endpoints = many(10_001, &|n| format!(r#"{{"address":"10.0.{}.{}:80"}}"#, n / 250, n % 250));
    let found = problems(&format!(r#"{{"pools":[{{"cluster":"c","endpoints":[{endpoints}]}}]}}"#));
    assert!(found[0].contains("at most 10000"), "{found:?}");
    let headers = many(9, &|n| format!(r#""h{n}""#));
    assert!(problems(&format!(r#"{{"request":{{"type_headers":[{headers}]}}}}"#))[0].contains("at most 8"));
}

/// A configuration with ten thousand mistakes must not fill a log: twenty are told, the rest counted, each one short.
#[test]
fn a_hopeless_configuration_is_refused_in_few_words() {
    let name = "x".repeat(5_000);
    let endpoints: Vec<_> = (0..1_000).map(|_| format!(r#"{{"address":"{name}"}}"#)).collect();
    let json = format!(r#"{{"pools":[{{"cluster":"c","endpoints":[{}]}}]}}"#, endpoints.join(","));
    let error = parse(json.as_bytes()).unwrap_err();
    assert_eq!((error.problems.len(), error.more), (20, 980));
    let text = error.to_string();
    assert!(text.ends_with("; and 980 more") && text.len() < 20_000, "{} bytes", text.len());
    let error = parse(format!(r#"{{"{name}":1}}"#).as_bytes()).unwrap_err();
    assert!(error.to_string().len() < 6_000, "the path is told whole, the rest is short");
}

#[test]
fn a_name_cannot_forge_a_line_of_the_log() {
    let error = parse(b"{\"x\\n[critical] forged\":1}").unwrap_err().to_string();
    assert!(!error.contains('\n') && error.contains("\\n[critical] forged"), "{error}");
}

/// An address that is there twice is one mistake, not two.
#[test]
fn a_duplicate_is_told_once() {
    let json = r#"{"pools":[{"cluster":"c","endpoints":[{"address":"1.1.1.1:1"},{"address":"1.1.1.1:1"}]}]}"#;
    assert_eq!(problems(json).len(), 1);
}

/// Each list is within its bounds, and all rings together are not.
#[test]
fn the_rings_are_bounded_together() {
    let endpoints: Vec<_> = (0..5_000).map(|n| format!(r#"{{"address":"10.0.{}.{}:80"}}"#, n / 250, n % 250)).collect();
    let pool = |n: usize, strategy: &str| {
        let endpoints = endpoints.join(",");
        format!(r#"{{"cluster":"c{n}","strategy":"{strategy}","virtual_nodes":500,"endpoints":[{endpoints}]}}"#)
    };
    let found = problems(&format!(r#"{{"pools":[{},{}]}}"#, pool(0, "ring"), pool(1, "ring")));
    assert!(found[0].starts_with("pools: ") && found[0].contains("5000000 points"), "{found:?}");
    let mixed = format!(r#"{{"pools":[{},{}]}}"#, pool(0, "p2c"), pool(1, "p2c"));
    assert!(parse(mixed.as_bytes()).is_ok(), "p2c needs no ring");
}

/// Bytes that are no UTF-8, deep nesting, and every prefix of a good configuration: an error, never a panic.
#[test]
fn garbage_is_refused() {
    assert!(parse(b"\xff\xfe").is_err());
    assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    let good = r#"{"pools":[{"cluster":"c","endpoints":[{"address":"10.0.0.1:80","id":"é"}]}]}"#;
    for cut in 1..good.len() {
        assert!(parse(&good.as_bytes()[..cut]).is_err(), "cut at {cut}");
    }
    assert!(parse(good.as_bytes()).is_ok());
}

#[test]
fn a_problem_is_one_line_and_names_its_field() {
    for (json, path) in [
        (r#"{"": 1}"#, r#"[""]"#),
        (r#"{"a\nb": 1}"#, r"a\nb"),
        (r#"{"request": {"aliases": {"x\u0007\n": ""}}}"#, r"request.aliases.x\u{7}\n"),
    ] {
        let error = parse(json.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{path}: ")), "{error}");
        assert!(!error.to_string().contains(char::is_control), "{error:?}");
    }
}
