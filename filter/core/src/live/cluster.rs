//! What a VM's pools of one cluster share, however they came about: two listeners with a pool each, or the pool of an old
//! configuration that serves on while requests end beside the new one.

use super::planning::Planning;
use crate::plan::SelfSettings;
use crate::unknown::UnknownModels;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    planning: OnceCell<Planning>,
    unknown: Rc<UnknownModels>,
    /// When somebody last wanted something of one of the pools.
    asked: Cell<Option<Duration>>,
}

impl Cluster {
    /// The planner, made for the first pool that plans for itself.
    pub(super) fn planning(&self, settings: &SelfSettings) -> &Planning {
        self.planning.get_or_init(|| Planning::new(settings.clone()))
    }

    pub(super) fn unknown(&self) -> &Rc<UnknownModels> {
        &self.unknown
    }

    pub(super) fn asked(&self, now: Duration) {
        self.asked.set(Some(now));
    }

    pub(super) fn was_asked_within(&self, time: Duration, now: Duration) -> bool {
        self.asked.get().is_some_and(|asked| now.saturating_sub(asked) < time)
    }
}
