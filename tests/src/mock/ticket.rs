//! One inference request on its way through the server, as a guard.
//!
//! A ticket is in flight from its creation to [`Ticket::end`]. One that is dropped without an end belonged to a
//! client that left, or to a life of the server that crashed; only the first counts as cancelled.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::app::App;
use super::record::Recording;

#[derive(Debug)]
pub(super) struct Ticket {
    app: Arc<App>,
    recording: Option<Recording>,
    model: OnceLock<String>,
    succeeded: AtomicBool,
    ended: AtomicBool,
    outlives_head: AtomicBool,
}

impl Ticket {
    pub(super) fn new(app: Arc<App>, recording: Option<Recording>) -> Arc<Self> {
        app.shared.stats.arrived();
        Arc::new(Self {
            app,
            recording,
            model: OnceLock::new(),
            succeeded: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            outlives_head: AtomicBool::new(false),
        })
    }

    /// Says which model the request is for; the first word counts.
    pub(super) fn set_model(&self, model: &str) {
        if self.model.set(model.to_owned()).is_err() {
            return;
        }
        if let Some(recording) = &self.recording {
            recording.set_model(model);
        }
        self.app.shared.stats.for_model(model, |counts| {
            counts.requests += 1;
            counts.pending += 1;
        });
    }

    pub(super) fn succeeded(&self) {
        self.succeeded.store(true, Relaxed);
    }

    /// The request goes on after the response head: whoever makes the body ends it.
    pub(super) fn keep_past_head(&self) {
        self.outlives_head.store(true, Relaxed);
    }

    pub(super) fn end_with_head(&self) {
        if !self.outlives_head.load(Relaxed) {
            self.end();
        }
    }

    /// The answer is complete. Called before its last byte is handed out, so that a client that has it never sees
    /// itself in flight.
    pub(super) fn end(&self) {
        if self.ended.swap(true, Relaxed) {
            return;
        }
        self.app.shared.stats.ended();
        if let Some(model) = self.model.get() {
            let succeeded = self.succeeded.load(Relaxed);
            self.app.shared.stats.for_model(model, |counts| {
                counts.pending = counts.pending.saturating_sub(1);
                counts.successes += u64::from(succeeded);
                counts.failures += u64::from(!succeeded);
            });
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.ended.load(Relaxed) {
            if !self.app.life.is_cancelled() {
                self.app.shared.stats.cancelled();
            }
            self.end();
        }
    }
}
