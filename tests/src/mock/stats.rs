//! Counters of a server. They outlive a crash, since they are the test's view and not the server's own.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Models that are counted by name; the rest share [`OTHER_MODELS`], so that endless new names cost nothing.
const COUNTED_MODELS: usize = 1024;
const OTHER_MODELS: &str = "_other";

/// What `GET /mock/stats` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsSnapshot {
    /// Inference requests that arrived, whatever became of them.
    pub requests: u64,
    /// Loads that requests caused.
    pub cold_loads: u64,
    /// Inference requests whose client left before the end of the answer.
    pub cancelled: u64,
    /// Inference requests that arrived and have not ended: queued, loading, running, hung by a fault.
    pub in_flight: u64,
    pub max_in_flight: u64,
    /// Most recently used first.
    pub resident_models: Vec<String>,
    /// Requests in one of the `concurrency` places.
    pub running: u64,
    pub max_running: u64,
    /// Requests that wait for a place.
    pub queued: u64,
    /// Loads through the model repository calls.
    pub explicit_loads: u64,
    /// Requests that are not inference (and not `/mock/`): health, metrics, model lists, unknown paths.
    pub other_requests: u64,
    pub requests_by_model: BTreeMap<String, u64>,
    /// Times the server came up: 1, and one more after each crash.
    pub lives: u64,
}

/// Counts of one model; `pending` includes queued ones.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ModelCounts {
    pub(super) requests: u64,
    pub(super) successes: u64,
    pub(super) failures: u64,
    pub(super) pending: u64,
}

#[derive(Debug, Default)]
pub(super) struct Stats {
    requests: AtomicU64,
    cold_loads: AtomicU64,
    explicit_loads: AtomicU64,
    cancelled: AtomicU64,
    other_requests: AtomicU64,
    lives: AtomicU64,
    in_flight: Level,
    running: Level,
    models: Mutex<HashMap<String, ModelCounts>>,
}

/// A level and the highest it ever had.
#[derive(Debug, Default)]
struct Level {
    now: AtomicU64,
    max: AtomicU64,
}

impl Level {
    fn up(&self) {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.max.fetch_max(now, Relaxed);
    }

    fn down(&self) {
        self.now.fetch_sub(1, Relaxed);
    }

    fn restart_max(&self) {
        self.max.store(self.now.load(Relaxed), Relaxed);
    }
}

impl Stats {
    pub(super) fn arrived(&self) {
        self.requests.fetch_add(1, Relaxed);
        self.in_flight.up();
    }

    pub(super) fn ended(&self) {
        self.in_flight.down();
    }

    pub(super) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    pub(super) fn cold_load(&self) {
        self.cold_loads.fetch_add(1, Relaxed);
    }

    pub(super) fn explicit_load(&self) {
        self.explicit_loads.fetch_add(1, Relaxed);
    }

    pub(super) fn other_request(&self) {
        self.other_requests.fetch_add(1, Relaxed);
    }

    pub(super) fn run_started(&self) {
        self.running.up();
    }

    pub(super) fn run_ended(&self) {
        self.running.down();
    }

    pub(super) fn life_started(&self) {
        self.lives.fetch_add(1, Relaxed);
    }

    /// Changes the counts of `model`, or of all the rest together once enough models have a name.
    pub(super) fn for_model(&self, model: &str, change: impl FnOnce(&mut ModelCounts)) {
        let mut models = self.models.lock();
        if let Some(counts) = models.get_mut(model) {
            return change(counts);
        }
        let name = if models.len() < COUNTED_MODELS { model } else { OTHER_MODELS };
        change(models.entry(name.to_owned()).or_default());
    }

    pub(super) fn models(&self) -> BTreeMap<String, ModelCounts> {
        self.models.lock().iter().map(|(name, counts)| (name.clone(), *counts)).collect()
    }

    /// Zeroes what counts events; levels stay, since they are the truth of the moment.
    pub(super) fn reset(&self) {
        let events = [&self.requests, &self.cold_loads, &self.explicit_loads, &self.cancelled, &self.other_requests];
        for counter in events {
            counter.store(0, Relaxed);
        }
        self.in_flight.restart_max();
        self.running.restart_max();
        let mut models = self.models.lock();
        models.retain(|_, counts| counts.pending > 0);
        for counts in models.values_mut() {
            *counts = ModelCounts { pending: counts.pending, ..ModelCounts::default() };
        }
    }

    pub(super) fn snapshot(&self, gpu: &super::gpu::Gpu) -> StatsSnapshot {
        let models = self.models.lock();
        let counted = models.iter().filter(|(_, counts)| counts.requests > 0);
        StatsSnapshot {
            requests: self.requests.load(Relaxed),
            cold_loads: self.cold_loads.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            in_flight: self.in_flight.now.load(Relaxed),
            max_in_flight: self.in_flight.max.load(Relaxed),
            resident_models: gpu.resident(),
            running: self.running.now.load(Relaxed),
            max_running: self.running.max.load(Relaxed),
            queued: gpu.waiting() as u64,
            explicit_loads: self.explicit_loads.load(Relaxed),
            other_requests: self.other_requests.load(Relaxed),
            requests_by_model: counted.map(|(name, counts)| (name.clone(), counts.requests)).collect(),
            lives: self.lives.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_model_names_share_one_count() {
        let stats = Stats::default();
        for n in 0..10_000 {
            stats.for_model(&format!("m{n}"), |counts| counts.requests += 1);
        }
        let models = stats.models();
        assert_eq!(models.len(), COUNTED_MODELS + 1);
        assert_eq!(models[OTHER_MODELS].requests, 10_000 - COUNTED_MODELS as u64);
        stats.for_model("m0", |counts| counts.requests += 1);
        assert_eq!(stats.models()["m0"].requests, 2);
    }
}
