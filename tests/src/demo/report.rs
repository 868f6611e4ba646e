//! What came out, for machines and for people.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{ENDPOINTS, MODELS, Sample, endpoint_name, model_name};

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
        if right == 0 {
            return format!("Round robin loaded models {left} times, Warmroute never.");
        }
        let times = left as f64 / right as f64;
        format!("Round robin loaded models {left} times, Warmroute {right} times: {times:.1} : 1.")
    }
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
