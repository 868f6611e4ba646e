//! From the shipped configuration to a process that serves.

use std::fmt;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;

use super::envoy::Envoy;
use super::process::Process;
use super::{config, envoy_binary, filter_wasm};

type Edit = Box<dyn FnOnce(&mut Value) -> Result<()> + Send>;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What a run changes of the shipped configuration. Unless told otherwise: free ports on 127.0.0.1, one worker
/// thread, the built filter, and a plugin configuration that names the endpoints `gpu-0`, `gpu-1`, …
pub struct EnvoyBuilder {
    endpoints: Vec<SocketAddr>,
    clusters: Vec<(String, Vec<SocketAddr>)>,
    weights: Vec<(String, u32)>,
    plugin_config: Option<Value>,
    filter: FilterSource,
    accept_rejected_filter: bool,
    bodies: bool,
    round_robin: Option<SocketAddr>,
    listen: SocketAddr,
    admin: SocketAddr,
    concurrency: usize,
    log_level: String,
    component_log_levels: Vec<String>,
    edits: Vec<Edit>,
}

#[derive(Debug, PartialEq)]
enum FilterSource {
    Built,
    File(PathBuf),
    Absent,
}

impl fmt::Debug for EnvoyBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edits = format!("{} edits", self.edits.len());
        let mut shown = formatter.debug_struct("EnvoyBuilder");
        shown.field("endpoints", &self.endpoints).field("filter", &self.filter);
        shown.field("edits", &edits).finish_non_exhaustive()
    }
}

impl Default for EnvoyBuilder {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            clusters: Vec::new(),
            weights: Vec::new(),
            plugin_config: None,
            filter: FilterSource::Built,
            accept_rejected_filter: false,
            bodies: false,
            round_robin: None,
            listen: ANY_PORT,
            admin: ANY_PORT,
            concurrency: 1,
            log_level: "info".to_owned(),
            component_log_levels: Vec::new(),
            edits: Vec::new(),
        }
    }
}

impl EnvoyBuilder {
    /// The hosts of the cluster `model-servers`, and the pool's endpoints unless [`Self::plugin_config`] says otherwise.
    #[must_use]
    pub fn endpoints(mut self, endpoints: &[SocketAddr]) -> Self {
        self.endpoints = endpoints.to_vec();
        self
    }

    /// The JSON that the filter reads. A JSON string is handed over as its bare content, so it may be malformed.
    #[must_use]
    pub fn plugin_config(mut self, config: Value) -> Self {
        self.plugin_config = Some(config);
        self
    }

    /// Another module than the built filter; the file need not exist.
    #[must_use]
    pub fn wasm(mut self, path: impl Into<PathBuf>) -> Self {
        self.filter = FilterSource::File(path.into());
        self
    }

    /// The same configuration with the wasm filter left out.
    #[must_use]
    pub fn without_filter(mut self) -> Self {
        self.filter = FilterSource::Absent;
        self
    }

    /// Starts even when Envoy refuses the filter or its configuration; otherwise that is an error.
    #[must_use]
    pub fn accept_rejected_filter(mut self) -> Self {
        self.accept_rejected_filter = true;
        self
    }

    /// Sets `allow_on_headers_stop_iteration`, without which Envoy hands no body over while the headers wait.
    #[must_use]
    pub fn allow_bodies(mut self) -> Self {
        self.bodies = true;
        self
    }

    /// Adds a cluster like `model-servers`, reached by [`Self::weighted_route`] or a route of an edit.
    #[must_use]
    pub fn cluster(mut self, name: &str, endpoints: &[SocketAddr]) -> Self {
        self.clusters.push((name.to_owned(), endpoints.to_vec()));
        self
    }

    /// Splits the requests over clusters by weight.
    #[must_use]
    pub fn weighted_route(mut self, weights: &[(&str, u32)]) -> Self {
        self.weights = weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        self
    }

    /// Adds a listener that sends to the same endpoints without the filter, by round robin.
    #[must_use]
    pub fn round_robin(self) -> Self {
        self.round_robin_at(ANY_PORT)
    }

    /// [`Self::round_robin`] at a given address.
    #[must_use]
    pub fn round_robin_at(mut self, address: SocketAddr) -> Self {
        self.round_robin = Some(address);
        self
    }

    /// Where requests come in.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Where the admin interface is.
    #[must_use]
    pub fn admin(mut self, address: SocketAddr) -> Self {
        self.admin = address;
        self
    }

    /// The number of worker threads.
    #[must_use]
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.concurrency = workers;
        self
    }

    /// The log level of all Envoy; without it `info`.
    #[must_use]
    pub fn log_level(mut self, level: &str) -> Self {
        level.clone_into(&mut self.log_level);
        self
    }

    /// The log level of one of Envoy's components, for instance `wasm` at `debug`.
    #[must_use]
    pub fn component_log_level(mut self, component: &str, level: &str) -> Self {
        self.component_log_levels.push(format!("{component}:{level}"));
        self
    }

    /// Changes the bootstrap after all other changes; [`config`] has ways into it.
    #[must_use]
    pub fn edit(mut self, edit: impl FnOnce(&mut Value) -> Result<()> + Send + 'static) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    /// Starts Envoy in a folder of its own and returns when it serves.
    pub async fn start(self) -> Result<Envoy> {
        let folder = TempDir::with_prefix("warmroute-envoy-").context("cannot make a folder")?;
        let accept_rejected = self.accept_rejected_filter;
        let has_filter = self.filter != FilterSource::Absent;
        let round_robin = self.round_robin.is_some();
        let (command, filter) = self.prepare(folder.path())?;
        let process = Process::spawn(command)?;
        let envoy = Envoy::attach(process, folder, filter, round_robin).await?;
        if has_filter && !accept_rejected {
            envoy.require_filter().await?;
        }
        Ok(envoy)
    }

    /// Writes everything that Envoy reads into `folder`; returns the command that starts it and the ECDS response.
    pub fn prepare(self, folder: &Path) -> Result<(Command, Value)> {
        let binary = envoy_binary()?;
        let files = Files::new(folder);
        std::fs::create_dir_all(&files.discovery).with_context(|| format!("cannot make {}", folder.display()))?;
        // From an earlier run in the same folder; it would be taken for this run's.
        if files.admin_address.exists() {
            std::fs::remove_file(&files.admin_address)?;
        }
        let filter = self.filter_response()?;
        write_json(&files.filter, &filter)?;
        let command = self.command(&binary, &files)?;
        let bootstrap = self.bootstrap(&files)?;
        write_json(&files.bootstrap, &bootstrap)?;
        Ok((command, filter))
    }

    fn filter_response(&self) -> Result<Value> {
        let mut filter = config::shipped_filter()?;
        match &self.filter {
            FilterSource::Built => config::set_wasm(&mut filter, &filter_wasm()?)?,
            FilterSource::File(path) => config::set_wasm(&mut filter, path)?,
            FilterSource::Absent => {}
        }
        let own = || config::one_pool(config::CLUSTER, &self.endpoints);
        let plugin_config = self.plugin_config.clone().unwrap_or_else(own);
        config::set_plugin_config(&mut filter, &plugin_config)?;
        if self.bodies {
            config::allow_bodies(&mut filter)?;
        }
        Ok(filter)
    }

    fn bootstrap(self, files: &Files) -> Result<Value> {
        let mut bootstrap = config::shipped_bootstrap()?;
        let yaml = &mut bootstrap;
        config::set_address(config::listener(yaml, config::LISTENER)?, self.listen)?;
        config::set_address(config::at(yaml, "/admin")?, self.admin)?;
        config::set_endpoints(yaml, config::CLUSTER, &self.endpoints)?;
        config::set_discovery(yaml, &files.filter, &files.discovery)?;
        if let Some(address) = self.round_robin {
            config::add_round_robin(yaml, address)?;
        }
        for (name, endpoints) in &self.clusters {
            config::add_cluster(yaml, name, endpoints)?;
        }
        if !self.weights.is_empty() {
            config::set_weighted_route(yaml, config::LISTENER, &self.weights)?;
        }
        if self.filter == FilterSource::Absent {
            config::remove_http_filter(yaml, config::LISTENER, config::FILTER)?;
        }
        for edit in self.edits {
            edit(yaml)?;
        }
        Ok(bootstrap)
    }

    fn command(&self, binary: &Path, files: &Files) -> Result<Command> {
        // At the level info the component `main` lists every extension that Envoy has.
        let components = [&["main:warning".to_owned()], self.component_log_levels.as_slice()].concat();
        let mut command = Command::new(binary);
        command.arg("-c").arg(&files.bootstrap);
        command.arg("--admin-address-path").arg(&files.admin_address);
        command.args(["--concurrency", &self.concurrency.to_string(), "--log-level", &self.log_level]);
        // Many Envoys beside each other: none may claim the shared memory that hot restart uses.
        command.arg("--disable-hot-restart");
        // The access log is read by the tests: its usual 10 s in the buffer is too long.
        command.args(["--file-flush-interval-msec", "50"]);
        command.args(["--component-log-level", &components.join(",")]);
        command.stdin(Stdio::null());
        command.stdout(File::create(&files.access_log)?).stderr(File::create(&files.log)?);
        Ok(command)
    }
}

/// The files of one run.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub bootstrap: PathBuf,
    /// Holds the ECDS file and nothing else: Envoy reads it again at any rename in here.
    pub discovery: PathBuf,
    pub filter: PathBuf,
    /// The next ECDS file, before it is renamed.
    pub next_filter: PathBuf,
    pub admin_address: PathBuf,
    pub log: PathBuf,
    pub access_log: PathBuf,
}

impl Files {
    pub(super) fn new(folder: &Path) -> Self {
        let discovery = folder.join("discovery");
        Self {
            bootstrap: folder.join("envoy.json"),
            filter: discovery.join("filter.json"),
            discovery,
            next_filter: folder.join("filter.next.json"),
            admin_address: folder.join("admin-address"),
            log: folder.join("envoy.log"),
            access_log: folder.join("access.log"),
        }
    }
}

pub(super) fn write_json(path: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
