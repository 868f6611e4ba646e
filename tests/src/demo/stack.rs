//! The demo's processes left running, for a person to try.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::fleet::{server_address, server_command};
use super::identity::Identity;
use super::{ENDPOINTS, endpoint_name};
use crate::harness::process::{Lifetime, spawn};
use crate::harness::{Envoy, EnvoyBuilder, wait_until_serving};

/// Where the stack's processes listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// The ports of the shipped configuration; a free one in the place of each that is taken.
    Shipped,
    /// Free ones.
    Free,
}

const ENVOY_PORT: u16 = 10_000;
const ROUND_ROBIN_PORT: u16 = 10_001;
const ADMIN_PORT: u16 = 9901;
const FIRST_SERVER_PORT: u16 = 8001;

/// What a person, or another program, needs to use the stack: `stack.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Requests here go through Warmroute.
    pub envoy: String,
    pub envoy_admin: String,
    /// Requests here go to the same endpoints by Envoy's round robin.
    pub envoy_round_robin: String,
    pub endpoints: Vec<SocketAddr>,
}

/// What `up` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Up {
    Started(Stack),
    /// Some processes had ended and run again.
    Repaired(Stack),
    AlreadyUp(Stack),
}

/// Everything that was started, written down at each start, so that `down` finds it whatever happens: `pids.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Started {
    servers: Vec<Server>,
    envoy: Option<Identity>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Server {
    name: String,
    process: Identity,
    address: SocketAddr,
}

/// The files of the stack.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Only one `up` or `down` at a time; the lock ends with the process.
    _lock: File,
}

impl Folder {
    fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        let lock = File::create(path.join("lock"))?;
        lock.lock().context("cannot lock the stack's folder")?;
        Ok(Self { path: path.to_path_buf(), _lock: lock })
    }

    fn pids(&self) -> PathBuf {
        self.path.join("pids.json")
    }

    fn stack(&self) -> PathBuf {
        self.path.join("stack.json")
    }

    fn started(&self) -> Result<Started> {
        Ok(read(&self.pids())?.unwrap_or_default())
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).map(Some).with_context(|| {
        let folder = path.parent().unwrap_or(path).display();
        format!(
            "{} is damaged: end the processes of an earlier `up`, if there are any, and remove {folder}",
            path.display()
        )
    })
}

/// By a rename, so that a reader never meets half a file.
fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let next = path.with_extension("next");
    std::fs::write(&next, serde_json::to_string_pretty(value)? + "\n")?;
    std::fs::rename(&next, path).with_context(|| format!("cannot write {}", path.display()))
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Starts what does not run yet, in sessions of their own, and waits until it serves. Whatever it started ends again
/// when a part fails.
pub async fn up(folder: &Path, ports: Ports) -> Result<Up> {
    let folder = Folder::open(folder)?;
    let mut started = folder.started()?;
    match bring_up(&folder, &mut started, ports).await {
        Ok(up) => Ok(up),
        Err(error) => {
            end_all(&folder, &started).await?;
            Err(error)
        }
    }
}

/// Ends what `up` started; answers how many processes still ran.
pub async fn down(folder: &Path) -> Result<usize> {
    let folder = Folder::open(folder)?;
    let started = folder.started()?;
    end_all(&folder, &started).await
}

async fn end_all(folder: &Folder, started: &Started) -> Result<usize> {
    remove(&folder.stack())?;
    let servers = started.servers.iter().map(|server| &server.process);
    let running: Vec<_> = started.envoy.iter().chain(servers).filter(|process| process.alive()).collect();
    for process in &running {
        process.end().await?;
    }
    remove(&folder.pids())?;
    Ok(running.len())
}

async fn bring_up(folder: &Folder, started: &mut Started, ports: Ports) -> Result<Up> {
    let fresh = started.servers.is_empty() && started.envoy.is_none();
    let before = started.addresses();
    let mut changed = false;
    for index in 0..ENDPOINTS {
        if !started.servers.get(index).is_some_and(|server| server.process.alive()) {
            start_server(folder, started, index, ports).await?;
            changed = true;
        }
    }
    let envoy_runs = started.envoy.as_ref().is_some_and(Identity::alive);
    let known = read::<Stack>(&folder.stack())?;
    if let (true, Some(stack)) = (envoy_runs && started.addresses() == before, known) {
        return Ok(if changed { Up::Repaired(stack) } else { Up::AlreadyUp(stack) });
    }
    let stack = start_envoy(folder, started, ports).await?;
    write(&folder.stack(), &stack)?;
    Ok(if fresh { Up::Started(stack) } else { Up::Repaired(stack) })
}

impl Started {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.address).collect()
    }
}

/// Starts server `index`, at the address that it had if it had one.
async fn start_server(folder: &Folder, started: &mut Started, index: usize, ports: Ports) -> Result<()> {
    let name = endpoint_name(index);
    let first = ports.local(FIRST_SERVER_PORT + u16::try_from(index)?);
    let wanted = started.servers.get(index).map_or(first, |server| free_or_any(server.address));
    let (command, log) = server_command(index, wanted, &folder.path)?;
    let mut child = spawn(command, Lifetime::Detached)?;
    let process = Identity::of(child.id())?;

    let server = Server { name, process, address: wanted };
    match started.servers.get_mut(index) {
        Some(place) => *place = server,
        None => started.servers.push(server),
    }
    write(&folder.pids(), started)?;
    let address = server_address(&mut child, &log).await?;
    if let Some(server) = started.servers.get_mut(index) {
        server.address = address;
    }
    write(&folder.pids(), started)
}

/// Starts Envoy over the servers as they are, in the place of one that may run.
async fn start_envoy(folder: &Folder, started: &mut Started, ports: Ports) -> Result<Stack> {
    if let Some(old) = started.envoy.take() {
        old.end().await?;
    }
    let endpoints = started.addresses();
    let own = folder.path.join("envoy");
    let (command, _) = envoy(&endpoints, ports).prepare(&own)?;
    let mut child = spawn_envoy(folder, started, command)?;
    let serving = wait_until_serving(&mut child, &own, true).await?;
    ensure!(serving.has_filter().await?, "Envoy refused the filter: see {}", own.join("envoy.log").display());
    let round_robin = serving.round_robin.context("Envoy has no second listener")?;
    Ok(Stack {
        envoy: format!("http://{}", serving.address),
        envoy_admin: format!("http://{}", serving.admin.address()),
        envoy_round_robin: format!("http://{round_robin}"),
        endpoints,
    })
}

fn envoy(endpoints: &[SocketAddr], ports: Ports) -> EnvoyBuilder {
    Envoy::builder()
        .endpoints(endpoints)
        .listen(ports.local(ENVOY_PORT))
        .round_robin_at(ports.local(ROUND_ROBIN_PORT))
        .admin(ports.local(ADMIN_PORT))
}

fn spawn_envoy(folder: &Folder, started: &mut Started, command: Command) -> Result<std::process::Child> {
    let child = spawn(command, Lifetime::Detached)?;
    started.envoy = Some(Identity::of(child.id())?);
    write(&folder.pids(), started)?;
    Ok(child)
}

impl Ports {
    fn local(self, port: u16) -> SocketAddr {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        match self {
            Self::Shipped => free_or_any(address(port)),
            Self::Free => address(0),
        }
    }
}

/// The address if nobody listens there, else any port of it.
fn free_or_any(address: SocketAddr) -> SocketAddr {
    match TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::new(address.ip(), 0),
    }
}
