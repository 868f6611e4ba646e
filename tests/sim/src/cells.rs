//! Which cells are simulated.
//!
//! Feasible is a cell in which some policy, one with full knowledge included, serves 98 % in time. With models that need
//! half of the memory, all 18 are. With models that just fill it, replicas of the hot ones push others out: of the 18,
//! the six with equal popularity are feasible, in which no model needs a second home, and the four with half the load;
//! 0.7 and 0.85 of skewed demand are not.

use crate::cell::{Cell, Fault};
use serde::Serialize;
use std::time::Duration;

/// What a cell is simulated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// 32 endpoints at half load and more.
    Feasible,
    /// 32 endpoints at a third of the load and less.
    LowLoad,
    /// The size of the demo.
    Demo,
    /// Something goes wrong.
    Fault,
    /// Whatever was asked for.
    Alone,
}

/// A cell and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// What it is for.
    pub group: Group,
    /// The cell.
    pub cell: Cell,
}

/// Slots, models ÷ memory, popularity, load.
const FEASIBLE: [(usize, f64, f64, f64); 28] = [
    (1, 0.5, 0.0, 0.5),
    (1, 0.5, 0.0, 0.7),
    (1, 0.5, 0.0, 0.85),
    (1, 0.5, 0.9, 0.5),
    (1, 0.5, 0.9, 0.7),
    (1, 0.5, 0.9, 0.85),
    (1, 0.5, 1.2, 0.5),
    (1, 0.5, 1.2, 0.7),
    (1, 0.5, 1.2, 0.85),
    (1, 1.0, 0.0, 0.5),
    (1, 1.0, 0.0, 0.7),
    (1, 1.0, 0.0, 0.85),
    (1, 1.0, 0.9, 0.5),
    (1, 1.0, 1.2, 0.5),
    (4, 0.5, 0.0, 0.5),
    (4, 0.5, 0.0, 0.7),
    (4, 0.5, 0.0, 0.85),
    (4, 0.5, 0.9, 0.5),
    (4, 0.5, 0.9, 0.7),
    (4, 0.5, 0.9, 0.85),
    (4, 0.5, 1.2, 0.5),
    (4, 0.5, 1.2, 0.7),
    (4, 0.5, 1.2, 0.85),
    (4, 1.0, 0.0, 0.5),
    (4, 1.0, 0.0, 0.7),
    (4, 1.0, 0.0, 0.85),
    (4, 1.0, 0.9, 0.5),
    (4, 1.0, 1.2, 0.5),
];

/// Loads at which simple policies still live.
const LOW_LOADS: [f64; 4] = [0.05, 0.1, 0.2, 0.3];

/// 8 endpoints of 3 models behind 4 proxies, 16 models.
#[must_use]
pub fn demo(load: f64) -> Cell {
    let measured = Duration::from_secs(120);
    Cell { endpoints: 8, memory: 3, models: 16, proxies: 4, load, measured, ..Cell::default() }
}

fn feasible() -> impl Iterator<Item = Cell> {
    FEASIBLE.into_iter().map(|(slots, fill, zipf, load)| sized(slots, fill, zipf, load))
}

fn low_load() -> impl Iterator<Item = Cell> {
    let popularities = [0.0, 0.9, 1.2];
    let cell = |fill, zipf, load| Cell { measured: Duration::from_secs(120), ..sized(1, fill, zipf, load) };
    [0.5, 1.0].into_iter().flat_map(move |fill| {
        popularities.into_iter().flat_map(move |zipf| LOW_LOADS.into_iter().map(move |load| cell(fill, zipf, load)))
    })
}

fn sized(slots: usize, fill: f64, zipf: f64, load: f64) -> Cell {
    let cell = Cell::default();
    let models = (fill * (cell.endpoints * cell.memory) as f64).round() as usize;
    Cell { slots, models, zipf, load, ..cell }
}

/// Faults under steady demand: in the small pool, and in a large one that is well loaded.
fn faults() -> impl Iterator<Item = Cell> {
    let pools = [demo(0.4), sized(1, 0.5, 0.9, 0.7)];
    pools.into_iter().flat_map(|cell| {
        [Fault::Nothing, Fault::EndpointDeath, Fault::HubDeath].map(|fault| Cell {
            measured: Duration::from_secs(80),
            fault: Some(fault),
            ..cell.clone()
        })
    })
}

/// All cells.
#[must_use]
pub fn all() -> Vec<Entry> {
    let of = |group| move |cell| Entry { group, cell };
    let demos = [0.08, 0.4].map(demo);
    feasible()
        .map(of(Group::Feasible))
        .chain(low_load().map(of(Group::LowLoad)))
        .chain(demos.into_iter().map(of(Group::Demo)))
        .chain(faults().map(of(Group::Fault)))
        .collect()
}

/// A few of each group, measured for a shorter time.
#[must_use]
pub fn quick() -> Vec<Entry> {
    let sample = |(at, entry): (usize, Entry)| {
        let every = match entry.group {
            Group::Feasible => 4,
            Group::LowLoad => 5,
            Group::Demo | Group::Fault | Group::Alone => 1,
        };
        (at % every == 0).then_some(entry)
    };
    let short = |entry: Entry| {
        let measured = entry.cell.measured / 2;
        Entry { cell: Cell { measured, ..entry.cell }, ..entry }
    };
    all().into_iter().enumerate().filter_map(sample).map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feasible_cells_are_28_and_no_two_are_the_same() {
        let cells: Vec<Cell> = feasible().collect();
        assert_eq!(cells.len(), 28);
        for (at, cell) in cells.iter().enumerate() {
            assert!(!cells[..at].contains(cell), "{}", cell.name());
            assert!([64, 128].contains(&cell.models));
        }
    }

    #[test]
    fn quick_has_some_of_every_group() {
        for group in [Group::Feasible, Group::LowLoad, Group::Demo, Group::Fault] {
            let count = |entries: &[Entry]| entries.iter().filter(|entry| entry.group == group).count();
            let (quick, all) = (count(&quick()), count(&all()));
            assert!(quick > 0 && quick <= all, "{group:?}: {quick} of {all}");
        }
        let fills: Vec<f64> = quick().iter().filter(|e| e.group == Group::LowLoad).map(|e| e.cell.fill()).collect();
        assert!(fills.contains(&0.5) && fills.contains(&1.0));
    }
}
