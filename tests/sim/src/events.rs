//! What is going to happen, in the order of time; at one time in the order in which it was planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Reverse<Planned<E>>>,
    planned: u64,
}

#[derive(Debug)]
struct Planned<E> {
    key: (Duration, u64),
    event: E,
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), planned: 0 }
    }
}

impl<E> Events<E> {
    /// Plans an event.
    pub fn push(&mut self, at: Duration, event: E) {
        self.planned += 1;
        self.heap.push(Reverse(Planned { key: (at, self.planned), event }));
    }

    /// When the next one is.
    #[must_use]
    pub fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(planned)| planned.key.0)
    }

    /// The next one.
    pub fn pop(&mut self) -> Option<E> {
        self.heap.pop().map(|Reverse(planned)| planned.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_planning() {
        let mut events = Events::default();
        for (seconds, name) in [(3, 'd'), (1, 'a'), (2, 'b'), (2, 'c')] {
            events.push(Duration::from_secs(seconds), name);
        }
        assert_eq!(events.next_at(), Some(Duration::from_secs(1)));
        assert_eq!(std::iter::from_fn(|| events.pop()).collect::<String>(), "abcd");
    }
}
