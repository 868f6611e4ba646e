//! The command as `make sim` runs it, in a few cells.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A folder of this test's own, empty.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn sim(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).current_dir(folder).output().unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

const TABLE: [&str; 6] = ["table", "--quick", "--cells", "S1 M0.5 z0.9 ρ0.7", "--only", "homes,ring,round_robin"];

/// Time is virtual: neither how many threads there are nor how fast they are changes a number.
#[test]
fn the_same_seed_gives_the_same_numbers_on_any_number_of_threads() {
    let folder = folder("threads");
    let of = |threads: &str, json: &str| {
        let output = sim(&folder, &[&TABLE[..], &["--strict", "--threads", threads, "--json", json]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (output.stdout, std::fs::read(folder.join(json)).unwrap())
    };
    let one = of("1", "one.json");
    assert_eq!(one, of("4", "four.json"));

    let report: Value = serde_json::from_slice(&one.1).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let policies: BTreeSet<_> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(policies.len(), 3, "{policies:?}");
    let kept = |promise: &&Value| promise["measured"].is_number();
    assert!(
        report["promises"].as_array().unwrap().iter().filter(kept).count() > 0,
        "some promises are about this cell"
    );
}

#[test]
fn files_are_written_only_where_asked_for() {
    let folder = folder("files");
    assert!(sim(&folder, &TABLE).status.success());
    assert!(files(&folder).is_empty());
    assert!(sim(&folder, &[&TABLE[..], &["--plot", "sim.svg"]].concat()).status.success());
    assert_eq!(files(&folder), ["sim.svg"]);
    let picture = std::fs::read_to_string(folder.join("sim.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"));
    for policy in ["homes", "ring", "round_robin"] {
        assert!(picture.contains(policy), "{policy} is in the legend");
    }
}
