//! Cookies and numbers that could have no effect.

use super::{parse, problems};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

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
