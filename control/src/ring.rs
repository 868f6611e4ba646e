//! `warmroute ring`: which endpoints own a key, in order.

use crate::fault::Fault;
use crate::source::Source;
use crate::text::{self, Format, shown};
use crate::view::View;
use clap::{Args, value_parser};
use serde::Serialize;
use std::io::Write;
use warmroute_core::config::limits;
use warmroute_core::strategy::StrategyName;

/// Owners that are listed when nobody says how many: the pick and one more.
const REPLICAS: usize = 2;

/// Show the endpoints that own a key, in the order in which the proxies try them.
///
/// They are the first distinct endpoints on the hash ring from the key's hash onwards. The first serves the model as
/// long as it may; the others follow when it may not. One that the proxies pass over now, because the configuration
/// marks it as unhealthy or draining or its fixed list lacks the model, is shown as skipped and counts as one of the
/// replicas. One that is off the ring (weight or active nodes 0) is not shown.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE, after_long_help = format!("{EXAMPLE}\n\n{JSON}"))]
pub struct Arguments {
    #[command(flatten)]
    source: Source,

    /// The key, a model's id as requests name it; may be given several times. With --config, an alias counts as its model.
    #[arg(long = "key", value_name = "KEY", required = true, value_parser = key)]
    keys: Vec<String>,

    /// How many endpoints to list, at least 1; when fewer are on the ring, all of them [default: 2, or with --config the
    /// pool's fallbacks and one more].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=limits::MAX_ENDPOINTS as i64))]
    replicas: Option<u32>,

    /// How the answer is written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLE: &str = "Examples:
  warmroute ring --endpoints gpu-0=10.0.0.1:8000,gpu-1=10.0.0.2:8000*2 --key llama-3-70b
  warmroute ring --config plugin.json --cluster model-servers --key bert --key gpt --format json";

const JSON: &str = "JSON:
  {\"cluster\": \"model-servers\",        null with --endpoints
   \"virtual_nodes\": 150,
   \"replicas\": 2,                     as asked for; fewer are listed when fewer are on the ring
   \"keys\": [{
     \"key\": \"bert\",                   as given
     \"routed_as\": \"bert\",             another one when the key is an alias
     \"hash\": \"15c1a1a21a5d4ece\",      XXH64 of that with seed 0, 16 hex digits
     \"strategy\": \"ring\",              how the pool routes the model
     \"endpoints\": [{                  in the order of the ring
       \"id\": \"gpu-1\", \"address\": \"10.0.0.2:8000\",
       \"skipped\": null}]}]}           or why the proxies pass over it: \"marked_unhealthy\",
                                      \"draining\", \"model_not_served\"
  Fields may be added; these stay.";

/// The whole answer.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    cluster: Option<&'a str>,
    virtual_nodes: u32,
    replicas: usize,
    keys: Vec<KeyOwners<'a>>,
}

/// The owners of one key.
#[derive(Debug, Serialize)]
struct KeyOwners<'a> {
    key: &'a str,
    routed_as: String,
    hash: String,
    strategy: &'static str,
    endpoints: Vec<Owner<'a>>,
    #[serde(skip)]
    note: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Owner<'a> {
    id: &'a str,
    address: &'a str,
    skipped: Option<&'static str>,
}

/// A request without a model has no place on the ring.
fn key(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("a key is empty, must have at least one character".into()) } else { Ok(text.to_owned()) }
}

impl Arguments {
    /// Answers on `out`.
    ///
    /// # Errors
    /// Bad input, and what cannot be written.
    pub fn run(&self, out: &mut dyn Write) -> Result<(), Fault> {
        let view = self.source.view()?;
        let answer = self.answer(&view)?;
        match self.format {
            Format::Json => text::json(&answer, out),
            Format::Text => answer.write(out),
        }
    }

    fn answer<'a>(&'a self, view: &'a View) -> Result<Answer<'a>, Fault> {
        let configured = usize::from(view.settings().fallbacks).saturating_add(1);
        let default = if self.source.is_config() { configured } else { REPLICAS };
        let replicas = self.replicas.map_or(default, |replicas| replicas as usize);
        let keys = self.keys.iter().map(|key| owners(view, key, replicas)).collect::<Result<_, _>>()?;
        let virtual_nodes = view.settings().virtual_nodes;
        Ok(Answer { cluster: view.cluster.as_deref(), virtual_nodes, replicas, keys })
    }
}

fn owners<'a>(view: &'a View, key: &'a str, replicas: usize) -> Result<KeyOwners<'a>, Fault> {
    let model = view
        .model(key.as_bytes())
        .ok_or_else(|| Fault::input("--key", "a key is empty, must have at least one character"))?;
    let strategy = view.settings().strategy_of(model.hash);
    let owner = |endpoint: &'a warmroute_core::endpoint::Endpoint| Owner {
        id: &endpoint.id,
        address: endpoint.address.as_str(),
        skipped: view.skipped(endpoint, Some(model.hash)),
    };
    let indices = view.owners(model.hash, replicas);
    let endpoints = indices.iter().filter_map(|index| view.endpoints().get(index.position()));
    Ok(KeyOwners {
        key,
        routed_as: String::from_utf8_lossy(&model.id).into_owned(),
        hash: format!("{:016x}", model.hash),
        strategy: strategy.name(),
        endpoints: endpoints.map(owner).collect(),
        note: note(strategy),
    })
}

/// Where the ring is not the whole truth about a model.
fn note(strategy: StrategyName) -> Option<&'static str> {
    match strategy {
        StrategyName::Ring => None,
        StrategyName::Homes => Some("strategy homes: the homes of the plan come first, the ring after them"),
        StrategyName::Hash => Some("strategy hash: a request's own header or session rules over its model"),
        StrategyName::P2c | StrategyName::RoundRobin | StrategyName::LeastRequest => {
            Some("this model has a strategy that does not go by the ring")
        }
    }
}

impl Answer<'_> {
    fn write(&self, out: &mut dyn Write) -> Result<(), Fault> {
        for (n, key) in self.keys.iter().enumerate() {
            if n > 0 {
                writeln!(out)?;
            }
            key.write(out)?;
        }
        Ok(())
    }
}

impl KeyOwners<'_> {
    fn write(&self, out: &mut dyn Write) -> Result<(), Fault> {
        let alias = if self.key == self.routed_as { String::new() } else { format!(" → {}", shown(&self.routed_as)) };
        writeln!(out, "{}{alias} (hash {})", shown(self.key), self.hash)?;
        if let Some(note) = self.note {
            writeln!(out, "  note: {note}")?;
        }
        let ids: Vec<_> = self.endpoints.iter().map(|owner| shown(owner.id)).collect();
        let width = ids.iter().map(|id| id.chars().count()).max().unwrap_or(0);
        let rank = self.endpoints.len().to_string().len();
        for ((n, owner), id) in (1..).zip(&self.endpoints).zip(&ids) {
            let skipped = owner.skipped.map(|reason| format!("  (skipped: {reason})")).unwrap_or_default();
            writeln!(out, "  {n:>rank$}  {id:<width$}  {}{skipped}", owner.address)?;
        }
        Ok(())
    }
}
