//! wrk, the load generator.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Enough to keep the one worker thread of an Envoy busy all the time.
pub(super) const CONNECTIONS: u64 = 16;
pub(super) const MODELS: usize = 16;
/// Past the time asked for, wrk only has to write its report.
const PATIENCE: Duration = Duration::from_secs(20);

/// What wrk says about one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub requests: u64,
    /// Broken connections, time-outs and answers other than 2xx or 3xx.
    pub errors: u64,
}

/// The model of a request, as everywhere in the tools.
pub(super) fn model(index: usize) -> String {
    format!("model-{index}")
}

/// Writes the script that makes a request per model and sends them in turn; all carry the same headers.
///
/// The destination header is what a client must not be obeyed in; the variant that has no filter to write it is
/// set up to obey it.
pub(super) fn write_script(folder: &Path, destinations: &[String]) -> Result<PathBuf> {
    let mut requests = String::new();
    for (index, destination) in destinations.iter().enumerate() {
        let model = model(index);
        requests.push_str(&format!(
            "  requests[{}] = wrk.format(\"POST\", \"/v1/chat/completions\", {{\n    \
                 [\"content-type\"] = \"application/json\",\n    \
                 [\"x-model-id\"] = \"{model}\",\n    \
                 [\"x-request-type\"] = \"inference\",\n    \
                 [\"x-gateway-destination-endpoint\"] = \"{destination}\",\n  \
             }}, '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}')\n",
            index + 1
        ));
    }
    let script = format!(
        "local requests = {{}}\nlocal turn = 0\n\nfunction init(args)\n{requests}end\n\n\
         function request()\n  turn = turn % #requests + 1\n  return requests[turn]\nend\n"
    );
    let path = folder.join("models.lua");
    std::fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Sends requests to `url` on all connections for `time`.
pub(super) async fn run(script: &Path, url: &str, time: Duration) -> Result<Load> {
    let mut command = Command::new("wrk");
    command.args(["--threads", "1", "--connections", &CONNECTIONS.to_string()]);
    command.args(["--duration", &format!("{}s", time.as_secs())]).arg("--script").arg(script).arg(url);
    command.stdin(Stdio::null());
    let child = tokio::process::Command::from(command).kill_on_drop(true).output();
    let output = tokio::time::timeout(time + PATIENCE, child).await;
    let output =
        output.context("wrk does not end")?.context("wrk cannot be started; `tools/setup.sh bench` finds it")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("wrk ended with {}:\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    read_report(&text).with_context(|| format!("wrk said:\n{text}"))
}

fn read_report(text: &str) -> Result<Load> {
    let line = text.lines().find(|line| line.contains(" requests in "));
    let requests = line.and_then(|line| line.split_whitespace().next()).context("no count of requests")?;
    let numbers = |line: &str| -> u64 {
        line.split(|sign: char| !sign.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok()).sum()
    };
    let socket_errors = text.lines().find(|line| line.contains("Socket errors:"));
    let bad_answers = text.lines().filter_map(|line| line.split_once("responses:")).map(|(_, count)| count);
    let errors = socket_errors.map_or(0, numbers) + bad_answers.map(numbers).sum::<u64>();
    Ok(Load { requests: requests.parse()?, errors })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Running 3s test @ http://127.0.0.1:1/
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   801.53us  181.27us   5.24ms   92.70%
    Req/Sec    20.03k     1.03k   21.51k    83.33%
  59772 requests in 3.00s, 8.44MB read
Requests/sec:  19921.64
Transfer/sec:      2.81MB
";

    #[test]
    fn a_clean_report_has_its_requests_and_no_errors() -> Result<()> {
        assert_eq!(read_report(REPORT)?, Load { requests: 59_772, errors: 0 });
        Ok(())
    }

    #[test]
    fn broken_connections_and_bad_answers_add_up() -> Result<()> {
        let lines = "  Socket errors: connect 0, read 3, write 0, timeout 2\n  Non-2xx or 3xx responses: 40\n";
        let report = REPORT.replace("Requests/sec", &format!("{lines}Requests/sec"));
        assert_eq!(read_report(&report)?.errors, 45);
        Ok(())
    }

    #[test]
    fn no_report_is_an_error() {
        assert!(read_report("unable to connect").is_err());
    }
}
