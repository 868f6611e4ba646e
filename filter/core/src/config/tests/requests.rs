//! Headers, cookies and numbers that could have no effect.

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

fn cookie(name: &str, ttl_seconds: u32) -> String {
    format!(r#"{{"request":{{"session":{{"cookie":{{"name":"{name}","ttl_seconds":{ttl_seconds}}}}}}}}}"#)
}

#[test]
fn a_cookie_name_cannot_hold_what_ends_it() {
    for name in ["a=b", "a;b", "a,b", "a b", "é"] {
        let found = problems(&cookie(name, 60));
        let expected = format!("request.session.cookie.name: {name:?} is no cookie name, such as \"session\"");
        assert_eq!(found, [expected]);
    }
}

/// One that somebody else sets, with `Secure`, may have the prefix.
#[test]
fn a_cookie_that_is_set_is_one_that_browsers_keep() {
    for name in ["__Host-session", "__Secure-session", "__host-session"] {
        let expected = "request.session.cookie.name: browsers drop a cookie of this prefix that is set without `Secure`; \
                        write a name without it, or set `ttl_seconds` to 0";
        assert_eq!(problems(&cookie(name, 60)), [expected], "{name}");
        assert!(parse(cookie(name, 0).as_bytes()).is_ok(), "{name}");
    }
    assert!(parse(cookie("__hosting", 60).as_bytes()).is_ok());
}

#[test]
fn the_plan_that_nobody_made_is_not_written_down() {
    let plan = |version: u64| {
        let plan = format!(r#"{{"fixed":{{"version":{version},"models":[]}}}}"#);
        format!(r#"{{"pools":[{{"cluster":"c","plan":{plan}}}]}}"#)
    };
    let expected = "pools[0].plan.fixed.version: 0 is out of range, allowed are 1 to 18446744073709551615";
    assert_eq!(problems(&plan(0)), [expected]);
    assert!(parse(plan(1).as_bytes()).is_ok());
}

/// JSON has no NaN, and a number beyond all measure is none either.
#[test]
fn a_share_is_a_number() {
    for ratio in ["1.01", "-0.01"] {
        let found = problems(&format!(r#"{{"explain":{{"log_ratio":{ratio}}}}}"#));
        assert_eq!(found, [format!("explain.log_ratio: {ratio} is out of range, allowed are 0 to 1")]);
    }
    for ratio in ["NaN", "1e999", "\"0.5\""] {
        let found = problems(&format!(r#"{{"explain":{{"log_ratio":{ratio}}}}}"#));
        assert!(found.len() == 1 && found[0].starts_with("explain.log_ratio: "), "{found:?}");
    }
}
