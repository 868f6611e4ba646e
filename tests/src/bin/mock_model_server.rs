//! `mock-model-server`: a stand-in for a GPU model server. It prints `listening on ip:port` and serves until SIGTERM
//! or SIGINT.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use warmroute_tests::mock::{Identity, MockServer, MockServerBuilder, Settings};

/// A stand-in for a GPU model server: OpenAI, KServe v2 (HTTP and gRPC) and Triton's repository on one port.
///
/// GET /mock/stats shows its counters, POST /mock/faults breaks it, DELETE /mock/faults mends it.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Models that fit into the GPU memory.
    #[arg(long, default_value_t = 3)]
    capacity: usize,
    /// Models in memory at the start, most recently used first.
    #[arg(long, value_delimiter = ',')]
    resident: Vec<String>,
    /// Models that can be served at all; any name when left out.
    #[arg(long, value_delimiter = ',')]
    models: Vec<String>,
    /// Time to run a request on a resident model (of a stream: to its first token).
    #[arg(long, default_value_t = 0.0, value_name = "MS", allow_negative_numbers = true)]
    service_ms: f64,
    /// Time to load a model; loads are one at a time.
    #[arg(long, default_value_t = 0.0, value_name = "MS", allow_negative_numbers = true)]
    load_ms: f64,
    /// Time for each token after the first.
    #[arg(long, default_value_t = 0.0, value_name = "MS", allow_negative_numbers = true)]
    token_ms: f64,
    /// Requests that run at the same time.
    #[arg(long, default_value_t = 1)]
    concurrency: usize,
    /// Requests that may wait; one more gets 503.
    #[arg(long, default_value_t = Settings::default().queue)]
    queue: usize,
    /// Service and load times vary by this share, up and down.
    #[arg(long, default_value_t = 0.0, value_name = "RATIO", allow_negative_numbers = true)]
    jitter: f64,
    /// Seed of the jitter and of the fault pattern.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the last requests for GET /mock/requests.
    #[arg(long, num_args = 0..=1, default_missing_value = "256", value_name = "N")]
    record: Option<usize>,
    /// Tokens of a completion that does not say max_tokens.
    #[arg(long, default_value_t = Settings::default().default_tokens)]
    default_tokens: u32,
    /// What one model takes in the GPU memory that /metrics shows.
    #[arg(long, default_value_t = Settings::default().model_bytes)]
    model_bytes: u64,
    /// Certificate chain, PEM.
    #[arg(long, requires = "tls_key", conflicts_with = "tls_self_signed")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate, PEM.
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// TLS with a certificate made at the start.
    #[arg(long)]
    tls_self_signed: bool,
    /// Threads that serve; one for each core when left out.
    #[arg(long)]
    threads: Option<usize>,
}

impl Arguments {
    fn settings(&self) -> Result<Settings> {
        Ok(Settings {
            listen: self.listen,
            capacity: self.capacity,
            resident: self.resident.clone(),
            models: self.models.clone(),
            service: milliseconds("--service-ms", self.service_ms)?,
            load: milliseconds("--load-ms", self.load_ms)?,
            token: milliseconds("--token-ms", self.token_ms)?,
            concurrency: self.concurrency,
            queue: self.queue,
            jitter_ratio: self.jitter,
            seed: self.seed,
            record: self.record.unwrap_or(0),
            default_tokens: self.default_tokens,
            model_bytes: self.model_bytes,
        })
    }

    fn builder(&self) -> Result<MockServerBuilder> {
        let builder = MockServerBuilder::from(self.settings()?);
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(if self.tls_self_signed { builder.tls_self_signed() } else { builder });
        };
        let read =
            |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
        Ok(builder.tls(Identity { certificates_pem: read(cert)?, key_pem: read(key)? }))
    }
}

fn milliseconds(argument: &str, value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value / 1000.0).with_context(|| format!("{argument}: {value}"))
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing::level_filters::LevelFilter::WARN.into())
        .from_env_lossy();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = arguments.threads {
        if threads == 0 {
            bail!("--threads: at least one");
        }
        runtime.worker_threads(threads);
    }
    runtime.enable_all().build().context("starting the runtime")?.block_on(run(arguments))
}

async fn run(arguments: Arguments) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("watching SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("watching SIGINT")?;
    let server: MockServer = arguments.builder()?.start().await?;
    writeln!(std::io::stdout(), "listening on {}", server.addr()).context("saying where it listens")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = server.crashed() => bail!("crashed by a fault"),
    }
    server.shutdown().await;
    Ok(())
}
