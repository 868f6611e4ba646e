//! Aliases in the configuration itself: resolved where a name stands for requests, refused where none could match.

use super::{parse, problems};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn default_model(aliases: &str, model: &str) -> String {
    let json = format!(r#"{{"request":{{"aliases":{aliases},"default_model":"{model}"}}}}"#);
    String::from_utf8(parse(json.as_bytes()).unwrap().request.default_model.unwrap().into()).unwrap()
}

#[test]
fn the_default_model_is_resolved_like_any_other_name() {
    assert_eq!(default_model(r#"{"chat":"llama"}"#, "chat"), "llama");
    assert_eq!(default_model(r#"{"chat":"llama"}"#, "llama"), "llama");
    assert_eq!(default_model(r#"{"chat":"llama","llama":"other"}"#, "chat"), "llama", "one step only");
    assert_eq!(default_model(r#"{"chat":"llama","llama":"other"}"#, "llama"), "other");
}

const POOL: &str = r#""cluster":"c","endpoints":[{"address":"1.1.1.1:1","id":"a"#;

fn with_aliases(aliases: &str, pool: &str) -> String {
    format!(r#"{{"request":{{"aliases":{aliases}}},"pools":[{{{pool}}}]}}"#)
}

/// The four places where a pool names models.
fn places(model: &str) -> [(String, &'static str); 4] {
    [
        (format!(r#"{POOL}","models":["bert","{model}"]}}]"#), "pools[0].endpoints[0].models[1]"),
        (format!(r#"{POOL}","serves":["{model}"]}}]"#), "pools[0].endpoints[0].serves[0]"),
        (format!(r#"{POOL}"}}],"models":[{{"id":"{model}","size_units":1}}]"#), "pools[0].models[0].id"),
        (
            format!(r#"{POOL}"}}],"plan":{{"fixed":{{"models":[{{"id":"{model}","homes":["a"]}}]}}}}"#),
            "pools[0].plan.fixed.models[0].id",
        ),
    ]
}

#[test]
fn an_alias_names_no_model_of_a_pool() {
    for (pool, path) in places("chat") {
        let found = problems(&with_aliases(r#"{"chat":"llama"}"#, &pool));
        assert_eq!(found, [format!("{path}: `chat` is an alias of `llama`; write `llama`")]);
        assert!(parse(with_aliases(r#"{"other":"llama"}"#, &pool).as_bytes()).is_ok(), "{pool}");
    }
}

/// Requests for `chat` are routed as `llama` and looked up no further, so that `llama` is a name that can match.
#[test]
fn an_alias_that_another_one_stands_for_is_a_model() {
    for (pool, _) in places("llama") {
        assert!(parse(with_aliases(r#"{"chat":"llama","llama":"new"}"#, &pool).as_bytes()).is_ok(), "{pool}");
        assert_eq!(problems(&with_aliases(r#"{"llama":"new"}"#, &pool)).len(), 1, "{pool}");
    }
}
