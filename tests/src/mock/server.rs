//! The running server: a supervisor that accepts connections, ends a life at a crash and begins the next one.
//!
//! While the server is dead its port stays bound but does not listen: connections are refused, and nobody else can
//! take the port before the server comes back.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::app::{App, Shared};
use super::builder::MockServerBuilder;
use super::connection;
use super::control::{self, Command};
use super::faults::{FaultError, Faults};
use super::front::Front;
use super::link::Link;
use super::record::RecordedRequest;
use super::stats::StatsSnapshot;
use super::tls::Identity;

const BACKLOG: u32 = 4096;
/// After an error that is not one connection's own (too many open files), before the next try.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A mock model server that runs until it is dropped.
#[derive(Debug)]
pub struct MockServer {
    addr: SocketAddr,
    certificate: Option<Identity>,
    shared: Arc<Shared>,
    app: watch::Receiver<Arc<App>>,
    dead: watch::Receiver<bool>,
    stopped: TaskTracker,
    stop: DropGuard,
}

impl MockServer {
    pub fn builder() -> MockServerBuilder {
        MockServerBuilder::default()
    }

    pub(super) async fn start(settings: super::Settings, tls: Option<Identity>) -> Result<Self> {
        let acceptor = tls.as_ref().map(Identity::acceptor).transpose()?;
        let (commands, orders) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(settings, commands)?);
        let wanted = shared.settings.listen;
        let listener = listen(wanted).with_context(|| format!("listening on {wanted}"))?;
        let addr = listener.local_addr().context("reading the listening address")?;
        let (app_now, app) = watch::channel(App::new(Arc::clone(&shared), &shared.settings.resident));
        let (dead_now, dead) = watch::channel(false);
        let stop = CancellationToken::new();
        let supervisor = Supervisor {
            addr,
            shared: Arc::clone(&shared),
            acceptor,
            orders,
            app: app_now,
            dead: dead_now,
            stop: stop.clone(),
        };
        let stopped = TaskTracker::new();
        stopped.spawn(supervisor.run(listener));
        stopped.close();
        Ok(Self { addr, certificate: tls, shared, app, dead, stopped, stop: stop.drop_guard() })
    }

    /// The address it listens on, with its real port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://ip:port`, or `https://` with TLS.
    pub fn base_url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.addr)
    }

    /// The certificate that clients have to trust, PEM; none without TLS.
    pub fn certificate_pem(&self) -> Option<&str> {
        self.certificate.as_ref().map(|identity| identity.certificates_pem.as_str())
    }

    pub fn stats(&self) -> StatsSnapshot {
        self.app.borrow().stats()
    }

    /// Zeroes the counters and, if given, makes `resident` (most recent first) the content of the memory.
    pub fn reset(&self, resident: Option<&[&str]>) -> Result<()> {
        let resident = resident.map(|models| models.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>());
        self.app.borrow().reset(resident.as_deref()).map_err(anyhow::Error::msg)
    }

    /// Replaces the faults; a crash is complete on return.
    pub async fn set_faults(&self, faults: Faults) -> Result<(), FaultError> {
        faults.check()?;
        if faults.crash {
            control::crash(&self.shared.commands, faults.restart_after()).await;
            return Ok(());
        }
        self.shared.faults.set(faults)
    }

    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    pub fn faults(&self) -> Faults {
        self.shared.faults.get()
    }

    /// Dies: on return the port refuses connections and every connection is cut.
    pub async fn crash(&self) {
        control::crash(&self.shared.commands, None).await;
    }

    /// Comes back after a crash, on the same port, with an empty memory and without faults.
    pub async fn restart(&self) -> Result<()> {
        let (done, up) = oneshot::channel();
        self.shared.commands.send(Command::Restart { done }).context("the server has stopped")?;
        up.await.context("the server has stopped")?.with_context(|| format!("listening on {}", self.addr))
    }

    /// Returns once the server has crashed for good.
    pub async fn crashed(&self) {
        let mut dead = self.dead.clone();
        // A supervisor that has gone leaves a dead server.
        if let Err(error) = dead.wait_for(|dead| *dead).await {
            tracing::debug!(%error, "the server has stopped");
        }
    }

    /// The last requests as they arrived, oldest first; empty unless the server records.
    pub fn recorded(&self) -> Vec<RecordedRequest> {
        self.shared.recorder.list()
    }

    /// Stops it and waits until its port and connections are closed.
    pub async fn shutdown(self) {
        let Self { stopped, stop, .. } = self;
        drop(stop);
        stopped.wait().await;
    }
}

struct Supervisor {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<TlsAcceptor>,
    orders: mpsc::UnboundedReceiver<Command>,
    app: watch::Sender<Arc<App>>,
    dead: watch::Sender<bool>,
    stop: CancellationToken,
}

/// Why a life ended.
enum End {
    Crash { restart_after: Option<Duration>, done: oneshot::Sender<()> },
    Stop,
}

impl Supervisor {
    async fn run(mut self, mut listener: TcpListener) {
        let stop = self.stop.clone();
        loop {
            let app = Arc::clone(&self.app.borrow());
            let front = Front::new(app).await;
            let links = TaskTracker::new();
            let connections = TaskTracker::new();
            let end = self.accept(&listener, &front, &links, &connections).await;
            drop(listener);
            front.app().life.cancel();
            links.close();
            links.wait().await;
            connections.close();
            let End::Crash { restart_after, done } = end else { return connections.wait().await };
            let reserved = bind(self.addr);
            self.end_life();
            report(done, ());
            connections.wait().await;
            match stop.run_until_cancelled(self.revive(reserved, restart_after)).await.flatten() {
                Some(next) => listener = next,
                None => return,
            }
        }
    }

    async fn accept(
        &mut self,
        listener: &TcpListener,
        front: &Front,
        links: &TaskTracker,
        connections: &TaskTracker,
    ) -> End {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return End::Stop,
                order = self.orders.recv() => match order {
                    Some(Command::Crash { restart_after, done }) => return End::Crash { restart_after, done },
                    Some(Command::Restart { done }) => {
                        report(done, Ok(()));
                        continue;
                    }
                    None => return End::Stop,
                },
                accepted = listener.accept() => accepted,
            };
            let ready = accepted.and_then(|(stream, _peer)| {
                stream.set_nodelay(true)?;
                let local = stream.local_addr()?;
                Ok((stream, local))
            });
            match ready {
                Ok((stream, local)) => {
                    let link = Arc::new(Link::new(local, links.token()));
                    let acceptor = self.acceptor.clone();
                    connections.spawn(connection::serve(front.clone(), stream, link, acceptor));
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Prepares the next life: nothing in memory, no faults.
    fn end_life(&self) {
        self.shared.faults.clear();
        self.app.send_replace(App::new(Arc::clone(&self.shared), &[]));
    }

    /// Waits for the time or the order to come back; none when the server stops instead.
    async fn revive(
        &mut self,
        reserved: io::Result<TcpSocket>,
        restart_after: Option<Duration>,
    ) -> Option<TcpListener> {
        let mut reserved = Some(reserved);
        self.dead.send_replace(restart_after.is_none());
        loop {
            let time = async {
                match restart_after {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            let order = tokio::select! {
                () = time => None,
                order = self.orders.recv() => Some(order?),
            };
            let done = match order {
                Some(Command::Crash { done, .. }) => {
                    report(done, ());
                    continue;
                }
                Some(Command::Restart { done }) => Some(done),
                None => None,
            };
            let socket = reserved.take().unwrap_or_else(|| bind(self.addr));
            let (listener, result) = match socket.and_then(|socket| socket.listen(BACKLOG)) {
                Ok(listener) => (Some(listener), Ok(())),
                Err(error) => (None, Err(error)),
            };
            if let Err(error) = &result {
                tracing::error!(%error, addr = %self.addr, "coming back after a crash");
            }
            if let Some(done) = done {
                report(done, result);
            }
            if listener.is_some() {
                self.dead.send_replace(false);
                return listener;
            }
        }
    }
}

fn report<T>(done: oneshot::Sender<T>, result: T) {
    if done.send(result).is_err() {
        tracing::debug!("whoever gave the order has left");
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    bind(addr)?.listen(BACKLOG)
}

fn bind(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of the last life may still be in their closing states.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}
