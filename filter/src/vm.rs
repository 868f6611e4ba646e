//! What one VM shares between its root contexts: old and new configurations live side by side while requests end, and
//! several listeners may use one VM.

use crate::host::{self, HostError, Level};
use crate::stats::Stats;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use warmroute_core::load::Registry;
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
    /// The last one: it sizes the list of throttles.
    EndUnread,
}

const WARNINGS: usize = Warning::EndUnread as usize + 1;

/// State of the VM.
#[derive(Debug)]
pub struct Vm {
    pub rng: Xoshiro256PlusPlus,
    pub registry: Registry,
    /// Reused for every list, so that writing one allocates nothing.
    pub destination: String,
    started: Instant,
    throttles: [Throttle; WARNINGS],
}

impl Vm {
    fn new() -> Self {
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(host::seed()),
            registry: Registry::default(),
            destination: String::new(),
            started: host::now(),
            throttles: [Throttle::new(WARNING_INTERVAL); WARNINGS],
        }
    }

    /// Logs a warning, unless one of its kind was logged a moment ago.
    pub fn warn(&mut self, warning: Warning, text: impl FnOnce() -> String) {
        let now = host::now().saturating_duration_since(self.started);
        let Some(held_back) = self.throttles.get_mut(warning as usize).and_then(|throttle| throttle.admit(now)) else {
            return;
        };
        let more = if held_back > 0 { format!(" ({held_back} more since the last such line)") } else { String::new() };
        host::log(Level::Warn, &format!("warmroute: {}{more}", text()));
    }
}

thread_local! {
    static VM: RefCell<Vm> = RefCell::new(Vm::new());
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
