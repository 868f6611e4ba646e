//! One client's connection, as the parts above it see it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::HeaderValue;
use parking_lot::Mutex;
use tokio_util::task::task_tracker::TaskTrackerToken;

#[derive(Debug)]
pub(super) struct Link {
    /// `ip:port` that the client reached; IPv6 in brackets.
    pub(super) served_by: HeaderValue,
    /// The socket closes with a RST.
    reset: AtomicBool,
    outlives_crash: AtomicBool,
    /// A crash is complete when every link has given up its token.
    alive: Mutex<Option<TaskTrackerToken>>,
}

impl Link {
    pub(super) fn new(local: SocketAddr, alive: TaskTrackerToken) -> Self {
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        // An address is made of characters that any header may hold.
        let served_by =
            HeaderValue::from_str(&local.to_string()).unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        Self {
            served_by,
            reset: AtomicBool::new(false),
            outlives_crash: AtomicBool::new(false),
            alive: Mutex::new(Some(alive)),
        }
    }

    /// Makes the close of this connection a reset.
    pub(super) fn close_with_reset(&self) {
        self.reset.store(true, Relaxed);
    }

    pub(super) fn closes_with_reset(&self) -> bool {
        self.reset.load(Relaxed)
    }

    /// Lets this connection deliver its answer when the server crashes: the one that ordered the crash.
    pub(super) fn outlive_crash(&self) {
        self.outlives_crash.store(true, Relaxed);
        self.alive.lock().take();
    }

    pub(super) fn outlives_crash(&self) -> bool {
        self.outlives_crash.load(Relaxed)
    }
}
