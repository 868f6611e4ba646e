//! From the rounds to a table, a file and a verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::Variant;

/// What Warmroute may add to a wasm filter that does nothing, in µs.
const BAR_US: f64 = 8.0;
/// What Warmroute should cost at most, as a multiple of plain Envoy.
const AIM_RATIO: f64 = 1.25;

/// Cost of a request in µs of CPU time over all rounds of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    fn of(values: impl Iterator<Item = f64>) -> Result<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle).context("no round was measured")?;
        let lower = if sorted.len().is_multiple_of(2) { sorted[middle - 1] } else { upper };
        Ok(Self { median: f64::midpoint(lower, upper), min: sorted[0], max: sorted[sorted.len() - 1] })
    }
}

/// The outcome of a bench; as JSON it is the content of `target/bench/cost.json`.
#[derive(Debug, Serialize)]
pub struct Report {
    pub plain_us: f64,
    pub override_us: f64,
    pub empty_us: f64,
    pub warmroute_us: f64,
    /// Warmroute ÷ plain, of the medians above.
    pub ratio: f64,
    /// Warmroute − empty, of the medians above.
    pub warmroute_minus_empty_us: f64,
    /// The median of the same two, taken within each round: what changes slowly on the machine cancels out.
    pub paired_ratio: f64,
    pub paired_warmroute_minus_empty_us: f64,
    /// Warmroute − the other build of it, where one was given.
    pub paired_warmroute_minus_other_us: Option<f64>,
    pub rounds: usize,
    pub seconds_per_run: f64,
    pub spread_us: BTreeMap<Variant, Summary>,
    pub each_round_us: Vec<BTreeMap<Variant, f64>>,
    pub envoy_version: String,
    pub warmroute_version: &'static str,
    pub cpus: usize,
}

impl Report {
    pub(super) fn new(rounds: Vec<BTreeMap<Variant, f64>>, time: Duration, envoy_version: String) -> Result<Self> {
        let cost = |round: &BTreeMap<Variant, f64>, variant: Variant| round.get(&variant).copied();
        let mut spread_us = BTreeMap::new();
        for variant in Variant::ALL {
            let values = rounds.iter().filter_map(|round| cost(round, variant));
            if variant != Variant::Other || rounds.iter().any(|round| round.contains_key(&variant)) {
                spread_us.insert(variant, Summary::of(values)?);
            }
        }
        let paired = |of: fn(f64, f64) -> f64, with: Variant| {
            let pairs = rounds.iter().filter_map(|round| Some((cost(round, Variant::Warmroute)?, cost(round, with)?)));
            Summary::of(pairs.map(|(warmroute, other)| of(warmroute, other)))
        };
        let median = |variant: Variant| spread_us.get(&variant).map_or(f64::NAN, |summary| summary.median);
        let (plain_us, warmroute_us, empty_us) =
            (median(Variant::Plain), median(Variant::Warmroute), median(Variant::Empty));
        Ok(Self {
            plain_us,
            override_us: median(Variant::Override),
            empty_us,
            warmroute_us,
            ratio: warmroute_us / plain_us,
            warmroute_minus_empty_us: warmroute_us - empty_us,
            paired_ratio: paired(|warmroute, plain| warmroute / plain, Variant::Plain)?.median,
            paired_warmroute_minus_empty_us: paired(|warmroute, empty| warmroute - empty, Variant::Empty)?.median,
            paired_warmroute_minus_other_us: paired(|warmroute, other| warmroute - other, Variant::Other)
                .ok()
                .map(|difference| difference.median),
            rounds: rounds.len(),
            seconds_per_run: time.as_secs_f64(),
            spread_us,
            each_round_us: rounds,
            envoy_version,
            warmroute_version: env!("CARGO_PKG_VERSION"),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "CPU time per request, whole process, Envoy {} with one worker thread; {} rounds of {} s on {} CPUs\n",
            self.envoy_version, self.rounds, self.seconds_per_run, self.cpus
        )?;
        writeln!(out, "{:<28} {:>9}   {:<15} {:>7}", "", "median µs", "min – max", "× plain")?;
        for (variant, cost) in &self.spread_us {
            let range = format!("{:.1} – {:.1}", cost.min, cost.max);
            let times = cost.median / self.plain_us;
            writeln!(out, "{:<28} {:>9.1}   {range:<15} {times:>7.2}", variant.description(), cost.median)?;
        }
        let added = |us: f64| us - self.plain_us;
        writeln!(
            out,
            "\nover plain, of the medians: {:.1} µs for Envoy's part of obeying a pick,",
            added(self.override_us)
        )?;
        writeln!(
            out,
            "  {:.1} µs for a wasm filter that does nothing, {:.1} µs for Warmroute with both",
            added(self.empty_us),
            added(self.warmroute_us)
        )?;
        writeln!(out, "round by round (median of differences and ratios within a round):")?;
        let added = self.paired_warmroute_minus_empty_us;
        let verdict = |met: bool| if met { "met" } else { "NOT met" };
        let bar = verdict(added <= BAR_US);
        writeln!(out, "  Warmroute − empty filter = {added:.1} µs; at most {BAR_US} µs wanted: {bar}")?;
        if let Some(added) = self.paired_warmroute_minus_other_us {
            writeln!(out, "  Warmroute − its other build = {added:.1} µs")?;
        }
        let aim = verdict(self.paired_ratio <= AIM_RATIO);
        write!(out, "  Warmroute ÷ plain = {:.2}; at most {AIM_RATIO} aimed at: {aim}", self.paired_ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_middle_two() -> Result<()> {
        assert_eq!(Summary::of([3.0, 1.0, 2.0].into_iter())?, Summary { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 3.0].into_iter())?.median, 2.5);
        assert!(Summary::of(std::iter::empty()).is_err());
        Ok(())
    }

    fn round(plain: f64, empty: f64, warmroute: f64) -> BTreeMap<Variant, f64> {
        use Variant::{Empty, Override, Plain, Warmroute};
        [(Plain, plain), (Override, plain), (Empty, empty), (Warmroute, warmroute)].into()
    }

    #[test]
    fn paired_numbers_forgive_a_slow_round() -> Result<()> {
        // The machine was at half its speed in the second round: within each round Warmroute costs 1.2 × plain.
        let rounds = vec![round(40.0, 46.0, 48.0), round(80.0, 92.0, 96.0), round(40.0, 46.0, 48.0)];
        let report = Report::new(rounds, Duration::from_secs(3), "1.40.0".to_owned())?;
        assert!((report.paired_ratio - 1.2).abs() < 1e-9);
        assert_eq!(report.paired_warmroute_minus_empty_us, 2.0);
        assert_eq!(report.plain_us, 40.0);
        let table = report.to_string();
        assert!(table.contains("= 2.0 µs; at most 8 µs wanted: met"), "{table}");
        assert!(table.contains("= 1.20; at most 1.25 aimed at: met"), "{table}");
        Ok(())
    }

    #[test]
    fn another_build_is_told_when_there_is_one() -> Result<()> {
        let alone = Report::new(vec![round(40.0, 46.0, 60.0)], Duration::from_secs(3), "1.40.0".to_owned())?;
        assert_eq!(alone.paired_warmroute_minus_other_us, None);
        assert!(!alone.to_string().contains("other build"));
        let with = |other: f64| {
            let mut round = round(40.0, 46.0, 60.0);
            round.insert(Variant::Other, other);
            round
        };
        let both = vec![with(59.0), with(57.5), with(58.0)];
        let report = Report::new(both, Duration::from_secs(3), "1.40.0".to_owned())?;
        assert_eq!(report.paired_warmroute_minus_other_us, Some(2.0));
        assert!(report.to_string().contains("its other build = 2.0 µs"), "{report}");
        Ok(())
    }

    #[test]
    fn missing_the_bar_is_said() -> Result<()> {
        let report = Report::new(vec![round(40.0, 46.0, 60.0)], Duration::from_secs(3), "1.40.0".to_owned())?;
        assert_eq!(report.to_string().matches("NOT met").count(), 2);
        Ok(())
    }

    #[test]
    fn the_file_has_the_numbers_by_name() -> Result<()> {
        let report = Report::new(vec![round(40.0, 46.0, 50.0)], Duration::from_secs(3), "1.40.0".to_owned())?;
        let json = serde_json::to_value(&report)?;
        assert_eq!(json["plain_us"], 40.0);
        assert_eq!(json["empty_us"], 46.0);
        assert_eq!(json["warmroute_us"], 50.0);
        assert_eq!(json["ratio"], 1.25);
        assert_eq!(json["spread_us"]["warmroute"]["max"], 50.0);
        Ok(())
    }
}
