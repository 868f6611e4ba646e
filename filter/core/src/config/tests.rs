use super::*;
use crate::pool::Pool;
use crate::strategy::StrategyName;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn problems(json: &str) -> Vec<String> {
    parse(json.as_bytes()).unwrap_err().problems.iter().map(ToString::to_string).collect()
}

fn pool_of(config: &Config) -> &Pool {
    &config.pools.iter().find(|(cluster, _)| &**cluster == "c").unwrap().1
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
        assert_eq!(pool_of(&config).settings().max_retries, retries);
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse(br#"{"pools":[{"cluster":"c","endpoints":[{"address":"10.0.0.1:80"}]}]}"#).unwrap();
    let settings = pool_of(&config).settings();
    assert_eq!(settings.strategy, StrategyName::Ring);
    assert_eq!((settings.virtual_nodes, settings.fallbacks, settings.max_retries), (150, 2, 2));
    let endpoint = &pool_of(&config).endpoints().unwrap()[0];
    assert_eq!(&*endpoint.id, "10.0.0.1:80", "the id is the address");
    assert!(!endpoint.marked_unhealthy);
    assert_eq!(endpoint.resident, None);
    assert_eq!(config.header_names.model, ["x-model-id".into(), "model-id".into()].into());
}

#[test]
fn what_is_given_is_taken() {
    let config = parse(
        br#"{"pools":[{"cluster":"c","strategy":"p2c","virtual_nodes":3,"fallbacks":5,"max_retries":3,"endpoints":[
            {"address":"[FD00::0007]:80","id":"gpu-0","models":["llama"],"unhealthy":true}]}],
            "request":{"model_headers":["m"],"type_headers":[],"destination_header":"d"}}"#,
    )
    .unwrap();
    let settings = pool_of(&config).settings();
    assert_eq!(settings.strategy, StrategyName::P2c);
    assert_eq!((settings.virtual_nodes, settings.fallbacks, settings.max_retries), (3, 5, 3));
    let endpoint = &pool_of(&config).endpoints().unwrap()[0];
    assert_eq!((&*endpoint.id, endpoint.address.as_str()), ("gpu-0", "[fd00::7]:80"));
    assert!(endpoint.marked_unhealthy);
    assert_eq!(endpoint.holds(crate::hash::hash(b"llama")), Some(true));
    assert_eq!(config.header_names.model, ["m".into()].into());
    assert_eq!(config.header_names.request_type, [].into());
    assert_eq!(&*config.destination_header, "d");
}

#[test]
fn endpoints_left_out_are_not_known_and_an_empty_list_is() {
    let config = parse(br#"{"pools":[{"cluster":"c"}]}"#).unwrap();
    assert_eq!(pool_of(&config).endpoints(), None);
    let config = parse(br#"{"pools":[{"cluster":"c","endpoints":[]}]}"#).unwrap();
    assert_eq!(pool_of(&config).endpoints(), Some(&[][..]));
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
        (r#"{"pools":[{"cluster":"c","virtual_nodes":-1}]}"#, "pools[0].virtual_nodes", "invalid value"),
        (r#"{"pools":[{"cluster":"c","fallbacks":8}]}"#, "pools[0].fallbacks", "0 to 7"),
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
