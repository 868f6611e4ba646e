//! The planner that a VM's pools of one cluster share.
//!
//! All of them feed it and follow its plan, and one of them, the newest, shows it the endpoints and sets how it plans:
//! two that did it in turn would make two plans a tick of two different sets. When the newest is gone, the next one that
//! comes takes its place.

use crate::endpoint::EndpointIndex;
use crate::plan::{PlanChange, SelfPlanner, SelfSettings};
use crate::pool::Pool;
use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Stands for a pool as long as that lives.
pub(super) type Token = Rc<()>;

/// See the module.
#[derive(Debug)]
pub(super) struct Planning {
    planner: RefCell<SelfPlanner>,
    leader: RefCell<Weak<()>>,
    /// The planner has seen the leader's endpoints.
    shown: Cell<bool>,
}

impl Planning {
    pub(super) fn new(settings: SelfSettings) -> Self {
        Self { planner: RefCell::new(SelfPlanner::new(settings)), leader: RefCell::default(), shown: Cell::new(false) }
    }

    /// The pool is the newest: from now on it shows its endpoints, and its settings count.
    pub(super) fn lead(&self, token: &Token, settings: &SelfSettings) {
        self.with(|planner| planner.reconfigure(settings.clone()));
        if let Ok(mut leader) = self.leader.try_borrow_mut() {
            *leader = Rc::downgrade(token);
            self.shown.set(false);
        }
    }

    /// Runs `body` with the planner; the default when it is in use, which a callback within a callback would be.
    pub(super) fn with<R: Default>(&self, body: impl FnOnce(&mut SelfPlanner) -> R) -> R {
        self.planner.try_borrow_mut().map_or_else(|_| R::default(), |mut planner| body(&mut planner))
    }

    pub(super) fn planner(&self) -> Option<Ref<'_, SelfPlanner>> {
        self.planner.try_borrow().ok()
    }

    /// Whether [`Planning::tick`] would make a plan for the pool. Costs what looking at the clock costs.
    pub(super) fn is_due(&self, token: &Token, now: Duration) -> bool {
        match self.leads(token) {
            Leads::Yes => !self.shown.get() || self.planner().is_some_and(|planner| planner.is_due(now)),
            Leads::NobodyDoes => true,
            Leads::Another => false,
        }
    }

    /// Makes a plan, if it is time and the pool is the one to show its endpoints.
    pub(super) fn tick(
        &self,
        token: &Token,
        settings: &SelfSettings,
        pool: &Pool,
        now: Duration,
    ) -> Option<PlanChange> {
        match self.leads(token) {
            Leads::Another => return None,
            Leads::NobodyDoes if pool.stands_in() => {}
            Leads::NobodyDoes => self.lead(token, settings),
            Leads::Yes => {}
        }
        let (Some(endpoints), Some(ring), false) = (pool.endpoints(), pool.ring(), pool.stands_in()) else {
            // Nothing is planned while the ring is being built, and what is counted in that time is no second's demand.
            self.pause(now);
            return None;
        };
        if !self.is_due(token, now) {
            return None;
        }
        self.shown.set(true);
        let unknown = (!pool.unknown().is_empty(now)).then(|| pool.unknown());
        let servable = |index: EndpointIndex, model| {
            let key = endpoints.get(index.position()).map(|endpoint| endpoint.key());
            !unknown.zip(key).is_some_and(|(unknown, key)| unknown.is_marked(key, model, now))
        };
        self.with(|planner| planner.tick_where(now, endpoints, ring, pool.roster().health(), &servable))
    }

    /// Somebody else plans, or nobody can.
    pub(super) fn pause(&self, now: Duration) {
        self.with(|planner| planner.pause(now));
    }

    fn leads(&self, token: &Token) -> Leads {
        match self.leader.try_borrow().ok().and_then(|leader| leader.upgrade()) {
            None => Leads::NobodyDoes,
            Some(leader) if Rc::ptr_eq(&leader, token) => Leads::Yes,
            Some(_) => Leads::Another,
        }
    }
}

/// Who shows the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leads {
    Yes,
    Another,
    NobodyDoes,
}
