//! What one endpoint can serve.

use std::time::Duration;

/// What each further request of a batch adds to a service time.
const BATCH_COST: f64 = 0.15;

/// Requests per second of one warm endpoint with `slots` requests at a time and a service time of `service` when alone:
///
/// S ÷ (service · (1 + 0.15 (S − 1)))
///
/// since each further request of a batch makes all of them slower. No slots count as one. Without a service time there
/// is no capacity: 0, which the planner reads as not known.
#[must_use]
pub fn capacity(slots: u32, service: Duration) -> f64 {
    let slots = f64::from(slots.max(1));
    let seconds = service.as_secs_f64() * (1.0 + BATCH_COST * (slots - 1.0));
    if seconds > 0.0 { slots / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn follows_the_formula() {
        for (slots, milliseconds, expected) in [
            (1, 50, 20.0),
            (0, 50, 20.0),
            // 4 ÷ (0.05 · 1.45) = 4 ÷ 0.0725
            (4, 50, 55.172_413_793),
            // 8 ÷ (0.1 · 2.05)
            (8, 100, 39.024_390_244),
            (4, 0, 0.0),
        ] {
            let found = capacity(slots, Duration::from_millis(milliseconds));
            assert!((found - expected).abs() < 1e-6, "{slots} slots of {milliseconds} ms: {found}, not {expected}");
        }
    }
}
