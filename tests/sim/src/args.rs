//! What can be said on the command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use warmroute_sim::cell::{Cell, Fault};
use warmroute_sim::policy::PolicyName;

/// Simulates pools of GPUs, routed by the real core, in virtual time.
#[derive(Debug, Parser)]
#[command(name = "sim")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the cells and policies of the documentation, and checks what is promised.
    Table(TableArgs),
    /// Runs one cell.
    Cell(CellArgs),
}

/// Arguments of `table`.
#[derive(Debug, Args)]
pub struct TableArgs {
    /// A few cells, one seed, half the time.
    #[arg(long)]
    pub quick: bool,
    /// How many seeds; 5 by default, with --quick 1.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,
    /// The first of them; the others follow.
    #[arg(long, default_value_t = 1)]
    pub first_seed: u64,
    /// Only these policies, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<PolicyName>,
    /// Only cells whose name contains this, such as "S1 M0.5".
    #[arg(long)]
    pub cells: Option<String>,
    /// Threads; as many as there are cores by default.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Also says what the planner did.
    #[arg(long)]
    pub churn: bool,
    /// Writes all results there.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Draws goodput and cold loads by load there.
    #[arg(long)]
    pub plot: Option<PathBuf>,
    /// Fails when a promise is not kept.
    #[arg(long)]
    pub strict: bool,
}

impl TableArgs {
    /// Whether a cell of that name is to be run.
    pub fn wants(&self, name: &str) -> bool {
        self.cells.as_ref().is_none_or(|part| name.contains(part.as_str()))
    }
}

/// Arguments of `cell`.
#[derive(Debug, Args)]
pub struct CellArgs {
    /// Endpoints.
    #[arg(long, default_value_t = 32)]
    endpoints: usize,
    /// Models that an endpoint holds.
    #[arg(long, default_value_t = 4)]
    memory: usize,
    /// Requests that an endpoint works on at a time.
    #[arg(long, default_value_t = 1)]
    slots: usize,
    /// Models that are asked for.
    #[arg(long, default_value_t = 64)]
    models: usize,
    /// Exponent of their popularity.
    #[arg(long, default_value_t = 0.9)]
    zipf: f64,
    /// Share of the capacity that is asked for.
    #[arg(long, default_value_t = 0.7)]
    load: f64,
    /// Proxies.
    #[arg(long, default_value_t = 16)]
    proxies: usize,
    /// Seconds between two snapshots of the hub.
    #[arg(long, default_value_t = 1.0)]
    snapshot: f64,
    /// Measured seconds, after 30 s of warming up.
    #[arg(long, default_value_t = 60)]
    measured: u64,
    /// The busiest endpoint dies, 20 s into the measured time.
    #[arg(long, conflicts_with = "hub_death")]
    endpoint_death: bool,
    /// The hub dies, 20 s into the measured time.
    #[arg(long)]
    hub_death: bool,
    /// Seeds 1 to this.
    #[arg(long, default_value_t = 1)]
    pub seeds: u64,
    /// Only these policies, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<PolicyName>,
    /// Threads; as many as there are cores by default.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Writes all results there.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

impl CellArgs {
    /// The cell that is meant.
    pub fn cell(&self) -> Cell {
        let fault = match (self.endpoint_death, self.hub_death) {
            (true, _) => Some(Fault::EndpointDeath),
            (_, true) => Some(Fault::HubDeath),
            _ => None,
        };
        Cell {
            endpoints: self.endpoints,
            memory: self.memory,
            slots: self.slots,
            models: self.models,
            zipf: self.zipf,
            load: self.load,
            proxies: self.proxies,
            snapshot: Duration::from_secs_f64(self.snapshot),
            measured: Duration::from_secs(self.measured),
            fault,
            ..Cell::default()
        }
    }
}
