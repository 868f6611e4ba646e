//! The memory of one endpoint: models that were used longest ago make room, unless a request of theirs is running.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Held {
    model: usize,
    used: Duration,
    running: usize,
}

/// See the module. Every model takes one unit.
#[derive(Clone, Debug)]
pub struct Memory {
    units: usize,
    held: Vec<Held>,
}

impl Memory {
    /// Empty.
    #[must_use]
    pub fn new(units: usize) -> Self {
        Self { units, held: Vec::with_capacity(units) }
    }

    /// Whether the model is in memory.
    #[must_use]
    pub fn holds(&self, model: usize) -> bool {
        self.held.iter().any(|held| held.model == model)
    }

    /// Makes room for one more; whether that is possible.
    #[must_use]
    pub fn make_room(&mut self) -> bool {
        if self.held.len() < self.units {
            return true;
        }
        let idle = self.held.iter().enumerate().filter(|(_, held)| held.running == 0);
        let oldest = idle.min_by_key(|(_, held)| held.used).map(|(at, _)| at);
        if let Some(at) = oldest {
            self.held.remove(at);
        }
        oldest.is_some()
    }

    /// The model was loaded.
    pub fn insert(&mut self, model: usize, now: Duration) {
        self.held.push(Held { model, used: now, running: 0 });
    }

    /// A request of the model begins.
    pub fn begin(&mut self, model: usize, now: Duration) {
        self.change(model, now, |running| running + 1);
    }

    /// A request of the model ended.
    pub fn end(&mut self, model: usize, now: Duration) {
        self.change(model, now, |running| running - 1);
    }

    /// The models in memory.
    pub fn models(&self) -> impl Iterator<Item = usize> {
        self.held.iter().map(|held| held.model)
    }

    fn change(&mut self, model: usize, now: Duration, running: impl Fn(usize) -> usize) {
        if let Some(held) = self.held.iter_mut().find(|held| held.model == model) {
            held.running = running(held.running);
            held.used = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Three models of ages 1, 2, 3; the first is used again, so the second is the oldest.
    #[test]
    fn the_model_used_longest_ago_makes_room() {
        let mut memory = Memory::new(3);
        for model in 1..=3 {
            assert!(memory.make_room());
            memory.insert(model, at(model as u64));
        }
        memory.begin(1, at(4));
        memory.end(1, at(5));
        assert!(memory.make_room());
        memory.insert(4, at(6));
        assert_eq!([1, 2, 3, 4].map(|model| memory.holds(model)), [true, false, true, true]);
    }

    #[test]
    fn a_model_at_work_stays_and_when_all_are_there_is_no_room() {
        let mut memory = Memory::new(2);
        memory.insert(1, at(1));
        memory.insert(2, at(2));
        memory.begin(1, at(3));
        assert!(memory.make_room(), "the second is idle");
        assert!(memory.holds(1) && !memory.holds(2));
        memory.insert(3, at(4));
        memory.begin(3, at(4));
        assert!(!memory.make_room());
        memory.end(1, at(5));
        assert!(memory.make_room());
        assert!(!memory.holds(1));
    }
}
