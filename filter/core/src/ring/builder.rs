//! Rings made from others in slices, so that whoever builds one can do something else in between.
//!
//! A change finds out which endpoints are new, gone, heavier or lighter, or stand at another position, and touches only
//! their points. A ring from nothing is the change from the empty one.

use super::buckets::Buckets;
use super::points::Naming;
use super::{Member, Point, Ring};
use crate::endpoint::EndpointIndex;
use crate::small;
use std::ops::Range;
use std::sync::Arc;

/// Whether a builder has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has.
    More,
    /// It has not.
    Done,
}

/// One endpoint's virtual nodes to be taken off or put on.
#[derive(Clone, Debug)]
struct Task {
    endpoint: EndpointIndex,
    id: Arc<str>,
    nodes: Range<u32>,
}

/// See the module.
#[derive(Debug)]
pub struct RingBuilder {
    buckets: Buckets,
    /// The ids of the new ring's endpoints, which settle ties.
    ids: Vec<Arc<str>>,
    /// For a ring from nothing: what is still to be counted, so that each bucket gets the memory that it needs at once.
    uncounted: Vec<Task>,
    counts: Vec<u32>,
    removals: Vec<Task>,
    additions: Vec<Task>,
    /// Buckets to be sorted, each once.
    unsorted: Vec<usize>,
    /// Which buckets are on that list.
    touched: Vec<bool>,
    naming: Naming,
}

impl RingBuilder {
    /// A ring of `members`.
    #[must_use]
    pub fn from_nothing(members: &[Member]) -> Self {
        let points = members.iter().map(|member| member.nodes as usize).fold(0, usize::saturating_add);
        let additions: Vec<_> =
            indexed(members).filter_map(|(endpoint, member)| task(endpoint, member, 0..member.nodes)).collect();
        let mut builder = Self::new(Buckets::for_points(points), members, Vec::new(), additions.clone());
        builder.counts = vec![0; builder.buckets.count()];
        builder.uncounted = additions;
        builder
    }

    /// The ring of `after`, from `ring`, which is that of `before`. When so much changed that the circle has to be cut
    /// anew, or a ring has more points to lose and gain than the new one has at all, it is built from nothing.
    #[must_use]
    pub fn change(ring: Ring, before: &[Member], after: &[Member]) -> Self {
        let points = after.iter().map(|member| member.nodes as usize).fold(0, usize::saturating_add);
        let (removals, additions) = differences(before, after);
        let cost = removals.iter().chain(&additions).map(Task::points).fold(0, usize::saturating_add);
        if !ring.buckets.fits(points) || cost > points {
            return Self::from_nothing(after);
        }
        Self::new(ring.buckets, after, removals, additions)
    }

    fn new(buckets: Buckets, members: &[Member], removals: Vec<Task>, additions: Vec<Task>) -> Self {
        Self {
            touched: vec![false; buckets.count()],
            buckets,
            ids: members.iter().map(|member| Arc::clone(&member.id)).collect(),
            uncounted: Vec::new(),
            counts: Vec::new(),
            removals,
            additions,
            unsorted: Vec::new(),
            naming: Naming::default(),
        }
    }

    /// Virtual nodes that are still to be taken off or put on.
    #[must_use]
    pub fn points_left(&self) -> usize {
        self.removals.iter().chain(&self.additions).map(Task::points).fold(0, usize::saturating_add)
    }

    /// Goes on by about `max_points` virtual nodes, or what costs as much.
    pub fn step(&mut self, max_points: usize) -> Progress {
        let mut budget = u32::try_from(max_points.max(1)).unwrap_or(u32::MAX);
        while budget > 0 {
            if let Some(task) = next(&mut self.uncounted, &mut budget) {
                self.count(&task);
            } else if let Some(task) = next(&mut self.removals, &mut budget) {
                self.remove(&task);
            } else if let Some(task) = next(&mut self.additions, &mut budget) {
                self.add(&task);
            } else if let Some(position) = self.unsorted.pop() {
                budget = budget.saturating_sub(self.sort(position));
            } else {
                return Progress::Done;
            }
        }
        Progress::More
    }

    /// The ring. Whatever is left is done now.
    #[must_use]
    pub fn finish(mut self) -> Ring {
        while self.step(usize::MAX) == Progress::More {}
        Ring { buckets: self.buckets }
    }

    fn count(&mut self, task: &Task) {
        let Self { naming, buckets, counts, .. } = self;
        naming.places(&task.id, task.nodes.clone(), |hash| {
            if let Some(count) = counts.get_mut(buckets.position(hash)) {
                *count = count.saturating_add(1);
            }
        });
    }

    fn remove(&mut self, task: &Task) {
        let Self { naming, buckets, .. } = self;
        naming.places(&task.id, task.nodes.clone(), |hash| {
            if let Some(bucket) = buckets.get_mut(buckets.position(hash)) {
                // One point only: another node of the same endpoint may have the same hash.
                if let Some(at) = bucket.iter().position(|p| p.hash == hash && p.endpoint == task.endpoint) {
                    bucket.remove(at);
                }
            }
        });
    }

    fn add(&mut self, task: &Task) {
        let Self { naming, buckets, touched, unsorted, counts, .. } = self;
        naming.places(&task.id, task.nodes.clone(), |hash| {
            let position = buckets.position(hash);
            if let Some(touched) = touched.get_mut(position).filter(|touched| !**touched) {
                *touched = true;
                unsorted.push(position);
                buckets.reserve(position, counts.get(position).map_or(1, |count| *count as usize));
            }
            if let Some(bucket) = buckets.get_mut(position) {
                bucket.push(Point { hash, endpoint: task.endpoint });
            }
        });
    }

    /// What it cost, in virtual nodes placed: nearly sorted points are a sixteenth of the work.
    fn sort(&mut self, position: usize) -> u32 {
        let ids = &self.ids;
        let id = |point: &Point| ids.get(point.endpoint.position()).map_or("", |id| id);
        let Some(bucket) = self.buckets.get_mut(position) else { return 1 };
        small::sort(bucket, &mut |a, b| a.hash.cmp(&b.hash).then_with(|| id(a).cmp(id(b))));
        bucket.shrink_to_fit();
        u32::try_from(bucket.len() / 16).unwrap_or(u32::MAX).saturating_add(1)
    }
}

impl Task {
    fn points(&self) -> usize {
        self.nodes.len()
    }
}

fn indexed(members: &[Member]) -> impl Iterator<Item = (EndpointIndex, &Member)> {
    (0..).map(EndpointIndex).zip(members)
}

/// None for no virtual nodes.
fn task(endpoint: EndpointIndex, member: &Member, nodes: Range<u32>) -> Option<Task> {
    (!nodes.is_empty()).then(|| Task { endpoint, id: Arc::clone(&member.id), nodes })
}

/// The next piece of the last task, no larger than the budget.
fn next(tasks: &mut Vec<Task>, budget: &mut u32) -> Option<Task> {
    let last = tasks.last_mut()?;
    let end = last.nodes.end.min(last.nodes.start.saturating_add(*budget));
    let piece = Task { nodes: last.nodes.start..end, ..last.clone() };
    *budget = budget.saturating_sub(end.saturating_sub(last.nodes.start));
    last.nodes.start = end;
    if last.nodes.is_empty() {
        tasks.pop();
    }
    Some(piece)
}

/// What to take off and what to put on. An endpoint that stands at another position is taken off there and put on here.
fn differences(before: &[Member], after: &[Member]) -> (Vec<Task>, Vec<Task>) {
    let (mut removals, mut additions) = (Vec::new(), Vec::new());
    for position in 0..before.len().max(after.len()) {
        let Ok(index) = u32::try_from(position).map(EndpointIndex) else { break };
        match (before.get(position), after.get(position)) {
            (Some(was), Some(is)) if was.id == is.id => {
                removals.extend(task(index, is, is.nodes..was.nodes));
                additions.extend(task(index, is, was.nodes..is.nodes));
            }
            (was, is) => {
                removals.extend(was.and_then(|was| task(index, was, 0..was.nodes)));
                additions.extend(is.and_then(|is| task(index, is, 0..is.nodes)));
            }
        }
    }
    (removals, additions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::endpoint::tests::{endpoint, endpoints};
    use crate::ring::{arrange, members};
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn changed(ring: &Ring, before: &[Endpoint], after: &[Endpoint]) -> RingBuilder {
        RingBuilder::change(ring.clone(), &members(before, 150), &members(after, 150))
    }

    #[test]
    fn slices_of_any_size_build_the_same_ring() {
        let pool = endpoints(7);
        let whole = Ring::new(&pool, 150);
        for step in [1, 7, 149, 150, 151, 10_000, usize::MAX] {
            let mut builder = RingBuilder::from_nothing(&members(&pool, 150));
            let mut steps = 0;
            while builder.step(step) == Progress::More {
                steps += 1;
                assert!(steps < 10_000);
            }
            assert_eq!(builder.points_left(), 0);
            assert_eq!(builder.finish(), whole, "steps of {step}");
        }
        assert_eq!(RingBuilder::from_nothing(&members(&pool, 150)).finish(), whole, "finished before it was stepped");
    }

    /// One endpoint more: 150 points. One less: its 150, and the 300 of the last one that takes its place. The same
    /// set in another order: nothing.
    #[test]
    fn a_change_touches_only_what_changed() {
        let pool = endpoints(20);
        let ring = Ring::new(&pool, 150);
        let mut more = pool.clone();
        more.push(endpoint("new", "10.1.0.1:80"));
        assert_eq!(changed(&ring, &pool, &more).points_left(), 150);
        let mut less = pool.clone();
        less.remove(3);
        let less = arrange(&pool, less);
        assert_eq!(changed(&ring, &pool, &less).points_left(), 450);
        let mut shuffled = pool.clone();
        shuffled.reverse();
        assert_eq!(changed(&ring, &pool, &arrange(&pool, shuffled)).points_left(), 0);
        let mut heavier = pool.clone();
        heavier[5].weight = 1.1;
        assert_eq!(changed(&ring, &pool, &heavier).points_left(), 15);
        let mut joining = pool.clone();
        joining[5].active_nodes = Some(30);
        assert_eq!(changed(&ring, &pool, &joining).points_left(), 120);
    }

    #[test]
    fn the_ring_before_stays_as_it_was() {
        let pool = endpoints(20);
        let ring = Ring::new(&pool, 150);
        let after = changed(&ring, &pool, &pool[..19]).finish();
        assert_eq!(ring, Ring::new(&pool, 150));
        assert_eq!(after, Ring::new(&pool[..19], 150));
    }

    /// Two endpoints whose ids make a virtual node of one hash cannot be had with 64 bits, but one endpoint named twice
    /// can: each keeps its own points.
    #[test]
    fn taking_off_one_of_two_with_equal_points_leaves_the_other() {
        let twice = [endpoint("a", "10.0.0.1:80"), endpoint("a", "10.0.0.2:80")];
        let ring = RingBuilder::from_nothing(&members(&twice, 5)).finish();
        assert_eq!(ring.len(), 10);
        let one = RingBuilder::change(ring, &members(&twice, 5), &members(&twice[..1], 5)).finish();
        assert_eq!(one, RingBuilder::from_nothing(&members(&twice[..1], 5)).finish());
    }

    /// 200 random sequences of joins, leaves, weights, activations and orders end at the ring that is built from
    /// nothing.
    #[test]
    fn any_sequence_of_changes_ends_at_the_fresh_ring() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        for sequence in 0..200 {
            let mut pool = endpoints(rng.random_range(0..12));
            let mut ring = Ring::new(&pool, 40);
            for step in 0..6 {
                let mut next = pool.clone();
                match rng.random_range(0..5) {
                    0 => next.push(endpoint(&format!("{sequence}-{step}"), "10.1.0.1:80")),
                    1 if !next.is_empty() => drop(next.remove(rng.random_range(0..next.len()))),
                    2 => next.iter_mut().for_each(|e| e.weight = f64::from(rng.random_range(0..4u8)) / 2.0),
                    3 => next.iter_mut().for_each(|e| e.active_nodes = Some(rng.random_range(0..50))),
                    _ => next.reverse(),
                }
                if rng.random_bool(0.5) {
                    next = arrange(&pool, next);
                }
                ring = RingBuilder::change(ring, &members(&pool, 40), &members(&next, 40)).finish();
                assert_eq!(ring, Ring::new(&next, 40), "sequence {sequence}, step {step}");
                pool = next;
            }
        }
    }
}
