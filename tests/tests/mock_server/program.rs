//! The program `mock-model-server` as a process.

use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::http1;

struct Program {
    child: Child,
    url: String,
}

async fn start(arguments: &[&str]) -> Program {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mock-model-server"))
        .args(["--listen", "127.0.0.1:0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let line = lines.next_line().await.expect("stdout").expect("a line");
    let addr = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}"));
    Program { url: format!("http://{addr}"), child }
}

impl Program {
    async fn end_by(mut self, signal: Signal) -> ExitStatus {
        let id = i32::try_from(self.child.id().expect("running")).expect("id");
        kill_process(Pid::from_raw(id).expect("id"), signal).expect("signal");
        self.child.wait().await.expect("status")
    }
}

#[tokio::test]
async fn it_serves_what_its_arguments_say_and_ends_cleanly_on_a_signal() {
    let arguments = ["--capacity", "2", "--resident", "a,b", "--service-ms", "0.5", "--record", "--seed", "4"];
    for signal in [Signal::TERM, Signal::INT] {
        let program = start(&arguments).await;
        let client = http1();
        let url = format!("{}/v1/chat/completions", program.url);
        let answer = client.post(url).json(&json!({ "model": "c" })).send().await.expect("answer");
        assert_eq!(answer.status(), 200);
        let get = async |path: &str| -> Value {
            let answer = client.get(format!("{}{path}", program.url)).send().await.expect("answer");
            answer.json().await.expect("json")
        };
        let stats = get("/mock/stats").await;
        for (field, value) in [
            ("requests", json!(1)),
            ("cold_loads", json!(1)),
            ("cancelled", json!(0)),
            ("in_flight", json!(0)),
            ("max_in_flight", json!(1)),
            ("resident_models", json!(["c", "a"])),
        ] {
            assert_eq!(stats[field], value, "{field}");
        }
        assert_eq!(get("/mock/requests").await[0]["model"], "c");
        assert!(program.end_by(signal).await.success());
    }
}

#[tokio::test]
async fn a_crash_ends_the_process_after_the_answer() {
    let mut program = start(&[]).await;
    let url = format!("{}/mock/faults", program.url);
    let answer = http1().post(url).json(&json!({ "crash": true })).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
    let status = program.child.wait().await.expect("status");
    assert_eq!(status.code(), Some(1));
}

#[tokio::test]
async fn bad_arguments_are_refused_by_name() {
    for (arguments, named) in [
        (&["--capacity", "0"][..], "capacity"),
        (&["--resident", "a,b", "--capacity", "1"], "resident"),
        (&["--resident", "a", "--models", "b"], "resident"),
        (&["--jitter", "2"], "jitter"),
        (&["--service-ms", "-1"], "service-ms"),
        (&["--threads", "0"], "threads"),
        (&["--tls-cert", "cert.pem"], "tls-key"),
        (&["--listen", "nowhere"], "listen"),
    ] {
        let program = Command::new(env!("CARGO_BIN_EXE_mock-model-server")).args(arguments).output();
        let output = program.await.expect("output");
        assert!(!output.status.success(), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(named), "{arguments:?}: {message}");
    }
}
