//! One planner per pool and Envoy: several that plan on their own work against each other.
//!
//! The VM that plans for a pool holds a lease in Envoy's shared data: 24 bytes, who and until when, changed by compare
//! and swap and renewed at each tick. A VM whose pool is not asked anything (the main thread's) does not want it. The
//! keys are a fixed set, since shared data cannot be deleted: clusters with one hash share a lease.

use crate::host;
use crate::vm;
use std::time::Duration;
use warmroute_core::hash::hash;
use warmroute_core::lease::{Lease, claim};
use warmroute_core::live::LivePool;

/// Keys in shared data.
const KEYS: u64 = 64;

/// Who plans for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// This VM.
    Own,
    /// Another VM.
    Other,
    /// Nobody here has anything to plan from.
    Idle,
}

/// Takes the lease or renews it, where there is something to plan from.
pub fn hold(cluster: &[u8], pool: &LivePool, now: Duration) -> Held {
    if !pool.was_asked() {
        return Held::Idle;
    }
    let Some(holder) = vm::with(|vm| vm.holder) else { return Held::Idle };
    let key = format!("warmroute/planner/{}", hash(cluster) % KEYS);
    // What the host refuses is no lease: better nobody plans than two.
    let Ok(found) = host::shared(&key) else { return Held::Other };
    let lease = found.as_ref().and_then(|(bytes, _)| Lease::read(bytes));
    let Some(next) = claim(lease, holder, now) else { return Held::Other };
    let version = found.map_or(ABSENT, |(_, version)| version);
    if host::set_shared(&key, &next.write(), version) == Ok(true) { Held::Own } else { Held::Other }
}

/// A version that no value has: writing with it creates what is not there.
const ABSENT: u32 = u32::MAX;
