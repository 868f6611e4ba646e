//! What one VM shares between its root contexts: old and new configurations live side by side while requests end, and
//! several listeners may use one VM.

use crate::host::{self, HostError, Level};
use crate::lease::Leases;
use crate::stats::Stats;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;
use warmroute_core::live::LivePool;
use warmroute_core::load::Registry;
use warmroute_core::snapshot::Pools;
use warmroute_core::throttle::Throttle;

/// One warning of each kind in ten seconds, per VM.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Degraded modes that are worth a line in the log.
#[derive(Clone, Copy, Debug)]
pub enum Warning {
    NoSnapshot,
    HostError,
    Refused,
    EndpointUnknown,
    EndUnread,
    Panic,
    BodyUnread,
    PlanElsewhere,
    /// The last one: it sizes the list of throttles.
    RingPending,
}

const WARNINGS: usize = Warning::RingPending as usize + 1;

/// State of the VM.
#[derive(Debug)]
pub struct Vm {
    pub rng: Xoshiro256PlusPlus,
    pub registry: Registry,
    /// The VM's random name, by which it holds leases.
    pub holder: u128,
    pub leases: Leases,
    /// Reused for every list, so that writing one allocates nothing.
    pub destination: String,
    throttles: [Throttle; WARNINGS],
}

impl Vm {
    fn new() -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(host::seed());
        Self {
            holder: rng.random(),
            rng,
            registry: Registry::default(),
            leases: Leases::default(),
            destination: String::new(),
            throttles: [Throttle::new(WARNING_INTERVAL); WARNINGS],
        }
    }

    /// Logs a warning, unless one of its kind was logged a moment ago.
    pub fn warn(&mut self, warning: Warning, text: impl FnOnce() -> String) {
        let throttle = self.throttles.get_mut(warning as usize);
        let Some(held_back) = throttle.and_then(|throttle| throttle.admit(host::now())) else {
            return;
        };
        let more = if held_back > 0 { format!(" ({held_back} more since the last such line)") } else { String::new() };
        host::log(Level::Warn, &format!("warmroute: {}{more}", text()));
    }
}

thread_local! {
    static VM: RefCell<Vm> = RefCell::new(Vm::new());
    static LAST: RefCell<BTreeMap<Box<[u8]>, Weak<LivePool>>> = const { RefCell::new(BTreeMap::new()) };
    static STATS: OnceCell<Rc<Stats>> = const { OnceCell::new() };
}

/// Runs `body` with the VM's state. `None` when it is in use already, which a callback within a callback would be; the
/// host makes none.
pub fn with<R>(body: impl FnOnce(&mut Vm) -> R) -> Option<R> {
    VM.with(|vm| vm.try_borrow_mut().ok().map(|mut vm| body(&mut vm)))
}

/// The VM's stats, defined when first asked for.
pub fn stats() -> Result<Rc<Stats>, HostError> {
    STATS.with(|stats| match stats.get() {
        Some(stats) => Ok(Rc::clone(stats)),
        None => {
            let defined = Rc::new(Stats::define()?);
            Ok(Rc::clone(stats.get_or_init(|| defined)))
        }
    })
}

/// Puts these pools down as the last of their clusters, so that the next configuration goes on from them, as long as
/// somebody uses them.
pub fn remember(pools: &Pools) {
    LAST.with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.retain(|_, pool| pool.strong_count() > 0);
            last.extend(pools.iter().map(|(cluster, pool)| (cluster.clone(), Rc::downgrade(pool))));
        }
    });
}

/// Runs `body` with the last pool of each cluster. See [`remember`].
pub fn with_last<R>(body: impl FnOnce(&Pools) -> R) -> R {
    let pools = LAST.with(|last| {
        let Ok(last) = last.try_borrow() else { return Pools::default() };
        last.iter().filter_map(|(cluster, pool)| Some((cluster.clone(), pool.upgrade()?))).collect()
    });
    body(&pools)
}
