//! What a mock server is, in one plain structure; defaults in one place, checks in another.

use std::net::SocketAddr;
use std::time::Duration;

/// Everything that stays the same for the life of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    /// GPU memory, in models.
    pub capacity: usize,
    /// Models in memory at the start, most recently used first.
    pub resident: Vec<String>,
    /// What the server can serve; empty: any name.
    pub models: Vec<String>,
    /// Time to run a request on a resident model (of a streamed answer: to its first token).
    pub service: Duration,
    /// Time to load a model; loads are one at a time.
    pub load: Duration,
    /// Time for each token of a completion after the first.
    pub token: Duration,
    /// Requests that run at the same time.
    pub concurrency: usize,
    /// Requests that may wait for one of the `concurrency` places; one more is refused.
    pub queue: usize,
    /// Service and load times vary by this share, evenly up and down (0.2: 80–120 %).
    pub jitter_ratio: f64,
    /// Seed of the jitter and of the fault pattern.
    pub seed: u64,
    /// Requests whose headers are kept for `GET /mock/requests`; 0: none.
    pub record: usize,
    /// Tokens of a completion that does not say `max_tokens`.
    pub default_tokens: u32,
    /// What one model takes in the GPU memory that `/metrics` shows.
    pub model_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            capacity: 3,
            resident: Vec::new(),
            models: Vec::new(),
            service: Duration::ZERO,
            load: Duration::ZERO,
            token: Duration::ZERO,
            concurrency: 1,
            // A model server queues without a limit; this one only keeps a runaway test from eating the machine.
            queue: 100_000,
            jitter_ratio: 0.0,
            seed: 1,
            record: 0,
            default_tokens: 16,
            model_bytes: 8 << 30,
        }
    }
}

/// A setting that makes no sense, by name.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct SettingError {
    pub setting: &'static str,
    pub reason: String,
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let bad = |setting, reason: &str| Err(SettingError { setting, reason: reason.to_owned() });
        if self.capacity == 0 {
            return bad("capacity", "a server holds at least one model");
        }
        if self.concurrency == 0 || self.concurrency > tokio::sync::Semaphore::MAX_PERMITS {
            return bad("concurrency", "at least one request runs at a time");
        }
        if !(0.0..=1.0).contains(&self.jitter_ratio) {
            return bad("jitter", "a share between 0 and 1");
        }
        if self.default_tokens == 0 {
            return bad("default-tokens", "a completion has at least one token");
        }
        self.check_resident(&self.resident).map_err(|reason| SettingError { setting: "resident", reason })
    }

    /// Whether `resident` can be the content of the memory; says why not.
    pub(super) fn check_resident(&self, resident: &[String]) -> Result<(), String> {
        if resident.len() > self.capacity {
            return Err(format!("{} models in a memory of {}", resident.len(), self.capacity));
        }
        for (at, model) in resident.iter().enumerate() {
            if model.is_empty() {
                return Err("an empty model name".to_owned());
            }
            if resident[..at].contains(model) {
                return Err(format!("{model} is listed twice"));
            }
            if !self.serves(model) {
                return Err(format!("{model} is not among the models of this server"));
            }
        }
        Ok(())
    }

    /// Whether the server can serve `model` at all, resident or not.
    pub(super) fn serves(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|m| m == model)
    }
}
