//! What goes to stdout: text and JSON agree, readers may leave, and help tells everything.

use crate::run::{command, demo, finish, ids, ring, run};
use std::io::Write;
use std::process::Stdio;

/// Per block: the key and its hash; then rank, id and address, one endpoint a line.
#[test]
fn text_says_what_json_says() {
    let endpoints = demo().join(",");
    let keys = ["bert", "model-00", "two words"];
    let options = ["--replicas", "3"];
    let arguments = [&["ring", "--endpoints", &endpoints][..], &options, &["--key", keys[0], "--key", keys[1]]];
    let text = run(&[&arguments.concat()[..], &["--key", keys[2]]].concat()).answer();
    let json = ring(&demo(), &keys, &options);
    let blocks: Vec<_> = text.split("\n\n").collect();
    assert_eq!(blocks.len(), 3, "{text}");
    for (n, block) in blocks.iter().enumerate() {
        let mut lines = block.lines();
        let hash = json["keys"][n]["hash"].as_str().unwrap();
        assert_eq!(lines.next(), Some(&*format!("{} (hash {hash})", keys[n])));
        let expected = ids(&json, n).into_iter().enumerate().map(|(m, id)| {
            let address = json["keys"][n]["endpoints"][m]["address"].as_str().unwrap();
            format!("  {}  {id}  {address}", m + 1)
        });
        assert!(lines.map(str::to_owned).eq(expected), "{block}");
    }
}

#[test]
fn names_do_not_write_to_the_terminal() {
    let text = run(&["ring", "--endpoints", "a\u{1b}[2J=10.0.0.1:80", "--key", "b\u{7}"]).answer();
    assert!(!text.contains(['\u{1b}', '\u{7}']) && text.contains("a\\u{1b}[2J"), "{text:?}");
}

/// The command waits for its keys, so that the reader is gone for certain before it writes.
#[test]
fn a_reader_that_leaves_is_no_error() {
    for format in ["text", "json"] {
        let endpoints = demo().join(",");
        let arguments = ["distribution", "--endpoints", &endpoints, "--keys", "-", "--format", format];
        let mut child = command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        child.stdin.take().unwrap().write_all(b"bert\n").unwrap();
        let ran = finish(child);
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{format}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let endpoints = demo().join(",");
    let mut command = command(&["ring", "--endpoints", &endpoints, "--key", "bert"]);
    let ran = finish(command.stdout(full).spawn().unwrap());
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with("error: cannot write the answer: "), "{ran:?}");
}

#[test]
fn help_tells_every_argument_an_example_and_the_shape_of_json() {
    for (subcommand, arguments, fields) in [
        (
            "ring",
            &["--endpoints", "--config", "--cluster", "--virtual-nodes", "--key", "--replicas", "--format"][..],
            &["cluster", "virtual_nodes", "replicas", "keys"][..],
        ),
        (
            "distribution",
            &["--endpoints", "--config", "--cluster", "--virtual-nodes", "--keys", "--format"],
            &["cluster", "virtual_nodes", "keys", "max_over_mean", "shares"],
        ),
    ] {
        let help = run(&[subcommand, "--help"]).answer();
        assert!(help.contains(&format!("\n  warmroute {subcommand} --endpoints ")), "{help}");
        for argument in arguments {
            assert!(help.contains(argument), "{argument}: {help}");
        }
        for field in fields {
            assert!(help.contains(&format!("\"{field}\": ")), "{field}: {help}");
        }
    }
}

#[test]
fn the_version_is_the_packages() {
    assert_eq!(run(&["--version"]).answer(), format!("warmroute {}\n", env!("CARGO_PKG_VERSION")));
}

/// Fields that programs may rely on, in the answers themselves.
#[test]
fn json_has_the_documented_fields_and_no_others() {
    let fields = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let answer = ring(&demo(), &["bert"], &[]);
    assert_eq!(fields(&answer), "cluster keys replicas virtual_nodes");
    assert_eq!(fields(&answer["keys"][0]), "endpoints hash key routed_as strategy");
    assert_eq!(fields(&answer["keys"][0]["endpoints"][0]), "address id skipped");
    let endpoints = demo().join(",");
    let answer = run(&["distribution", "--format", "json", "--endpoints", &endpoints]).json();
    assert_eq!(fields(&answer), "cluster keys max_over_mean shares virtual_nodes");
    assert_eq!(fields(&answer["shares"][0]), "address id keys nodes share skipped weight");
}
