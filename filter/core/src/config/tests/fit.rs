//! Classes, homes, sizes and a default model that no endpoint of the pool could take.

use super::{parse, problems};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A pool with `fields` and these endpoints.
fn pool(fields: &str, endpoints: &str) -> String {
    format!(r#"{{"pools":[{{"cluster":"c",{fields},"endpoints":[{endpoints}]}}]}}"#)
}

/// Two endpoints, `a` and `b`, with more of their own.
fn two(a: &str, b: &str) -> String {
    format!(r#"{{"address":"1.1.1.1:1","id":"a"{a}}},{{"address":"1.1.1.2:1","id":"b"{b}}}"#)
}

fn class(labels: &str) -> String {
    format!(r#""payload_classes":[{{"name":"large","above_bytes":9,"labels":{labels}}}]"#)
}

fn homes(homes: &str) -> String {
    format!(r#""plan":{{"fixed":{{"models":[{{"id":"m","homes":{homes}}}]}}}}"#)
}

fn taken(json: &str) {
    assert!(parse(json.as_bytes()).is_ok(), "{json}: {:?}", problems(json));
}

#[test]
fn a_class_asks_for_labels_that_somebody_has() {
    let some = two(r#","labels":["gpu=h100"]"#, "");
    taken(&pool(&class(r#"["gpu=h100"]"#), &some));
    taken(&pool(&class("[]"), &some));
    let found = problems(&pool(&class(r#"["gpu=h100","gpu=a100"]"#), &some));
    let expected = "pools[0].payload_classes[0].labels[1]: no endpoint of this pool has \"gpu=a100\", and the class's \
                    requests would all get 503; write a label that one has";
    assert_eq!(found, [expected]);
}

#[test]
fn one_endpoint_must_have_all_labels_of_a_class() {
    let apart = two(r#","labels":["gpu=h100"]"#, r#","labels":["zone=a"]"#);
    let found = problems(&pool(&class(r#"["gpu=h100","zone=a"]"#), &apart));
    let expected = "pools[0].payload_classes[0].labels: no endpoint of this pool has all of these, and the class's \
                    requests would all get 503; write labels that one has together";
    assert_eq!(found, [expected]);
    let together = two(r#","labels":["zone=a","gpu=h100"]"#, "");
    taken(&pool(&class(r#"["gpu=h100","zone=a"]"#), &together));
}

#[test]
fn an_endpoint_that_drains_or_is_marked_has_its_labels_and_models() {
    for state in [r#","draining":true"#, r#","unhealthy":true"#] {
        taken(&pool(&class(r#"["gpu=h100"]"#), &two(&format!(r#"{state},"labels":["gpu=h100"]"#), "")));
        taken(&pool(&homes(r#"["a"]"#), &two(&format!(r#"{state},"serves":["m"]"#), "")));
    }
}

#[test]
fn a_home_serves_its_model() {
    let found = problems(&pool(&homes(r#"["b","a"]"#), &two(r#","serves":["n"]"#, r#","serves":["n","m"]"#)));
    let expected = "pools[0].plan.fixed.models[0].homes[1]: \"a\" does not have `m` in its `serves`; write an endpoint \
                    that does";
    assert_eq!(found, [expected]);
    taken(&pool(&homes(r#"["b","a"]"#), &two("", r#","serves":["m"]"#)));
}

/// The pool's `memory_units` is the endpoints' own where they have none; a model without `size_units` takes 1.
#[test]
fn a_home_has_the_memory_for_its_model() {
    let sized = |size: u32| format!(r#""memory_units":2,"models":[{{"id":"m","size_units":{size}}}],"#);
    let fields = |size| sized(size) + &homes(r#"["a","b"]"#);
    let endpoints = two("", r#","memory_units":3"#);
    taken(&pool(&fields(2), &endpoints));
    let problem = |n: u8, id: &str, memory: u8, size: u8| {
        format!(
            "pools[0].plan.fixed.models[0].homes[{n}]: \"{id}\" has {memory} memory_units, and `m` takes {size}; \
             write an endpoint that has as many"
        )
    };
    assert_eq!(problems(&pool(&fields(3), &endpoints)), [problem(0, "a", 2, 3)]);
    assert_eq!(problems(&pool(&fields(4), &endpoints)), [problem(0, "a", 2, 4), problem(1, "b", 3, 4)]);
    taken(&pool(&homes(r#"["a"]"#), &two(r#","memory_units":1"#, "")));
}

#[test]
fn a_home_is_an_endpoint_of_the_pool() {
    let found = problems(&pool(&homes(r#"["a","c"]"#), &two("", "")));
    assert_eq!(found, ["pools[0].plan.fixed.models[0].homes[1]: \"c\" is the id of no endpoint of this pool"]);
}

/// A pool scaled to zero keeps its classes and its plan for when it is back, and so does one that is not known yet.
#[test]
fn what_cannot_be_decided_is_taken() {
    for fields in [class(r#"["gpu=h100"]"#), homes(r#"["a"]"#)] {
        taken(&pool(&fields, ""));
        taken(&format!(r#"{{"pools":[{{"cluster":"c",{fields}}}]}}"#));
    }
}

/// An endpoint that was refused itself could be the one that fits: only its own mistake is told.
#[test]
fn a_refused_endpoint_is_one_mistake() {
    let broken = r#"{"address":"1.1.1.1:1","id":"b"},{"address":"gpu:1","id":"a","labels":["gpu=h100"]}"#;
    for fields in [class(r#"["gpu=h100"]"#), homes(r#"["a"]"#)] {
        let found = problems(&pool(&fields, broken));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("pools[0].endpoints[1].address: "), "{found:?}");
    }
}

#[test]
fn homes_are_only_for_models_that_go_by_them() {
    let fields = |pools: &str, models: &str| format!(r#"{pools}"models":[{models}],{}"#, homes(r#"["a"]"#));
    let expected = |name: &str| {
        format!(
            "pools[0].plan.fixed.models[0].id: `m` goes by \"{name}\", which reads no homes; leave it out here, or let \
             it go by \"homes\""
        )
    };
    let own = fields("", r#"{"id":"m","strategy":"p2c"}"#);
    assert_eq!(problems(&pool(&own, &two("", ""))), [expected("p2c")]);
    let others = fields(r#""strategy":"ring","#, r#"{"id":"n","strategy":"homes"}"#);
    assert_eq!(problems(&pool(&others, &two("", ""))), [expected("ring")]);
    taken(&pool(&fields(r#""strategy":"ring","#, r#"{"id":"m","strategy":"homes"}"#), &two("", "")));
    let nobody = problems(&pool(&fields(r#""strategy":"ring","#, r#"{"id":"n"}"#), &two("", "")));
    assert_eq!(nobody.len(), 1, "{nobody:?}");
    assert!(nobody[0].starts_with("pools[0].plan: no strategy here reads a plan"), "{nobody:?}");
}

#[test]
fn homes_without_a_plan_are_named_where_they_are_asked_for() {
    let found = problems(&pool(r#""models":[{"id":"n"},{"id":"m","strategy":"homes"}]"#, ""));
    let expected = "pools[0].models[1].strategy: \"homes\" needs a plan: set `plan`, to \"self\" or to a fixed one";
    assert_eq!(found, [expected]);
}

#[test]
fn a_model_that_this_proxy_plans_has_an_endpoint_with_the_memory() {
    let fields =
        |plan: &str, size: u32| format!(r#"{plan}"memory_units":2,"models":[{{"id":"m","size_units":{size}}}]"#);
    let endpoints = two("", r#","memory_units":3,"draining":true"#);
    let planned = |size| fields(r#""plan":"self","#, size);
    taken(&pool(&planned(3), &endpoints));
    let expected = "pools[0].models[0].size_units: `m` takes 4, and no endpoint of this pool has more than 3 \
                    memory_units; write a size that one has, or give an endpoint as many";
    assert_eq!(problems(&pool(&planned(4), &endpoints)), [expected]);
    assert_eq!(problems(&pool(&planned(100_001), &endpoints)).len(), 1, "out of range is one mistake");
    taken(&pool(&planned(4), ""));
    taken(&pool(&fields("", 4), &endpoints));
}

/// Pools whose endpoints have this of their own, and a default model.
fn with_default(default: &str, pools: &[&[&str]]) -> String {
    let endpoint = |(n, own): (usize, &&str)| format!(r#"{{"address":"1.1.1.{n}:1"{own}}}"#);
    let pool = |(n, endpoints): (usize, &&[&str])| {
        let endpoints: Vec<_> = endpoints.iter().enumerate().map(endpoint).collect();
        format!(r#"{{"cluster":"c{n}","endpoints":[{}]}}"#, endpoints.join(","))
    };
    let pools: Vec<_> = pools.iter().enumerate().map(pool).collect();
    let request = format!(r#"{{"default_model":"{default}","aliases":{{"chat":"llama"}}}}"#);
    format!(r#"{{"request":{request},"pools":[{}]}}"#, pools.join(","))
}

#[test]
fn somebody_serves_the_default_model() {
    let (bert, llama) = (r#","serves":["bert"]"#, r#","serves":["llama"]"#);
    for default in ["llama", "chat"] {
        let expected = "request.default_model: no endpoint of any pool has `llama` in its `serves`, and requests that \
                        name no model would all get 503; write a model that one serves";
        assert_eq!(problems(&with_default(default, &[&[bert, bert], &[bert]])), [expected]);
        taken(&with_default(default, &[&[bert, bert], &[bert, llama]]));
        taken(&with_default(default, &[&[bert, ""]]));
        taken(&with_default(default, &[&[bert], &[]]));
        taken(&with_default(default, &[]));
    }
    let mistaken = with_default("", &[&[bert]]);
    assert_eq!(problems(&mistaken), ["request.default_model: 0 bytes long, allowed are 1 to 256"]);
}

#[test]
fn nothing_is_listed_twice() {
    for (field, item) in [("labels", "gpu=h100"), ("models", "m"), ("serves", "m")] {
        let found = problems(&pool(r#""slots":1"#, &two("", &format!(r#","{field}":["{item}","x=y","{item}"]"#))));
        assert_eq!(found, [format!("pools[0].endpoints[1].{field}[2]: {item:?} is there twice")]);
    }
    let found = problems(&pool(&class(r#"["gpu=h100","gpu=h100"]"#), ""));
    assert_eq!(found, ["pools[0].payload_classes[0].labels[1]: \"gpu=h100\" is there twice"]);
    taken(&pool(r#""slots":1"#, &two("", r#","labels":["gpu=h100","gpu=a100"]"#)));
}
