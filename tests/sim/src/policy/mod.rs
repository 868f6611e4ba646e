//! Who chooses the endpoint: the real core by its strategies, and rivals that the core does not have.

mod bounded;
mod homes;
mod hub;
mod maglev;
mod own;
mod proxies;
mod rival;
mod throughput;

use crate::cell::Cell;
use crate::gpu::Gpu;
use crate::names::Names;
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;
use warmroute_core::outcome::Outcome;
use warmroute_core::strategy::{PickList, StrategyName};

pub use hub::{Churn, Knowledge, Service};

/// A request that a proxy has to send somewhere.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Position among the run's requests.
    pub request: usize,
    /// The proxy.
    pub proxy: usize,
    /// The model.
    pub model: usize,
    /// When.
    pub now: Duration,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Which.
    pub asked: Asked,
    /// Who served it, or the last that failed to; `None` when nobody was tried.
    pub endpoint: Option<usize>,
    /// How.
    pub outcome: Outcome,
    /// When.
    pub now: Duration,
}

/// What a hub and a discovery see of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The endpoints.
    pub gpus: &'a [Gpu],
    /// Which of them are known to be alive.
    pub up: &'a [bool],
    /// When.
    pub now: Duration,
}

/// Routes the requests of all proxies of a run.
pub trait Policy {
    /// The endpoints to try, in order; nobody when the request is refused. The first counts as in flight until
    /// [`Policy::ended`].
    fn send(&mut self, asked: &Asked) -> PickList;

    /// An endpoint could not be reached.
    fn attempt_failed(&mut self, _asked: &Asked, _endpoint: usize) {}

    /// A request ended.
    fn ended(&mut self, ended: &Ended);

    /// How often it wants to look at the pool.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// It is time to look.
    fn tick(&mut self, _seen: &Seen<'_>) {}

    /// Endpoints became unhealthy.
    fn told(&mut self, seen: &Seen<'_>);

    /// The hub is no more.
    fn hub_died(&mut self) {}

    /// What the planner did, where there is one.
    fn churn(&self) -> Option<Churn> {
        None
    }
}

/// The policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Homes by a hub, for all proxies.
    Homes,
    /// Homes by a hub that learns of models when they are first asked for.
    HomesUnlisted,
    /// Homes by a hub that takes the median total of warm requests for the service time.
    HomesMedian,
    /// Homes by a hub that is told service and load times instead of measuring them.
    HomesKnown,
    /// Homes by one proxy alone, which plans for itself.
    HomesSelf,
    /// The first endpoint of the ring.
    Ring,
    /// A Maglev table.
    Maglev,
    /// Consistent hashing with bounded loads, 1.25.
    Bounded,
    /// Power of two choices.
    P2c,
    /// Least request.
    #[value(name = "least_request")]
    #[serde(rename = "least_request")]
    LeastRequest,
    /// Round robin.
    #[value(name = "round_robin")]
    #[serde(rename = "round_robin")]
    RoundRobin,
}

impl PolicyName {
    /// Every policy, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Homes,
        Self::HomesUnlisted,
        Self::HomesMedian,
        Self::HomesKnown,
        Self::HomesSelf,
        Self::Ring,
        Self::Maglev,
        Self::Bounded,
        Self::P2c,
        Self::LeastRequest,
        Self::RoundRobin,
    ];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Homes => "homes",
            Self::HomesUnlisted => "homes-unlisted",
            Self::HomesMedian => "homes-median",
            Self::HomesKnown => "homes-known",
            Self::HomesSelf => "homes-self",
            Self::Ring => "ring",
            Self::Maglev => "maglev",
            Self::Bounded => "bounded",
            Self::P2c => "p2c",
            Self::LeastRequest => "least_request",
            Self::RoundRobin => "round_robin",
        }
    }

    /// The policy for a run.
    #[must_use]
    pub fn build(self, cell: &Cell, seed: u64) -> Box<dyn Policy> {
        let names = Rc::new(Names::new(cell, seed));
        let hub = |service, catalogue| -> Box<dyn Policy> {
            Box::new(homes::Homes::new(cell, Rc::clone(&names), seed, Knowledge { service, catalogue }))
        };
        match self {
            Self::Homes => hub(Service::Throughput, true),
            Self::HomesUnlisted => hub(Service::Throughput, false),
            Self::HomesMedian => hub(Service::Median, true),
            Self::HomesKnown => hub(Service::Known, true),
            Self::HomesSelf => Box::new(own::HomesSelf::new(cell, names, seed)),
            Self::Ring => Box::new(rival::CoreRival::new(cell, names, seed, StrategyName::Ring)),
            Self::P2c => Box::new(rival::CoreRival::new(cell, names, seed, StrategyName::P2c)),
            Self::LeastRequest => Box::new(rival::CoreRival::new(cell, names, seed, StrategyName::LeastRequest)),
            Self::RoundRobin => Box::new(rival::CoreRival::new(cell, names, seed, StrategyName::RoundRobin)),
            Self::Maglev => Box::new(maglev::Maglev::new(&names)),
            Self::Bounded => Box::new(bounded::Bounded::new(cell, &names)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn a_policy_has_one_name_everywhere() {
        for policy in PolicyName::ALL {
            let argument = policy.to_possible_value().map(|value| value.get_name().to_owned());
            let json = serde_json::to_value(policy).ok();
            assert_eq!(argument.as_deref(), Some(policy.name()));
            assert_eq!(json.as_ref().and_then(|value| value.as_str()), Some(policy.name()));
        }
        assert_eq!(PolicyName::value_variants(), PolicyName::ALL);
    }
}
