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

/// All policies. As JSON it has the numbers alone; printed it is for a reader.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub round_robin: PolicyReport,
    /// By Warmroute without anybody who plans.
    pub ring: PolicyReport,
    /// By Warmroute with a plan.
    pub warmroute: PolicyReport,
    #[serde(skip)]
    grids: [Grid; 3],
    #[serde(skip)]
    first_error: Option<String>,
}

impl Report {
    pub(super) fn new(
        endpoints: &[SocketAddr],
        round_robin: Measured,
        ring: Measured,
        warmroute: Measured,
    ) -> Result<Self> {
        let all = [&round_robin, &ring, &warmroute];
        let samples = all.iter().flat_map(|measured| &measured.samples);
        let first_error = samples.filter_map(|sample| sample.served_by.clone().err()).next();
        Ok(Self {
            round_robin: PolicyReport::new(&round_robin)?,
            ring: PolicyReport::new(&ring)?,
            warmroute: PolicyReport::new(&warmroute)?,
            grids: [grid(endpoints, &round_robin)?, grid(endpoints, &ring)?, grid(endpoints, &warmroute)?],
            first_error,
        })
    }

    /// Requests that failed, by whatever policy.
    pub fn errors(&self) -> u64 {
        self.round_robin.errors + self.ring.errors + self.warmroute.errors
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
        writeln!(out, "{:34}{:>14}{:>14}{:>14}", "", "round robin", "ring", "plan")?;
        let mut row = |name: &str, value: &dyn Fn(&PolicyReport) -> String| {
            let [left, middle, right] = [&self.round_robin, &self.ring, &self.warmroute].map(value);
            writeln!(out, "{name:34}{left:>14}{middle:>14}{right:>14}")
        };
        row("requests", &|policy| policy.requests.to_string())?;
        row("errors", &|policy| policy.errors.to_string())?;
        row("cold loads (model not in memory)", &|policy| policy.cold_loads.to_string())?;
        row("  of all requests", &|policy| format!("{:.1} %", 100.0 * policy.cold_ratio()))?;
        row("latency: half are faster than", &|policy| format!("{:.1} ms", policy.p50_ms))?;
        row("latency: 99 % are faster than", &|policy| format!("{:.1} ms", policy.p99_ms))?;
        writeln!(out, "\n{}\n", self.verdict())?;
        writeln!(out, "Who served which model, in requests.")?;
        for (title, grid) in ["round robin", "Warmroute's ring", "Warmroute's plan"].iter().zip(&self.grids) {
            writeln!(out, "\nBy {title}:\n")?;
            write_grid(out, grid)?;
        }
        Ok(())
    }
}

impl Report {
    fn verdict(&self) -> String {
        let least = self.round_robin.cold_loads;
        let mut text = format!(
            "Round robin loaded models {least} times, Warmroute's ring {}, its plan {}.",
            times(least, self.ring.cold_loads),
            times(least, self.warmroute.cold_loads)
        );
        let [_, ring, _] = &self.grids;
        let crowded = crowded(ring);
        if !crowded.is_empty() {
            text += &format!(
                "\nBy the ring {} got more models than the {CAPACITY} that fit into memory and kept loading them: it places \
                 models by\ntheir names' hashes and does not look at memory. The plan does.",
                crowded.join(" and ")
            );
        }
        text
    }
}

/// `12 (108.3 times fewer)`
fn times(round_robin: u64, loads: u64) -> String {
    match loads {
        0 => "never".to_owned(),
        loads => format!("{loads} ({:.1} times fewer)", round_robin as f64 / loads as f64),
    }
}

/// The endpoints that served more models than they hold.
fn crowded(grid: &Grid) -> Vec<String> {
    let models = |index: usize| grid.iter().filter(|row| row[index] > 0).count();
    (0..ENDPOINTS).filter(|index| models(*index) > CAPACITY).map(endpoint_name).collect()
}

fn write_grid(out: &mut fmt::Formatter<'_>, grid: &Grid) -> fmt::Result {
    let heads: String = (0..ENDPOINTS).map(|index| format!("{:>7}", endpoint_name(index))).collect();
    writeln!(out, "{:15}{heads}", "")?;
    for (model, row) in grid.iter().enumerate() {
        // A dot for nothing, so that the numbers stand out.
        let cells = row.iter().map(|count| if *count == 0 { ".".to_owned() } else { count.to_string() });
        let cells: String = cells.map(|cell| format!("{cell:>7}")).collect();
        writeln!(out, "{:15}{cells}", model_name(model))?;
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
        let report = Report::new(
            &endpoints(),
            measured(samples, 7),
            measured(vec![], 0),
            measured(vec![sample(1, 5, Ok(3))], 0),
        )?;
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
        let report = Report::new(
            &endpoints(),
            measured(vec![sample(15, 10, Ok(2))], 24),
            measured(crowd, 2),
            measured(vec![], 0),
        )?;
        let text = report.to_string();
        assert!(text.contains("classifier-16        .      .      1      .      .      .      .      ."), "{text}");
        assert!(text.contains("By the ring gpu-6 got more models"), "{text}");
        assert!(text.contains("24 times, Warmroute's ring 2 (12.0 times fewer), its plan never."), "{text}");
        Ok(())
    }

    #[test]
    fn an_endpoint_that_is_not_of_this_run_is_an_error() {
        let stranger = measured(vec![sample(0, 1, Ok(99))], 0);
        assert!(Report::new(&endpoints(), stranger, measured(vec![], 0), measured(vec![], 0)).is_err());
    }
}
