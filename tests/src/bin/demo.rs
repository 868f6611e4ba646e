//! `demo run` compares round robin and Warmroute's two ways on one machine; `demo up` and `demo down` start and end the same
//! processes for a person to try.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use warmroute_tests::demo::{Plan, Ports, Report, Stack, Traffic, Up, down, endpoint_name, model_name, run, up};
use warmroute_tests::harness::repository_root;

/// Eight mock model servers, sixteen models and one Envoy.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Drive the same traffic by round robin, by Warmroute's ring and by its plan, and compare.
    Run(Run),
    /// Start the processes and leave them running.
    Up {
        /// Take free ports even where those of envoy/envoy.yaml are free.
        #[arg(long)]
        free_ports: bool,
    },
    /// End what `up` started.
    Down,
}

#[derive(Debug, Args)]
struct Run {
    /// Counted time of each policy.
    #[arg(long, default_value_t = 25)]
    seconds: u64,
    /// Driven time before that, which is not counted.
    #[arg(long, default_value_t = 10)]
    warmup: u64,
    /// Requests per second in the mean.
    #[arg(long, default_value_t = 80.0)]
    rate: f64,
    /// Exponent of the model mix: 0 asks for all models alike.
    #[arg(long, default_value_t = 0.9)]
    zipf: f64,
    /// Seed of the arrivals and of the mix.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for report.json and the servers' logs; target/demo when left out.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match work(Arguments::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn work(command: Command) -> Result<ExitCode> {
    let leftover = if matches!(command, Command::Up { .. }) { "; `make down` ends what was started" } else { "" };
    let work = async {
        match command {
            Command::Run(arguments) => compare(&arguments).await,
            Command::Up { free_ports } => start(free_ports).await,
            Command::Down => stop().await,
        }
    };
    let mut terminate = signal(SignalKind::terminate())?;
    // Leaving the work drops what it holds, and with it the processes of a run.
    let code = tokio::select! {
        done = work => return done.map(|()| ExitCode::SUCCESS),
        _ = tokio::signal::ctrl_c() => ExitCode::from(130),
        _ = terminate.recv() => ExitCode::from(143),
    };
    eprintln!("interrupted{leftover}");
    Ok(code)
}

async fn compare(arguments: &Run) -> Result<()> {
    let plan = Plan {
        warmup: Duration::from_secs(arguments.warmup),
        measured: Duration::from_secs(arguments.seconds),
        rate: arguments.rate,
        zipf: arguments.zipf,
        seed: arguments.seed,
    };
    let traffic = Traffic::new(&plan)?;
    introduce(&plan);
    let folder = arguments.out.clone().unwrap_or_else(|| repository_root().join("target/demo"));
    let report = run(&traffic, &folder).await?;
    println!("\n{report}");

    let path = folder.join("report.json");
    let line = serde_json::to_string(&report)? + "\n";
    std::fs::write(&path, &line).with_context(|| format!("cannot write {}", path.display()))?;
    println!("The numbers as JSON, also in {}:", from_here(&path));
    print!("{line}");
    require_no_errors(&report)
}

fn introduce(plan: &Plan) {
    println!(
        "Eight model servers with room for 3 of 16 models each. A request for a model in memory takes 10 ms, for any \
         other\n110 ms, since the model is loaded first and drives another one out. {} requests a second, most for the \
         first models\n(Zipf, exponent {}; seed {}), through one Envoy: by its\nround robin, by Warmroute's ring, and by Warmroute's plan.\n",
        plan.rate, plan.zipf, plan.seed
    );
}

fn require_no_errors(report: &Report) -> Result<()> {
    let errors = report.errors();
    let first = report.first_error().unwrap_or_default();
    ensure!(errors == 0, "{errors} requests failed, for instance: {first}");
    Ok(())
}

async fn start(free_ports: bool) -> Result<()> {
    let ports = if free_ports { Ports::Free } else { Ports::Shipped };
    let folder = repository_root().join("target/up");
    let (stack, state) = match up(&folder, ports).await? {
        Up::Started(stack) => (stack, "is up"),
        Up::Repaired(stack) => (stack, "is up again: what had ended was started"),
        Up::AlreadyUp(stack) => (stack, "is already up"),
    };
    println!("The stack {state}.\n");
    show(&stack, &folder);
    Ok(())
}

fn show(stack: &Stack, folder: &Path) {
    println!("  {:24}{}", "Envoy, by Warmroute", stack.envoy);
    println!("  {:24}{}", "Envoy, by round robin", stack.envoy_round_robin);
    println!("  {:24}{}", "Envoy's admin interface", stack.envoy_admin);
    for (index, endpoint) in stack.endpoints.iter().enumerate() {
        println!("  {:24}http://{endpoint}", endpoint_name(index));
    }
    let model = model_name(0);
    println!("\nAsk for a model; x-served-by names the endpoint, the same one each time:\n");
    println!("  curl -si {}/v1/chat/completions -H 'x-model-id: {model}' \\", stack.envoy);
    println!("    -H 'content-type: application/json' \\");
    println!("    -d '{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"hello\"}}]}}'");
    println!("\nSee what Warmroute counted:\n");
    println!("  curl -s '{}/stats?filter=wasmcustom.warmroute'", stack.envoy_admin);
    if let Some(endpoint) = stack.endpoints.first() {
        println!("\nSee what {} did, and which models it holds:\n", endpoint_name(0));
        println!("  curl -s http://{endpoint}/mock/stats");
    }
    println!("\nLogs and stack.json are in {}. `make down` ends it all.", from_here(folder));
}

async fn stop() -> Result<()> {
    match down(&repository_root().join("target/up")).await? {
        0 => println!("Nothing was up."),
        ended => println!("Ended {ended} processes."),
    }
    Ok(())
}

/// A path as a reader in the repository's root would write it.
fn from_here(path: &Path) -> String {
    path.strip_prefix(repository_root()).unwrap_or(path).display().to_string()
}
