//! Runs the command and reads what it said.

use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The endpoints of the demo: `gpu-0` to `gpu-7` at 127.0.0.1:8001 to 8008.
pub fn demo() -> Vec<String> {
    (0..8).map(|n| format!("gpu-{n}=127.0.0.1:{}", 8001 + n)).collect()
}

/// What a run said and returned.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The answer of a run that went well.
    pub fn answer(self) -> String {
        assert_eq!((self.code, &*self.stderr), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// The same, as JSON.
    pub fn json(self) -> Value {
        serde_json::from_str(&self.answer()).expect("the answer is JSON")
    }

    /// What a run on bad input said; it must say nothing else.
    pub fn refusal(self) -> String {
        assert_eq!((self.code, &*self.stdout), (Some(2), ""), "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        self.stderr
    }
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmroute"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn run(arguments: &[&str]) -> Ran {
    finish(command(arguments).spawn().expect("the command starts"))
}

/// With `input` on stdin, which must fit into a pipe.
pub fn run_with_input(arguments: &[&str], input: &[u8]) -> Ran {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().expect("the command starts");
    child.stdin.take().expect("a pipe").write_all(input).expect("it reads its input");
    finish(child)
}

pub fn finish(child: std::process::Child) -> Ran {
    let output = child.wait_with_output().expect("the command ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// `warmroute ring` for these keys, as JSON.
pub fn ring(endpoints: &[String], keys: &[&str], more: &[&str]) -> Value {
    let endpoints = endpoints.join(",");
    let mut arguments = vec!["ring", "--format", "json", "--endpoints", &endpoints];
    arguments.extend(keys.iter().flat_map(|key| ["--key", key]));
    arguments.extend(more);
    run(&arguments).json()
}

/// The ids of the endpoints of the key at position `n`.
pub fn ids(answer: &Value, n: usize) -> Vec<String> {
    let endpoints = answer["keys"][n]["endpoints"].as_array().expect("a list");
    endpoints.iter().map(|endpoint| endpoint["id"].as_str().expect("an id").to_owned()).collect()
}

/// A file that is gone when the folder is dropped.
pub fn file(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plugin.json");
    std::fs::write(&path, content).expect("the file is written");
    (folder, path)
}
