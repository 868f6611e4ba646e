//! The model servers of a run.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use futures_util::future::try_join_all;
use serde_json::json;

use super::{CAPACITY, ENDPOINTS, endpoint_name, resident};
use crate::harness::process::Process;
use crate::harness::{Client, eventually};
use crate::mock::StatsSnapshot;

const START: Duration = Duration::from_secs(30);
const DRAIN: Duration = Duration::from_secs(60);
/// What a warm request takes, and ten times that to load a model first.
const SERVICE_MS: &str = "10";
const LOAD_MS: &str = "100";

/// The command that starts server `index`, and the file that it writes its address to.
pub(super) fn server_command(index: usize, listen: SocketAddr, logs: &Path) -> Result<(Command, PathBuf)> {
    let log = logs.join(format!("{}.log", endpoint_name(index)));
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(server_binary()?);
    command.arg("--listen").arg(listen.to_string()).arg("--resident").arg(resident(index).join(","));
    command.args(["--capacity", &CAPACITY.to_string(), "--concurrency", "1", "--threads", "1"]);
    command.args(["--service-ms", SERVICE_MS, "--load-ms", LOAD_MS]);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    Ok((command, log))
}

/// The mock model server is built beside the program that runs the demo; a test's program is one folder deeper.
fn server_binary() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("mock-model-server"));
    beside.into_iter().find(|path| path.is_file()).with_context(|| {
        let folder = own.parent().unwrap_or(&own).display();
        format!("there is no mock-model-server in {folder}: build it with `cargo build -p warmroute-tests --bins`")
    })
}

/// Waits until a server has said where it listens.
pub(super) async fn server_address(server: &mut Child, log: &Path) -> Result<SocketAddr> {
    let answer = eventually(START, "a mock model server listens", || {
        let ended = server.try_wait();
        async move {
            if let Some(status) = ended? {
                return Ok(Some(Err(anyhow!("a mock model server ended with {status}"))));
            }
            let output = std::fs::read_to_string(log)?;
            let line = output.lines().find_map(|line| line.strip_prefix("listening on "));
            // Half a line may have been written: then it is no address, or not followed by a line's end.
            let whole = line.filter(|_| output.ends_with('\n'));
            Ok(whole.map(|address| address.parse().context("no address")))
        }
    });
    answer.await.flatten().with_context(|| format!("see {}", log.display()))
}

/// Eight model servers; dropping them ends their processes.
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<Process>,
    addresses: Vec<SocketAddr>,
    client: Client,
}

impl Fleet {
    /// Starts them on free ports, with their logs in `logs`.
    pub async fn start(logs: &Path) -> Result<Self> {
        std::fs::create_dir_all(logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let mut started = Vec::new();
        for index in 0..ENDPOINTS {
            let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
            let (command, log) = server_command(index, any_port, logs)?;
            started.push((Process::spawn(command)?, log));
        }
        let waiting = started.iter_mut().map(|(server, log)| server_address(server.child_mut(), log));
        let addresses = try_join_all(waiting).await?;
        let servers = started.into_iter().map(|(server, _)| server).collect();
        Ok(Self { servers, addresses, client: Client::http1() })
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether all of them still run.
    pub fn alive(&mut self) -> Result<bool> {
        for server in &mut self.servers {
            if server.exited()?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until no request is left, then zeroes the counters and puts the models of the start into memory.
    pub async fn reset(&self) -> Result<()> {
        eventually(DRAIN, "the model servers are idle", || async {
            let idle = self.stats().await?.iter().all(|stats| stats.in_flight == 0);
            Ok(idle.then_some(()))
        })
        .await?;
        let resets = self.addresses.iter().enumerate().map(|(index, address)| async move {
            let url = format!("http://{address}/mock/reset");
            let reply = self.client.post(&url, &[], &json!({"resident": resident(index)})).await?;
            if reply.status != 200 {
                bail!("{url} answered {}: {}", reply.status, reply.text());
            }
            Ok(())
        });
        try_join_all(resets).await.map(drop)
    }

    /// The servers' own counters, in their order.
    pub async fn stats(&self) -> Result<Vec<StatsSnapshot>> {
        let asked = self.addresses.iter().map(|address| async move {
            let reply = self.client.get(&format!("http://{address}/mock/stats")).await?;
            serde_json::from_slice(&reply.body).context("a mock model server's stats cannot be read")
        });
        try_join_all(asked).await
    }

    /// Loads that requests have caused on all servers since the last reset.
    pub async fn cold_loads(&self) -> Result<u64> {
        Ok(self.stats().await?.iter().map(|stats| stats.cold_loads).sum())
    }
}
