//! The answer to one request.
//!
//! | case | answer |
//! |---|---|
//! | the pool's endpoints are not known yet | Envoy's own policy |
//! | the pool is known, and nobody in it may serve (or it is empty) | refusal |
//! | inference that names a model | the model's strategy, else the pool's |
//! | … by `homes`, and the plan has no home for the model | the ring |
//! | inference by `hash` on the request's own key, whether or not it names a model | the key's place on the ring |
//! | … and the ring is still being built | power of two choices |
//! | inference of a session, by a strategy that knows no sessions | the session's place on the ring |
//! | inference that names no model, by `hash` and without a key | power of two choices |
//! | update, unknown type, or no model | power of two choices |

use crate::eligibility::Need;
use crate::endpoint::{Endpoint, EndpointIndex};
use crate::homes::PoolPlan;
use crate::load::Load;
use crate::payload::PayloadClass;
use crate::pool::Pool;
use crate::refusal::Refusal;
use crate::request::{Request, RequestType, SessionKey};
use crate::settings::UpdateScope;
use crate::strategy::{self, KeyHash, PickList, Residency, StrategyName, View};
use arrayvec::ArrayVec;
use rand::Rng;
use std::ops::Deref;
use std::time::Duration;

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send it along this list.
    Pick(Pick),
    /// Leave the choice to Envoy's own policy.
    Pass(Pass),
    /// Answer it with this refusal.
    Refuse(Refusal),
}

/// A list and how it came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The endpoints, in order.
    pub endpoints: PickList,
    /// Who ordered them.
    pub strategy: StrategyName,
    /// Why that strategy.
    pub reason: Reason,
    /// What the request counts as in flight.
    pub weight: u32,
    /// Marks of models as unknown were ignored, since they left nobody.
    pub marks_ignored: bool,
}

/// Why a strategy was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model's or the pool's own strategy, for an inference request that names a model.
    Model,
    /// An update request.
    Update,
    /// A request type that we do not know.
    UnknownType,
    /// An inference request that names no model.
    NoModel,
    /// The plan has no home for the model.
    NotPlanned,
    /// The pool goes by `hash`, and the request has nothing to hash.
    NoKey,
    /// The ring is still being built.
    RingPending,
    /// The request belongs to a session.
    Session,
    /// The request has the key that its strategy `hash` goes by.
    Key,
}

impl Reason {
    /// Every reason, in the order of [`Reason::position`].
    pub const ALL: [Self; 9] = [
        Self::Model,
        Self::Update,
        Self::UnknownType,
        Self::NoModel,
        Self::NotPlanned,
        Self::NoKey,
        Self::RingPending,
        Self::Session,
        Self::Key,
    ];

    /// The name in stats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Update => "update",
            Self::UnknownType => "unknown_type",
            Self::NoModel => "no_model",
            Self::NotPlanned => "not_planned",
            Self::NoKey => "no_key",
            Self::RingPending => "ring_pending",
            Self::Session => "session",
            Self::Key => "key",
        }
    }

    /// Position in [`Reason::ALL`].
    #[must_use]
    pub fn position(self) -> usize {
        self as usize
    }
}

/// Why the choice is left to Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Nobody has told the pool's endpoints yet.
    NoSnapshot,
}

impl Pass {
    /// Every reason, in the order of [`Pass::position`].
    pub const ALL: [Self; 1] = [Self::NoSnapshot];

    /// Position in [`Pass::ALL`].
    #[must_use]
    pub fn position(self) -> usize {
        self as usize
    }

    /// The name in stats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSnapshot => "no_snapshot",
        }
    }
}

/// Answers `request` from `pool`, of whose endpoints `load` counts the requests in flight and `residency` knows the
/// models in memory.
pub fn answer(
    pool: &Pool,
    load: &dyn Load,
    residency: &dyn Residency,
    request: &Request<'_>,
    now: Duration,
    rng: &mut dyn Rng,
) -> Answer {
    let Some(endpoints) = pool.endpoints() else {
        return Answer::Pass(Pass::NoSnapshot);
    };
    let plan = pool.plan();
    let class = payload_class(pool, request);
    let weight = class.map_or(1, |(_, class)| class.weight);
    let (strategy, reason) = route(pool, request);
    let holders = holders(pool, request, &plan);
    let view = view(pool, load, residency, request, now, endpoints, &plan, &holders);
    let answered = |endpoints, marks_ignored| Answer::Pick(Pick { endpoints, strategy, reason, weight, marks_ignored });
    let mut pick = |view: &View<'_>| match (reason, request.session) {
        // Where the session decides, the key that another strategy goes by does not.
        (Reason::Session, Some(session)) => KeyHash::place(session.0, view),
        _ => pool.strategy(strategy).pick(request, view, rng),
    };
    match pick(&view) {
        Ok(endpoints) => answered(endpoints, false),
        // Marks alone must not leave a model without anybody: a client's wrong names would be enough to cause them.
        Err(_) if view.unknown.is_some() => {
            let view = View { unknown: None, ..view };
            pick(&view).map_or_else(Answer::Refuse, |endpoints| answered(endpoints, true))
        }
        Err(refusal) => Answer::Refuse(refusal),
    }
}

/// The pool as a strategy sees it for `request`.
#[expect(clippy::too_many_arguments, reason = "what a view borrows comes from as many places")]
pub(crate) fn view<'a>(
    pool: &'a Pool,
    load: &'a dyn Load,
    residency: &'a dyn Residency,
    request: &Request<'_>,
    now: Duration,
    endpoints: &'a [Endpoint],
    plan: &'a PoolPlan,
    holders: &'a Holders<'a>,
) -> View<'a> {
    let settings = pool.settings();
    let class = payload_class(pool, request);
    let model_hash = request.model.as_ref().map(|model| model.hash);
    View {
        endpoints,
        roster: pool.roster(),
        ring: pool.ring().unwrap_or(pool.no_ring()),
        load,
        residency,
        plan,
        unknown: (!pool.unknown().is_empty(now)).then(|| pool.unknown()),
        holders,
        need: Need { model_hash, labels: class.map_or(&[], |(_, class)| &class.labels) },
        class: class.map(|(position, _)| position),
        slots: settings.slots,
        load_cost: settings.load_cost,
        now,
        residency_age: pool.residency_age(now),
        wanted: usize::from(settings.fallbacks).saturating_add(1),
    }
}

/// Position of the session, of two new ones, whose endpoint would cost less; `None` where no session decides where the
/// request goes.
pub(crate) fn new_session(
    pool: &Pool,
    load: &dyn Load,
    residency: &dyn Residency,
    request: &mut Request<'_>,
    sessions: &[SessionKey; 2],
    now: Duration,
    rng: &mut dyn Rng,
) -> Option<usize> {
    let endpoints = pool.endpoints()?;
    let plan = pool.plan();
    request.session = sessions.first().copied();
    let begins = match route(pool, request) {
        (StrategyName::Homes, _) => strategy::session_at_home,
        // Another reason is the key of its own header, which rules over the session.
        (StrategyName::Hash, Reason::Session) => strategy::session_on_ring,
        _ => return None,
    };
    let holders = Holders::Told(&[]);
    let view = view(pool, load, residency, request, now, endpoints, &plan, &holders);
    let costs = sessions.map(|session| begins(session, &view, rng));
    match costs {
        [None, None] => None,
        [Some(first), Some(second)] => Some(usize::from(second < first)),
        [first, _] => Some(usize::from(first.is_none())),
    }
}

fn payload_class<'a>(pool: &'a Pool, request: &Request<'_>) -> Option<(usize, &'a PayloadClass)> {
    pool.settings().payload.class_of(request.payload_bytes)
}

/// Holders of a model that an update finds without memory of its own.
const FEW: usize = 32;

/// Endpoints that have a model.
pub(crate) enum Holders<'a> {
    /// As they tell.
    Told(&'a [EndpointIndex]),
    /// And by the plan.
    Planned(ArrayVec<EndpointIndex, FEW>),
    /// The same, where they are more.
    Many(Box<[EndpointIndex]>),
}

impl Deref for Holders<'_> {
    type Target = [EndpointIndex];

    fn deref(&self) -> &[EndpointIndex] {
        match self {
            Self::Told(told) => told,
            Self::Planned(all) => all,
            Self::Many(all) => all,
        }
    }
}

/// Who is to be preferred because it has the model: an update concerns its homes, too.
pub(crate) fn holders<'a>(pool: &'a Pool, request: &Request<'_>, plan: &PoolPlan) -> Holders<'a> {
    let Some(model) = request.model.as_ref().map(|model| model.hash) else { return Holders::Told(&[]) };
    let told = pool.roster().holders(model);
    if request.request_type == RequestType::Inference {
        return Holders::Told(told);
    }
    if pool.settings().updates == UpdateScope::Pool {
        return Holders::Told(&[]);
    }
    match plan.get(model) {
        None => Holders::Told(told),
        Some(planned) => {
            // The list of those who tell is in the pool's order.
            let homes = planned.homes.iter().map(|home| home.endpoint).filter(|home| told.binary_search(home).is_err());
            let all = told.iter().copied().chain(homes);
            if told.len().saturating_add(planned.homes.len()) <= FEW {
                Holders::Planned(all.collect())
            } else {
                Holders::Many(all.collect())
            }
        }
    }
}

/// Which strategy orders the endpoints, and why.
fn route(pool: &Pool, request: &Request<'_>) -> (StrategyName, Reason) {
    let ring = pool.ring().is_some_and(|ring| !ring.is_empty());
    let session = request.session.is_some() && ring;
    match (request.request_type, &request.model) {
        (RequestType::Update, _) => (StrategyName::P2c, Reason::Update),
        (RequestType::Unknown, _) => (StrategyName::P2c, Reason::UnknownType),
        (RequestType::Inference, None) => match pool.settings().strategy {
            StrategyName::Hash if pool.ring().is_none() => (StrategyName::P2c, Reason::RingPending),
            StrategyName::Hash if request.key.is_some() => (StrategyName::Hash, Reason::Key),
            _ if session => (StrategyName::Hash, Reason::Session),
            StrategyName::Hash => (StrategyName::P2c, Reason::NoKey),
            _ => (StrategyName::P2c, Reason::NoModel),
        },
        (RequestType::Inference, Some(model)) => match pool.settings().strategy_of(model.hash) {
            // Homes need no ring, but to fill the list.
            StrategyName::Homes if pool.plan().get(model.hash).is_some() => (StrategyName::Homes, Reason::Model),
            name if name.needs_ring() && pool.ring().is_none() => (StrategyName::P2c, Reason::RingPending),
            StrategyName::Homes => (StrategyName::Ring, Reason::NotPlanned),
            StrategyName::Hash if request.key.is_some() => (StrategyName::Hash, Reason::Key),
            StrategyName::Hash if session => (StrategyName::Hash, Reason::Session),
            name if session && !name.needs_ring() => (StrategyName::Hash, Reason::Session),
            name => (name, Reason::Model),
        },
    }
}

#[cfg(test)]
mod tests;
