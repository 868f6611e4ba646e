//! Requests per second of each model: steady under noise, quick at a real change.
//!
//! Two exponentially weighted counts are kept per model, a fast one over 4 s and a slow one over 60 s:
//!
//! fast rate = fast count ÷ 4 s; share = slow count ÷ Σ slow counts; rate = share · Σ fast rates
//!
//! The pool's total is known well after seconds, a rare model's part of it only after a minute, so each comes from the
//! window that suits it. When |fast rate − rate| > 4 · √(max(fast rate, rate) ÷ (2 · 4 s)), the model has really changed
//! (4 standard deviations of a Poisson count in that window): its rate is the fast one, and its share becomes the fast
//! share. Why not one window: with 4 s alone the planner moves eleven models a second on noise, with 60 s alone a model
//! that becomes hot overloads its only home for a minute.
//!
//! Cold start: both windows count only the time that was seen, and nothing counts as a change for the first 8 s.
//! Missing data: a model that is not in the counts had no requests.

use crate::small;
use std::time::Duration;

/// Window of the fast count. Long enough for ten requests of any model that needs an endpoint of its own.
const FAST_SECONDS: f64 = 4.0;

/// Window of the slow count. 20–120 s gave the same results.
const SLOW_SECONDS: f64 = 60.0;

/// Standard deviations that are no noise any more.
const CHANGE_DEVIATIONS: f64 = 4.0;

/// Time that the counts of the first call are taken to be from. Without counts it only starts the clock.
const FIRST_SECONDS: f64 = 1.0;

/// Settings of a [`DemandEstimator`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandSettings {
    /// Models remembered at most: those with the most requests.
    pub max_models: usize,
    /// A model that was not asked for this long is forgotten.
    pub forget_after: Duration,
}

impl Default for DemandSettings {
    fn default() -> Self {
        Self { max_models: 10_000, forget_after: Duration::from_secs(600) }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct DemandEstimator {
    settings: DemandSettings,
    /// By rising hash.
    models: Vec<Model>,
    last: Option<Duration>,
    seen_seconds: f64,
}

#[derive(Clone, Copy, Debug)]
struct Model {
    hash: u64,
    fast: f64,
    slow: f64,
    rate: f64,
    asked: Duration,
}

impl Model {
    fn new(hash: u64, now: Duration) -> Self {
        Self { hash, fast: 0.0, slow: 0.0, rate: 0.0, asked: now }
    }
}

impl DemandEstimator {
    /// Of nothing yet.
    #[must_use]
    pub fn new(settings: DemandSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Goes on with other settings.
    pub fn reconfigure(&mut self, settings: DemandSettings) {
        self.settings = settings;
    }

    /// What happened until `now` was not counted, and says nothing.
    pub fn pause(&mut self, now: Duration) {
        let paused = self.last.map_or(Duration::ZERO, |last| now.saturating_sub(last));
        self.models.iter_mut().for_each(|model| model.asked = model.asked.saturating_add(paused).min(now));
        self.last = Some(now);
    }

    /// Takes the requests of each model since the last call, by model hash, in any order.
    pub fn observe(&mut self, now: Duration, counts: impl Iterator<Item = (u64, u64)>) {
        let counts: Vec<(u64, u64)> = counts.filter(|(_, count)| *count > 0).collect();
        let seconds = match self.last.replace(now) {
            Some(last) => now.saturating_sub(last).as_secs_f64().max(1e-3),
            None if counts.is_empty() => 0.0,
            None => FIRST_SECONDS,
        };
        self.seen_seconds += seconds;
        self.know(now, counts.iter().map(|(model, _)| *model));
        self.decay(seconds);
        for (model, count) in counts {
            self.count(model, count as f64, seconds, now);
        }
        self.estimate();
        self.forget(now);
    }

    /// Makes models known without any requests, as after a restart, so that a restored plan keeps their homes until
    /// they are asked for or forgotten.
    pub fn remember(&mut self, now: Duration, models: impl Iterator<Item = u64>) {
        self.know(now, models);
        self.forget(now);
    }

    /// Requests per second by rising model hash; 0 for those that nobody asks for.
    pub fn rates(&self) -> impl Iterator<Item = (u64, f64)> {
        self.models.iter().map(|model| (model.hash, model.rate))
    }

    /// Whether the model is remembered.
    #[must_use]
    pub fn knows(&self, model: u64) -> bool {
        self.models.binary_search_by_key(&model, |known| known.hash).is_ok()
    }

    fn know(&mut self, now: Duration, models: impl Iterator<Item = u64>) {
        let new: Vec<Model> = models.filter(|model| !self.knows(*model)).map(|hash| Model::new(hash, now)).collect();
        if !new.is_empty() {
            self.models.extend(new);
            small::sort(&mut self.models, &mut by_hash);
            self.models.dedup_by_key(|model| model.hash);
        }
    }

    fn decay(&mut self, seconds: f64) {
        let (fast, slow) = ((-seconds / FAST_SECONDS).exp(), (-seconds / SLOW_SECONDS).exp());
        for model in &mut self.models {
            model.fast *= fast;
            model.slow *= slow;
        }
    }

    fn count(&mut self, model: u64, count: f64, seconds: f64, now: Duration) {
        let Ok(at) = self.models.binary_search_by_key(&model, |known| known.hash) else { return };
        if let Some(model) = self.models.get_mut(at) {
            // On average a request came in the middle of the time since the last call.
            model.fast += count * (-0.5 * seconds / FAST_SECONDS).exp();
            model.slow += count;
            model.asked = now;
        }
    }

    fn estimate(&mut self) {
        let window = window(self.seen_seconds);
        let fast: f64 = self.models.iter().map(|model| model.fast).sum();
        let slow: f64 = self.models.iter().map(|model| model.slow).sum::<f64>().max(1e-9);
        let settled = self.seen_seconds > 2.0 * FAST_SECONDS;
        for model in &mut self.models {
            let (fast_rate, rate) = (model.fast / window, model.slow / slow * fast / window);
            model.rate = rate;
            if settled && changed(fast_rate, rate) {
                model.rate = fast_rate;
                model.slow = model.fast / fast.max(1e-9) * slow;
            }
        }
    }

    fn forget(&mut self, now: Duration) {
        let keep = self.settings.forget_after;
        self.models.retain(|model| now.saturating_sub(model.asked) < keep);
        let surplus = self.models.len().saturating_sub(self.settings.max_models);
        if surplus > 0 {
            small::sort(&mut self.models, &mut |a, b| {
                a.slow.total_cmp(&b.slow).then(a.asked.cmp(&b.asked)).then(a.hash.cmp(&b.hash))
            });
            self.models.drain(..surplus);
            small::sort(&mut self.models, &mut by_hash);
        }
    }
}

fn by_hash(a: &Model, b: &Model) -> std::cmp::Ordering {
    a.hash.cmp(&b.hash)
}

/// Seconds that a fast count stands for when so many have been seen at all.
fn window(seen_seconds: f64) -> f64 {
    (FAST_SECONDS * (1.0 - (-seen_seconds / FAST_SECONDS).exp())).max(0.1)
}

/// Whether the two rates differ by more than noise.
fn changed(fast_rate: f64, rate: f64) -> bool {
    (fast_rate - rate).abs() > CHANGE_DEVIATIONS * (fast_rate.max(rate) / (2.0 * FAST_SECONDS)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const SECOND: Duration = Duration::from_secs(1);

    /// Feeds the same counts each second from `from` on.
    fn feed(estimator: &mut DemandEstimator, from: u32, seconds: u32, counts: &[(u64, u64)]) {
        for n in from..from + seconds {
            estimator.observe(SECOND * n, counts.iter().copied());
        }
    }

    fn rate(estimator: &DemandEstimator, model: u64) -> f64 {
        estimator.rates().find(|(known, _)| *known == model).map_or(f64::NAN, |(_, rate)| rate)
    }

    #[test]
    fn steady_counts_become_their_rates() {
        let mut estimator = DemandEstimator::default();
        feed(&mut estimator, 0, 120, &[(1, 30), (2, 10)]);
        // A window of 4 s that is fed once a second at its middle: Σ e^(−(i + ½)/4) = e^(−1/8) ÷ (1 − e^(−1/4)) = 3.9896
        // instead of 4.
        assert!((rate(&estimator, 1) - 30.0 * 0.9974).abs() < 0.01, "{}", rate(&estimator, 1));
        assert!((rate(&estimator, 2) - 10.0 * 0.9974).abs() < 0.01, "{}", rate(&estimator, 2));
    }

    /// One second seen: 10 · e^(−1/8) = 8.825 in a window of 4 (1 − e^(−1/4)) = 0.8848 s.
    #[test]
    fn the_first_second_counts_fully() {
        let mut estimator = DemandEstimator::default();
        estimator.observe(SECOND * 5, [(7, 10)].into_iter());
        assert!((rate(&estimator, 7) - 9.974).abs() < 0.01, "{}", rate(&estimator, 7));
    }

    #[test]
    fn the_first_call_may_start_the_clock() {
        let mut estimator = DemandEstimator::default();
        estimator.observe(SECOND * 5, std::iter::empty());
        estimator.observe(SECOND * 6, [(7, 10)].into_iter());
        assert!((rate(&estimator, 7) - 9.974).abs() < 0.01, "{}", rate(&estimator, 7));
    }

    /// Noise of 25 ± 5 a second moves the rate by its share of the slow window only, while the total follows.
    #[test]
    fn noise_between_models_is_smoothed_by_the_slow_window() {
        let mut estimator = DemandEstimator::default();
        feed(&mut estimator, 0, 60, &[(1, 25), (2, 25)]);
        feed(&mut estimator, 60, 2, &[(1, 30), (2, 20)]);
        // Slow counts at rest: 25 · (1 − e^-1) ÷ (1 − e^(−1/60)) = 956; ± 10 of it in two seconds: 25 · (1 ± 0.0104).
        assert!((rate(&estimator, 1) / 24.93 - 1.0104).abs() < 0.002, "{}", rate(&estimator, 1));
        assert!((rate(&estimator, 2) / 24.93 - 0.9896).abs() < 0.002, "{}", rate(&estimator, 2));
    }

    #[test]
    fn the_detector_fires_above_four_deviations() {
        // max = 32: 4 · √(32 ÷ 8) = 8.
        assert!(!changed(32.0, 24.1));
        assert!(changed(32.0, 23.9));
        assert!(changed(23.9, 32.0));
        // max = 0.5: 4 · √(1 ÷ 16) = 1.
        assert!(!changed(0.0, 0.5), "a rare model that is silent proves nothing");
        assert!(!changed(0.0, 0.0));
    }

    /// A model that goes from 2 to 40 requests a second in one second is believed within three: after n seconds the fast
    /// rate is 2 + 38 · (1 − e^(−n/4)), so 17 after two, against 3 of its share and a noise of 4 · √(17 ÷ 8) = 5.8.
    #[test]
    fn a_real_change_is_believed_within_seconds() {
        let mut estimator = DemandEstimator::default();
        feed(&mut estimator, 0, 60, &[(1, 2), (2, 100)]);
        feed(&mut estimator, 60, 2, &[(1, 40), (2, 100)]);
        assert!((rate(&estimator, 1) - 17.0).abs() < 0.3, "{}", rate(&estimator, 1));
        // The share that was believed then stays within the noise of the truth, 4 · √(40 ÷ 8) = 8.9, and closes in.
        feed(&mut estimator, 62, 20, &[(1, 40), (2, 100)]);
        assert!((rate(&estimator, 1) - 40.0).abs() < 8.9, "{}", rate(&estimator, 1));
        feed(&mut estimator, 82, 200, &[(1, 40), (2, 100)]);
        assert!((rate(&estimator, 1) - 40.0).abs() < 0.5, "{}", rate(&estimator, 1));
        assert!((rate(&estimator, 2) - 100.0).abs() < 0.5, "{}", rate(&estimator, 2));
    }

    #[test]
    fn the_total_follows_in_seconds() {
        let mut estimator = DemandEstimator::default();
        feed(&mut estimator, 0, 60, &[(1, 40), (2, 40)]);
        feed(&mut estimator, 60, 20, &[]);
        // Twenty seconds of silence: e^(−5) of 40.
        assert!(rate(&estimator, 1) < 0.3, "{}", rate(&estimator, 1));
    }

    #[test]
    fn models_that_nobody_asks_for_are_forgotten() {
        let settings = DemandSettings { forget_after: SECOND * 30, ..DemandSettings::default() };
        let mut estimator = DemandEstimator::new(settings);
        feed(&mut estimator, 0, 1, &[(1, 5), (2, 5)]);
        feed(&mut estimator, 1, 29, &[(2, 5)]);
        assert!(estimator.knows(1));
        feed(&mut estimator, 30, 1, &[(2, 5)]);
        assert!(!estimator.knows(1));
        assert!(estimator.knows(2));
    }

    #[test]
    fn the_models_with_the_most_requests_are_remembered() {
        let mut estimator = DemandEstimator::new(DemandSettings { max_models: 3, ..DemandSettings::default() });
        feed(&mut estimator, 0, 5, &[(10, 9), (20, 8), (30, 7)]);
        for n in 5..50u32 {
            // A new name each second, asked for once.
            estimator.observe(SECOND * n, [(10, 9), (20, 8), (30, 7), (1000 + u64::from(n), 1)].into_iter());
            assert_eq!(estimator.rates().map(|(model, _)| model).collect::<Vec<_>>(), [10, 20, 30]);
        }
        // One that is asked for more than the least of them takes its place, once it has been for long enough.
        feed(&mut estimator, 50, 1, &[(40, 500)]);
        assert!(estimator.knows(40) && !estimator.knows(30));
    }

    #[test]
    fn remembered_models_have_no_requests() {
        let mut estimator = DemandEstimator::default();
        estimator.remember(SECOND, [3, 1, 3].into_iter());
        assert_eq!(estimator.rates().collect::<Vec<_>>(), [(1, 0.0), (3, 0.0)]);
        estimator.observe(SECOND * 2, [(3, 4), (3, 6), (9, 0)].into_iter());
        assert_eq!(rate(&estimator, 1), 0.0);
        assert!(rate(&estimator, 3) > 9.0, "counts of one model add up");
        assert!(!estimator.knows(9), "a count of 0 is no request");
    }

    #[test]
    fn a_clock_that_stands_still_is_no_harm() {
        let mut estimator = DemandEstimator::default();
        for _ in 0..3 {
            estimator.observe(SECOND, [(1, u64::MAX)].into_iter());
        }
        assert!(rate(&estimator, 1).is_finite());
    }
}
