//! The answer to one request.
//!
//! | case | answer |
//! |---|---|
//! | the pool's endpoints are not known yet | Envoy's own policy |
//! | the pool is known, and nobody in it may serve (or it is empty) | refusal |
//! | inference that names a model | the pool's strategy |
//! | update, unknown type, or no model | power of two choices |

use crate::load::Load;
use crate::pool::Pool;
use crate::refusal::Refusal;
use crate::request::{Request, RequestType};
use crate::strategy::{PickList, StrategyName, View};
use rand::Rng;

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
}

/// Why a strategy was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The pool's own strategy, for an inference request that names a model.
    Model,
    /// An update request.
    Update,
    /// A request type that we do not know.
    UnknownType,
    /// An inference request that names no model.
    NoModel,
}

impl Reason {
    /// Every reason, in the order of [`Reason::position`].
    pub const ALL: [Self; 4] = [Self::Model, Self::Update, Self::UnknownType, Self::NoModel];

    /// The name in stats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Update => "update",
            Self::UnknownType => "unknown_type",
            Self::NoModel => "no_model",
        }
    }

    /// Position in [`Reason::ALL`].
    #[must_use]
    pub fn position(self) -> usize {
        self as usize
    }

    fn of(request: &Request<'_>) -> Self {
        match (request.request_type, &request.model) {
            (RequestType::Update, _) => Self::Update,
            (RequestType::Unknown, _) => Self::UnknownType,
            (RequestType::Inference, None) => Self::NoModel,
            (RequestType::Inference, Some(_)) => Self::Model,
        }
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

/// Answers `request` from `pool`, of whose endpoints `load` counts the requests in flight.
pub fn answer(pool: &Pool, load: &dyn Load, request: &Request<'_>, rng: &mut dyn Rng) -> Answer {
    let Some(endpoints) = pool.endpoints() else {
        return Answer::Pass(Pass::NoSnapshot);
    };
    let reason = Reason::of(request);
    let strategy = match reason {
        Reason::Model => pool.settings().strategy,
        Reason::Update | Reason::UnknownType | Reason::NoModel => StrategyName::P2c,
    };
    let wanted = usize::from(pool.settings().fallbacks).saturating_add(1);
    let view = View { endpoints, load, eligible: pool.eligible(), wanted };
    match pool.strategy(strategy).pick(request, &view, rng) {
        Ok(endpoints) => Answer::Pick(Pick { endpoints, strategy, reason }),
        Err(refusal) => Answer::Refuse(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::endpoint::tests::endpoints;
    use crate::load::Registry;
    use crate::pool::PoolSettings;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn pool(strategy: StrategyName, endpoints: Option<Vec<Endpoint>>) -> Pool {
        let mut pool = Pool::new(PoolSettings { strategy, virtual_nodes: 150, fallbacks: 2, max_retries: 2 });
        if let Some(endpoints) = endpoints {
            pool.update(endpoints);
        }
        pool
    }

    fn answer_of(pool: &Pool, request: &Request<'_>) -> Answer {
        let load = Registry::default().bind(pool.endpoints().unwrap_or_default());
        answer(pool, &load, request, &mut Xoshiro256PlusPlus::seed_from_u64(3))
    }

    #[test]
    fn the_strategy_follows_the_request() {
        let pool = pool(StrategyName::Ring, Some(endpoints(4)));
        let inference = Request::for_model(b"llama");
        for (request, strategy, reason) in [
            (inference.clone(), StrategyName::Ring, Reason::Model),
            (Request::update(b"llama"), StrategyName::P2c, Reason::Update),
            (
                Request { request_type: RequestType::Unknown, ..inference.clone() },
                StrategyName::P2c,
                Reason::UnknownType,
            ),
            (Request::for_model(b""), StrategyName::P2c, Reason::NoModel),
        ] {
            let Answer::Pick(pick) = answer_of(&pool, &request) else { panic!("{request:?}") };
            assert_eq!((pick.strategy, pick.reason, pick.endpoints.len()), (strategy, reason, 3), "{request:?}");
        }
    }

    #[test]
    fn a_pool_may_choose_p2c_for_everything() {
        let pool = pool(StrategyName::P2c, Some(endpoints(4)));
        let Answer::Pick(pick) = answer_of(&pool, &Request::for_model(b"llama")) else { panic!() };
        assert_eq!((pick.strategy, pick.reason), (StrategyName::P2c, Reason::Model));
    }

    #[test]
    fn not_known_yet_is_not_empty() {
        let request = Request::for_model(b"llama");
        for strategy in [StrategyName::Ring, StrategyName::P2c] {
            assert_eq!(answer_of(&pool(strategy, None), &request), Answer::Pass(Pass::NoSnapshot));
            assert_eq!(
                answer_of(&pool(strategy, Some(Vec::new())), &request),
                Answer::Refuse(Refusal::NoHealthyEndpoint)
            );
            let mut marked = endpoints(2);
            marked.iter_mut().for_each(|endpoint| endpoint.marked_unhealthy = true);
            assert_eq!(answer_of(&pool(strategy, Some(marked)), &request), Answer::Refuse(Refusal::NoHealthyEndpoint));
        }
    }

    #[test]
    fn positions_follow_the_list() {
        for (position, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason.position(), position, "{}", reason.name());
        }
    }
}
