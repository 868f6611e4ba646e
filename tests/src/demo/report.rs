//! What came out, for machines and for people.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{CAPACITY, ENDPOINTS, MODELS, Sample, endpoint_name, model_name};

/// Requests by model (rank) and endpoint (index).
type Grid = [[u64; ENDPOINTS]; MODELS];

/// What a run of one policy gave.
#[derive(Debug)]
pub(super) struct Measured {
    /// The requests that count.
    pub samples: Vec<Sample>,
    /// Requests that succeeded, the warm-up's included.
    pub answered: usize,
    /// By the model servers' own counters.
    pub cold_loads: u64,
}

/// The numbers of one policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyReport {
    pub requests: u64,
    pub errors: u64,
    /// Loads that the model servers counted.
    pub cold_loads: u64,
    /// Latency of the requests that succeeded, from when they were due.
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Both policies. As JSON it has the numbers alone; printed it is for a reader.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub round_robin: PolicyReport,
    pub warmroute: PolicyReport,
    #[serde(skip)]
    round_robin_grid: Grid,
    #[serde(skip)]
    warmroute_grid: Grid,
    #[serde(skip)]
    first_error: Option<String>,
}

impl Report {
    pub(super) fn new(endpoints: &[SocketAddr], round_robin: Measured, warmroute: Measured) -> Result<Self> {
        let both = round_robin.samples.iter().chain(&warmroute.samples);
        let first_error = both.filter_map(|sample| sample.served_by.clone().err()).next();
        Ok(Self {
            round_robin: PolicyReport::new(&round_robin)?,
            warmroute: PolicyReport::new(&warmroute)?,
            round_robin_grid: grid(endpoints, &round_robin)?,
            warmroute_grid: grid(endpoints, &warmroute)?,
            first_error,
        })
    }

    /// Why one of the failed requests failed, if any did.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }
}

impl PolicyReport {
    fn new(measured: &Measured) -> Result<Self> {
        let mut latencies = Histogram::<u64>::new(3)?;
        let mut errors = 0;
        for sample in &measured.samples {
            match sample.served_by {
                Ok(_) => latencies.record(u64::try_from(sample.latency.as_micros())?)?,
                Err(_) => errors += 1,
            }
        }
        Ok(Self {
            requests: measured.samples.len() as u64,
            errors,
            cold_loads: measured.cold_loads,
            p50_ms: milliseconds(latencies.value_at_quantile(0.50)),
            p99_ms: milliseconds(latencies.value_at_quantile(0.99)),
        })
    }

    fn cold_ratio(&self) -> f64 {
        self.cold_loads as f64 / self.requests.max(1) as f64
    }
}

/// Microseconds as milliseconds, no finer than they were measured.
fn milliseconds(micros: u64) -> f64 {
    let exact = Duration::from_micros(micros).as_secs_f64() * 1000.0;
    (exact * 100.0).round() / 100.0
}

fn grid(endpoints: &[SocketAddr], measured: &Measured) -> Result<Grid> {
    let names: Vec<_> = endpoints.iter().map(SocketAddr::to_string).collect();
    let mut grid = [[0; ENDPOINTS]; MODELS];
    for sample in &measured.samples {
        if let Ok(served_by) = &sample.served_by {
            let index = names.iter().position(|name| name == served_by);
            let index = index.with_context(|| format!("{served_by} served, but is no endpoint of this run"))?;
            grid[sample.model][index] += 1;
        }
    }
    Ok(grid)
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = (&self.round_robin, &self.warmroute);
        writeln!(out, "{:34}{:>14}{:>14}", "", "round robin", "Warmroute")?;
        let mut row = |name: &str, left: String, right: String| writeln!(out, "{name:34}{left:>14}{right:>14}");
        row("requests", left.requests.to_string(), right.requests.to_string())?;
        row("errors", left.errors.to_string(), right.errors.to_string())?;
        row("cold loads (model not in memory)", left.cold_loads.to_string(), right.cold_loads.to_string())?;
        let percent = |policy: &PolicyReport| format!("{:.1} %", 100.0 * policy.cold_ratio());
        row("  of all requests", percent(left), percent(right))?;
        row("latency: half are faster than", format!("{:.1} ms", left.p50_ms), format!("{:.1} ms", right.p50_ms))?;
        row("latency: 99 % are faster than", format!("{:.1} ms", left.p99_ms), format!("{:.1} ms", right.p99_ms))?;
        writeln!(out, "\n{}\n", self.verdict())?;
        writeln!(out, "Who served which model, in requests. By round robin:\n")?;
        write_grid(out, &self.round_robin_grid)?;
        writeln!(out, "\nBy Warmroute:\n")?;
        write_grid(out, &self.warmroute_grid)
    }
}

impl Report {
    fn verdict(&self) -> String {
        let (left, right) = (self.round_robin.cold_loads, self.warmroute.cold_loads);
        let loads = if right == 0 {
            format!("Round robin loaded models {left} times, Warmroute never.")
        } else {
            let times = left as f64 / right as f64;
            format!("Round robin loaded models {left} times, Warmroute {right} times: {times:.1} : 1.")
        };
        let crowded = crowded(&self.warmroute_grid);
        if crowded.is_empty() {
            return loads;
        }
        format!(
            "{loads}\nBy Warmroute {} got more models than the {CAPACITY} that fit into memory and kept loading them: the \
             ring places\nmodels by their names' hashes and does not look at memory.",
            crowded.join(" and ")
        )
    }
}

/// The endpoints that served more models than they hold.
fn crowded(grid: &Grid) -> Vec<String> {
    let models = |index: usize| grid.iter().filter(|row| row[index] > 0).count();
    (0..ENDPOINTS).filter(|index| models(*index) > CAPACITY).map(endpoint_name).collect()
}

fn write_grid(out: &mut fmt::Formatter<'_>, grid: &Grid) -> fmt::Result {
    let heads: String = (0..ENDPOINTS).map(|index| format!("{:>7}", endpoint_name(index))).collect();
    writeln!(out, "{:10}{heads}", "")?;
    for (model, row) in grid.iter().enumerate() {
        // A dot for nothing, so that the numbers stand out.
        let cells = row.iter().map(|count| if *count == 0 { ".".to_owned() } else { count.to_string() });
        let cells: String = cells.map(|cell| format!("{cell:>7}")).collect();
        writeln!(out, "{:10}{cells}", model_name(model))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(index: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9000 + index))
    }

    fn sample(model: usize, millis: u64, served_by: Result<u16, &str>) -> Sample {
        let served_by = served_by.map(|index| address(index).to_string()).map_err(str::to_owned);
        Sample { model, latency: Duration::from_millis(millis), served_by, counted: true }
    }

    fn endpoints() -> Vec<SocketAddr> {
        (0..8).map(address).collect()
    }

    fn measured(samples: Vec<Sample>, cold_loads: u64) -> Measured {
        Measured { answered: samples.len(), samples, cold_loads }
    }

    #[test]
    fn failed_requests_count_as_errors_and_have_no_latency() -> Result<()> {
        let mut samples: Vec<_> = (1..=100).map(|millis| sample(0, millis, Ok(0))).collect();
        samples.push(sample(0, 60_000, Err("refused")));
        let report = Report::new(&endpoints(), measured(samples, 7), measured(vec![sample(1, 5, Ok(3))], 0))?;
        // Three digits of a histogram: 1 % off at most.
        let numbers = &report.round_robin;
        assert_eq!((numbers.requests, numbers.errors, numbers.cold_loads), (101, 1, 7));
        assert!((numbers.p50_ms - 50.0).abs() < 0.5 && (numbers.p99_ms - 99.0).abs() < 1.0, "{numbers:?}");
        assert_eq!(report.first_error(), Some("refused"));
        Ok(())
    }

    #[test]
    fn the_table_shows_who_served_what_and_who_got_too_many_models() -> Result<()> {
        let crowd = (0..4).map(|model| sample(model, 10, Ok(6))).collect();
        let report = Report::new(&endpoints(), measured(vec![sample(15, 10, Ok(2))], 1), measured(crowd, 0))?;
        let text = report.to_string();
        assert!(text.contains("model-16        .      .      1      .      .      .      .      ."), "{text}");
        assert!(text.contains("By Warmroute gpu-6 got more models"), "{text}");
        Ok(())
    }

    #[test]
    fn an_endpoint_that_is_not_of_this_run_is_an_error() {
        let stranger = measured(vec![sample(0, 1, Ok(99))], 0);
        assert!(Report::new(&endpoints(), stranger, measured(vec![], 0)).is_err());
    }
}
