//! Consistent hashing on a key of the user's choice: the configured header, else the session, else the model.
//!
//! The same key goes to the same endpoint while it may serve, in every proxy. What is hashed is the value as it came.

use super::{PickList, Strategy, StrategyName, View, p2c, ring};
use crate::refusal::Refusal;
use crate::request::{Request, SessionKey};
use rand::Rng;

/// See the module.
#[derive(Debug, Default)]
pub struct KeyHash;

impl KeyHash {
    /// The key of a request, when it has one.
    #[must_use]
    pub fn key(request: &Request<'_>) -> Option<u64> {
        request.key.or(request.session.map(|session| session.0)).or(request.model.as_ref().map(|model| model.hash))
    }

    /// The eligible endpoints from the place of `key` on the ring.
    pub(crate) fn place(key: u64, view: &View<'_>) -> Result<PickList, Refusal> {
        let mut picks = PickList::new();
        ring::extend(&mut picks, key, view);
        if picks.is_empty() { Err(Refusal::NoHealthyEndpoint) } else { Ok(picks) }
    }
}

/// What the place of a new session on the ring would cost.
pub(crate) fn session_on_ring(session: SessionKey, view: &View<'_>, _rng: &mut dyn Rng) -> Option<f64> {
    let mut picks = PickList::new();
    ring::extend(&mut picks, session.0, &View { wanted: 1, ..*view });
    Some(p2c::cost(*picks.first()?, view))
}

impl Strategy for KeyHash {
    fn name(&self) -> StrategyName {
        StrategyName::Hash
    }

    /// A request without any key has the key 0; the picker sends such requests to another strategy.
    fn pick(&self, request: &Request<'_>, view: &View<'_>, _rng: &mut dyn Rng) -> Result<PickList, Refusal> {
        Self::place(Self::key(request).unwrap_or(0), view)
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::Scene;
    use super::*;
    use crate::endpoint::tests::endpoints;
    use std::collections::BTreeSet;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn the_header_rules_over_the_session_over_the_model() {
        let model = Request::for_model(b"llama");
        let session = Request { session: Some(SessionKey(7)), ..model.clone() };
        let header = Request { key: Some(9), ..session.clone() };
        let hash = model.model.as_ref().map(|model| model.hash);
        assert_eq!([&model, &session, &header].map(KeyHash::key), [hash, Some(7), Some(9)]);
        assert_eq!(KeyHash::key(&Request::for_model(b"")), None);
    }

    #[test]
    fn a_key_stays_where_it_is_and_keys_spread() {
        let scene = Scene::new(endpoints(8));
        let of = |key: u64| {
            let request = Request { key: Some(crate::hash::hash(&key.to_le_bytes())), ..Request::for_model(b"llama") };
            scene.pick(&KeyHash, &request, 2).unwrap()
        };
        assert_eq!(of(1), of(1));
        let firsts: BTreeSet<_> = (0..200).map(|key| of(key)[0]).collect();
        assert_eq!(firsts.len(), 8, "one model, all endpoints");
    }

    #[test]
    fn falls_through_those_that_may_not_serve() {
        let mut pool = endpoints(4);
        let request = Request { key: Some(42), ..Request::for_model(b"llama") };
        let all = Scene::new(pool.clone()).pick(&KeyHash, &request, 4).unwrap();
        pool[all[0] as usize].draining = true;
        assert_eq!(Scene::new(pool).pick(&KeyHash, &request, 2).unwrap(), all[1..3]);
    }
}
