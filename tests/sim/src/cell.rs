//! One cell: the sizes of a pool, what is asked of it, and what goes wrong.

use serde::Serialize;
use std::time::Duration;

/// Mean service time of a warm request that is alone.
pub const SERVICE: Duration = Duration::from_millis(50);
/// Standard deviation of the service time ÷ its mean.
pub const SERVICE_CV: f64 = 0.5;
/// What each further request of a batch adds to a service time.
pub const BATCH_COST: f64 = 0.15;
/// A load: ten requests' work, during which the endpoint begins nothing else.
pub const LOAD: Duration = Duration::from_millis(500);
/// Clients give up after this.
pub const GIVE_UP: Duration = Duration::from_secs(10);
/// Answered within this is good.
pub const GOOD: Duration = Duration::from_secs(1);
/// From the death of an endpoint until everybody is told.
pub const DETECTION: Duration = Duration::from_secs(1);
/// From the start of the measured time to a fault.
pub const FAULT_AFTER: Duration = Duration::from_secs(20);

/// What goes wrong, [`FAULT_AFTER`] into the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing, for comparison.
    Nothing,
    /// The endpoint that answered most requests dies, with all that it has; everybody is told [`DETECTION`] later.
    EndpointDeath,
    /// The hub dies: nothing is pushed any more.
    HubDeath,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Endpoints.
    pub endpoints: usize,
    /// Models that one of them holds.
    pub memory: usize,
    /// Requests that one of them works on at a time.
    pub slots: usize,
    /// Models that are asked for.
    pub models: usize,
    /// Exponent of the models' popularity.
    pub zipf: f64,
    /// Requests per second ÷ what the pool serves when all are warm, 0–1.
    pub load: f64,
    /// Proxies in front, which do not see each other's requests.
    pub proxies: usize,
    /// Between two snapshots of the hub.
    pub snapshot: Duration,
    /// Over which requests rise from a tenth to all.
    pub ramp: Duration,
    /// Before anything is measured, ramp included.
    pub warm_up: Duration,
    /// Measured time; requests that arrive in it count.
    pub measured: Duration,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

impl Default for Cell {
    /// 32 endpoints of 4 models and 1 slot behind 16 proxies; 128 models of popularity 0.9 at 0.7 of the capacity.
    fn default() -> Self {
        Self {
            endpoints: 32,
            memory: 4,
            slots: 1,
            models: 128,
            zipf: 0.9,
            load: 0.7,
            proxies: 16,
            snapshot: Duration::from_secs(1),
            ramp: Duration::from_secs(20),
            warm_up: Duration::from_secs(30),
            measured: Duration::from_secs(60),
            fault: None,
        }
    }
}

impl Cell {
    /// Models ÷ what fits into the pool's memory.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.models as f64 / (self.endpoints * self.memory) as f64
    }

    /// Requests per second that all endpoints serve together when all are warm and batches are full.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        let slots = self.slots as f64;
        self.endpoints as f64 * slots / (SERVICE.as_secs_f64() * (1.0 + BATCH_COST * (slots - 1.0)))
    }

    /// Requests per second after the ramp.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.load * self.capacity()
    }

    /// When the last request arrives.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.warm_up + self.measured
    }

    /// When the fault happens.
    #[must_use]
    pub fn fault_at(&self) -> Duration {
        self.warm_up + FAULT_AFTER.min(self.measured / 3)
    }

    /// Slots, models ÷ memory, popularity, load: such as `S1 M0.5 z0.9 ρ0.7`.
    #[must_use]
    pub fn name(&self) -> String {
        let fill = (100.0 * self.fill()).round() / 100.0;
        format!("S{} M{fill} z{} ρ{}", self.slots, self.zipf, self.load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 32 · 1 ÷ 0.05 = 640; 32 · 4 ÷ (0.05 · 1.45) = 1,765.5.
    #[test]
    fn capacity_follows_slots_and_batching() {
        let one = Cell::default();
        assert!((one.capacity() - 640.0).abs() < 1e-9);
        let four = Cell { slots: 4, ..one };
        assert!((four.capacity() - 1_765.517).abs() < 1e-3, "{}", four.capacity());
        assert!((four.rate() - 0.7 * 1_765.517).abs() < 1e-3);
    }

    #[test]
    fn a_name_says_what_differs() {
        let cell = Cell { endpoints: 8, memory: 3, models: 16, load: 0.08, ..Cell::default() };
        assert_eq!((cell.name().as_str(), Cell::default().name().as_str()), ("S1 M0.67 z0.9 ρ0.08", "S1 M1 z0.9 ρ0.7"));
    }
}
