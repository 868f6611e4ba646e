//! How often one kind of warning may be logged.

use std::time::Duration;

/// Lets one warning through per interval, and says how many it held back since.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    interval: Duration,
    next: Option<Duration>,
    held_back: u64,
}

impl Throttle {
    /// One warning per `interval`.
    #[must_use]
    pub const fn new(interval: Duration) -> Self {
        Self { interval, next: None, held_back: 0 }
    }

    /// Whether to log at `now` (any monotonic clock): `Some` with the number held back since the last one.
    pub fn admit(&mut self, now: Duration) -> Option<u64> {
        if self.next.is_some_and(|next| now < next) {
            self.held_back = self.held_back.saturating_add(1);
            return None;
        }
        self.next = Some(now.saturating_add(self.interval));
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn one_per_interval_and_the_rest_is_counted() {
        let mut throttle = Throttle::new(Duration::from_secs(10));
        let mut at = |seconds| throttle.admit(Duration::from_secs(seconds));
        assert_eq!(at(0), Some(0), "the first at once, also at the clock's start");
        assert_eq!((at(1), at(5), at(9)), (None, None, None));
        assert_eq!(at(10), Some(3));
        assert_eq!(at(11), None);
        assert_eq!(at(1000), Some(1));
    }

    #[test]
    fn a_clock_at_its_end_does_not_overflow() {
        let mut throttle = Throttle::new(Duration::MAX);
        assert_eq!(throttle.admit(Duration::MAX), Some(0));
        assert_eq!(throttle.admit(Duration::MAX), Some(0));
    }
}
