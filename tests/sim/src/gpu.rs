//! One endpoint at work: a queue, slots, and a memory of models.
//!
//! First come, first served. The request at the head whose model is not in memory begins a load, during which nothing
//! else begins; requests that run go on. A request that begins as the n-th of a batch takes (1 + 0.15 (n − 1)) times its
//! work. When every model in memory is at work, the head waits for one to become idle.

use crate::cell::{BATCH_COST, LOAD};
use crate::memory::Memory;
use std::collections::VecDeque;
use std::time::Duration;

/// A request as an endpoint sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Position among the run's requests.
    pub request: usize,
    /// Its model.
    pub model: usize,
    /// Service time when it is alone and warm.
    pub work: Duration,
}

/// What an endpoint just began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// A load, for that request.
    Load {
        /// The request at the head.
        request: usize,
        /// When it is done.
        until: Duration,
    },
    /// That request.
    Run {
        /// What it is.
        job: Job,
        /// When it is done.
        until: Duration,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Gpu {
    slots: usize,
    memory: Memory,
    queue: VecDeque<Job>,
    running: usize,
    loading: Option<usize>,
}

impl Gpu {
    /// Idle and empty.
    #[must_use]
    pub fn new(slots: usize, memory: usize) -> Self {
        Self { slots, memory: Memory::new(memory), queue: VecDeque::new(), running: 0, loading: None }
    }

    /// A request comes.
    pub fn push(&mut self, job: Job) {
        self.queue.push_back(job);
    }

    /// The client of a request gave up; one that is running goes on.
    pub fn give_up(&mut self, request: usize) {
        if let Some(at) = self.queue.iter().position(|job| job.request == request) {
            self.queue.remove(at);
        }
    }

    /// Begins the next thing, if one can begin. To be called until nothing does.
    pub fn begin(&mut self, now: Duration) -> Option<Begun> {
        let head = *self.queue.front()?;
        if self.loading.is_some() {
            return None;
        }
        if !self.memory.holds(head.model) {
            return self.begin_load(head, now);
        }
        if self.running >= self.slots {
            return None;
        }
        self.queue.pop_front();
        self.running += 1;
        self.memory.begin(head.model, now);
        let batch = 1.0 + BATCH_COST * (self.running - 1) as f64;
        Some(Begun::Run { job: head, until: now + head.work.mul_f64(batch) })
    }

    /// The load is done.
    pub fn loaded(&mut self, now: Duration) {
        if let Some(model) = self.loading.take() {
            self.memory.insert(model, now);
        }
    }

    /// A request of the model is done.
    pub fn ended(&mut self, model: usize, now: Duration) {
        self.running -= 1;
        self.memory.end(model, now);
    }

    /// Takes all that is waiting: the endpoint died.
    pub fn die(&mut self) -> Vec<Job> {
        self.loading = None;
        self.memory = Memory::new(0);
        self.queue.drain(..).collect()
    }

    /// Models in memory, and the one that is being loaded.
    pub fn models(&self) -> impl Iterator<Item = usize> {
        self.memory.models().chain(self.loading)
    }

    fn begin_load(&mut self, head: Job, now: Duration) -> Option<Begun> {
        self.memory.make_room().then(|| {
            self.loading = Some(head.model);
            Begun::Load { request: head.request, until: now + LOAD }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn job(request: usize, model: usize) -> Job {
        Job { request, model, work: ms(100) }
    }

    /// All that begins now, by request, with the time that it takes.
    fn begun(gpu: &mut Gpu, now: Duration) -> Vec<(usize, Duration)> {
        std::iter::from_fn(|| gpu.begin(now))
            .map(|begun| match begun {
                Begun::Load { request, until } => (request, until - now),
                Begun::Run { job, until } => (job.request, until - now),
            })
            .collect()
    }

    fn holding(slots: usize, memory: usize, models: &[usize]) -> Gpu {
        let mut gpu = Gpu::new(slots, memory);
        models.iter().for_each(|model| gpu.memory.insert(*model, ms(0)));
        gpu
    }

    #[test]
    fn a_batch_makes_each_slower_by_how_many_run() {
        let mut gpu = holding(3, 1, &[7]);
        (0..4).for_each(|request| gpu.push(job(request, 7)));
        assert_eq!(begun(&mut gpu, ms(10)), [(0, ms(100)), (1, ms(115)), (2, ms(130))], "three slots");
        gpu.ended(7, ms(110));
        assert_eq!(begun(&mut gpu, ms(110)), [(3, ms(130))], "again the third of the batch");
    }

    #[test]
    fn first_come_is_first_served_and_a_load_holds_up_those_behind() {
        let mut gpu = holding(2, 2, &[1]);
        [job(0, 1), job(1, 2), job(2, 1)].into_iter().for_each(|job| gpu.push(job));
        assert_eq!(begun(&mut gpu, ms(0)), [(0, ms(100)), (1, LOAD)], "the load begins, the warm one behind it waits");
        gpu.ended(1, ms(100));
        assert_eq!(begun(&mut gpu, ms(100)), []);
        gpu.loaded(ms(500));
        assert_eq!(begun(&mut gpu, ms(500)), [(1, ms(100)), (2, ms(115))]);
    }

    #[test]
    fn a_load_waits_for_a_model_that_is_idle() {
        let mut gpu = holding(1, 1, &[1]);
        [job(0, 1), job(1, 2)].into_iter().for_each(|job| gpu.push(job));
        assert_eq!(begun(&mut gpu, ms(0)), [(0, ms(100))]);
        gpu.ended(1, ms(100));
        assert_eq!(begun(&mut gpu, ms(100)), [(1, LOAD)]);
        assert_eq!(gpu.models().collect::<Vec<_>>(), [2], "what is being loaded has its place already");
    }

    #[test]
    fn who_gave_up_is_not_served() {
        let mut gpu = holding(1, 1, &[1]);
        (0..3).for_each(|request| gpu.push(job(request, 1)));
        assert_eq!(begun(&mut gpu, ms(0)).len(), 1);
        gpu.give_up(1);
        gpu.give_up(0);
        gpu.ended(1, ms(100));
        assert_eq!(begun(&mut gpu, ms(100)), [(2, ms(100))]);
    }
}
