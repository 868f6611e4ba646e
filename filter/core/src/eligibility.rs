//! Which endpoints may serve now, and why the others may not.

use crate::endpoint::Endpoint;

/// At this score and below, an endpoint gets no requests.
pub const SCORE_OUT: f64 = 0.2;

/// Why an endpoint may not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// Marked by hand.
    MarkedUnhealthy,
    /// Its health score is at most [`SCORE_OUT`].
    LowScore,
}

impl Ineligible {
    /// The reason's name in stats and explanations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MarkedUnhealthy => "marked_unhealthy",
            Self::LowScore => "low_score",
        }
    }
}

/// Whether `endpoint` may serve.
///
/// # Errors
/// The first reason against it.
pub fn check(endpoint: &Endpoint) -> Result<(), Ineligible> {
    if endpoint.marked_unhealthy {
        return Err(Ineligible::MarkedUnhealthy);
    }
    if endpoint.score.value() <= SCORE_OUT {
        return Err(Ineligible::LowScore);
    }
    Ok(())
}

/// How many of `endpoints` may serve.
#[must_use]
pub fn count_eligible(endpoints: &[Endpoint]) -> usize {
    endpoints.iter().filter(|endpoint| check(endpoint).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Score;
    use crate::endpoint::tests::endpoint;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_mark_and_a_low_score_refuse() {
        let mut e = endpoint("a", "10.0.0.1:80");
        assert_eq!(check(&e), Ok(()));
        for (score, expected) in [(0.21, Ok(())), (0.2, Err(Ineligible::LowScore)), (0.0, Err(Ineligible::LowScore))] {
            e.score = Score::new(score).unwrap();
            assert_eq!(check(&e), expected, "score {score}");
        }
        e.marked_unhealthy = true;
        assert_eq!(check(&e), Err(Ineligible::MarkedUnhealthy));
    }

    #[test]
    fn reasons_have_names_of_their_own() {
        assert_ne!(Ineligible::MarkedUnhealthy.name(), Ineligible::LowScore.name());
    }
}
