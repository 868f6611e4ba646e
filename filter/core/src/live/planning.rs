//! The planner that a VM's pools of one cluster share.
//!
//! There may be several: two listeners have a pool each, and the pool of an old configuration serves on while requests
//! end. All of them feed the planner and follow its plan, and one of them, the newest, shows it the endpoints: two that
//! did it in turn would make two plans a tick of two different sets. When the newest has not come for a second (its
//! listener is gone), another one takes its place.

use crate::plan::{PlanChange, SelfPlanner, SelfSettings};
use crate::pool::Pool;
use std::cell::{Cell, Ref, RefCell};
use std::time::Duration;

/// A pool that has not come for so long has gone.
const GONE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Planning {
    planner: RefCell<SelfPlanner>,
    pools: Cell<u64>,
    leader: Cell<Leader>,
}

/// The pool that shows its endpoints.
#[derive(Clone, Copy, Debug, Default)]
struct Leader {
    pool: u64,
    came: Duration,
    /// The planner has seen its endpoints.
    shown: bool,
}

impl Planning {
    pub(super) fn new(settings: SelfSettings) -> Self {
        Self {
            planner: RefCell::new(SelfPlanner::new(settings)),
            pools: Cell::new(0),
            leader: Cell::new(Leader::default()),
        }
    }

    /// One more pool shares the planner, by its settings from now on. The pool's number.
    pub(super) fn join(&self, settings: &SelfSettings) -> u64 {
        self.with(|planner| planner.reconfigure(settings.clone()));
        let pool = self.pools.get().saturating_add(1);
        self.pools.set(pool);
        self.leader.set(Leader { pool, shown: false, ..self.leader.get() });
        pool
    }

    /// Runs `body` with the planner; the default when it is in use, which a callback within a callback would be.
    pub(super) fn with<R: Default>(&self, body: impl FnOnce(&mut SelfPlanner) -> R) -> R {
        self.planner.try_borrow_mut().map_or_else(|_| R::default(), |mut planner| body(&mut planner))
    }

    pub(super) fn planner(&self) -> Option<Ref<'_, SelfPlanner>> {
        self.planner.try_borrow().ok()
    }

    /// Whether [`Planning::tick`] of the pool of that number would make a plan. It costs what looking at the clock costs.
    pub(super) fn is_due(&self, pool: u64, now: Duration) -> bool {
        self.leads(pool, now) && (!self.is_shown(pool) || self.planner().is_some_and(|planner| planner.is_due(now)))
    }

    /// Makes a plan, if it is time and the pool is the one to show its endpoints.
    pub(super) fn tick(&self, number: u64, pool: &Pool, now: Duration) -> Option<PlanChange> {
        if !self.leads(number, now) {
            return None;
        }
        let due = self.is_due(number, now);
        let (Some(endpoints), Some(ring)) = (pool.endpoints(), pool.ring()) else {
            self.leader.set(Leader { pool: number, came: now, shown: false });
            // Nothing is planned while the ring is being built, and what is counted in that time is no second's demand.
            self.with(|planner| planner.pause(now));
            return None;
        };
        self.leader.set(Leader { pool: number, came: now, shown: true });
        if !due {
            return None;
        }
        self.with(|planner| planner.tick_where(now, endpoints, ring, pool.roster().health(), &|_, _| true))
    }

    /// The pool of that number is still there.
    pub(super) fn came(&self, pool: u64, now: Duration) {
        if self.leads(pool, now) {
            self.leader.set(Leader { pool, came: now, shown: self.is_shown(pool) });
        }
    }

    /// Somebody else plans.
    pub(super) fn pause(&self, now: Duration) {
        self.with(|planner| planner.pause(now));
    }

    fn is_shown(&self, pool: u64) -> bool {
        let leader = self.leader.get();
        leader.pool == pool && leader.shown
    }

    fn leads(&self, pool: u64, now: Duration) -> bool {
        let leader = self.leader.get();
        pool >= leader.pool || now.saturating_sub(leader.came) > GONE
    }
}
