//! Starts a server from a test.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::server::MockServer;
use super::tls::Identity;
use super::{SettingError, Settings};

/// [`Settings`] one by one; every one has a default.
#[derive(Debug, Default)]
pub struct MockServerBuilder {
    settings: Settings,
    tls: Option<Tls>,
    bad_address: Option<String>,
}

#[derive(Debug)]
enum Tls {
    SelfSigned,
    Given(Identity),
}

impl From<Settings> for MockServerBuilder {
    fn from(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }
}

impl MockServerBuilder {
    /// `"127.0.0.1:0"` (the default), `"[::1]:0"`, or a port of your own.
    pub fn listen(mut self, addr: &str) -> Self {
        match addr.parse::<SocketAddr>() {
            Ok(addr) => self.settings.listen = addr,
            Err(error) => self.bad_address = Some(format!("{addr}: {error}")),
        }
        self
    }

    pub fn capacity(mut self, models: usize) -> Self {
        self.settings.capacity = models;
        self
    }

    /// Most recently used first.
    pub fn resident<S: Into<String>>(mut self, models: impl IntoIterator<Item = S>) -> Self {
        self.settings.resident = models.into_iter().map(Into::into).collect();
        self
    }

    pub fn models<S: Into<String>>(mut self, models: impl IntoIterator<Item = S>) -> Self {
        self.settings.models = models.into_iter().map(Into::into).collect();
        self
    }

    pub fn service(mut self, time: Duration) -> Self {
        self.settings.service = time;
        self
    }

    pub fn load(mut self, time: Duration) -> Self {
        self.settings.load = time;
        self
    }

    pub fn token(mut self, time: Duration) -> Self {
        self.settings.token = time;
        self
    }

    pub fn concurrency(mut self, requests: usize) -> Self {
        self.settings.concurrency = requests;
        self
    }

    pub fn queue(mut self, requests: usize) -> Self {
        self.settings.queue = requests;
        self
    }

    pub fn jitter(mut self, ratio: f64) -> Self {
        self.settings.jitter_ratio = ratio;
        self
    }

    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Keeps the last `requests` requests for [`MockServer::recorded`].
    pub fn record(mut self, requests: usize) -> Self {
        self.settings.record = requests;
        self
    }

    /// TLS with a certificate made at the start; see [`MockServer::certificate_pem`].
    pub fn tls_self_signed(mut self) -> Self {
        self.tls = Some(Tls::SelfSigned);
        self
    }

    pub fn tls(mut self, identity: Identity) -> Self {
        self.tls = Some(Tls::Given(identity));
        self
    }

    /// Listens and serves on the current tokio runtime.
    pub async fn start(self) -> Result<MockServer> {
        if let Some(reason) = self.bad_address {
            return Err(SettingError { setting: "listen", reason }.into());
        }
        let identity = match self.tls {
            Some(Tls::SelfSigned) => Some(Identity::self_signed(self.settings.listen)?),
            Some(Tls::Given(identity)) => Some(identity),
            None => None,
        };
        MockServer::start(self.settings, identity).await
    }
}
