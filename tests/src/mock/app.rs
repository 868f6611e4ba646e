//! What all parts of a running server share: some of it for good, some for one life between two crashes.

use std::sync::Arc;

use http::HeaderMap;
use tokio_util::sync::CancellationToken;

use super::control::Commands;
use super::fault_plan::FaultSwitch;
use super::gpu::{Gpu, Overloaded, Running, pause};
use super::record::Recorder;
use super::stats::{Stats, StatsSnapshot};
use super::ticket::Ticket;
use super::timing::Timing;
use super::{SettingError, Settings};

/// Lasts as long as the server.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) stats: Arc<Stats>,
    pub(super) timing: Arc<Timing>,
    pub(super) faults: FaultSwitch,
    pub(super) recorder: Recorder,
    pub(super) commands: Commands,
}

/// Lasts until the next crash.
#[derive(Debug)]
pub(super) struct App {
    pub(super) shared: Arc<Shared>,
    pub(super) gpu: Arc<Gpu>,
    /// Cancelled at the end of this life.
    pub(super) life: CancellationToken,
}

/// Why a request does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("no model given: neither in the request nor in the header x-model-id")]
    NoModel,
    #[error("the model `{0}` does not exist")]
    UnknownModel(String),
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
}

impl Shared {
    pub(super) fn new(settings: Settings, commands: Commands) -> Result<Self, SettingError> {
        settings.check()?;
        Ok(Self {
            stats: Arc::default(),
            timing: Arc::new(Timing::new(&settings)),
            faults: FaultSwitch::new(settings.seed),
            recorder: Recorder::new(settings.record),
            settings,
            commands,
        })
    }
}

impl App {
    pub(super) fn new(shared: Arc<Shared>, resident: &[String]) -> Arc<Self> {
        let life = CancellationToken::new();
        let (timing, stats) = (Arc::clone(&shared.timing), Arc::clone(&shared.stats));
        let gpu = Arc::new(Gpu::new(&shared.settings, resident, timing, stats, life.clone()));
        shared.stats.life_started();
        Arc::new(Self { shared, gpu, life })
    }

    pub(super) fn stats(&self) -> StatsSnapshot {
        self.shared.stats.snapshot(&self.gpu)
    }

    /// Zeroes the counters and, if given, makes `resident` the content of the memory.
    pub(super) fn reset(&self, resident: Option<&[String]>) -> Result<(), String> {
        if let Some(resident) = resident {
            self.shared.settings.check_resident(resident)?;
            self.gpu.reset(resident);
        }
        self.shared.stats.reset();
        self.shared.recorder.clear();
        Ok(())
    }

    pub(super) fn serves(&self, model: &str) -> Result<(), Refusal> {
        let known = self.shared.settings.serves(model) || self.gpu.is_resident(model);
        if known { Ok(()) } else { Err(Refusal::UnknownModel(model.to_owned())) }
    }

    /// Brings a request to where it runs: `model` (what the request itself says) or the header's.
    pub(super) async fn admit(
        &self,
        ticket: &Ticket,
        model: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<(String, Running), Refusal> {
        let header = || headers.get("x-model-id").map(|value| String::from_utf8_lossy(value.as_bytes()));
        let said = model.filter(|m| !m.is_empty()).map(str::to_owned);
        let model = said.or_else(|| header().map(|m| m.into_owned()).filter(|m| !m.is_empty()));
        let model = model.ok_or(Refusal::NoModel)?;
        ticket.set_model(&model);
        self.serves(&model)?;
        let running = self.gpu.run(&model).await?;
        Ok((model, running))
    }

    /// Runs an admitted request for the service time and `tokens` more tokens.
    pub(super) async fn work(&self, tokens: u32) {
        let slow_factor = self.shared.faults.slow_factor();
        let (timing, more) = (&self.shared.timing, f64::from(tokens));
        pause(timing.service(slow_factor) + timing.token(slow_factor).mul_f64(more)).await;
    }
}
