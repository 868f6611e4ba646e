//! How much load an endpoint may be given, in endpoints' worth of work: 1 is always busy.
//!
//! B = max(1.1 · mean, mean + 0.05), as in consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam,
//! SODA 2018), but of planned work instead of requests under way: a bound on the latter answers each queue with a load
//! somewhere else. A home that is there already may exceed B, because moving it costs a load.

/// Above the mean by this factor; 1.02–1.3 gave the same results.
const SLACK: f64 = 1.1;

/// And at least by this much, so that an idle pool is not rearranged for nothing.
const SLACK_IDLE: f64 = 0.05;

/// A home stays where it is up to this multiple of B …
const KEEP: f64 = 1.15;

/// … and wherever the load is below this, since nobody waits there.
const CALM: f64 = 0.8;

/// The loads up to which endpoints may be given homes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    /// B: for new homes.
    pub fresh: f64,
    /// For homes of the plan before.
    pub keep: f64,
    /// For the least loaded endpoint, when nobody is under B.
    pub spread: f64,
}

/// For a home of the plan before, when nobody is under B: moving between full endpoints gains nothing.
pub(super) const STAY: f64 = 1.1;

/// A home is worth moving, and others for it, to where the load is less by this much.
pub(super) const RELIEF: f64 = 0.1;

/// For an endpoint whose small tenants had to go.
pub(super) const DISPLACED: f64 = 0.95;

/// A home stays on an endpoint that has nearly nothing else, whatever its own share.
pub(super) const ALONE: f64 = 0.05;

impl Bounds {
    /// For endpoints with that mean load.
    pub fn of(mean: f64) -> Self {
        let fresh = (mean * SLACK).max(mean + SLACK_IDLE);
        Self { fresh, keep: (fresh * KEEP).max(CALM), spread: fresh.max(0.9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn follow_the_formula() {
        for (mean, fresh, keep, spread) in [
            // The fixed slack counts up to a mean of 0.5.
            (0.0, 0.05, 0.8, 0.9),
            (0.3, 0.35, 0.8, 0.9),
            (0.5, 0.55, 0.8, 0.9),
            (0.7, 0.77, 0.8855, 0.9),
            (0.9, 0.99, 1.1385, 0.99),
        ] {
            let found = Bounds::of(mean);
            for (name, found, expected) in
                [("fresh", found.fresh, fresh), ("keep", found.keep, keep), ("spread", found.spread, spread)]
            {
                assert!((found - expected).abs() < 1e-9, "{name} at {mean}: {found}, not {expected}");
            }
        }
    }
}
