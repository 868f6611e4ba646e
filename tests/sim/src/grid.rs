//! Many runs, on threads: cells × policies × seeds. A run depends on nothing but its cell, policy and seed, and results
//! are put in their places, so the number of threads changes nothing.

use crate::cell::Cell;
use crate::cells::{Entry, Group};
use crate::policy::PolicyName;
use crate::record::Summary;
use crate::world;
use serde::Serialize;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a policy came to in a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What the cell is for.
    pub group: Group,
    /// The cell's short name.
    pub name: String,
    /// The cell.
    pub cell: Cell,
    /// The policy.
    pub policy: PolicyName,
    /// A run for each seed, by rising seed.
    pub runs: Vec<Summary>,
}

impl Row {
    /// Mean over the seeds.
    pub fn mean(&self, value: impl Fn(&Summary) -> f64) -> f64 {
        self.runs.iter().map(value).sum::<f64>() / self.runs.len().max(1) as f64
    }
}

/// Runs all, cell by cell, each by all policies.
#[must_use]
pub fn run(entries: &[Entry], policies: &[PolicyName], seeds: RangeInclusive<u64>, threads: usize) -> Vec<Row> {
    let mut rows: Vec<Row> =
        entries.iter().flat_map(|entry| policies.iter().map(|policy| row(entry, *policy))).collect();
    let jobs: Vec<(usize, u64)> = (0..rows.len()).flat_map(|at| seeds.clone().map(move |seed| (at, seed))).collect();
    let done = work(&jobs, threads, |(at, seed)| {
        let Row { cell, policy, .. } = &rows[*at];
        world::run(cell, &mut *policy.build(cell, *seed), *seed)
    });
    for ((at, _), summary) in jobs.into_iter().zip(done) {
        rows[at].runs.push(summary);
    }
    rows
}

fn row(entry: &Entry, policy: PolicyName) -> Row {
    Row { group: entry.group, name: entry.cell.name(), cell: entry.cell.clone(), policy, runs: Vec::new() }
}

/// The results of all jobs in their order, whoever did them.
fn work<J: Sync, R: Send>(jobs: &[J], threads: usize, run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((at, job)) = take(&next, jobs) {
                    let result = run(job);
                    done.lock().expect("no thread panicked while it held the lock").push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("a thread that panics ends the scope");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, J>(next: &AtomicUsize, jobs: &'a [J]) -> Option<(usize, &'a J)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(at).map(|job| (at, job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn entries() -> Vec<Entry> {
        let seconds = Duration::from_secs;
        let cell = Cell {
            endpoints: 4,
            models: 8,
            proxies: 2,
            warm_up: seconds(10),
            measured: seconds(10),
            ..Cell::default()
        };
        let busier = Cell { load: 0.9, slots: 2, ..cell.clone() };
        [cell, busier].map(|cell| Entry { group: Group::Feasible, cell }).into()
    }

    #[test]
    fn a_seed_is_a_result_and_threads_change_nothing() {
        let policies = PolicyName::ALL;
        let alone = run(&entries(), &policies, 1..=2, 1);
        assert_eq!(alone.len(), 2 * policies.len());
        assert_eq!(run(&entries(), &policies, 1..=2, 3), alone);
        for row in &alone {
            assert_eq!(row.runs.len(), 2);
            assert_ne!(row.runs[0], row.runs[1], "{} by {}: seeds differ", row.name, row.policy.name());
        }
    }

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let jobs: Vec<usize> = (0..100).collect();
        assert_eq!(work(&jobs, 4, |job| job * 2), jobs.iter().map(|job| job * 2).collect::<Vec<_>>());
    }

    /// All policies see the same requests, whatever becomes of them.
    #[test]
    fn one_stream_of_arrivals_is_for_all_policies() {
        let rows = run(&entries()[..1], &PolicyName::ALL, 1..=1, 1);
        assert!(rows.iter().all(|row| row.runs[0].requests == rows[0].runs[0].requests));
    }
}
