//! Endpoints that said a moment ago that they do not know a model.
//!
//! A server with a fixed list of models answers 404 for others, and its list may not be known here. Such an answer to a
//! request whose model the server read itself ([`crate::request::Request::not_found_means_model`]) marks the pair
//! (endpoint, model) for a minute, unless the endpoint has served the model well within the last one: then something
//! else was not found, whatever the client asked for. Marks are hints: where they leave a model without any endpoint,
//! they are ignored ([`crate::picker::answer`]). Both tables are bounded: the mark that ends first gives way, and of two
//! pairs that fall on one place the later one is remembered to have served.

use std::cell::{Cell, OnceCell, RefCell};
use std::time::Duration;

/// How long a mark lasts.
pub const UNKNOWN_FOR: Duration = Duration::from_secs(60);

/// Marks kept at a time: where one of many endpoints has a model, all others are to be marked before it is found.
const CAPACITY: usize = 4_096;

/// Pairs remembered to have served.
const SERVED: usize = 1_024;

#[derive(Clone, Copy, Debug, Default)]
struct Served {
    pair: (u64, u64),
    until: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Endpoint and model.
    pair: (u64, u64),
    until: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub struct UnknownModels {
    /// In the order of their pairs.
    marks: RefCell<Vec<Mark>>,
    /// When the last mark ends.
    until: Cell<Duration>,
    served: OnceCell<Box<[Cell<Served>]>>,
}

impl UnknownModels {
    /// The endpoint with that key has served the model well.
    pub fn served(&self, endpoint: u64, model: u64, now: Duration) {
        if let Some(place) = self.place(endpoint, model) {
            place.set(Served { pair: (endpoint, model), until: now.saturating_add(UNKNOWN_FOR) });
        }
    }

    fn place(&self, endpoint: u64, model: u64) -> Option<&Cell<Served>> {
        let places = self.served.get_or_init(|| (0..SERVED).map(|_| Cell::default()).collect());
        let at = usize::try_from((endpoint ^ model.rotate_left(32)) % SERVED as u64).ok()?;
        places.get(at)
    }

    fn served_lately(&self, endpoint: u64, model: u64, now: Duration) -> bool {
        let served = self.place(endpoint, model).map(Cell::get).unwrap_or_default();
        served.pair == (endpoint, model) && served.until > now
    }

    /// The endpoint with that key says that it does not know the model. Whether that is believed.
    pub fn mark(&self, endpoint: u64, model: u64, now: Duration) -> bool {
        if self.served_lately(endpoint, model, now) {
            return false;
        }
        let Ok(mut marks) = self.marks.try_borrow_mut() else { return false };
        let mark = Mark { pair: (endpoint, model), until: now.saturating_add(UNKNOWN_FOR) };
        self.until.set(mark.until);
        if let Ok(there) = position(&marks, mark.pair)
            && let Some(there) = marks.get_mut(there)
        {
            *there = mark;
            return true;
        }
        if marks.len() >= CAPACITY {
            marks.retain(|mark| mark.until > now);
        }
        if marks.len() >= CAPACITY
            && let Some(first) = marks.iter().map(|mark| mark.until).min()
            && let Some(oldest) = marks.iter().position(|mark| mark.until == first)
        {
            marks.remove(oldest);
        }
        if let Err(place) = position(&marks, mark.pair) {
            marks.insert(place, mark);
        }
        true
    }

    /// Whether the endpoint is marked for the model.
    #[must_use]
    pub fn is_marked(&self, endpoint: u64, model: u64, now: Duration) -> bool {
        self.marks.try_borrow().is_ok_and(|marks| {
            let there = position(&marks, (endpoint, model)).ok().and_then(|place| marks.get(place));
            there.is_some_and(|mark| mark.until > now)
        })
    }

    /// Whether no mark is in force.
    #[must_use]
    pub fn is_empty(&self, now: Duration) -> bool {
        self.until.get() <= now
    }
}

/// Where the pair's mark is, else where it belongs.
fn position(marks: &[Mark], pair: (u64, u64)) -> Result<usize, usize> {
    marks.binary_search_by_key(&pair, |mark| mark.pair)
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
    fn who_served_lately_is_not_marked() {
        let unknown = UnknownModels::default();
        unknown.served(1, 7, at(10));
        assert!(!unknown.mark(1, 7, at(69)) && unknown.is_empty(at(69)));
        assert!(unknown.mark(2, 7, at(69)) && unknown.mark(1, 8, at(69)), "other pairs");
        assert!(unknown.mark(1, 7, at(70)) && unknown.is_marked(1, 7, at(70)));
    }

    #[test]
    fn who_served_is_remembered_in_bounded_memory() {
        let unknown = UnknownModels::default();
        (0..10_000).for_each(|model| unknown.served(1, model << 32, at(1)));
        let remembered = (0..10_000).filter(|model| !unknown.mark(1, model << 32, at(2))).count();
        // The last one of each place.
        assert_eq!(remembered, SERVED);
    }

    #[test]
    fn the_oldest_gives_way_and_memory_is_bounded() {
        let unknown = UnknownModels::default();
        let capacity = CAPACITY as u64;
        assert!(unknown.mark(9, 9, at(1)));
        (0..capacity).for_each(|model| assert!(unknown.mark(1, model, at(2))));
        assert!(!unknown.is_marked(9, 9, at(3)));
        assert!((0..capacity).all(|model| unknown.is_marked(1, model, at(3))));
        assert_eq!(unknown.marks.borrow().len(), CAPACITY);
        // Those that have ended make room at once.
        assert!(unknown.mark(9, 9, at(62)) && unknown.marks.borrow().len() == 1);
    }
}
