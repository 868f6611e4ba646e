//! The command line of the simulation.

mod args;

use anyhow::Result;
use args::{CellArgs, Cli, Command, TableArgs};
use clap::Parser;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use warmroute_sim::cells::{self, Entry, Group};
use warmroute_sim::grid::{self, Row};
use warmroute_sim::plot;
use warmroute_sim::policy::PolicyName;
use warmroute_sim::promises::{Promise, promises};
use warmroute_sim::table;

fn main() -> Result<ExitCode> {
    match Cli::parse().command {
        Command::Table(args) => run_table(&args),
        Command::Cell(args) => run_cell(&args),
    }
}

fn run_table(args: &TableArgs) -> Result<ExitCode> {
    let entries = if args.quick { cells::quick() } else { cells::all() };
    let entries: Vec<Entry> = entries.into_iter().filter(|entry| args.wants(&entry.cell.name())).collect();
    let count = args.seeds.unwrap_or(if args.quick { 1 } else { 5 });
    let seeds = args.first_seed..=args.first_seed.saturating_add(count.saturating_sub(1));
    let policies = policies(&args.only);
    let rows = grid::run(&entries, &policies, seeds.clone(), threads(args.threads));
    println!("{} cells, seeds {} to {}", entries.len(), seeds.start(), seeds.end());
    println!("{}", table::tables(&rows, &policies));
    if args.churn {
        println!("{}", table::churn(&rows));
    }
    let promises = promises(&rows);
    print_promises(&promises);
    if let Some(path) = &args.json {
        write_json(path, &rows, &promises)?;
    }
    if let Some(path) = &args.plot {
        plot::draw(&rows, path)?;
    }
    let broken = promises.iter().any(|promise| promise.kept() == Some(false));
    Ok(if args.strict && broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_cell(args: &CellArgs) -> Result<ExitCode> {
    let cell = args.cell();
    let group = if cell.fault.is_some() { Group::Fault } else { Group::Alone };
    let entry = Entry { group, cell };
    let policies = policies(&args.only);
    let rows = grid::run(&[entry], &policies, 1..=args.seeds, threads(args.threads));
    println!("{}{}", table::tables(&rows, &policies), table::churn(&rows));
    if let Some(path) = &args.json {
        write_json(path, &rows, &[])?;
    }
    Ok(ExitCode::SUCCESS)
}

fn policies(only: &[PolicyName]) -> Vec<PolicyName> {
    PolicyName::ALL.into_iter().filter(|policy| only.is_empty() || only.contains(policy)).collect()
}

fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn print_promises(promises: &[Promise]) {
    println!("### Promises\n\n| promise | bound | measured, worst cell | | where |\n|---|---|---|---|---|");
    promises.iter().for_each(|promise| println!("{promise}"));
}

#[derive(Serialize)]
struct Report<'a> {
    rows: &'a [Row],
    promises: &'a [Promise],
}

fn write_json(path: &Path, rows: &[Row], promises: &[Promise]) -> Result<()> {
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    Ok(serde_json::to_writer(file, &Report { rows, promises })?)
}
