//! Runs the real Envoy for tests, the demo and the benchmarks.
//!
//! [`Envoy::builder`] takes the configuration that ships in `envoy/`, changes it in memory only where a run needs it
//! (free ports, endpoints, files in a folder of its own), starts the process and waits until it serves. Each run
//! has its own ports and folder, so any number of them work beside each other.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use warmroute_tests::harness::{Client, Envoy};
//!
//! let endpoint = "127.0.0.1:9000".parse()?;
//! let envoy = Envoy::builder().endpoints(&[endpoint]).start().await?;
//! let answer = Client::http1().get(&format!("{}/v1/models", envoy.base_url())).await?;
//! assert_eq!(answer.status, 200);
//! # Ok(())
//! # }
//! ```

mod admin;
mod builder;
mod client;
pub mod config;
mod envoy;
mod files;
mod poll;
pub mod process;
mod raw;

pub use admin::Admin;
pub use builder::EnvoyBuilder;
pub use client::{Client, Reply};
pub use envoy::{ConfigUpdate, Envoy, Serving, wait_until_serving};
pub use files::{envoy_binary, filter_wasm, repository_root};
pub use poll::eventually;
pub use raw::{RawReply, raw_exchange};
