//! Strategies: each orders the endpoints of a pool for one request. A new one is a new file here.

mod p2c;
mod ring;

pub use p2c::PowerOfTwoChoices;
pub use ring::RingOrder;

use crate::eligibility;
use crate::endpoint::{Endpoint, EndpointIndex};
use crate::load::Load;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::request::Request;
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
    /// [`RingOrder`]
    Ring,
    /// [`PowerOfTwoChoices`]
    P2c,
}

impl StrategyName {
    /// Every strategy, in the order of [`StrategyName::position`].
    pub const ALL: [Self; 2] = [Self::Ring, Self::P2c];

    /// Position in [`StrategyName::ALL`].
    #[must_use]
    pub fn position(self) -> usize {
        self as usize
    }

    /// The name in the configuration and in stats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::P2c => "p2c",
        }
    }
}

/// What a strategy sees of a pool.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The pool's endpoints.
    pub endpoints: &'a [Endpoint],
    /// Requests in flight at them.
    pub load: &'a dyn Load,
    /// How many of them may serve: a list of that many is complete, and with none there is nothing to look for.
    pub eligible: usize,
    /// How many endpoints the list shall have, at most [`MAX_PICKS`].
    pub wanted: usize,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("endpoints", &self.endpoints).field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl View<'_> {
    /// Whether the endpoint is in the pool and may serve.
    #[must_use]
    pub fn may_serve(&self, endpoint: EndpointIndex) -> bool {
        self.endpoints.get(endpoint.position()).is_some_and(|endpoint| eligibility::check(endpoint).is_ok())
    }

    /// How many endpoints to list: as many as wanted, as far as there are any that may serve.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.wanted.min(self.eligible).min(MAX_PICKS)
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

    /// Takes a new set of endpoints; all that depends only on the set is computed here, off the request path.
    fn update(&mut self, endpoints: &[Endpoint]);

    /// Orders eligible, distinct endpoints for `request`, at least one and at most [`View::limit`].
    ///
    /// # Errors
    /// [`Refusal::NoHealthyEndpoint`] when no endpoint may serve.
    fn pick(&self, request: &Request<'_>, view: &View<'_>, rng: &mut dyn Rng) -> Result<PickList, Refusal>;

    /// Learns how a request ended, into cells of its own: requests under way share the strategy. One that looks only
    /// at requests in flight learns nothing here.
    fn report(&self, _report: &Report) {}
}
