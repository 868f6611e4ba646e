//! How many endpoints are set aside for the models that do not fit in memory, and which models those are.
//!
//! When models need more memory than there is, loads are unavoidable. Spread over the pool they evict and block models
//! that are asked for all the time; on a few lanes they hurt only each other. With ℓ lanes of N endpoints, models are
//! pinned in the order of rate ÷ size until the memory of the other N − ℓ is full (each needs ⌈d ÷ 0.75⌉ homes) or, with
//! lanes, their load is more than 0.9 (N − ℓ). The rest is the tail:
//!
//! W = Σ d + Σ rate · load time · miss over the tail, where miss = 1 without lanes, else 1 − memory of the lanes ÷ Σ size
//!
//! good = (rate pinned + rate of the tail · min(1, A ÷ W)) ÷ all, where A = 0.75 N − load pinned without lanes, else 0.7 ℓ
//!
//! | score | when |
//! |---|---|
//! | 1.2 | no lanes, a tail, load pinned + 1.5 W ≤ 0.4 N: the pool is idle, nothing need be set aside |
//! | 1.05 − 0.1 ℓ ÷ N | good ≥ 0.999, load pinned ≤ 0.6 (N − ℓ), lanes or no tail: capacity to spare, serve the tail too |
//! | good − 0.2 ℓ ÷ N | otherwise: capacity is scarce, lanes are dear |
//!
//! less 0.03 for a tail without lanes, plus 0.02 for the number of lanes until now, whose limits 0.4 and 0.6 are 5 %
//! higher, too: the score jumps there. The best of ℓ = 0 … N ÷ 2 wins, the
//! fewest lanes at ties. Lanes are the endpoints with the lowest keys, so that another number moves only the difference.
//!
//! Where endpoints differ, N stands for Σ 1 ÷ speed wherever work is meant, and memory is the endpoints' own.
//! Why not pin whatever fits and let the rest find its place: one rare model that evicts a hot one costs two loads.
//! Since pinned models are a prefix of the order that only gets shorter with more lanes, one pass finds all cuts.

use super::board::{Model, Spot};
use super::replicas;

/// A pinned model needs a home for each of this load.
const FULLEST_HOME: f64 = 0.75;

/// Load that pinned endpoints may get while there are lanes.
const PINNED_FULL: f64 = 0.9;

/// Work that lanes do, and that a pool without lanes does.
const LANE_WORK: f64 = 0.7;
const POOL_WORK: f64 = 0.75;

/// The limits 0.4 and 0.6 of the table are this much higher for the number of lanes until now: there the score jumps by
/// more than the 0.02 for staying, and noise in the demand would move a part of the pool to and fro.
const LIMIT_STAYS: f64 = 1.05;

/// What is needed and used when models are pinned up to some place in the order.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    pinned_units: u64,
    pinned_demand: f64,
    pinned_rate: f64,
    tail_units: u64,
    tail_demand: f64,
    tail_rate: f64,
    /// Σ rate · load time.
    tail_loads: f64,
}

/// What the endpoints give when some of them are lanes.
#[derive(Clone, Copy, Debug, Default)]
struct Split {
    lanes: usize,
    lane_units: u64,
    other_units: u64,
    lane_power: f64,
    other_power: f64,
}

/// The choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    /// Number of lanes.
    pub lanes: usize,
    /// How many models of the order are pinned.
    pub pinned: usize,
    score: f64,
}

/// Chooses for `order`, the models by falling rate ÷ size, and `spots`, the endpoints by rising key. `present` is the
/// number of lanes until now, `most` the highest number to think of.
pub(super) fn choose(order: &[&Model], spots: &[Spot], present: usize, most: usize) -> Choice {
    let cuts = cuts(order, u32::try_from(spots.len()).unwrap_or(u32::MAX));
    let mut best = Choice { lanes: 0, pinned: order.len(), score: f64::NEG_INFINITY };
    let mut pinned = order.len();
    for split in splits(spots).take(most.saturating_add(1)) {
        pinned = longest(&cuts, pinned, &split);
        let Some(cut) = cuts.get(pinned) else { break };
        let (stays, limit) = if split.lanes == present { (0.02, LIMIT_STAYS) } else { (0.0, 1.0) };
        let score = score(cut, &split, limit) + stays;
        if score > best.score {
            best = Choice { lanes: split.lanes, pinned, score };
        }
    }
    best
}

/// One cut before each model of the order, and one after the last.
fn cuts(order: &[&Model], endpoints: u32) -> Vec<Cut> {
    let mut cuts = Vec::with_capacity(order.len().saturating_add(1));
    let mut sum = Cut::default();
    cuts.push(sum);
    for model in order {
        let homes = replicas::wanted(model.demand, FULLEST_HOME, endpoints);
        sum.pinned_units = sum.pinned_units.saturating_add(u64::from(model.size).saturating_mul(homes.into()));
        sum.pinned_demand += model.demand;
        sum.pinned_rate += model.rate;
        cuts.push(sum);
    }
    // The tails from their own end: differences of sums would leave crumbs where there is no tail.
    let mut sum = Cut::default();
    for (cut, model) in cuts.iter_mut().rev().skip(1).zip(order.iter().rev()) {
        sum.tail_units = sum.tail_units.saturating_add(model.size.into());
        sum.tail_demand += model.demand;
        sum.tail_rate += model.rate;
        sum.tail_loads += model.rate * model.load_seconds;
        *cut = Cut {
            pinned_units: cut.pinned_units,
            pinned_demand: cut.pinned_demand,
            pinned_rate: cut.pinned_rate,
            ..sum
        };
    }
    cuts
}

/// Endpoints split into 0, 1, 2 … lanes and the others.
fn splits(spots: &[Spot]) -> impl Iterator<Item = Split> {
    let all = spots.iter().fold(Split::default(), |sum, spot| Split {
        other_units: sum.other_units.saturating_add(spot.memory.into()),
        other_power: sum.other_power + spot.power(),
        ..sum
    });
    let with_lanes = spots.iter().scan(all, |split, spot| {
        split.lanes += 1;
        split.lane_units = split.lane_units.saturating_add(spot.memory.into());
        split.other_units = split.other_units.saturating_sub(spot.memory.into());
        split.lane_power += spot.power();
        split.other_power -= spot.power();
        Some(*split)
    });
    std::iter::once(all).chain(with_lanes)
}

/// The longest prefix of the order, not longer than `at_most`, that fits on the endpoints that are no lanes.
fn longest(cuts: &[Cut], at_most: usize, split: &Split) -> usize {
    let load_room = if split.lanes == 0 { f64::INFINITY } else { split.other_power * PINNED_FULL };
    let fits = |cut: &Cut| cut.pinned_units <= split.other_units && cut.pinned_demand <= load_room;
    cuts.iter().take(at_most.saturating_add(1)).rposition(fits).unwrap_or(0)
}

/// `limit` is by how much longer the limits of load in the table hold.
fn score(cut: &Cut, split: &Split, limit: f64) -> f64 {
    let power = split.lane_power + split.other_power;
    let tail = cut.tail_units > 0;
    let lanes_ratio = split.lane_power / power.max(1e-9);
    let work = cut.tail_demand + cut.tail_loads * miss(cut, split);
    let good = good(cut, split, work);
    if split.lanes == 0 && tail && cut.pinned_demand + 1.5 * work <= 0.4 * limit * power {
        return 1.2 - 0.03;
    }
    let spare = good >= 0.999 && cut.pinned_demand <= 0.6 * limit * split.other_power;
    match (split.lanes > 0, tail) {
        (false, true) => good - 0.03,
        _ if spare => 1.05 - 0.1 * lanes_ratio,
        _ => good - 0.2 * lanes_ratio,
    }
}

/// Share of the tail's requests that find their model not in memory.
fn miss(cut: &Cut, split: &Split) -> f64 {
    if split.lanes == 0 || cut.tail_units == 0 {
        return 1.0;
    }
    (1.0 - split.lane_units as f64 / cut.tail_units as f64).max(0.0)
}

/// Share of all requests that are served in time.
fn good(cut: &Cut, split: &Split, work: f64) -> f64 {
    let available = match split.lanes {
        0 => ((split.lane_power + split.other_power) * POOL_WORK - cut.pinned_demand).max(0.0),
        _ => split.lane_power * LANE_WORK,
    };
    let all = (cut.pinned_rate + cut.tail_rate).max(1e-9);
    (cut.pinned_rate + cut.tail_rate * (available / work.max(1e-9)).min(1.0)) / all
}

#[cfg(test)]
mod tests {
    use super::super::board::Board;
    use super::super::board::tests::inputs;
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const CAPACITY: f64 = 20.0;

    fn model(rate: f64, size: u32, load_seconds: f64) -> Model {
        Model { rate, demand: rate / CAPACITY, size, load_seconds, ..Model::default() }
    }

    fn models(rates: &[f64], load_seconds: f64) -> Vec<Model> {
        rates.iter().map(|rate| model(*rate, 1, load_seconds)).collect()
    }

    /// Scores without lanes, with one lane, with two … of four endpoints of one unit.
    fn scores(models: &[Model]) -> Vec<(usize, f64)> {
        let order: Vec<&Model> = models.iter().collect();
        let cuts = cuts(&order, 4);
        let score = |split: Split| {
            let pinned = longest(&cuts, order.len(), &split);
            (pinned, score(&cuts[pinned], &split, 1.0))
        };
        splits(Board::new(&inputs(&[1; 4])).spots()).take(3).map(score).collect()
    }

    fn assert_scores(found: &[(usize, f64)], expected: &[(usize, f64)]) {
        for (lanes, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(found.0, expected.0, "pinned with {lanes} lanes");
            assert!((found.1 - expected.1).abs() < 1e-4, "{lanes} lanes: {} instead of {}", found.1, expected.1);
        }
    }

    fn choice(models: &[Model], present: usize) -> (usize, usize) {
        let order: Vec<&Model> = models.iter().collect();
        let choice = choose(&order, Board::new(&inputs(&[1; 4])).spots(), present, 2);
        (choice.lanes, choice.pinned)
    }

    /// Four models of 1 a second fill four units and leave no tail: 1.05. With one lane the fourth is alone on it: nothing
    /// is missed, W = 0.05, good = 1, and 0.15 ≤ 0.6 · 3: 1.05 − 0.1 ÷ 4.
    #[test]
    fn no_lanes_when_all_models_fit() {
        let models = models(&[1.0; 4], 0.5);
        assert_scores(&scores(&models), &[(4, 1.05), (3, 1.025), (2, 1.0)]);
        assert_eq!(choice(&models, 0), (0, 4));
        assert_eq!(choice(&models, 2), (0, 4), "1.0 + 0.02 for staying is not enough");
    }

    /// Two models too many, loads of 0.3 s: W = 2 · (0.05 + 0.3) = 0.7, and 0.2 + 1.5 · 0.7 = 1.25 ≤ 0.4 · 4.
    #[test]
    fn no_lanes_when_the_pool_is_idle() {
        let models = models(&[1.0; 6], 0.3);
        assert!((scores(&models)[0].1 - 1.17).abs() < 1e-9);
        assert_eq!(choice(&models, 2), (0, 4));
    }

    /// Two models too many, loads of 0.5 s.
    ///
    /// | lanes | pinned | W | A | good | score |
    /// |---|---|---|---|---|---|
    /// | 0 | 4 | 2 · (0.05 + 0.5) = 1.1: 0.2 + 1.65 > 1.6 | 3 − 0.2 | 1 | 1 − 0.03 |
    /// | 1 | 3 | 3 · 0.05 + 3 · 0.5 · ⅔ = 1.15 | 0.7 | (3 + 3 · 0.7 ÷ 1.15) ÷ 6 = 0.8043 | − 0.2 ÷ 4 |
    /// | 2 | 2 | 4 · 0.05 + 4 · 0.5 · ½ = 1.2 | 1.4 | 1, and 0.1 ≤ 0.6 · 2 | 1.05 − 0.1 · 2 ÷ 4 |
    #[test]
    fn lanes_when_there_is_capacity_to_spare() {
        let models = models(&[1.0; 6], 0.5);
        assert_scores(&scores(&models), &[(4, 0.97), (3, 0.7543), (2, 1.0)]);
        assert_eq!(choice(&models, 0), (2, 2), "1.0 against 0.97 + 0.02");
    }

    /// Four models of 14 a second (0.7 each) and four of 1, loads of 0.5 s.
    ///
    /// | lanes | pinned | W | A | good | score |
    /// |---|---|---|---|---|---|
    /// | 0 | 4 | 4 · 0.55 = 2.2 | 3 − 2.8 | (56 + 4 · 0.2 ÷ 2.2) ÷ 60 = 0.9394 | − 0.03 |
    /// | 1 | 3 | 0.9 + 18 · 0.5 · 0.8 = 8.1 | 0.7 | (42 + 18 · 0.7 ÷ 8.1) ÷ 60 = 0.7259 | − 0.05 |
    /// | 2 | 2: 1.4 ≤ 0.9 · 2 | 1.6 + 32 · 0.5 · ⅔ = 12.2667 | 1.4 | (28 + 32 · 1.4 ÷ 12.2667) ÷ 60 = 0.5275 | − 0.1 |
    #[test]
    fn no_lanes_when_capacity_is_scarce() {
        let models = models(&[14.0, 14.0, 14.0, 14.0, 1.0, 1.0, 1.0, 1.0], 0.5);
        assert_scores(&scores(&models), &[(4, 0.9094), (3, 0.6759), (2, 0.4275)]);
        assert_eq!(choice(&models, 1), (0, 4));
    }

    /// As in the table above, 1.0 with two lanes, and 0.02 for staying.
    #[test]
    fn the_present_number_of_lanes_has_an_advantage() {
        let models = models(&[1.0; 6], 0.5);
        assert_eq!(choice(&models, 2), (2, 2));
        let order: Vec<&Model> = models.iter().collect();
        let found = choose(&order, Board::new(&inputs(&[1; 4])).spots(), 2, 2);
        assert!((found.score - 1.02).abs() < 1e-9);
    }

    /// How often the number of lanes changes while the demand goes 2 % up and down, ten times, after it was `first`.
    fn changes_under_noise(models: &[Model], first: usize) -> usize {
        let with = |noise: f64| -> Vec<Model> {
            let noisy = |known: &Model| model(known.rate * noise, known.size, known.load_seconds);
            models.iter().map(noisy).collect()
        };
        let mut lanes = vec![first];
        for noise in [0.98, 1.02].repeat(10) {
            let present = lanes.last().copied().unwrap();
            lanes.push(choice(&with(noise), present).0);
        }
        lanes.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    /// Two models too many, and loads that take just so long that the pool is idle: W = 2 · (0.05 + L), and
    /// 0.2 + 1.5 W = 0.4 · 4 where L = 0.41667. Above it two lanes would be better: 1.0 against 0.97.
    #[test]
    fn noise_at_the_limit_of_an_idle_pool_does_not_flip_lanes() {
        let models = models(&[1.0; 6], 0.41667);
        assert_eq!([0, 2].map(|first| changes_under_noise(&models, first)), [0, 1], "to no lanes, and it stays so");
    }

    /// Two models that load two endpoints with 0.6 each, and four rare ones whose loads take 4 s.
    ///
    /// | lanes | pinned | W | A | good | score |
    /// |---|---|---|---|---|---|
    /// | 0 | 4 | 2 · (0.005 + 0.4) = 0.81: 1.21 + 1.215 > 1.6 | 3 − 1.21 | 1 | 1 − 0.03 |
    /// | 1 | 3 | 0.015 + 1.2 · ⅔ = 0.815 | 0.7 | (24.1 + 0.3 · 0.859) ÷ 24.4 = 0.9983 | − 0.05 |
    /// | 2 | 2 | 0.02 + 1.6 · ½ = 0.82 | 1.4 | 1 | 1.2 ≤ 0.6 · 2 at most: 1.05 − 0.05, above it 1 − 0.1 |
    #[test]
    fn noise_at_the_limit_of_spare_capacity_does_not_flip_lanes() {
        let mut models = models(&[12.0, 12.0, 0.1, 0.1, 0.1, 0.1], 4.0);
        assert_scores(&scores(&models), &[(4, 0.97), (3, 0.9483), (2, 1.0)]);
        assert_eq!([0, 2].map(|first| changes_under_noise(&models, first)), [1, 0], "to two lanes, and it stays so");
        models.iter_mut().for_each(|model| *model = self::model(model.rate * 1.07, 1, 4.0));
        assert_eq!(choice(&models, 2).0, 0, "more than 5 % above the limit");
    }

    #[test]
    fn pinned_models_are_a_prefix_of_the_order() {
        // 1.6 needs ⌈1.6 ÷ 0.75⌉ = 3 of four units. The next one does not fit, and the one after it has to wait, too.
        let order = [model(32.0, 1, 0.5), model(2.0, 2, 0.5), model(0.5, 1, 0.5)];
        assert_eq!(scores(&order)[0].0, 1);
        // Alone it would need 40 endpoints, but there are only four.
        assert_eq!(scores(&[model(600.0, 1, 0.5), model(0.5, 1, 0.5)])[0].0, 1);
    }

    #[test]
    fn endpoints_that_differ_count_for_what_they_are() {
        let mut endpoints = inputs(&[3, 1, 2]);
        endpoints[1].speed = 2.0;
        endpoints[2].speed = 0.5;
        let splits: Vec<Split> = splits(Board::new(&endpoints).spots()).collect();
        let numbers = |split: &Split| (split.lane_units, split.other_units, split.lane_power, split.other_power);
        assert_eq!(
            splits.iter().map(numbers).collect::<Vec<_>>(),
            [(0, 6, 0.0, 3.5), (3, 3, 1.0, 2.5), (4, 2, 1.5, 2.0), (6, 0, 3.5, 0.0),]
        );
    }

    #[test]
    fn nothing_to_choose_from_is_no_harm() {
        assert_eq!(choice(&[], 0), (0, 0));
        assert_eq!(choose(&[], &[], 3, 9).lanes, 0);
    }

    /// One pass for all numbers of lanes finds what a search for each would find.
    #[test]
    fn cuts_only_get_shorter() {
        let models: Vec<Model> = (1..60).map(|n| model(40.0 / f64::from(n), 1 + n % 3, 0.5)).collect();
        let order: Vec<&Model> = models.iter().collect();
        let cuts = cuts(&order, 12);
        let mut pinned = order.len();
        for split in splits(Board::new(&inputs(&[4; 12])).spots()) {
            pinned = longest(&cuts, pinned, &split);
            assert_eq!(pinned, longest(&cuts, order.len(), &split), "{} lanes", split.lanes);
        }
    }
}
