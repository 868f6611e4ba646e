//! Headers that could have no effect, or that somebody else needs.

use super::{parse, problems};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_header_of_the_connection_tells_nothing_of_a_request() {
    for name in ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"] {
        for (request, path) in [
            (format!(r#"{{"model_headers":["{name}"]}}"#), "request.model_headers[0]"),
            (format!(r#"{{"hash_header":"{name}"}}"#), "request.hash_header"),
            (format!(r#"{{"session":{{"header":"{name}"}}}}"#), "request.session.header"),
        ] {
            let found = problems(&format!(r#"{{"request":{request}}}"#));
            assert_eq!(found, [format!("{path}: {name:?} has a meaning of its own; choose another header")]);
        }
    }
    assert!(parse(br#"{"request":{"hash_header":"proxy-tenant","model_headers":["te-model"]}}"#).is_ok());
}

/// The destination header is read last, and is the one that is named.
#[test]
fn the_destination_header_carries_nothing_else() {
    for field in [r#""hash_header":"d""#, r#""session":{"header":"d"}"#, r#""urgency_header":"d""#] {
        let found = problems(&format!(r#"{{"request":{{{field},"destination_header":"d"}}}}"#));
        let expected = "request.destination_header: \"d\" is named twice: one header cannot carry two things";
        assert_eq!(found, [expected], "{field}");
    }
}

#[test]
fn a_pseudo_header_is_no_header() {
    for (request, path) in [
        (r#"{"hash_header":":authority"}"#, "request.hash_header"),
        (r#"{"destination_header":":path"}"#, "request.destination_header"),
        (r#"{"session":{"header":":method"}}"#, "request.session.header"),
    ] {
        let found = problems(&format!(r#"{{"request":{request}}}"#));
        assert!(found.len() == 1 && found[0].starts_with(&format!("{path}: ")), "{found:?}");
        assert!(found[0].ends_with("is no header name in lower case, such as \"x-model-id\""), "{found:?}");
    }
}

/// A configuration with `name` for each header that is removed from requests or written over, and its path.
fn own(name: &str) -> [(String, &'static str); 3] {
    [
        (format!(r#"{{"explain":{{"header":"{name}"}}}}"#), "explain.header"),
        (format!(r#"{{"request":{{"urgency_header":"{name}"}}}}"#), "request.urgency_header"),
        (format!(r#"{{"request":{{"destination_header":"{name}"}}}}"#), "request.destination_header"),
    ]
}

/// The same for each header that is only read.
fn read(name: &str) -> [(String, &'static str); 4] {
    [
        (format!(r#"{{"request":{{"model_headers":["a","{name}"]}}}}"#), "request.model_headers[1]"),
        (format!(r#"{{"request":{{"type_headers":["{name}"]}}}}"#), "request.type_headers[0]"),
        (format!(r#"{{"request":{{"hash_header":"{name}"}}}}"#), "request.hash_header"),
        (format!(r#"{{"request":{{"session":{{"header":"{name}"}}}}}}"#), "request.session.header"),
    ]
}

#[test]
fn a_header_that_others_need_is_read_and_never_removed() {
    for name in [
        "accept",
        "accept-encoding",
        "anthropic-version",
        "authorization",
        "b3",
        "content-encoding",
        "if-none-match",
        "openai-organization",
        "priority",
        "range",
        "traceparent",
        "user-agent",
        "x-api-key",
        "x-b3-traceid",
        "x-goog-api-key",
        "x-request-id",
    ] {
        for (json, path) in own(name) {
            let expected = format!(
                "{path}: {name:?} has a meaning of its own, and this one is removed from requests or written over; \
                 choose a header that nobody else reads"
            );
            assert_eq!(problems(&json), [expected]);
        }
        for (json, _) in read(name) {
            assert!(parse(json.as_bytes()).is_ok(), "{json}");
        }
    }
}

#[test]
fn a_header_that_tells_nothing_is_one_mistake_wherever_it_is_named() {
    for name in ["cookie", "content-type", "host", "proxy-connection", "x-envoy-max-retries", "x-forwarded-for"] {
        for (json, path) in own(name).into_iter().chain(read(name)) {
            let expected = format!("{path}: {name:?} has a meaning of its own; choose another header");
            assert_eq!(problems(&json), [expected]);
        }
    }
}

#[test]
fn a_name_that_only_begins_like_one_that_others_need_is_free() {
    for name in ["acceptance", "api-key-of-ours", "priority-class", "ranges", "x-api", "x-gateway-objective"] {
        for (json, _) in own(name) {
            assert!(parse(json.as_bytes()).is_ok(), "{json}");
        }
    }
}

/// It is removed from strangers' requests whichever header asks for explanations.
#[test]
fn the_debug_header_asks_for_explanations_and_nothing_else() {
    let name = crate::request::DEBUG_HEADER;
    for (json, path) in own(name).into_iter().chain(read(name)).filter(|(_, path)| *path != "explain.header") {
        assert_eq!(problems(&json), [format!("{path}: {name:?} can only be `explain.header`; choose another header")]);
    }
    let both = format!(r#"{{"request":{{"hash_header":"{name}"}},"explain":{{"header":"{name}"}}}}"#);
    assert_eq!(problems(&both).len(), 1, "{both}");
    assert!(parse(format!(r#"{{"explain":{{"header":"{name}"}}}}"#).as_bytes()).is_ok());
}
