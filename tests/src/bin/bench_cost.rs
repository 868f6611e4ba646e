//! Measures what a request costs in Envoy with and without Warmroute, and writes `target/bench/cost.json`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use warmroute_tests::bench::{Plan, run};
use warmroute_tests::harness::repository_root;

/// CPU time per request of one Envoy worker: plain, with the override_host policy, with an empty wasm filter, with
/// Warmroute.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often every variant is measured.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// The length of one measurement.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: u16,
    /// Three rounds of one second: shows that everything works, too noisy to compare.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// The .wasm of another build of the filter, to be measured beside this one.
    #[arg(long)]
    other: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let (rounds, seconds) = if arguments.quick { (3, 1) } else { (arguments.rounds, arguments.seconds) };
    let plan = Plan { rounds: rounds.into(), time: Duration::from_secs(seconds.into()), other: arguments.other };
    let report = run(plan).await?;

    let folder = repository_root().join("target/bench");
    let path = folder.join("cost.json");
    std::fs::create_dir_all(&folder)?;
    let json = serde_json::to_string_pretty(&report)? + "\n";
    std::fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))?;
    println!("\n{report}\n\nwritten to target/bench/cost.json");
    Ok(())
}
