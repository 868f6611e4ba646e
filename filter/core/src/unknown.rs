//! Endpoints that said a moment ago that they do not know a model.
//!
//! A server with a fixed list of models answers 404 for others, and its list may not be known here. Such an answer to a
//! request on a known inference path marks the pair (endpoint, model) for a minute. The marks are hints: whoever they
//! would leave a model without any endpoint, they are ignored ([`crate::picker::answer`]), so that a client that asks
//! for wrong names harms nobody, and the table is small: the oldest mark gives way.

use arrayvec::ArrayVec;
use std::cell::RefCell;
use std::time::Duration;

/// How long a mark lasts.
pub const UNKNOWN_FOR: Duration = Duration::from_secs(60);

/// Marks kept at a time.
const CAPACITY: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Mark {
    endpoint: u64,
    model: u64,
    until: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub struct UnknownModels {
    marks: RefCell<ArrayVec<Mark, CAPACITY>>,
}

impl UnknownModels {
    /// The endpoint with that key does not know the model.
    pub fn mark(&self, endpoint: u64, model: u64, now: Duration) {
        let Ok(mut marks) = self.marks.try_borrow_mut() else { return };
        marks.retain(|mark| mark.until > now && (mark.endpoint, mark.model) != (endpoint, model));
        if marks.is_full() {
            // The oldest: marks are added at the end and all last equally long.
            marks.remove(0);
        }
        marks.push(Mark { endpoint, model, until: now.saturating_add(UNKNOWN_FOR) });
    }

    /// Whether the endpoint is marked for the model.
    #[must_use]
    pub fn is_marked(&self, endpoint: u64, model: u64, now: Duration) -> bool {
        self.marks.try_borrow().is_ok_and(|marks| {
            marks.iter().any(|mark| (mark.endpoint, mark.model) == (endpoint, model) && mark.until > now)
        })
    }

    /// Whether no mark is in force.
    #[must_use]
    pub fn is_empty(&self, now: Duration) -> bool {
        self.marks.try_borrow().is_ok_and(|marks| marks.iter().all(|mark| mark.until <= now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_mark_concerns_one_pair_and_lasts_a_minute() {
        let unknown = UnknownModels::default();
        assert!(unknown.is_empty(at(0)));
        unknown.mark(1, 7, at(10));
        assert!(unknown.is_marked(1, 7, at(69)) && !unknown.is_empty(at(69)));
        for (endpoint, model, now) in [(1, 7, 70), (2, 7, 10), (1, 8, 10)] {
            assert!(!unknown.is_marked(endpoint, model, at(now)), "{endpoint} {model} at {now}");
        }
        assert!(unknown.is_empty(at(70)));
    }

    #[test]
    fn a_second_answer_renews_the_mark() {
        let unknown = UnknownModels::default();
        unknown.mark(1, 7, at(0));
        unknown.mark(1, 7, at(50));
        assert!(unknown.is_marked(1, 7, at(109)));
    }

    #[test]
    fn the_oldest_gives_way_and_memory_is_bounded() {
        let unknown = UnknownModels::default();
        (0..1_000).for_each(|model| unknown.mark(1, model, at(1)));
        assert!(!unknown.is_marked(1, 1_000 - 65, at(2)));
        assert!((1_000 - 64..1_000).all(|model| unknown.is_marked(1, model, at(2))));
    }
}
