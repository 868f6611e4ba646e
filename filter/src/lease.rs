//! One planner per pool and Envoy: several that plan on their own work against each other.
//!
//! The VM that plans for a pool holds a lease in Envoy's shared data: 24 bytes, who and until when, changed by compare
//! and swap and renewed at least three times before it ends. A VM whose pool is not asked anything (the main thread's, or that of a
//! module that was replaced) does not want it. The keys are a fixed set, since shared data cannot be deleted: clusters
//! with one hash share a lease.

use crate::host;
use crate::vm;
use std::time::Duration;
use warmroute_core::hash::hash;
use warmroute_core::lease::{Lease, TERM, claim};
use warmroute_core::live::LivePool;

/// Keys in shared data.
const KEYS: usize = 64;

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

/// What was found out about each key, and until when that is good enough: with many pools, asking the host at each tick
/// would cost more than planning.
#[derive(Debug)]
pub struct Leases([Option<(Held, Duration)>; KEYS]);

impl Default for Leases {
    fn default() -> Self {
        Self([None; KEYS])
    }
}

/// Takes the lease or renews it, where there is something to plan from.
pub fn hold(cluster: &[u8], pool: &LivePool, now: Duration) -> Held {
    if !pool.was_asked(now) {
        return Held::Idle;
    }
    let key = usize::try_from(hash(cluster) % KEYS as u64).unwrap_or_default();
    let known = vm::with(|vm| vm.leases.0.get(key).copied().flatten()).flatten();
    if let Some((held, _)) = known.filter(|(_, until)| now < *until) {
        return held;
    }
    let Some(holder) = vm::with(|vm| vm.holder) else { return Held::Idle };
    let held = ask(key, holder, now);
    vm::with(|vm| {
        if let Some(known) = vm.leases.0.get_mut(key) {
            *known = Some((held, now.saturating_add(TERM / 4)));
        }
    });
    held
}

fn ask(key: usize, holder: u128, now: Duration) -> Held {
    let key = format!("warmroute/planner/{key}");
    // What the host refuses is no lease: better nobody plans than two.
    let Ok(found) = host::shared(&key) else { return Held::Other };
    let lease = found.as_ref().and_then(|(bytes, _)| Lease::read(bytes));
    let Some(next) = claim(lease, holder, now) else { return Held::Other };
    let version = found.map_or(ABSENT, |(_, version)| version);
    if host::set_shared(&key, &next.write(), version) == Ok(true) { Held::Own } else { Held::Other }
}

/// A version that no value has: writing with it creates what is not there.
const ABSENT: u32 = u32::MAX;
