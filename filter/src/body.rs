//! Requests that wait for the beginning of their body, because only it names the model.
//!
//! Envoy must be told to go on with the body while the headers wait (`allow_on_headers_stop_iteration`). Where it is
//! not, no body ever comes, and the request would wait for ever: so nothing waits longer than a moment for the beginning.
//! A request whose body is there at the very moment in which it is sent on shows that Envoy held it back; a client that
//! is slow, or never sends one, shows nothing. After a few that show it bodies are no longer asked for, but by one request
//! in ten seconds, to see whether they come now.
//!
//! Once the beginning is here, the rest is waited for, however long it takes: a request whose body is buffered in part
//! may go on from its own callbacks alone. Continued at a tick, Envoy sends that part twice, and the server takes the
//! surplus for the next request on the connection.

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

/// Bodies held back after which bodies are no longer asked for.
const GIVE_UP: u8 = 3;

/// How soon after its headers were sent on a body comes that Envoy held back: it has it already.
const AT_ONCE: Duration = Duration::from_millis(20);

/// How long after giving up one request tries again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Bytes of a body that are kept until the request's end: the first turn of most conversations.
const KEPT: usize = 8_192;

/// Whether Envoy hands bodies over while headers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// So many bodies were held back, and none has come.
    Unknown(u8),
    /// It does.
    Works,
    /// It does not, as was last seen then.
    Off(Duration),
}

impl Default for Delivery {
    fn default() -> Self {
        Self::Unknown(0)
    }
}

/// What a request that waits is about.
#[derive(Debug)]
pub struct Pending {
    pub cluster: Vec<u8>,
    pub pool: Rc<LivePool>,
    /// As Envoy gave them.
    pub headers: Vec<u8>,
    pub scanner: BodyScanner,
}

/// What a body said.
#[derive(Debug)]
pub struct Named {
    pub model: Vec<u8>,
    /// Itself, when it is short and came at once; perhaps without its end.
    pub body: Option<Vec<u8>>,
}

/// One request that waits, or has waited.
#[derive(Debug)]
pub struct Waiting {
    pub context: u32,
    pub since: Duration,
    /// What it is about; `None` once it waits no longer.
    pub pending: RefCell<Option<Pending>>,
    pub scanned: Cell<usize>,
    /// When it was sent on without its body.
    pub released: Cell<Option<Duration>>,
    /// What became of it, when it was sent along a list.
    pub steered: RefCell<Option<Steered>>,
}

impl Waiting {
    pub fn is_done(&self) -> bool {
        self.pending.try_borrow().is_ok_and(|pending| pending.is_none())
    }

    /// Whether some of its body is here.
    fn has_begun(&self) -> bool {
        self.scanned.get() > 0
    }

    /// It waits no longer: what it is about, the first time.
    pub fn end(&self) -> Option<Pending> {
        self.pending.try_borrow_mut().ok()?.take()
    }

    /// Reads what has come since the last call. `None` while more is needed; else the model, if there is one.
    pub fn read(&self, buffered: usize) -> Option<Option<Named>> {
        let start = self.scanned.get();
        let Ok(chunk) = host::request_body(start, buffered.saturating_sub(start)) else { return Some(None) };
        self.scanned.set(start.saturating_add(chunk.len()));
        let Ok(mut pending) = self.pending.try_borrow_mut() else { return Some(None) };
        let Some(pending) = pending.as_mut() else { return Some(None) };
        let model = match pending.scanner.feed(&chunk) {
            Scan::More => return None,
            Scan::Found(model) => model.to_vec(),
            Scan::Absent | Scan::Malformed | Scan::OverLimit | Scan::TooLong | Scan::Unreadable => return Some(None),
        };
        Some(Some(Named { model, body: (start == 0 && chunk.len() <= KEPT).then_some(chunk) }))
    }
}

/// Sends the requests on that have waited long enough for a body to begin, as requests without a model.
pub fn release_overdue(plugin: &Rc<Plugin>) {
    let Ok(mut waiting) = plugin.waiting.try_borrow_mut().map(|mut list| std::mem::take(&mut *list)) else { return };
    waiting.retain(|request| !request.is_done());
    let limit = if plugin.bodies.get() == Delivery::Works { WAIT } else { FIRST_WAIT };
    let now = host::now();
    let is_overdue = |request: &Rc<Waiting>| !request.has_begun() && now.saturating_sub(request.since) >= limit;
    let (overdue, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_overdue);
    if let Ok(mut list) = plugin.waiting.try_borrow_mut() {
        list.extend(rest);
    }
    overdue.iter().for_each(|request| release(plugin, request));
}

fn release(plugin: &Rc<Plugin>, request: &Waiting) {
    plugin.stats.body_overdue();
    vm::with(|vm| vm.warn(Warning::BodyUnread, || text(plugin.bodies.get())));
    request.released.set(Some(host::now()));
    if host::select(request.context).is_ok() && crate::http::resume(plugin, request) {
        let _resumed = host::continue_request(request.context).is_ok();
    }
}

/// Whether a request that comes now waits for its body.
pub fn is_asked_for(plugin: &Plugin) -> bool {
    match plugin.bodies.get() {
        Delivery::Unknown(_) | Delivery::Works => true,
        Delivery::Off(since) => {
            let now = host::now();
            let again = now.saturating_sub(since) >= TRY_AGAIN;
            if again {
                plugin.bodies.set(Delivery::Off(now));
            } else {
                plugin.stats.body_unread();
            }
            again
        }
    }
}

/// The body of a request came that was sent on without it.
pub fn came_late(plugin: &Plugin, request: &Waiting) {
    let now = host::now();
    let Some(released) = request.released.take() else { return };
    if now.saturating_sub(released) > AT_ONCE {
        return;
    }
    match plugin.bodies.get() {
        Delivery::Unknown(before) if before.saturating_add(1) < GIVE_UP => {
            plugin.bodies.set(Delivery::Unknown(before.saturating_add(1)));
        }
        Delivery::Unknown(_) | Delivery::Off(_) => plugin.bodies.set(Delivery::Off(now)),
        Delivery::Works => {}
    }
}

fn text(delivery: Delivery) -> String {
    let why = match delivery {
        Delivery::Works => "the client is slow",
        Delivery::Unknown(_) | Delivery::Off(_) => {
            "the client is slow, or allow_on_headers_stop_iteration: true is not set in the filter's configuration"
        }
    };
    format!("body_overdue: a body that should name the model did not come: {why}")
}
