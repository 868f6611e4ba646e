//! How long things take: the settings' times with their seeded jitter.

use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

#[derive(Debug)]
pub(super) struct Timing {
    service: Duration,
    load: Duration,
    token: Duration,
    jitter: Option<(f64, Mutex<SmallRng>)>,
}

impl Timing {
    pub(super) fn new(settings: &super::Settings) -> Self {
        let generator = || Mutex::new(SmallRng::seed_from_u64(settings.seed));
        Self {
            service: settings.service,
            load: settings.load,
            token: settings.token,
            jitter: (settings.jitter_ratio > 0.0).then(|| (settings.jitter_ratio, generator())),
        }
    }

    pub(super) fn load(&self) -> Duration {
        self.vary(self.load)
    }

    /// Time to a whole answer, or to the first token of a streamed one. `slow_factor` is the fault's.
    pub(super) fn service(&self, slow_factor: f64) -> Duration {
        self.vary(self.service).mul_f64(slow_factor)
    }

    pub(super) fn token(&self, slow_factor: f64) -> Duration {
        self.token.mul_f64(slow_factor)
    }

    fn vary(&self, time: Duration) -> Duration {
        match &self.jitter {
            Some((ratio, generator)) if !time.is_zero() => {
                let share: f64 = generator.lock().random();
                time.mul_f64(1.0 + ratio * (2.0 * share - 1.0))
            }
            _ => time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    #[test]
    fn jitter_is_bounded_and_repeats_with_its_seed() {
        let settings = Settings { service: Duration::from_millis(100), jitter_ratio: 0.2, ..Settings::default() };
        let draw = || {
            let timing = Timing::new(&settings);
            (0..1000).map(|_| timing.service(1.0)).collect::<Vec<_>>()
        };
        let times = draw();
        assert_eq!(times, draw());
        assert!(times.iter().all(|t| (80..=120).contains(&t.as_millis())), "seed {}", settings.seed);
        assert!(times.iter().any(|t| t.as_millis() < 90) && times.iter().any(|t| t.as_millis() > 110));
    }

    #[test]
    fn a_zero_time_stays_zero() {
        let settings = Settings { jitter_ratio: 1.0, ..Settings::default() };
        assert_eq!(Timing::new(&settings).service(5.0), Duration::ZERO);
    }
}
