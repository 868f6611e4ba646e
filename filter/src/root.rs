//! A root context: one plugin configuration. Envoy makes a new one for every update and a trial one beforehand, so
//! `on_configure` only parses, names the stats and asks for the tick.

use crate::host::{self, Level};
use crate::http::Http;
use crate::stats::Stats;
use crate::vm;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use std::rc::Rc;
use std::time::Duration;
use warmroute_core::config;
use warmroute_core::request::HeaderNames;
use warmroute_core::snapshot::Snapshot;

/// How often stats are handed over.
const TICK: Duration = Duration::from_millis(100);

/// One configuration in force.
#[derive(Debug)]
pub struct Plugin {
    pub snapshot: Snapshot,
    pub header_names: HeaderNames,
    pub destination_header: Box<str>,
    pub stats: Rc<Stats>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Root {
    plugin: Option<Rc<Plugin>>,
}

impl Context for Root {}

impl RootContext for Root {
    /// False makes Envoy refuse the update and keep the configuration that it has.
    fn on_configure(&mut self, size: usize) -> bool {
        match load(size) {
            Ok(plugin) => {
                self.plugin = Some(Rc::new(plugin));
                true
            }
            Err(reason) => {
                host::log(
                    Level::Error,
                    &format!("warmroute: configuration refused, the last good one stays: {reason}"),
                );
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(plugin) = &self.plugin {
            plugin.stats.flush();
        }
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Http::new(self.plugin.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// The requests of this configuration have ended, and no tick may follow: the VM may be on its way out.
impl Drop for Root {
    fn drop(&mut self) {
        if let Some(plugin) = &self.plugin {
            plugin.stats.flush();
        }
    }
}

fn load(size: usize) -> Result<Plugin, String> {
    let bytes = host::plugin_configuration(size).map_err(|error| format!("cannot be read: {error}"))?;
    let config = config::parse(&bytes).map_err(|error| error.to_string())?;
    let stats = vm::stats().map_err(|error| format!("stats cannot be defined: {error}"))?;
    host::set_tick_period(TICK).map_err(|error| format!("no tick: {error}"))?;
    let snapshot = vm::with(|vm| Snapshot::new(config.pools, &mut vm.registry)).ok_or("the VM's state is in use")?;
    Ok(Plugin { snapshot, header_names: config.header_names, destination_header: config.destination_header, stats })
}
