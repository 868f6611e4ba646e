//! Which endpoints may serve a request, and why the others may not.
//!
//! Health reasons concern the endpoint; the others concern what this request needs of it. Marks by hand and draining are
//! always obeyed. A low score is obeyed only while enough of the pool is left: when fewer than the panic threshold's
//! share of the endpoints have a good score, scores decide nothing ([`Health::Panic`]), since a few endpoints that get
//! the load of all fail as well, and a fault in the scoring must not stop everybody.
//! Source: Envoy's panic threshold, <https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/load_balancing/panic_threshold>.

use crate::endpoint::Endpoint;

/// At this score and below, an endpoint gets no requests.
pub const SCORE_OUT: f64 = 0.2;

/// Why an endpoint may not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// Marked by hand.
    MarkedUnhealthy,
    /// It finishes what it has and takes nothing new.
    Draining,
    /// Its health score is at most [`SCORE_OUT`].
    LowScore,
    /// It lacks a label that the request's payload class asks for.
    LabelMissing,
    /// The model is not on its fixed list.
    ModelNotServed,
    /// It said a moment ago that it does not know the model.
    ModelUnknown,
}

impl Ineligible {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::MarkedUnhealthy,
        Self::Draining,
        Self::LowScore,
        Self::LabelMissing,
        Self::ModelNotServed,
        Self::ModelUnknown,
    ];

    /// The reason's name in stats and explanations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MarkedUnhealthy => "marked_unhealthy",
            Self::Draining => "draining",
            Self::LowScore => "low_score",
            Self::LabelMissing => "label_missing",
            Self::ModelNotServed => "model_not_served",
            Self::ModelUnknown => "model_unknown",
        }
    }
}

/// Whether scores decide in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Low scores are out.
    #[default]
    Scored,
    /// Too few would be left: scores are ignored.
    Panic,
}

impl Health {
    /// Of a pool whose endpoints' share with a good score must be at least `threshold`, 0–1, for scores to count.
    /// Endpoints that are marked or draining are not part of the sum.
    #[must_use]
    pub fn of(endpoints: &[Endpoint], threshold: f64) -> Self {
        let in_service = || endpoints.iter().filter(|endpoint| in_service(endpoint).is_ok());
        let (all, good) = (in_service().count(), in_service().filter(|endpoint| scored_well(endpoint)).count());
        if good < all && (good as f64) < threshold * all as f64 { Self::Panic } else { Self::Scored }
    }
}

/// Whether `endpoint` may serve at all while scores decide.
///
/// # Errors
/// The first reason against it.
pub fn check(endpoint: &Endpoint) -> Result<(), Ineligible> {
    check_under(endpoint, Health::Scored)
}

/// Whether `endpoint` may serve at all in a pool of that health.
///
/// # Errors
/// The first reason against it.
pub fn check_under(endpoint: &Endpoint, health: Health) -> Result<(), Ineligible> {
    in_service(endpoint)?;
    if health == Health::Scored && !scored_well(endpoint) {
        return Err(Ineligible::LowScore);
    }
    Ok(())
}

/// What a request needs of an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need<'a> {
    /// The model, when it names one.
    pub model_hash: Option<u64>,
    /// Labels that the endpoint must have.
    pub labels: &'a [Box<str>],
}

/// Whether `endpoint` has what the request needs.
///
/// # Errors
/// The first thing that it lacks.
pub fn meets(endpoint: &Endpoint, need: &Need<'_>) -> Result<(), Ineligible> {
    if !need.labels.iter().all(|label| endpoint.labels.contains(label)) {
        return Err(Ineligible::LabelMissing);
    }
    match need.model_hash {
        Some(model) if !endpoint.servable.allows(model) => Err(Ineligible::ModelNotServed),
        _ => Ok(()),
    }
}

fn in_service(endpoint: &Endpoint) -> Result<(), Ineligible> {
    match endpoint {
        Endpoint { marked_unhealthy: true, .. } => Err(Ineligible::MarkedUnhealthy),
        Endpoint { draining: true, .. } => Err(Ineligible::Draining),
        _ => Ok(()),
    }
}

fn scored_well(endpoint: &Endpoint) -> bool {
    endpoint.score.value() > SCORE_OUT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::{endpoint, endpoints};
    use crate::endpoint::{Resident, Score, Servable};
    use crate::hash::hash;
    use std::collections::BTreeSet;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn scored(scores: &[f64]) -> Vec<Endpoint> {
        let mut pool = endpoints(scores.len() as u32);
        for (endpoint, score) in pool.iter_mut().zip(scores) {
            endpoint.score = Score::new(*score).unwrap();
        }
        pool
    }

    #[test]
    fn a_mark_draining_and_a_low_score_refuse() {
        let mut e = endpoint("a", "10.0.0.1:80");
        for (score, expected) in [(0.21, Ok(())), (0.2, Err(Ineligible::LowScore)), (0.0, Err(Ineligible::LowScore))] {
            e.score = Score::new(score).unwrap();
            assert_eq!(check(&e), expected, "score {score}");
            assert_eq!(check_under(&e, Health::Panic), Ok(()), "in panic a score decides nothing");
        }
        e.draining = true;
        assert_eq!(check_under(&e, Health::Panic), Err(Ineligible::Draining));
        e.marked_unhealthy = true;
        assert_eq!(check_under(&e, Health::Panic), Err(Ineligible::MarkedUnhealthy));
    }

    /// Of four endpoints two must be good at a threshold of 0.5.
    #[test]
    fn panic_begins_below_the_threshold() {
        for (scores, threshold, expected) in [
            (&[1.0, 1.0, 0.1, 0.1][..], 0.5, Health::Scored),
            (&[1.0, 0.1, 0.1, 0.1], 0.5, Health::Panic),
            (&[0.1, 0.1], 0.5, Health::Panic),
            (&[0.1], 0.5, Health::Panic),
            (&[0.1, 0.1], 0.0, Health::Scored),
            (&[1.0, 1.0], 1.0, Health::Scored),
            (&[1.0, 0.1], 1.0, Health::Panic),
            (&[], 0.5, Health::Scored),
        ] {
            assert_eq!(Health::of(&scored(scores), threshold), expected, "{scores:?} at {threshold}");
        }
    }

    /// Three of four drain, as in a rolling update: the one that is left is all of the pool that counts.
    #[test]
    fn those_taken_out_on_purpose_do_not_cause_panic() {
        let mut pool = scored(&[1.0, 0.1, 0.1, 0.1]);
        pool[1].draining = true;
        pool[2].marked_unhealthy = true;
        assert_eq!(Health::of(&pool, 0.5), Health::Scored, "1 of 2");
        pool[0].draining = true;
        assert_eq!(Health::of(&pool, 0.5), Health::Panic, "0 of 1");
    }

    #[test]
    fn labels_and_fixed_lists_of_models_refuse() {
        let mut e = endpoint("a", "10.0.0.1:80");
        e.labels = ["gpu=h100".into(), "zone=a".into()].into();
        let labels = |list: &[&str]| list.iter().map(|&label| label.into()).collect::<Vec<Box<str>>>();
        for (wanted, expected) in [
            (labels(&[]), Ok(())),
            (labels(&["gpu=h100"]), Ok(())),
            (labels(&["zone=a", "gpu=h100"]), Ok(())),
            (labels(&["gpu=h10"]), Err(Ineligible::LabelMissing)),
            (labels(&["gpu=h100", "zone=b"]), Err(Ineligible::LabelMissing)),
        ] {
            assert_eq!(meets(&e, &Need { model_hash: None, labels: &wanted }), expected, "{wanted:?}");
        }
        let need = |model: &[u8]| Need { model_hash: Some(hash(model)), labels: &[] };
        assert_eq!(meets(&e, &need(b"llama")), Ok(()), "on demand");
        e.servable = Servable::Fixed(Resident::from_ids(["bert"]));
        assert_eq!(meets(&e, &need(b"llama")), Err(Ineligible::ModelNotServed));
        assert_eq!(meets(&e, &need(b"bert")), Ok(()));
        assert_eq!(meets(&e, &Need::default()), Ok(()), "no model, nothing to lack");
    }

    #[test]
    fn reasons_have_names_of_their_own() {
        let names: BTreeSet<_> = Ineligible::ALL.map(Ineligible::name).into();
        assert_eq!(names.len(), Ineligible::ALL.len());
    }
}
