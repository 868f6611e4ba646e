//! Who asks for what, when: one stream per cell and seed, the same for every policy.
//!
//! Poisson arrivals whose rate rises from a tenth to all of it over the ramp; the model by Zipf, 1 ÷ rank^z; the work
//! lognormal; the proxy uniform. The stream is open: nobody waits for an answer before asking again.

use crate::cell::{Cell, SERVICE, SERVICE_CV};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::weighted::WeightedAliasIndex;
use rand_distr::{Distribution, Exp1, LogNormal};
use std::time::Duration;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives.
    pub at: Duration,
    /// Which model, 0 being the one that is asked for most.
    pub model: usize,
    /// Service time when it is alone and warm.
    pub work: Duration,
    /// At which proxy.
    pub proxy: usize,
}

/// See the module. Ends with the cell.
#[derive(Debug)]
pub struct Arrivals {
    rng: Xoshiro256PlusPlus,
    popularity: WeightedAliasIndex<f64>,
    work: LogNormal<f64>,
    proxies: usize,
    rate: f64,
    ramp: Duration,
    end: Duration,
    now: Duration,
}

impl Arrivals {
    /// The stream of `cell` for that seed.
    ///
    /// # Panics
    /// When the cell has no models.
    #[must_use]
    pub fn new(cell: &Cell, seed: u64) -> Self {
        let weights = (1..=cell.models).map(|rank| (rank as f64).powf(-cell.zipf)).collect();
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            popularity: WeightedAliasIndex::new(weights).expect("a cell has models"),
            work: LogNormal::from_mean_cv(SERVICE.as_secs_f64(), SERVICE_CV).expect("constants are valid"),
            proxies: cell.proxies,
            rate: cell.rate(),
            ramp: cell.ramp,
            end: cell.end(),
            now: Duration::ZERO,
        }
    }

    /// Requests per second now.
    fn rate_now(&self) -> f64 {
        let part = if self.now < self.ramp { self.now.as_secs_f64() / self.ramp.as_secs_f64() } else { 1.0 };
        self.rate * (0.1 + 0.9 * part)
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.now += Duration::from_secs_f64(gap / self.rate_now());
        let model = self.popularity.sample(&mut self.rng);
        let work = Duration::from_secs_f64(self.work.sample(&mut self.rng));
        let proxy = self.rng.random_range(0..self.proxies);
        (self.now < self.end).then_some(Arrival { at: self.now, model, work, proxy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(seed: u64) -> (Cell, Vec<Arrival>) {
        let cell = Cell { models: 64, zipf: 0.9, ..Cell::default() };
        let arrivals = Arrivals::new(&cell, seed).collect();
        (cell, arrivals)
    }

    /// Mean 50 ms, standard deviation 25 ms, over n > 30,000 samples: ± 4 · 25 ÷ √n < 0.6 ms. The deviation's own error
    /// is that of a lognormal with kurtosis 3 + 16·0.25 ≈ 8.04: σ · √((8.04 − 1) ÷ 4n) < 0.2 ms, taken four times.
    #[test]
    fn work_has_the_mean_and_the_spread_that_is_said() {
        let (_, arrivals) = stream(1);
        let n = arrivals.len() as f64;
        assert!(n > 30_000.0, "{n}");
        let seconds = || arrivals.iter().map(|arrival| arrival.work.as_secs_f64());
        let mean = seconds().sum::<f64>() / n;
        let deviation = (seconds().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        assert!((mean - 0.050).abs() < 0.0006, "{mean}");
        assert!((deviation - 0.025).abs() < 0.0008, "{deviation}");
    }

    /// 448 a second for 70 s after the ramp: 31,360 ± 4 · √31,360 = 708; in the ramp 0.55 of it: 4,928 ± 281, and the
    /// rate of a gap is that at its beginning, which is less than one request.
    #[test]
    fn arrivals_come_at_the_rate_of_the_cell_and_the_ramp() {
        let (cell, arrivals) = stream(2);
        let ramp = arrivals.iter().filter(|arrival| arrival.at < cell.ramp).count() as f64;
        let after = arrivals.len() as f64 - ramp;
        assert!((cell.rate() - 448.0).abs() < 1e-9);
        assert!((after - 31_360.0).abs() < 708.0, "{after}");
        assert!((ramp - 4_928.0).abs() < 282.0, "{ramp}");
    }

    /// Σ 1 ÷ rank^0.9 over 64 ranks is H; the first model gets 1 ÷ H, the tenth 10^−0.9 ÷ H.
    #[test]
    fn popularity_is_zipf() {
        let (cell, arrivals) = stream(3);
        let n = arrivals.len() as f64;
        let all: f64 = (1..=cell.models).map(|rank| (rank as f64).powf(-0.9)).sum();
        for rank in [1, 10, 64] {
            let expected = (rank as f64).powf(-0.9) / all;
            let found = arrivals.iter().filter(|arrival| arrival.model == rank - 1).count() as f64 / n;
            let tolerance = 4.0 * (expected / n).sqrt();
            assert!((found - expected).abs() < tolerance, "rank {rank}: {found}, not {expected}");
        }
    }

    #[test]
    fn a_seed_is_a_stream() {
        assert_eq!(stream(4).1, stream(4).1);
        assert_ne!(stream(4).1, stream(5).1);
    }
}
