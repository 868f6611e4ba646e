//! Service and load times from the requests that ended.
//!
//! service = median total time of warm requests, of all models, that were sent while at most S own requests were at the
//! endpoint, themselves included: those did not queue. Load time of a model = median of its cold requests − median of its
//! warm ones, both under the same condition, since a queue is no load; 10 · service until there are three cold ones.
//!
//! Medians, because a few requests of ten times the length are usual with generated text and would carry a mean away.
//! The pool's service time is from the last 1,023 requests (a median of fewer moves by more than 3 % on its own, and with
//! it every model's demand), a model's times are from its last 15 warm and 7 cold ones.
//!
//! Cold start and missing data: a value that has fewer than three samples is a default and says so.

use super::Warmth;
use std::collections::BTreeMap;
use std::time::Duration;

/// Samples below which a median is not believed.
const ENOUGH: usize = 3;

/// A load takes this many service times until it was measured.
const DEFAULT_LOAD: u32 = 10;

/// A measured value, or what stands in for it until there are samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The value.
    pub value: Duration,
    /// It is a default: nothing, or not enough, was measured.
    pub default: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Measurements {
    slots: u32,
    default_service: Duration,
    service: Window<1023>,
    models: BTreeMap<u64, Samples>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    warm: Window<15>,
    cold: Window<7>,
}

impl Measurements {
    /// For endpoints that serve so many requests at a time; `default_service` stands in until there are samples.
    #[must_use]
    pub fn new(slots: u32, default_service: Duration) -> Self {
        Self { slots: slots.max(1), default_service, service: Window::default(), models: BTreeMap::new() }
    }

    /// Goes on with other settings and what was measured.
    pub fn reconfigure(&mut self, slots: u32, default_service: Duration) {
        (self.slots, self.default_service) = (slots.max(1), default_service);
    }

    /// From now on the model's times are kept. Memory is the caller's to bound: nothing is kept of other models.
    pub fn know(&mut self, model: u64) {
        self.models.entry(model).or_default();
    }

    /// Forgets the models for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.models.retain(|model, _| keep(*model));
    }

    /// A request was served well. `in_flight` counts this gateway's requests at the endpoint when it was sent, itself
    /// included. Does not allocate.
    pub fn record(&mut self, model: u64, warmth: Warmth, in_flight: u32, total: Duration) {
        if in_flight > self.slots {
            return;
        }
        if warmth == Warmth::Warm {
            self.service.push(total);
        }
        if let Some(samples) = self.models.get_mut(&model) {
            match warmth {
                Warmth::Warm => samples.warm.push(total),
                Warmth::Cold => samples.cold.push(total),
            }
        }
    }

    /// Service time of a warm request.
    #[must_use]
    pub fn service(&self) -> Measured {
        measured(self.service.median(), self.default_service)
    }

    /// Load time of the model, where a warm request takes `service`.
    #[must_use]
    pub fn load(&self, model: u64, service: Duration) -> Measured {
        let load = self.models.get(&model).and_then(|samples| {
            let warm = samples.warm.median().unwrap_or(service);
            Some(samples.cold.median()?.saturating_sub(warm))
        });
        measured(load, service.saturating_mul(DEFAULT_LOAD))
    }
}

fn measured(value: Option<Duration>, default: Duration) -> Measured {
    Measured { value: value.unwrap_or(default), default: value.is_none() }
}

/// The last N times, in seconds.
#[derive(Clone, Copy, Debug)]
struct Window<const N: usize> {
    seconds: [f32; N],
    len: usize,
    next: usize,
}

impl<const N: usize> Default for Window<N> {
    fn default() -> Self {
        Self { seconds: [0.0; N], len: 0, next: 0 }
    }
}

impl<const N: usize> Window<N> {
    fn push(&mut self, time: Duration) {
        if let Some(slot) = self.seconds.get_mut(self.next) {
            *slot = time.as_secs_f32();
        }
        self.len = (self.len + 1).min(N);
        self.next = (self.next + 1) % N.max(1);
    }

    /// The middle one, the upper of two; none of too few.
    fn median(&self) -> Option<Duration> {
        if self.len < ENOUGH {
            return None;
        }
        let mut sorted = self.seconds;
        let samples = sorted.get_mut(..self.len)?;
        let (_, median, _) = samples.select_nth_unstable_by(self.len / 2, f32::total_cmp);
        Some(Duration::from_secs_f32(*median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn measurements(slots: u32) -> Measurements {
        let mut measurements = Measurements::new(slots, ms(80));
        measurements.know(1);
        measurements
    }

    fn load(measurements: &Measurements) -> Measured {
        measurements.load(1, measurements.service().value)
    }

    fn near(found: Measured, milliseconds: u64) -> bool {
        !found.default && found.value.abs_diff(ms(milliseconds)) < Duration::from_micros(1)
    }

    #[test]
    fn defaults_stand_in_until_there_are_three_samples() {
        let mut m = measurements(1);
        for n in 0..3 {
            assert_eq!(m.service(), Measured { value: ms(80), default: true }, "{n} samples");
            assert_eq!(load(&m), Measured { value: ms(800), default: true }, "{n} samples: ten service times");
            m.record(1, Warmth::Warm, 1, ms(50));
            if n < 2 {
                m.record(1, Warmth::Cold, 1, ms(600));
            }
        }
        assert!(near(m.service(), 50));
        assert!(load(&m).default, "two cold ones are not enough");
        assert!(near(Measured { default: false, ..load(&m) }, 500), "ten of the measured service times");
        m.record(1, Warmth::Cold, 1, ms(600));
        assert!(near(load(&m), 550));
    }

    /// Sorted: 40, 50, 60, 70, 9000.
    #[test]
    fn medians_do_not_follow_a_straggler() {
        let mut m = measurements(1);
        [60, 9000, 40, 70, 50].into_iter().for_each(|time| m.record(1, Warmth::Warm, 1, ms(time)));
        assert!(near(m.service(), 60));
    }

    #[test]
    fn requests_that_queued_do_not_count() {
        let mut m = measurements(2);
        for in_flight in [1, 2, 3, 4, 2, 9] {
            m.record(1, Warmth::Warm, in_flight, ms(u64::from(in_flight) * 100));
            m.record(1, Warmth::Cold, in_flight, ms(u64::from(in_flight) * 1000));
        }
        // Of 100, 200, 200 and of 1000, 2000, 2000.
        assert!(near(m.service(), 200));
        assert!(near(load(&m), 1800));
    }

    #[test]
    fn old_samples_give_way() {
        let mut m = measurements(1);
        (0..7).for_each(|_| m.record(1, Warmth::Cold, 1, ms(1000)));
        (0..1023).for_each(|_| m.record(1, Warmth::Warm, 1, ms(10)));
        (0..4).for_each(|_| m.record(1, Warmth::Cold, 1, ms(2000)));
        assert!(near(load(&m), 1990), "four of seven are new");
        (0..512).for_each(|_| m.record(1, Warmth::Warm, 1, ms(20)));
        assert!(near(m.service(), 20), "512 of 1023 are new");
    }

    #[test]
    fn a_cold_request_that_was_not_slower_has_no_load() {
        let mut m = measurements(1);
        (0..3).for_each(|_| m.record(1, Warmth::Warm, 1, ms(50)));
        (0..3).for_each(|_| m.record(1, Warmth::Cold, 1, ms(40)));
        assert_eq!(load(&m), Measured { value: Duration::ZERO, default: false });
    }

    #[test]
    fn only_known_models_take_memory() {
        let mut m = measurements(1);
        (2..1000).for_each(|model| m.record(model, Warmth::Warm, 1, ms(50)));
        assert_eq!(m.models.len(), 1);
        assert!(near(m.service(), 50), "they count for the pool all the same");
        m.retain(|model| model != 1);
        assert!(m.models.is_empty());
    }
}
