//! The demo, whole: its processes, its traffic, its last line.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use warmroute_tests::demo::{Ports, Stack, Up, down, model_name, resident, up};
use warmroute_tests::harness::{Client, eventually, process};

const SOON: Duration = Duration::from_secs(10);

fn demo(arguments: &[&str]) -> Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_demo")).args(arguments).output().context("the demo does not start")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asks for a model; answers the endpoint that served.
async fn ask(url: &str, model: &str) -> Result<String> {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
    let url = format!("{url}/v1/chat/completions");
    let reply = Client::http1().post(&url, &[("x-model-id", model)], &body).await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(reply.header("x-served-by").context("no x-served-by")?.to_owned())
}

/// The process ids that the stack has written down: the servers', then Envoy's.
fn process_ids(folder: &Path) -> Result<Vec<u32>> {
    let started: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("pids.json"))?)?;
    let servers = started["servers"].as_array().context("no servers")?;
    let processes = servers.iter().map(|server| &server["process"]).chain([&started["envoy"]]);
    let ids = processes.map(|process| u32::try_from(process["pid"].as_u64()?).ok());
    ids.collect::<Option<_>>().context("a process without an id")
}

fn runs(process_id: u32) -> bool {
    // A signal that every one of these processes ignores.
    process::send(process_id, Signal::WINCH).is_ok()
}

/// By however the models are asked for, all alike or a few most of the time: the plan loads at least twenty times less than
/// round robin, if at all, and the ring so many times less.
#[test]
fn a_run_ends_with_its_numbers_in_one_line_and_loads_less_by_warmroute() -> Result<()> {
    for (zipf, ring_loads_less) in [("0", 5), ("0.9", 10), ("1.2", 10)] {
        let folder = tempfile::tempdir()?;
        let out = folder.path().to_str().context("a folder that is not UTF-8")?;
        let output = demo(&["run", "--seconds=5", "--warmup=4", "--zipf", zipf, "--out", out])?;
        let out = text(&output.stdout);
        assert!(output.status.success(), "{out}\n{}", text(&output.stderr));

        let last = out.lines().last().context("no output")?;
        assert_eq!(std::fs::read_to_string(folder.path().join("report.json"))?.trim_end(), last);
        let line: Value = serde_json::from_str(last)?;
        for policy in ["round_robin", "ring", "warmroute"] {
            let numbers = line[policy].as_object().context("a policy is missing")?;
            let names: Vec<_> = numbers.keys().map(String::as_str).collect();
            assert_eq!(names, ["cold_loads", "errors", "p50_ms", "p99_ms", "requests"]);
            assert_eq!(numbers["errors"], 0, "{line}");
            assert!(numbers["p50_ms"].as_f64() <= numbers["p99_ms"].as_f64(), "{line}");
            assert_eq!(numbers["requests"], line["round_robin"]["requests"], "{line}");
        }
        let cold = |policy: &str| line[policy]["cold_loads"].as_u64().context("no cold loads");
        let round_robin = cold("round_robin")?;
        // Most of 5 · 80 requests.
        assert!(round_robin >= 100, "Zipf {zipf}: {line}");
        assert!(round_robin >= 20 * cold("warmroute")?, "Zipf {zipf}: {line}");
        assert!(round_robin >= ring_loads_less * cold("ring")?, "Zipf {zipf}: {line}");
    }
    Ok(())
}

#[test]
fn runs_that_cannot_count_anything_fail_with_their_reason() -> Result<()> {
    for (arguments, reason) in [
        (["run", "--seconds=0"], "no request would count"),
        (["run", "--rate=-1"], "the rate must be above zero"),
        (["run", "--zipf=-1"], "no usable Zipf exponent"),
    ] {
        let output = demo(&arguments)?;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(reason), "{arguments:?}: {}", text(&output.stderr));
    }
    Ok(())
}

#[test]
fn without_an_envoy_a_run_names_the_command_that_gets_one() -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_demo")).arg("run").env_remove("ENVOY").output()?;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("tools/setup.sh"), "{}", text(&output.stderr));
    Ok(())
}

#[tokio::test]
async fn an_interrupted_run_leaves_no_process_behind() -> Result<()> {
    let mut run = Command::new(env!("CARGO_BIN_EXE_demo"));
    let folder = tempfile::tempdir()?;
    run.args(["run", "--out"])
        .arg(folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut run = run.spawn()?;
    let id = run.id();
    let children = || async { Ok(Some(children(id)?).filter(|found| found.len() == 9)) };
    let children = eventually(SOON, "eight servers and Envoy run", children).await?;

    process::send(id, Signal::INT)?;
    let ended = eventually(SOON, "the run ends", || std::future::ready(run.try_wait().map_err(Into::into)));
    assert_eq!(ended.await?.code(), Some(130));
    let gone = || async { Ok(children.iter().all(|child| !runs(*child)).then_some(())) };
    eventually(SOON, "its processes have ended", gone).await
}

/// The direct children of a process, by Linux's /proc.
fn children(of: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{of}/task"))? {
        let list = std::fs::read_to_string(task?.path().join("children"))?;
        found.extend(list.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    Ok(found)
}

#[tokio::test]
async fn the_stack_comes_up_once_is_repaired_and_goes_down_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let Up::Started(stack) = up(folder, Ports::Free).await? else { panic!("something was up") };
    let written: Stack = serde_json::from_str(&std::fs::read_to_string(folder.join("stack.json"))?)?;
    assert_eq!(written, stack);
    assert_eq!(stack.endpoints.len(), 8);

    let model = model_name(4);
    let home = ask(&stack.envoy, &model).await?;
    assert_eq!(ask(&stack.envoy, &model).await?, home);
    assert_eq!(up(folder, Ports::Free).await?, Up::AlreadyUp(stack.clone()));

    let before = process_ids(folder)?;
    process::send(before[2], Signal::KILL)?;
    let killed = || async { Ok((!listens(&stack.endpoints[2].to_string()).await).then_some(())) };
    eventually(SOON, "the killed server is gone", killed).await?;
    assert_eq!(up(folder, Ports::Free).await?, Up::Repaired(stack.clone()));
    let repaired = process_ids(folder)?;
    let same: Vec<_> = before.iter().zip(&repaired).map(|(before, after)| before == after).collect();
    assert_eq!(same, [true, true, false, true, true, true, true, true, true]);

    assert_eq!(down(folder).await?, 9);
    for address in &stack.endpoints {
        assert!(!listens(&address.to_string()).await, "{address}");
    }
    assert!(!listens(stack.envoy.trim_start_matches("http://")).await);
    assert!(!folder.join("stack.json").exists());
    assert_eq!(down(folder).await?, 0);
    Ok(())
}

async fn listens(address: &str) -> bool {
    tokio::net::TcpStream::connect(address).await.is_ok()
}

#[tokio::test]
async fn a_stack_that_cannot_come_up_leaves_nothing_behind() -> Result<()> {
    let folder = tempfile::tempdir()?;
    // A file where Envoy's folder would be: the servers start, Envoy does not.
    std::fs::write(folder.path().join("envoy"), "")?;
    let error = format!("{:#}", up(folder.path(), Ports::Free).await.err().context("it came up")?);
    assert!(error.contains("envoy"), "{error}");
    assert!(!folder.path().join("pids.json").exists());
    assert_eq!(down(folder.path()).await?, 0);
    Ok(())
}

#[test]
fn the_servers_hold_every_model_at_least_once_at_the_start() {
    let held: Vec<_> = (0..8).flat_map(resident).collect();
    assert!((0..16).all(|model| held.contains(&model_name(model))), "{held:?}");
}
