//! What Warmroute promises of `homes`, against what was measured.
//!
//! Cells are judged one by one, by their means over the seeds, and the worst one counts.

use crate::cell::{Cell, Fault};
use crate::cells::Group;
use crate::grid::Row;
use crate::policy::PolicyName;
use crate::record::Summary;
use serde::Serialize;

/// Policies that keep a model where it is, as `homes` does.
const STICKY: [PolicyName; 3] = [PolicyName::Ring, PolicyName::Maglev, PolicyName::Bounded];

/// Goodput that noise may cost when "nothing" is lost: another order of two requests changes the rest of a run.
const NOTHING: f64 = 0.001;

/// One promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promise {
    /// What is promised.
    pub text: &'static str,
    /// The bound.
    pub bound: Bound,
    /// What was measured in the worst cell; `None` when no cell that it is about was run.
    pub measured: Option<f64>,
    /// The worst cell.
    pub cell: String,
}

/// Where the measured value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Not lower.
    AtLeast(f64),
    /// Not higher.
    AtMost(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }

    /// Of two values the one that is further from being kept.
    fn worse(self, a: f64, b: f64) -> std::cmp::Ordering {
        match self {
            Self::AtLeast(_) => a.total_cmp(&b),
            Self::AtMost(_) => b.total_cmp(&a),
        }
    }
}

impl Promise {
    /// Whether it is kept; `None` when nothing was measured.
    #[must_use]
    pub fn kept(&self) -> Option<bool> {
        self.measured.map(|value| self.bound.holds(value))
    }

    fn of(text: &'static str, bound: Bound, measured: impl Iterator<Item = (String, f64)>) -> Self {
        let worst = measured.min_by(|a, b| bound.worse(a.1, b.1));
        let (cell, measured) = worst.map_or((String::new(), None), |(cell, value)| (cell, Some(value)));
        Self { text, bound, measured, cell }
    }
}

impl std::fmt::Display for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sign, bound) = match self.bound {
            Bound::AtLeast(bound) => ("≥", bound),
            Bound::AtMost(bound) => ("≤", bound),
        };
        write!(f, "| {} | {sign} {bound} | ", self.text)?;
        match (self.measured, self.kept()) {
            (Some(value), Some(true)) => write!(f, "{value:.4} | kept | {} |", self.cell),
            (Some(value), _) => write!(f, "{value:.4} | NOT kept, by {:.4} | {} |", (value - bound).abs(), self.cell),
            (None, _) => write!(f, "– | not run | |"),
        }
    }
}

/// All promises.
#[must_use]
pub fn promises(rows: &[Row]) -> Vec<Promise> {
    let low = |fill: f64| move |row: &&Row| row.group == Group::LowLoad && row.cell.fill() <= fill;
    let full = |row: &&Row| row.group == Group::LowLoad && row.cell.fill() > 0.5;
    let of = |filter: &dyn Fn(&&Row) -> bool| -> Vec<&Row> { homes(rows).filter(|row| filter(row)).collect() };
    let cold = |run: &Summary| run.cold;
    let p99 = |run: &Summary| run.p99;
    let least = |rivals: &[PolicyName], own: Vec<&Row>, value: fn(&Summary) -> f64| -> Vec<(String, f64)> {
        own.into_iter().filter_map(|row| against(rows, row, rivals, value)).collect()
    };
    let fewer = |list: Vec<(String, f64)>| list.into_iter().map(|(name, ratio)| (name, 1.0 / ratio));
    let round_robin = [PolicyName::RoundRobin];
    vec![
        Promise::of(
            "cold loads, round robin ÷ homes: models need half of the memory, load ≤ 0.3",
            Bound::AtLeast(100.0),
            fewer(least(&round_robin, of(&low(0.5)), cold)),
        ),
        Promise::of(
            "cold loads, round robin ÷ homes: models just fit, load ≤ 0.3",
            Bound::AtLeast(50.0),
            fewer(least(&round_robin, of(&full), cold)),
        ),
        Promise::of(
            "cold loads, best of ring, maglev, bounded ÷ homes: load ≤ 0.3",
            Bound::AtLeast(4.0),
            fewer(least(&STICKY, of(&low(1.0)), cold)),
        ),
        Promise::of(
            "p99, homes ÷ best of ring, maglev, bounded: load ≤ 0.3",
            Bound::AtMost(0.75),
            least(&STICKY, of(&low(1.0)), p99).into_iter(),
        ),
        Promise::of("goodput in every feasible cell", Bound::AtLeast(0.9), goodput(rows)),
        Promise::of("goodput lost when the hub dies under steady demand", Bound::AtMost(NOTHING), hub_death(rows)),
        Promise::of(
            "goodput of the worst second when one of 8 endpoints dies",
            Bound::AtLeast(0.85),
            endpoint_death(rows),
        ),
    ]
}

fn homes(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.policy == PolicyName::Homes)
}

/// The value of `row` ÷ the least of the rivals' in the same cell. When both are nothing there is nothing to compare.
fn against(rows: &[Row], row: &Row, rivals: &[PolicyName], value: fn(&Summary) -> f64) -> Option<(String, f64)> {
    let same = rows.iter().filter(|rival| rival.cell == row.cell && rivals.contains(&rival.policy));
    let least = same.map(|rival| rival.mean(value)).min_by(f64::total_cmp)?;
    let own = row.mean(value);
    (own > 0.0 || least > 0.0).then(|| (row.name.clone(), own / least))
}

fn goodput(rows: &[Row]) -> impl Iterator<Item = (String, f64)> {
    let feasible = homes(rows).filter(|row| row.group == Group::Feasible);
    feasible.map(|row| (row.name.clone(), row.mean(|run| run.goodput)))
}

/// Goodput after the fault without it, less goodput with it.
fn hub_death(rows: &[Row]) -> impl Iterator<Item = (String, f64)> {
    let after = |row: &Row| row.mean(|run| run.after_fault.map_or(0.0, |after| after.goodput));
    let with = |fault| move |row: &&Row| row.cell.fault == Some(fault);
    homes(rows).filter(with(Fault::HubDeath)).filter_map(move |row| {
        let calm = Cell { fault: Some(Fault::Nothing), ..row.cell.clone() };
        let calm = homes(rows).find(|other| other.cell == calm)?;
        Some((pool(row), after(calm) - after(row)))
    })
}

fn endpoint_death(rows: &[Row]) -> impl Iterator<Item = (String, f64)> {
    let deaths = homes(rows).filter(|row| row.cell.fault == Some(Fault::EndpointDeath) && row.cell.endpoints == 8);
    deaths.map(|row| (pool(row), row.mean(|run| run.after_fault.map_or(0.0, |after| after.worst_second))))
}

fn pool(row: &Row) -> String {
    format!("{} endpoints, {}", row.cell.endpoints, row.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(cold: f64, goodput: f64) -> Summary {
        Summary { goodput, cold, p99: 0.3, ..Summary::default() }
    }

    fn row(group: Group, policy: PolicyName, load: f64, runs: Vec<Summary>) -> Row {
        let cell = Cell { models: 64, load, ..Cell::default() };
        Row { group, name: cell.name(), cell, policy, runs }
    }

    fn measured(rows: &[Row], text: &str) -> (Option<f64>, Option<bool>) {
        let promise = promises(rows).into_iter().find(|promise| promise.text.starts_with(text)).unwrap();
        (promise.measured, promise.kept())
    }

    /// 0.8 ÷ 0.004 = 200 in one cell; in the other the mean of two seeds is 0.01, and 0.8 ÷ 0.01 = 80 counts.
    #[test]
    fn the_worst_cell_counts_by_its_mean() {
        let low = |policy, load, runs| row(Group::LowLoad, policy, load, runs);
        let mut rows = vec![
            low(PolicyName::Homes, 0.1, vec![summary(0.004, 1.0)]),
            low(PolicyName::RoundRobin, 0.1, vec![summary(0.8, 1.0)]),
        ];
        let text = "cold loads, round robin ÷ homes: models need half";
        let (value, kept) = measured(&rows, text);
        assert!((value.unwrap() - 200.0).abs() < 1e-9 && kept == Some(true));
        rows.push(low(PolicyName::Homes, 0.2, vec![summary(0.005, 1.0), summary(0.015, 1.0)]));
        rows.push(low(PolicyName::RoundRobin, 0.2, vec![summary(0.8, 1.0), summary(0.8, 1.0)]));
        let (value, kept) = measured(&rows, text);
        assert!((value.unwrap() - 80.0).abs() < 1e-9 && kept == Some(false));
    }

    #[test]
    fn what_was_not_run_is_neither_kept_nor_broken() {
        assert!(promises(&[]).iter().all(|promise| promise.kept().is_none()));
        let rows = [row(Group::Feasible, PolicyName::Homes, 0.5, vec![summary(0.0, 0.89)])];
        assert_eq!(measured(&rows, "goodput in every"), (Some(0.89), Some(false)));
        let rows = [row(Group::Feasible, PolicyName::Ring, 0.5, vec![summary(0.0, 0.89)])];
        assert_eq!(measured(&rows, "goodput in every"), (None, None), "the ring promises nothing");
    }

    /// Goodput after the fault: 0.99 with a hub, 0.98 without.
    #[test]
    fn a_dead_hub_is_compared_with_one_that_lives() {
        let run = |goodput| {
            let after = crate::record::AfterFault { goodput, worst_second: 0.8, worst_after_seconds: 0, not_good: 1 };
            vec![Summary { after_fault: Some(after), ..summary(0.0, 1.0) }]
        };
        let with = |fault, goodput| {
            let cell = Cell { fault: Some(fault), endpoints: 8, ..Cell::default() };
            Row { cell, ..row(Group::Fault, PolicyName::Homes, 0.5, run(goodput)) }
        };
        let rows = [with(Fault::Nothing, 0.99), with(Fault::HubDeath, 0.98), with(Fault::EndpointDeath, 0.9)];
        let (lost, kept) = measured(&rows, "goodput lost when the hub dies");
        assert!((lost.unwrap() - 0.01).abs() < 1e-9 && kept == Some(false));
        assert_eq!(measured(&rows, "goodput of the worst second"), (Some(0.8), Some(false)));
    }
}
