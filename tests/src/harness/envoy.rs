//! A running Envoy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use tempfile::TempDir;

use super::builder::{Files, write_json};
use super::process::Process;
use super::{Admin, EnvoyBuilder, config, eventually};

/// Envoy compiles the module before it serves; on a machine busy with other tests that takes a while.
const START: Duration = Duration::from_secs(60);
const UPDATE: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);
/// Enough to see why a run failed, not so much that the failure itself scrolls away.
const LOG_LINES_SHOWN: usize = 60;

/// What Envoy did with a new filter configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigUpdate {
    Applied,
    /// The old configuration stays; this is what Envoy's log says about the new one.
    Rejected(String),
}

/// A running Envoy; dropping it kills the process, and prints the end of its log if the test is failing.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    // Dropped after the process, so that the log is whole, and before the folder, so that it is there.
    _shown_on_failure: LogOnFailure,
    folder: TempDir,
    files: Files,
    filter: Value,
    admin: Admin,
    address: SocketAddr,
    round_robin: Option<SocketAddr>,
}

impl Envoy {
    pub fn builder() -> EnvoyBuilder {
        EnvoyBuilder::default()
    }

    pub(super) async fn attach(
        mut process: Process,
        folder: TempDir,
        filter: Value,
        round_robin: bool,
    ) -> Result<Self> {
        let files = Files::new(folder.path());
        let serving = wait_until_serving(process.child_mut(), folder.path(), round_robin).await?;
        let Serving { admin, address, round_robin } = serving;
        let _shown_on_failure = LogOnFailure(files.log.clone());
        Ok(Self { process, _shown_on_failure, folder, files, filter, admin, address, round_robin })
    }

    pub(super) async fn require_filter(&self) -> Result<()> {
        if self.admin.counter(&discovery_stat("update_success")).await? == 0 {
            bail!("Envoy refused the filter; its log:\n{}", self.log_tail());
        }
        Ok(())
    }

    /// `http://ip:port` of the listener with the filter.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `http://ip:port` of the listener without the filter, if [`EnvoyBuilder::round_robin`] asked for it.
    pub fn round_robin_url(&self) -> Option<String> {
        self.round_robin.map(|address| format!("http://{address}"))
    }

    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Whether the process still runs.
    pub fn alive(&mut self) -> Result<bool> {
        Ok(self.process.exited()?.is_none())
    }

    /// This run's folder, which goes away with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Envoy's log so far.
    pub fn log(&self) -> Result<String> {
        read_lossy(&self.files.log)
    }

    /// The last lines of Envoy's log.
    pub fn log_tail(&self) -> String {
        tail(&self.files.log)
    }

    /// The access log so far, one JSON object per request. A request appears shortly after it has ended.
    pub fn access_log(&self) -> Result<Vec<Value>> {
        let text = read_lossy(&self.files.access_log)?;
        // The last line may still be in writing.
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let lines = complete.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }

    /// Gives the filter a new plugin configuration, by a rename as a user would, and waits for Envoy's verdict.
    ///
    /// The worker threads follow the verdict a moment later: poll for what the new configuration does.
    pub async fn write_plugin_config(&mut self, plugin_config: &Value) -> Result<ConfigUpdate> {
        let mut filter = self.filter.clone();
        config::set_plugin_config(&mut filter, plugin_config)?;
        self.write_filter(filter).await
    }

    /// Replaces the whole ECDS response and waits for Envoy's verdict.
    pub async fn write_filter(&mut self, filter: Value) -> Result<ConfigUpdate> {
        let log_before = self.log()?.len();
        let applied_before = self.admin.counter(&discovery_stat("update_success")).await?;
        let rejected_before = self.admin.counter(&discovery_stat("update_rejected")).await?;
        write_json(&self.files.next_filter, &filter)?;
        std::fs::rename(&self.files.next_filter, &self.files.filter)?;
        self.filter = filter;

        let admin = &self.admin;
        let applied = eventually(UPDATE, "Envoy takes or refuses the configuration", || async {
            if admin.counter(&discovery_stat("update_success")).await? > applied_before {
                return Ok(Some(true));
            }
            let rejected = admin.counter(&discovery_stat("update_rejected")).await?;
            Ok((rejected > rejected_before).then_some(false))
        });
        if applied.await? {
            return Ok(ConfigUpdate::Applied);
        }
        let log = self.log()?;
        Ok(ConfigUpdate::Rejected(log.get(log_before..).unwrap_or(&log).to_owned()))
    }

    /// Ends Envoy as an orchestrator would (SIGTERM) and waits until it has.
    pub async fn stop(self) -> Result<()> {
        self.process.stop(STOP).await
    }
}

/// Where a running Envoy can be reached.
#[derive(Debug, Clone)]
pub struct Serving {
    pub admin: Admin,
    /// The listener with the filter.
    pub address: SocketAddr,
    /// The listener without it, if there is one.
    pub round_robin: Option<SocketAddr>,
}

impl Serving {
    /// Whether Envoy took the filter when it started.
    pub async fn has_filter(&self) -> Result<bool> {
        Ok(self.admin.counter(&discovery_stat("update_success")).await? > 0)
    }
}

/// Waits for an Envoy that [`EnvoyBuilder::prepare`] has written `folder` for.
///
/// # Errors
/// When it ends or takes too long; the message has the end of its log.
pub async fn wait_until_serving(envoy: &mut Child, folder: &Path, round_robin: bool) -> Result<Serving> {
    let files = Files::new(folder);
    // Not serving yet is worth waiting for, having ended is not.
    let answer = eventually(START, "Envoy serves", || {
        let ended = envoy.try_wait();
        let files = &files;
        async move {
            match ended? {
                Some(status) => Ok(Some(Err(anyhow!("Envoy ended with {status}")))),
                None => Ok(serving(files, round_robin).await?.map(Ok)),
            }
        }
    });
    let answer = answer.await.flatten();
    answer.with_context(|| format!("Envoy does not serve; its log:\n{}", tail(&files.log)))
}

async fn serving(files: &Files, round_robin: bool) -> Result<Option<Serving>> {
    let admin = std::fs::read_to_string(&files.admin_address)?;
    let admin = Admin::new(admin.trim().parse()?);
    if !admin.ready().await? {
        return Ok(None);
    }
    let Some(address) = admin.listener(config::LISTENER).await? else {
        return Ok(None);
    };
    let beside = if round_robin { admin.listener(config::ROUND_ROBIN).await? } else { None };
    let all_bound = beside.is_some() == round_robin;
    Ok(all_bound.then_some(Serving { admin, address, round_robin: beside }))
}

fn discovery_stat(name: &str) -> String {
    format!("extension_config_discovery.http_filter.{}.{name}", config::FILTER)
}

/// A log as text, whatever bytes a request smuggled into it.
fn read_lossy(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tail(log: &Path) -> String {
    let text = read_lossy(log).unwrap_or_else(|error| format!("{error:#}"));
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

#[derive(Debug)]
struct LogOnFailure(PathBuf);

impl Drop for LogOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the end of Envoy's log\n{}\n---", tail(&self.0));
        }
    }
}
