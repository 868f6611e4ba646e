//! Requests that wait for the beginning of their body, because only it names the model.
//!
//! Envoy must be told to go on with the body while the headers wait (`allow_on_headers_stop_iteration`). Where it is
//! not, no body ever comes, and the request would wait for ever: so nothing waits longer than a moment, and after a few
//! requests without a body the filter stops asking for bodies until it is configured anew.

use crate::host;
use crate::http::Steered;
use crate::root::Plugin;
use crate::vm::{self, Warning};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use warmroute_core::live::LivePool;
use warmroute_core::request::{BodyScanner, Scan};

/// How long a request waits for its body while no body has come at all yet.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The same once bodies are known to come: this one's client is slow.
const WAIT: Duration = Duration::from_secs(5);

/// Requests without a body after which bodies are no longer asked for.
const GIVE_UP: u8 = 3;

/// Whether Envoy hands bodies over while headers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// So many requests waited in vain, and none did not.
    Unknown(u8),
    /// It does.
    Works,
    /// It does not.
    Off,
}

impl Default for Delivery {
    fn default() -> Self {
        Self::Unknown(0)
    }
}

/// One request that waits.
#[derive(Debug)]
pub struct Waiting {
    pub context: u32,
    pub since: Duration,
    pub cluster: Vec<u8>,
    pub pool: Rc<LivePool>,
    /// As Envoy gave them.
    pub headers: Vec<u8>,
    pub scanner: RefCell<BodyScanner>,
    pub scanned: Cell<usize>,
    /// It waits no longer.
    pub done: Cell<bool>,
    /// What became of it, when it was sent along a list.
    pub steered: RefCell<Option<Steered>>,
}

impl Waiting {
    /// Reads what has come since the last call. `None` while more is needed; else the model, if there is one.
    pub fn read(&self, buffered: usize) -> Option<Option<Vec<u8>>> {
        let start = self.scanned.get();
        let Ok(chunk) = host::request_body(start, buffered.saturating_sub(start)) else { return Some(None) };
        self.scanned.set(start.saturating_add(chunk.len()));
        let Ok(mut scanner) = self.scanner.try_borrow_mut() else { return Some(None) };
        match scanner.feed(&chunk) {
            Scan::More => None,
            Scan::Found(model) => Some(Some(model.to_vec())),
            Scan::Absent | Scan::Malformed | Scan::OverLimit | Scan::TooLong | Scan::Unreadable => Some(None),
        }
    }
}

/// Sends the requests on that have waited long enough, as requests without a model.
pub fn release_overdue(plugin: &Rc<Plugin>) {
    let Ok(mut waiting) = plugin.waiting.try_borrow_mut().map(|mut list| std::mem::take(&mut *list)) else { return };
    waiting.retain(|request| !request.done.get());
    let limit = if plugin.bodies.get() == Delivery::Works { WAIT } else { FIRST_WAIT };
    let now = host::now();
    let (overdue, rest): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|request| now.saturating_sub(request.since) >= limit);
    if let Ok(mut list) = plugin.waiting.try_borrow_mut() {
        list.extend(rest);
    }
    overdue.iter().for_each(|request| release(plugin, request));
}

fn release(plugin: &Rc<Plugin>, request: &Waiting) {
    plugin.stats.body_overdue();
    let delivery = match plugin.bodies.get() {
        Delivery::Unknown(before) if before.saturating_add(1) >= GIVE_UP => Delivery::Off,
        Delivery::Unknown(before) => Delivery::Unknown(before.saturating_add(1)),
        known => known,
    };
    plugin.bodies.set(delivery);
    vm::with(|vm| vm.warn(Warning::BodyUnread, || text(delivery)));
    if host::select(request.context).is_ok() && crate::http::resume(plugin, request) {
        let _resumed = host::continue_request(request.context).is_ok();
    }
}

fn text(delivery: Delivery) -> String {
    let why = match delivery {
        Delivery::Works => "the client is slow",
        Delivery::Unknown(_) | Delivery::Off => {
            "is allow_on_headers_stop_iteration: true set in the filter's configuration?"
        }
    };
    let what = if delivery == Delivery::Off { "; bodies are no longer read" } else { "" };
    format!("body_overdue: a body that should name the model did not come: {why}{what}")
}
