//! Strategies: each orders the endpoints of a pool for one request. A new one is a new file here, a name in
//! [`StrategyName`] and a line in [`Strategies`].

mod hash;
mod homes;
mod least_request;
mod p2c;
mod ring;
mod round_robin;
mod view;
mod wait;

pub use hash::KeyHash;
pub(crate) use hash::session_on_ring;
pub use homes::Homes;
pub(crate) use homes::session_at_home;
pub use least_request::LeastRequest;
pub use p2c::PowerOfTwoChoices;
pub use ring::RingOrder;
pub use round_robin::RoundRobin;
pub use view::{Residency, Told, View};
pub use wait::wait;

use crate::endpoint::EndpointIndex;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::roster::Roster;
use arrayvec::ArrayVec;
use rand::Rng;
use std::time::Duration;

/// The most endpoints that one request carries: the pick and seven fallbacks.
pub const MAX_PICKS: usize = 8;

/// Distinct endpoints in the order in which Envoy shall try them; the first is the pick, the rest are fallbacks.
pub type PickList = ArrayVec<EndpointIndex, MAX_PICKS>;

/// The strategies, by the names that a user writes and that stats carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyName {
    /// [`Homes`]
    Homes,
    /// [`RingOrder`]
    Ring,
    /// [`PowerOfTwoChoices`]
    P2c,
    /// [`RoundRobin`]
    RoundRobin,
    /// [`LeastRequest`]
    LeastRequest,
    /// [`KeyHash`]
    Hash,
}

impl StrategyName {
    /// Every strategy, in the order of [`StrategyName::position`].
    pub const ALL: [Self; 6] = [Self::Homes, Self::Ring, Self::P2c, Self::RoundRobin, Self::LeastRequest, Self::Hash];

    /// Position in [`StrategyName::ALL`].
    #[must_use]
    pub fn position(self) -> usize {
        self as usize
    }

    /// The name in the configuration and in stats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Homes => "homes",
            Self::Ring => "ring",
            Self::P2c => "p2c",
            Self::RoundRobin => "round_robin",
            Self::LeastRequest => "least_request",
            Self::Hash => "hash",
        }
    }

    /// Whether it walks the ring, which is built only for those that do.
    #[must_use]
    pub fn needs_ring(self) -> bool {
        match self {
            Self::Homes | Self::Ring | Self::Hash => true,
            Self::P2c | Self::RoundRobin | Self::LeastRequest => false,
        }
    }
}

/// How one request, or one try of it, ended at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Who served, or failed to.
    pub endpoint: EndpointIndex,
    /// How it ended.
    pub outcome: Outcome,
    /// From the pick to the end of the response; `None` for a try that another endpoint made good.
    pub service_time: Option<Duration>,
}

/// Orders endpoints for requests.
pub trait Strategy: std::fmt::Debug {
    /// Its name.
    fn name(&self) -> StrategyName;

    /// Takes a new set of endpoints. What all strategies need of a set is in the [`View`]; one that keeps something of
    /// its own about endpoints brings it into line here, off the request path.
    fn update(&mut self, _roster: &Roster) {}

    /// Orders distinct endpoints that may serve `request`, at least one and at most [`View::limit`].
    ///
    /// # Errors
    /// [`Refusal::NoHealthyEndpoint`] when no endpoint may serve.
    fn pick(&self, request: &Request<'_>, view: &View<'_>, rng: &mut dyn Rng) -> Result<PickList, Refusal>;

    /// Learns how a request ended, into cells of its own: requests under way share the strategy. One that looks only
    /// at requests in flight learns nothing here.
    fn report(&self, _report: &Report) {}
}

/// One of each.
#[derive(Debug, Default)]
pub struct Strategies {
    homes: Homes,
    ring: RingOrder,
    p2c: PowerOfTwoChoices,
    round_robin: RoundRobin,
    least_request: LeastRequest,
    hash: KeyHash,
}

impl Strategies {
    /// The one of that name.
    #[must_use]
    pub fn get(&self, name: StrategyName) -> &dyn Strategy {
        match name {
            StrategyName::Homes => &self.homes,
            StrategyName::Ring => &self.ring,
            StrategyName::P2c => &self.p2c,
            StrategyName::RoundRobin => &self.round_robin,
            StrategyName::LeastRequest => &self.least_request,
            StrategyName::Hash => &self.hash,
        }
    }

    /// Hands a new set to each.
    pub fn update(&mut self, roster: &Roster) {
        let Self { homes, ring, p2c, round_robin, least_request, hash } = self;
        let all: [&mut dyn Strategy; 6] = [homes, ring, p2c, round_robin, least_request, hash];
        all.into_iter().for_each(|strategy| strategy.update(roster));
    }

    /// Tells each how a request ended.
    pub fn report(&self, report: &Report) {
        StrategyName::ALL.into_iter().for_each(|name| self.get(name).report(report));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn strategies_are_found_by_their_names() {
        let strategies = Strategies::default();
        for name in StrategyName::ALL {
            assert_eq!(strategies.get(name).name(), name);
            assert_eq!(StrategyName::ALL[name.position()], name);
        }
    }
}
