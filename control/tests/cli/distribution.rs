//! `warmroute distribution`.

use crate::run::{demo, file, ids, ring, run, run_with_input};
use serde_json::Value;

fn distribution(endpoints: &[String], more: &[&str]) -> Value {
    let endpoints = endpoints.join(",");
    run(&[&["distribution", "--format", "json", "--endpoints", &endpoints], more].concat()).json()
}

fn numbers(answer: &Value, field: &str) -> Vec<f64> {
    answer["shares"].as_array().unwrap().iter().map(|share| share[field].as_f64().unwrap()).collect()
}

#[test]
fn shares_add_up_to_one_whatever_the_weights() {
    let mut weighted = demo();
    weighted[2].push_str("*0");
    weighted[3].push_str("*0.01");
    weighted[4].push_str("*10");
    for endpoints in [&demo()[..], &weighted, &demo()[..1]] {
        for nodes in ["1", "150", "1000"] {
            let answer = distribution(endpoints, &["--virtual-nodes", nodes]);
            let sum: f64 = numbers(&answer, "share").iter().sum();
            assert!((sum - 1.0).abs() < 1e-9, "{sum} with {nodes}: {endpoints:?}");
        }
    }
}

#[test]
fn max_over_mean_is_what_the_shares_say() {
    let answer = distribution(&demo(), &[]);
    let max = numbers(&answer, "share").into_iter().fold(0.0, f64::max);
    assert!((answer["max_over_mean"].as_f64().unwrap() - max * 8.0).abs() < 1e-12);
    let alone = distribution(&demo()[..1], &[])["max_over_mean"].as_f64().unwrap();
    assert!((alone - 1.0).abs() < 1e-9, "{alone}: one owns all");
}

/// A weight of 2 adds points to those that are there, which can only take from the others.
#[test]
fn a_weight_takes_from_the_others_only() {
    let mut weighted = demo();
    weighted[0].push_str("*2");
    let (plain, weighted) = (distribution(&demo(), &[]), distribution(&weighted, &[]));
    let (before, after) = (numbers(&plain, "share"), numbers(&weighted, "share"));
    assert!(after[0] > before[0] * 1.4, "{before:?} to {after:?}: two ninths instead of one eighth, about 1.8 times");
    assert!(before[1..].iter().zip(&after[1..]).all(|(before, after)| after <= before), "{before:?} to {after:?}");
    assert_eq!(numbers(&weighted, "nodes"), [300.0, 150.0, 150.0, 150.0, 150.0, 150.0, 150.0, 150.0]);
    assert_eq!(weighted["shares"][0]["weight"], 2.0);
}

/// Each key is counted once, at the endpoint that `warmroute ring` names first, from a file as from stdin.
#[test]
fn keys_are_counted_where_the_ring_has_them() {
    let keys: Vec<_> = (0..200).map(|n| format!("model-{n:02}")).collect();
    let text = keys.join("\n");
    let (_folder, path) = file(text.as_bytes());
    let counted = distribution(&demo(), &["--keys", path.to_str().unwrap()]);
    let endpoints = demo().join(",");
    let arguments = ["distribution", "--format", "json", "--endpoints", &endpoints, "--keys", "-"];
    assert_eq!(run_with_input(&arguments, text.as_bytes()).json(), counted);
    let answer = ring(&demo(), &keys.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let mut expected = [0.0; 8];
    for n in 0..keys.len() {
        let first = ids(&answer, n)[0].strip_prefix("gpu-").unwrap().parse::<usize>().unwrap();
        expected[first] += 1.0;
    }
    assert_eq!(numbers(&counted, "keys"), expected);
    assert_eq!(counted["keys"], 200);
}

#[test]
fn without_keys_nothing_is_counted() {
    let answer = distribution(&demo(), &[]);
    assert!(answer["keys"].is_null() && answer["shares"][0]["keys"].is_null());
}

/// Per line: id, share in percent, keys; then the bar.
#[test]
fn text_says_what_json_says_in_eighty_columns() {
    let (_folder, path) = file(b"bert\nmodel-00\nmodel-01\n");
    let (endpoints, keys) = (demo().join(","), path.to_str().unwrap());
    let text = run(&["distribution", "--endpoints", &endpoints, "--keys", keys]).answer();
    let json = distribution(&demo(), &["--keys", keys]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 10, "a head, eight endpoints, a sum: {text}");
    for (line, share) in lines[1..].iter().zip(json["shares"].as_array().unwrap()) {
        let words: Vec<_> = line.split_whitespace().collect();
        let percent = format!("{:.2}", share["share"].as_f64().unwrap() * 100.0);
        let expected = [share["id"].as_str().unwrap(), &percent, "%", &share["keys"].to_string()];
        assert_eq!(words[..4], expected, "{line}");
        assert!(words[4].chars().all(|c| c == '#'), "{line}");
    }
    let widest = lines.iter().map(|line| line.chars().count()).max();
    assert_eq!(widest, Some(80), "the largest share fills its line: {text}");
    let sum = format!("max/mean {:.2}: ", json["max_over_mean"].as_f64().unwrap());
    assert!(lines[9].starts_with(&sum), "{text}");
}
