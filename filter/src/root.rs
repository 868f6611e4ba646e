//! A root context: one plugin configuration. Envoy makes a new one for every update and a trial one beforehand, so
//! `on_configure` only parses, builds what is quick to build, names the stats and asks for the tick.
//!
//! What takes longer goes on at the ticks, in slices of at most [`SLICE`]: a tick runs on the worker's event loop, and
//! requests wait for it.

use crate::body::{self, Waiting};
use crate::host::{self, Level};
use crate::http::Http;
use crate::lease;
use crate::stats::Stats;
use crate::vm::{self, Warning};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use warmroute_core::config::{self, ExplainSettings, SessionCookie};
use warmroute_core::live::LivePool;
use warmroute_core::request::RequestSettings;
use warmroute_core::snapshot::{Pools, Progress, Snapshot};

/// How often stats are handed over and planners are asked.
const TICK: Duration = Duration::from_millis(100);

/// How often a ring that is being built gets another slice.
const BUILDING_TICK: Duration = Duration::from_millis(5);

/// What building may take of the event loop at a time.
const SLICE: Duration = Duration::from_micros(500);

/// Virtual nodes between two looks at the clock: about a tenth of a slice.
const STEP: usize = 512;

/// Steps of the first slice, whatever the clock says: rings of 27 endpoints are there before the first request. (Points
/// are counted first and placed then, so that 27 · 150 take twice that many.)
const FIRST_STEPS: usize = 18;

/// One configuration in force.
#[derive(Debug)]
pub struct Plugin {
    pub snapshot: RefCell<Snapshot>,
    pub request: RequestSettings,
    pub explain: ExplainSettings,
    pub session_cookie: Option<SessionCookie>,
    pub destination_header: Box<str>,
    pub stats: Rc<Stats>,
    /// Requests that wait for their bodies.
    pub waiting: RefCell<Vec<Rc<Waiting>>>,
    /// Bodies are read, as far as Envoy hands them over.
    pub bodies: Cell<body::Delivery>,
    /// Which pool is the first to plan at the next tick.
    turn: Cell<usize>,
}

impl Plugin {
    /// The pool of Envoy's cluster of that name.
    pub fn pool(&self, cluster: &[u8]) -> Option<Rc<LivePool>> {
        self.snapshot.try_borrow().ok()?.pool(cluster).cloned()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Root {
    plugin: Option<Rc<Plugin>>,
    building: bool,
}

impl Context for Root {}

impl RootContext for Root {
    /// False makes Envoy refuse the update and keep the configuration that it has.
    fn on_configure(&mut self, size: usize) -> bool {
        match load(size) {
            Ok(plugin) => {
                self.plugin = Some(Rc::new(plugin));
                self.building = true;
                self.build(FIRST_STEPS);
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
        self.build(0);
        let Some(plugin) = &self.plugin else { return };
        plan(plugin);
        plugin.stats.flush();
        // Last: what is released goes on when the tick ends, and how soon its body comes then tells something.
        body::release_overdue(plugin);
    }

    fn create_http_context(&self, context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Http::new(context_id, self.plugin.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Root {
    /// One slice of what is still to be built, at least so many steps.
    fn build(&mut self, at_least: usize) {
        let (true, Some(plugin)) = (self.building, &self.plugin) else { return };
        let until = host::now().saturating_add(SLICE);
        let mut progress = Progress::More;
        let mut steps = 0_usize;
        while progress == Progress::More && (steps < at_least || host::now() < until) {
            steps = steps.saturating_add(1);
            let step = vm::with(|vm| match plugin.snapshot.try_borrow_mut() {
                Ok(mut snapshot) => snapshot.advance(STEP, &mut vm.registry),
                Err(_) => Progress::More,
            });
            progress = step.unwrap_or(Progress::Done);
        }
        let period = if progress == Progress::More { BUILDING_TICK } else { TICK };
        self.building = progress == Progress::More;
        // A tick that the host refuses to change comes at its old pace.
        let _paced = host::set_tick_period(period).is_ok();
        if let (false, Ok(snapshot)) = (self.building, plugin.snapshot.try_borrow()) {
            vm::remember(snapshot.pools());
        }
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

/// Pools that plan for themselves do so in one VM only, and in turn: one plan a tick, and more while the slice lasts.
fn plan(plugin: &Plugin) {
    let Ok(snapshot) = plugin.snapshot.try_borrow() else { return };
    let now = host::now();
    let until = now.saturating_add(SLICE);
    let own = || snapshot.pools().iter().filter(|(_, pool)| pool.plans_itself());
    let (count, first) = (own().count(), plugin.turn.get());
    let mut planned = 0_usize;
    for (n, (cluster, pool)) in own().enumerate().cycle().skip(first).take(count) {
        match lease::hold(cluster, pool, now) {
            lease::Held::Own if planned > 0 && pool.is_plan_due(now) && host::now() >= until => pool.follow_plan(),
            lease::Held::Own => {
                if pool.is_plan_due(now) {
                    planned = planned.saturating_add(1);
                    plugin.turn.set(n.saturating_add(1).checked_rem(count).unwrap_or_default());
                }
                plugin.stats.planned(&pool.tick(now));
            }
            lease::Held::Idle => pool.follow_plan(),
            lease::Held::Other => {
                pool.stop_planning(now);
                plugin.stats.plan_elsewhere();
                vm::with(|vm| vm.warn(Warning::PlanElsewhere, || elsewhere(cluster)));
            }
        }
    }
}

fn elsewhere(cluster: &[u8]) -> String {
    let cluster = String::from_utf8_lossy(cluster);
    format!(
        "plan_elsewhere: another worker plans for {cluster}, this one goes by the ring; run Envoy with --concurrency 1"
    )
}

fn load(size: usize) -> Result<Plugin, String> {
    let bytes = host::plugin_configuration(size).map_err(|error| format!("cannot be read: {error}"))?;
    let config = config::parse(&bytes).map_err(|error| error.to_string())?;
    let stats = vm::stats().map_err(|error| format!("stats cannot be defined: {error}"))?;
    host::set_tick_period(TICK).map_err(|error| format!("no tick: {error}"))?;
    let begin = |before: &Pools| vm::with(|vm| Snapshot::begin(config.pools, before, &mut vm.registry));
    let snapshot = vm::with_last(begin).ok_or("the VM's state is in use")?;
    Ok(Plugin {
        snapshot: RefCell::new(snapshot),
        request: config.request,
        explain: config.explain,
        session_cookie: config.session_cookie,
        destination_header: config.destination_header,
        stats,
        waiting: RefCell::default(),
        bodies: Cell::default(),
        turn: Cell::default(),
    })
}
