//! How many homes a model gets.
//!
//! Each home should carry a load of about θ, so a demand of d wants ⌈d ÷ θ⌉ homes. θ is as small as memory allows: the
//! first of a grid, from 0.7 down, whose next step would need more memory than there is. More homes than load asks for
//! are not waste but slack: a queue at one home is avoided by going to another that is warm as well.
//!
//! θ becomes smaller only by two steps of the grid at once, and larger at once when memory asks for it. A model's homes
//! grow to ⌈d ÷ θ⌉ when each has more than 1.1 θ, and shrink by one when the rest would have less than 0.7 θ. Growing at
//! 1.02 θ made the 99th percentile six times as long, by churn; at 1.3 θ homes saturate. When the homes that are kept that
//! way need more memory than there is, those beyond ⌈d ÷ θ⌉ go.

use super::board::Model;
use std::collections::BTreeSet;

/// Values of θ.
pub(super) const GRID: [f64; 11] = [0.7, 0.6, 0.5, 0.42, 0.35, 0.3, 0.25, 0.2, 0.16, 0.13, 0.1];

/// Grows above this multiple of θ.
const GROW: f64 = 1.1;

/// Shrinks below this multiple of θ.
const SHRINK: f64 = 0.7;

/// ⌈demand ÷ θ⌉, at least 1 and at most `most`.
pub(super) fn wanted(demand: f64, theta: f64, most: u32) -> u32 {
    // A float that is too large for the type becomes its maximum.
    ((demand / theta).ceil() as u32).clamp(1, most.max(1))
}

/// Position of θ in the grid for models that have `room` units of memory on `most` endpoints; `present` is the position
/// until now.
pub(super) fn target(models: &[&Model], room: u64, most: u32, present: usize) -> usize {
    let need = |theta: f64| -> u64 {
        let units = |model: &&Model| u64::from(model.size).saturating_mul(wanted(model.demand, theta, most).into());
        models.iter().map(units).fold(0, u64::saturating_add)
    };
    let finer = GRID.iter().skip(1).take_while(|theta| need(**theta) <= room).count();
    let present_fits = || GRID.get(present).is_some_and(|theta| need(*theta) <= room);
    if finer == present.saturating_add(1) && present_fits() { present } else { finer }
}

/// Homes of a model that has `present` of them.
pub(super) fn count(demand: f64, theta: f64, present: u32, most: u32) -> u32 {
    let homes = f64::from(present.max(1));
    if demand / homes > GROW * theta {
        wanted(demand, theta, most)
    } else if homes > 1.0 && demand / (homes - 1.0) < SHRINK * theta {
        present.saturating_sub(1).clamp(1, most.max(1))
    } else {
        present.clamp(1, most.max(1))
    }
}

/// Takes homes away that only hysteresis kept until all pinned models fit in `room`: from the one whose other homes get
/// the least load, and from each no more than leaves it what it wants.
///
/// θ fits by ⌈d ÷ θ⌉. Models that keep more than that would take the memory of those that are placed last, and each
/// request for one of those would be a load, and soon another one of what it evicted.
pub(super) fn fit(models: &mut [Model], room: u64, theta: f64, most: u32) {
    let units = |model: &Model| u64::from(model.size).saturating_mul(model.replicas.into());
    let mut sum: u64 = models.iter().filter(|model| model.pinned).map(units).fold(0, u64::saturating_add);
    if sum <= room {
        return;
    }
    // Loads are not negative, and the bits of such floats are in their order.
    let spare = |model: &Model| {
        let rest = (model.pinned && model.replicas > wanted(model.demand, theta, most))
            .then(|| model.replicas.saturating_sub(1))?;
        Some((model.demand / f64::from(rest.max(1))).to_bits())
    };
    let mut order: BTreeSet<(u64, usize)> =
        models.iter().enumerate().filter_map(|(at, model)| Some((spare(model)?, at))).collect();
    while sum > room {
        let Some((_, at)) = order.pop_first() else { return };
        let Some(model) = models.get_mut(at) else { return };
        model.replicas = model.replicas.saturating_sub(1);
        sum = sum.saturating_sub(model.size.into());
        order.extend(spare(model).map(|load| (load, at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn models(demands: &[f64]) -> Vec<Model> {
        demands.iter().map(|demand| Model { demand: *demand, size: 1, ..Model::default() }).collect()
    }

    fn theta(demands: &[f64], room: u64, present: usize) -> f64 {
        let models = models(demands);
        GRID[target(&models.iter().collect::<Vec<_>>(), room, 8, present)]
    }

    /// Demands of 1.0 and 0.3 need ⌈1 ÷ θ⌉ + ⌈0.3 ÷ θ⌉ units: 3 at 0.7 and 0.6 … 0.5; 2 + 1 = 3 at 0.5, 3 + 1 = 4 at 0.42,
    /// 3 + 1 = 4 at 0.35, 4 + 1 = 5 at 0.3, 4 + 2 = 6 at 0.25, 5 + 2 = 7 at 0.2, 7 + 2 = 9 at 0.16.
    #[test]
    fn theta_is_the_smallest_that_memory_allows() {
        for (room, expected) in [(2, 0.7), (3, 0.5), (4, 0.35), (5, 0.3), (6, 0.25), (7, 0.2), (8, 0.2), (9, 0.16)] {
            assert_eq!(theta(&[1.0, 0.3], room, 0), expected, "{room} units");
        }
    }

    #[test]
    fn theta_waits_for_two_steps_down_and_goes_up_at_once() {
        // Six units allow 0.25 (position 6). One step finer than 0.3: stays. Two steps finer than 0.35: taken.
        assert_eq!(theta(&[1.0, 0.3], 6, 5), 0.3);
        assert_eq!(theta(&[1.0, 0.3], 6, 4), 0.25);
        // 0.2 (position 7) needs seven units: up at once.
        assert_eq!(theta(&[1.0, 0.3], 6, 7), 0.25);
        // From the start one step is waited for as well: 0.6 fits into three units, as 0.7 does, and 0.5 too.
        assert_eq!(theta(&[1.8], 3, 0), 0.7, "3 at 0.7 and 0.6, 4 at 0.5");
    }

    #[test]
    fn the_sizes_count_and_one_model_has_no_more_homes_than_endpoints() {
        let mut models = models(&[50.0]);
        models[0].size = 3;
        // At most four homes of three units, whatever θ.
        assert_eq!(target(&[&models[0]], 12, 4, 0), 10);
        assert_eq!(target(&[&models[0]], 11, 4, 0), 0);
    }

    #[test]
    fn homes_grow_above_and_shrink_below() {
        for (demand, present, expected, why) in [
            (0.54, 1, 1, "0.54 is under 1.1 · 0.5"),
            (0.56, 1, 2, "⌈0.56 ÷ 0.5⌉"),
            (2.6, 1, 6, "⌈2.6 ÷ 0.5⌉ at once"),
            (0.36, 2, 2, "the other would have 0.36, not under 0.7 · 0.5"),
            (0.34, 2, 1, "the other would have 0.34"),
            (0.2, 5, 4, "one at a time"),
            (0.0, 1, 1, "never none"),
            (0.0, 0, 1, "never none"),
            (100.0, 1, 8, "no more than endpoints"),
            (4.0, 12, 8, "no more than endpoints"),
        ] {
            assert_eq!(count(demand, 0.5, present, 8), expected, "{demand} on {present}: {why}");
        }
    }

    #[test]
    fn nonsense_has_one_home() {
        assert_eq!(wanted(f64::NAN, 0.5, 8), 1);
        assert_eq!(wanted(f64::MAX, 0.5, 8), 8);
        assert_eq!(wanted(1.0, 0.5, 0), 1);
    }

    /// Replicas after `fit` at θ = 0.3 of models of one unit that have these demands and homes.
    fn fitted(models: &[(f64, u32)], room: u64) -> Vec<u32> {
        let model = |(demand, replicas)| Model { demand, replicas, size: 1, pinned: true, ..Model::default() };
        let mut models: Vec<Model> = models.iter().copied().map(model).collect();
        fit(&mut models, room, 0.3, 9);
        models.iter().map(|model| model.replicas).collect()
    }

    /// d = 0.9 with 4 homes at θ = 0.3 wants 3 and keeps 4, since 0.9 ÷ 3 > 0.7 · 0.3; d = 0.2 wants 1.
    #[test]
    fn homes_that_only_hysteresis_kept_make_room() {
        assert_eq!(count(0.9, 0.3, 4, 9), 4);
        let models = [(0.9, 4), (0.2, 1)];
        assert_eq!(fitted(&models, 5), [4, 1], "there is room");
        assert_eq!(fitted(&models, 4), [3, 1]);
        assert_eq!(fitted(&models, 2), [3, 1], "what load asks for is not taken");
    }

    /// 0.9 on 4 homes would have 0.3 on each of 3; 0.5 on 4 0.167, then 0.25, and wants 2. So the second gives two first.
    #[test]
    fn the_model_whose_other_homes_get_the_least_gives_first() {
        let models = [(0.9, 4), (0.5, 4)];
        let after = |room| fitted(&models, room);
        assert_eq!([after(7), after(6), after(5)], [[4, 3], [4, 2], [3, 2]]);
    }

    /// The tail has one home each, whatever is counted for it, and its units are not in `room`.
    #[test]
    fn the_tail_gives_nothing() {
        let model = |pinned| Model { demand: 0.1, replicas: 3, size: 1, pinned, ..Model::default() };
        let mut models = [model(true), model(false)];
        fit(&mut models, 3, 0.3, 9);
        assert_eq!(models.map(|model| model.replicas), [3, 3]);
    }
}
