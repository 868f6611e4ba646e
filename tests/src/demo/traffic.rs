//! What arrives when: decided before the run, so that both policies meet the same.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Exp, Zipf};

use super::MODELS;

/// The numbers of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Driven but not counted: the memories fill with what the policy sends.
    pub warmup: Duration,
    /// Counted.
    pub measured: Duration,
    /// Requests per second in the mean.
    pub rate: f64,
    /// Exponent of the mix: 0 asks for all models alike, more for the first ones more often.
    pub zipf: f64,
    pub seed: u64,
}

/// One request to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Since the start of the run.
    pub at: Duration,
    /// The model's rank.
    pub model: usize,
}

/// All requests of a run in the order of their arrival.
#[derive(Debug, Clone)]
pub struct Traffic {
    pub arrivals: Vec<Arrival>,
    /// Arrivals from here on count.
    pub counted_from: Duration,
    /// No arrival is later.
    pub end: Duration,
}

impl Traffic {
    /// A Poisson process (independent clients), each request for a model by Zipf's law.
    ///
    /// # Errors
    /// When rate or exponent make no sense, and when no request would count.
    pub fn new(plan: &Plan) -> Result<Self> {
        ensure!(plan.rate.is_finite() && plan.rate > 0.0, "the rate must be above zero");
        let gaps = Exp::new(plan.rate).context("no usable rate")?;
        let ranks = Zipf::new(MODELS as f64, plan.zipf).context("no usable Zipf exponent")?;
        let mut generator = SmallRng::seed_from_u64(plan.seed);
        let end = plan.warmup + plan.measured;

        let mut arrivals = Vec::new();
        let mut now = generator.sample(gaps);
        while now < end.as_secs_f64() {
            // Zipf's law counts ranks from 1.
            let model = generator.sample(ranks) as usize - 1;
            arrivals.push(Arrival { at: Duration::from_secs_f64(now), model });
            now += generator.sample(gaps);
        }
        let last = arrivals.last().map(|arrival| arrival.at);
        ensure!(last >= Some(plan.warmup), "no request would count: the run is too short or the rate too low");
        Ok(Self { arrivals, counted_from: plan.warmup, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan =
        Plan { warmup: Duration::from_secs(10), measured: Duration::from_secs(90), rate: 100.0, zipf: 1.0, seed: 7 };

    #[test]
    fn a_seed_repeats_its_traffic_and_another_gives_other_traffic() -> Result<()> {
        let traffic = Traffic::new(&PLAN)?.arrivals;
        assert_eq!(traffic, Traffic::new(&PLAN)?.arrivals);
        assert_ne!(traffic, Traffic::new(&Plan { seed: 8, ..PLAN })?.arrivals);
        Ok(())
    }

    #[test]
    fn arrivals_keep_the_rate_and_the_order() -> Result<()> {
        let arrivals = Traffic::new(&PLAN)?.arrivals;
        // A Poisson count of mean 10,000 has a standard deviation of 100: five of them either way.
        assert!((9_500..=10_500).contains(&arrivals.len()), "{} with seed {}", arrivals.len(), PLAN.seed);
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
        Ok(())
    }

    #[test]
    fn models_follow_zipfs_law() -> Result<()> {
        let arrivals = Traffic::new(&PLAN)?.arrivals;
        let harmonic: f64 = (1..=MODELS).map(|rank| 1.0 / rank as f64).sum();
        for model in 0..MODELS {
            let count = arrivals.iter().filter(|arrival| arrival.model == model).count() as f64;
            let expected = arrivals.len() as f64 / (harmonic * (model + 1) as f64);
            // A count's standard deviation is at most the root of its mean: five of them either way.
            let slack = 5.0 * expected.sqrt();
            assert!((count - expected).abs() < slack, "model {model}: {count}, expected {expected}");
        }
        Ok(())
    }

    #[test]
    fn plans_that_make_no_sense_or_count_nothing_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Traffic::new(&Plan { rate, ..PLAN }).is_err(), "{rate}");
        }
        assert!(Traffic::new(&Plan { zipf: -1.0, ..PLAN }).is_err());
        assert!(Traffic::new(&Plan { measured: Duration::ZERO, ..PLAN }).is_err());
    }
}
