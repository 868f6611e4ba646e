//! How long a request would wait at an endpoint, by what this proxy itself has in flight there.
//!
//! With S slots and q requests in flight, those beyond S − 1 queue, S of them at a time, and batching makes each
//! 15 % slower for every other one in the batch:
//!
//! wait = ((q − (S − 1))⁺ ÷ S · (1 + 0.15 (S − 1)) + 0.15 · min(q, S − 1)) · speed + (speed − 1) + ½ L · cold
//!
//! in service times of a warm request. `speed` is the endpoint's service time relative to the pool's, so that a slow
//! endpoint costs something even when idle; `cold` counts own requests that are waiting for a load of L service times,
//! half of which is over on average. Queue depths that others report are not part of it: they are worth nothing after
//! 0.2 s and make proxies herd.

/// What each further request of a batch adds to a service time.
pub const BATCH_COST: f64 = 0.15;

/// See the module. `speed` that is no positive number counts as 1.
#[must_use]
pub fn wait(in_flight: u32, slots: u32, speed: f64, cold: u32, load_cost: f64) -> f64 {
    let beside = f64::from(slots.max(1)) - 1.0;
    let in_flight = f64::from(in_flight);
    let speed = if speed.is_finite() && speed > 0.0 { speed } else { 1.0 };
    let queued = (in_flight - beside).max(0.0) / (beside + 1.0) * (1.0 + BATCH_COST * beside);
    let batched = BATCH_COST * in_flight.min(beside);
    (queued + batched) * speed + (speed - 1.0) + 0.5 * load_cost * f64::from(cold)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn follows_the_formula() {
        for (in_flight, slots, speed, cold, expected) in [
            (0, 1, 1.0, 0, 0.0),
            (3, 1, 1.0, 0, 3.0),
            // Four slots: three beside cost 0.15 each, and nobody queues.
            (3, 4, 1.0, 0, 0.45),
            // Two queue behind the four: (5 − 3) ÷ 4 · 1.45 + 0.45.
            (5, 4, 1.0, 0, 1.175),
            // Twice as slow: one service time more even when idle.
            (0, 1, 2.0, 0, 1.0),
            (3, 1, 2.0, 0, 7.0),
            // One own request loads for ten service times: half of that on average.
            (1, 1, 1.0, 1, 6.0),
        ] {
            let found = wait(in_flight, slots, speed, cold, 10.0);
            assert!((found - expected).abs() < 1e-9, "{in_flight} in {slots} slots: {found}, not {expected}");
        }
    }

    #[test]
    fn nonsense_counts_as_nothing_known() {
        for speed in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert_eq!(wait(2, 1, speed, 0, 10.0), 2.0, "{speed}");
        }
        assert_eq!(wait(2, 0, 1.0, 0, 10.0), 2.0, "no slots: one");
    }
}
