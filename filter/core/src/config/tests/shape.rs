//! JSON that could be taken for something it does not say.

use super::{parse, problems};
use crate::strategy::StrategyName;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// `value` as the field `field` of the first pool.
fn pool(field: &str, value: &str) -> String {
    format!(r#"{{"pools":[{{"cluster":"c","{field}":{value}}}]}}"#)
}

/// `value` as the field `field` of the first pool's first endpoint.
fn endpoint(field: &str, value: &str) -> String {
    pool("endpoints", &format!(r#"[{{"address":"1.1.1.1:1","{field}":{value}}}]"#))
}

fn refused(json: &str, path: &str, message: &str) {
    assert_eq!(problems(json), [format!("{path}: {message}")], "{json}");
}

#[test]
fn null_is_no_value_of_any_field() {
    for (json, path) in [
        (r#"{"pools":null}"#.to_owned(), "pools"),
        (r#"{"pools":[null]}"#.to_owned(), "pools[0]"),
        (r#"{"pools":[{"cluster":null}]}"#.to_owned(), "pools[0].cluster"),
        (pool("endpoints", "null"), "pools[0].endpoints"),
        (pool("strategy", "null"), "pools[0].strategy"),
        (pool("plan", r#"{"self":null}"#), "pools[0].plan.self"),
        (pool("models", r#"[{"id":"m"},{"id":"n","load_ms":null}]"#), "pools[0].models[1].load_ms"),
        (endpoint("serves", "null"), "pools[0].endpoints[0].serves"),
        (endpoint("labels", r#"["a=b",null]"#), "pools[0].endpoints[0].labels[1]"),
        (r#"{"request":{"aliases":{"chat":null}}}"#.to_owned(), "request.aliases.chat"),
        (r#"{"request":{"session":null}}"#.to_owned(), "request.session"),
        (r#"{"explain":null}"#.to_owned(), "explain"),
    ] {
        refused(&json, path, "null is no value here: write one, or leave it out");
    }
}

#[test]
fn no_field_is_there_twice() {
    for (json, path) in [
        (r#"{"pools":[],"pools":[]}"#.to_owned(), "pools"),
        (r#"{"pools":[{"cluster":"c","cluster":"c"}]}"#.to_owned(), "pools[0].cluster"),
        (pool("plan", r#"{"fixed":{"models":[]},"fixed":{"models":[]}}"#), "pools[0].plan.fixed"),
        (endpoint("address", r#""1.1.1.2:1""#), "pools[0].endpoints[0].address"),
        (r#"{"request":{"aliases":{"a":"m","b":"m","a":"n"}}}"#.to_owned(), "request.aliases.a"),
        (r#"{"request":{"aliases":{"\u0061":"m","a":"m"}}}"#.to_owned(), "request.aliases.a"),
        (r#"{"request":{"aliases":{"":"m","":"n"}}}"#.to_owned(), r#"request.aliases[""]"#),
    ] {
        refused(&json, path, "is there twice, and only one can count: leave one out");
    }
}

#[test]
fn a_list_is_no_object() {
    for (json, path) in [
        (r#"{"pools":[["c"]]}"#.to_owned(), "pools[0]"),
        (pool("endpoints", r#"[["1.1.1.1:1","a"]]"#), "pools[0].endpoints[0]"),
        (pool("models", r#"[["m","ring",1,1]]"#), "pools[0].models[0]"),
        (pool("payload_classes", r#"[["large",9]]"#), "pools[0].payload_classes[0]"),
        (pool("plan", r#"{"fixed":[1,[]]}"#), "pools[0].plan.fixed"),
        (pool("plan", r#"{"fixed":{"models":[["m",["a"]]]}}"#), "pools[0].plan.fixed.models[0]"),
        (r#"{"request":[]}"#.to_owned(), "request"),
        (r#"{"request":{"aliases":[]}}"#.to_owned(), "request.aliases"),
        (r#"{"request":{"session":["x-s"]}}"#.to_owned(), "request.session"),
        (r#"{"request":{"session":{"cookie":["s"]}}}"#.to_owned(), "request.session.cookie"),
        (r#"{"request":{"body":[64]}}"#.to_owned(), "request.body"),
        (r#"{"explain":["x-why"]}"#.to_owned(), "explain"),
    ] {
        refused(&json, path, "invalid type: array, expected an object");
    }
}

#[test]
fn a_name_is_not_written_as_an_object() {
    let alone = |name| format!("{name:?} has nothing inside: write {name:?} alone");
    refused(&pool("strategy", r#"{"ring":{}}"#), "pools[0].strategy", &alone("ring"));
    refused(&pool("updates", r#"{"pool":0}"#), "pools[0].updates", &alone("pool"));
    refused(&pool("plan", r#"{"self":{}}"#), "pools[0].plan", &alone("self"));
    let model = r#"[{"id":"m","strategy":{"hash":true}}]"#;
    refused(&pool("models", model), "pools[0].models[0].strategy", &alone("hash"));
    let null = problems(&pool("strategy", r#"{"ring":null}"#));
    assert!(null.len() == 1 && null[0].starts_with("pools[0].strategy.ring: null"), "{null:?}");
}

#[test]
fn a_plan_that_is_none_is_told_what_one_is() {
    for (plan, found) in
        [("{}", "object"), ("7", "integer `7`"), ("[]", "array"), (r#"{"self":1,"fixed":{}}"#, "object")]
    {
        let message = format!(r#"invalid type: {found}, expected "self" or {{"fixed": {{…}}}}"#);
        refused(&pool("plan", plan), "pools[0].plan", &message);
    }
    let message = r#""fixed" alone says too little: write {"fixed": {…}}"#;
    refused(&pool("plan", r#""fixed""#), "pools[0].plan", message);
    refused(&pool("plan", r#"{"fixed":7}"#), "pools[0].plan.fixed", "invalid type: integer `7`, expected an object");
    refused(&pool("plan", r#"{"hub":{}}"#), "pools[0].plan", "unknown variant `hub`, expected `self` or `fixed`");
}

/// The list in the message is written by hand.
#[test]
fn a_strategy_that_is_none_is_told_every_strategy() {
    let found = problems(&pool("strategy", "7"));
    for name in problems(&pool("strategy", r#""none""#))[0].split('`').skip(3).step_by(2) {
        assert!(found[0].contains(&format!("`{name}`")), "{name}: {found:?}");
    }
    for name in [StrategyName::Homes, StrategyName::LeastRequest, StrategyName::Hash] {
        assert!(found[0].contains(name.name()), "{found:?}");
    }
    let updates = "invalid type: boolean `true`, expected `holders` or `pool`";
    refused(&pool("updates", "true"), "pools[0].updates", updates);
}

#[test]
fn a_wrong_type_is_told_the_right_one() {
    for (json, path, message) in [
        (pool("fallbacks", "1.5"), "pools[0].fallbacks", "floating point `1.5`, expected a whole number"),
        (pool("load_cost", r#""1""#), "pools[0].load_cost", "string \"1\", expected a number"),
        (pool("endpoints", "{}"), "pools[0].endpoints", "object, expected an array"),
        (
            pool("strategy", "true"),
            "pools[0].strategy",
            "boolean `true`, expected one of `homes`, `ring`, `p2c`, \
            `round_robin`, `least_request`, `hash`",
        ),
        (endpoint("draining", "1"), "pools[0].endpoints[0].draining", "integer `1`, expected true or false"),
        (endpoint("id", "-1"), "pools[0].endpoints[0].id", "integer `-1`, expected a string"),
        (endpoint("labels", r#"["a=b",{"c":"d"}]"#), "pools[0].endpoints[0].labels[1]", "object, expected a string"),
    ] {
        refused(&json, path, &format!("invalid type: {message}"));
    }
}

#[test]
fn what_is_no_json_is_told_where_it_ends() {
    for (json, path) in [
        (r#"{"pools":[{"cluster":"c","endpoints":[{"address":tru"#, "pools[0].endpoints[0].address"),
        (r#"{"request":{"aliases":{"a":"b""#, "request.aliases"),
        (r#"{"pools":[1e999]}"#, "pools[0]"),
    ] {
        let found = problems(json);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{path}: ")), "{found:?}");
        assert!(found[0].contains(" at line 1 column "), "{found:?}");
    }
    assert!(parse(br#"{"pools":[{"cluster":"c","load_cost":1e2,"panic_threshold_ratio":1}]}"#).is_ok());
}
