//! The GPU of one life of a server: [`Memory`] with waiting, and the places where requests run.
//!
//! A request first gets one of the `concurrency` places, in order of arrival; at most `queue` may wait. In its place
//! it takes hold of its model: at once when the model is resident, else after a load. Loads run one at a time, as
//! they share one PCIe bus, beside the requests that run on other models. Requests for a model that is being loaded
//! share that load.
//!
//! A load belongs to the server, not to the request that caused it: it goes on when that client leaves, as in a real
//! server, except when it has not begun and nobody wants it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio_util::sync::CancellationToken;

use super::memory::{Begin, Memory, Unload, Want};
use super::stats::Stats;
use super::{Settings, timing::Timing};

#[derive(Debug)]
pub(super) struct Gpu {
    memory: Mutex<Memory>,
    /// Rung after every change of the memory that somebody may wait for.
    changed: Notify,
    loader: tokio::sync::Mutex<()>,
    places: Arc<Semaphore>,
    queue: usize,
    waiting: AtomicUsize,
    timing: Arc<Timing>,
    stats: Arc<Stats>,
    life: CancellationToken,
}

/// The queue is full.
#[derive(Debug, thiserror::Error)]
#[error("the queue is full")]
pub(super) struct Overloaded;

/// Why a model is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Request,
    Explicit,
}

/// One request in its place with its model; both are free again when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    // Fields are dropped in order: the model is let go before the next request gets the place.
    _hold: Hold,
    _place: Place,
    /// The request had to wait for a load.
    pub(super) cold: bool,
}

#[derive(Debug)]
struct Hold {
    gpu: Arc<Gpu>,
    model: String,
}

#[derive(Debug)]
struct Place {
    _permit: OwnedSemaphorePermit,
    stats: Arc<Stats>,
}

struct Queued<'a>(&'a Gpu);

impl Gpu {
    pub(super) fn new(
        settings: &Settings,
        resident: &[String],
        timing: Arc<Timing>,
        stats: Arc<Stats>,
        life: CancellationToken,
    ) -> Self {
        Self {
            memory: Mutex::new(Memory::new(settings.capacity, resident)),
            changed: Notify::new(),
            loader: tokio::sync::Mutex::new(()),
            places: Arc::new(Semaphore::new(settings.concurrency)),
            queue: settings.queue,
            waiting: AtomicUsize::new(0),
            timing,
            stats,
            life,
        }
    }

    /// Waits for a place and for the model. Dropping the future gives everything back.
    pub(super) async fn run(self: &Arc<Self>, model: &str) -> Result<Running, Overloaded> {
        let place = self.place().await?;
        let (hold, cold) = self.hold(model, Cause::Request).await;
        Ok(Running { _hold: hold, _place: place, cold })
    }

    /// Loads `model` if it is not resident.
    pub(super) async fn load(self: &Arc<Self>, model: &str) {
        drop(self.hold(model, Cause::Explicit).await);
    }

    pub(super) fn unload(&self, model: &str) -> Unload {
        let answer = self.memory.lock().unload(model);
        self.changed.notify_waiters();
        answer
    }

    pub(super) fn reset(&self, resident: &[String]) {
        self.memory.lock().reset(resident);
        self.changed.notify_waiters();
    }

    pub(super) fn resident(&self) -> Vec<String> {
        self.memory.lock().resident()
    }

    pub(super) fn is_resident(&self, model: &str) -> bool {
        self.memory.lock().is_resident(model)
    }

    /// Requests that wait for a place.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    async fn place(&self) -> Result<Place, Overloaded> {
        let permit = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => permit,
            Err(TryAcquireError::Closed) => return Err(Overloaded),
            Err(TryAcquireError::NoPermits) => {
                let _queued = Queued::enter(self)?;
                Arc::clone(&self.places).acquire_owned().await.map_err(|_closed| Overloaded)?
            }
        };
        self.stats.run_started();
        Ok(Place { _permit: permit, stats: Arc::clone(&self.stats) })
    }

    /// Takes hold of `model`, and says whether that took a load.
    async fn hold(self: &Arc<Self>, model: &str, cause: Cause) -> (Hold, bool) {
        loop {
            let mut changed = std::pin::pin!(self.next_change());
            changed.as_mut().enable();
            let want = self.memory.lock().want(model);
            if want == Want::Wait {
                changed.await;
                continue;
            }
            let hold = Hold { gpu: Arc::clone(self), model: model.to_owned() };
            if want == Want::StartLoad {
                tokio::spawn(Arc::clone(self).load_in_life(model.to_owned(), cause));
            }
            let cold = want != Want::Resident;
            if cold {
                self.until_resident(model).await;
            }
            return (hold, cold);
        }
    }

    async fn until_resident(&self, model: &str) {
        loop {
            let mut changed = std::pin::pin!(self.next_change());
            changed.as_mut().enable();
            if self.is_resident(model) {
                return;
            }
            changed.await;
        }
    }

    async fn load_in_life(self: Arc<Self>, model: String, cause: Cause) {
        let life = self.life.clone();
        life.run_until_cancelled(self.load_in_turn(&model, cause)).await;
    }

    async fn load_in_turn(&self, model: &str, cause: Cause) {
        let _turn = self.loader.lock().await;
        loop {
            let mut changed = std::pin::pin!(self.next_change());
            changed.as_mut().enable();
            let begin = self.memory.lock().begin_load(model);
            match begin {
                Begin::Started { .. } => break,
                Begin::NoRoom => changed.await,
                Begin::Unwanted => return self.changed.notify_waiters(),
            }
        }
        match cause {
            Cause::Request => self.stats.cold_load(),
            Cause::Explicit => self.stats.explicit_load(),
        }
        pause(self.timing.load()).await;
        self.memory.lock().loaded(model);
        self.changed.notify_waiters();
    }

    fn next_change(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

/// Sleeps, without touching the timer when there is nothing to wait for.
pub(super) async fn pause(time: std::time::Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.gpu.memory.lock().release(&self.model);
        self.gpu.changed.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stats.run_ended();
    }
}

impl<'a> Queued<'a> {
    fn enter(gpu: &'a Gpu) -> Result<Self, Overloaded> {
        let room = |waiting: usize| (waiting < gpu.queue).then_some(waiting + 1);
        let entered = gpu.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        entered.map(|_before| Self(gpu)).map_err(|_full| Overloaded)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn gpu(settings: Settings) -> Arc<Gpu> {
        let timing = Arc::new(Timing::new(&settings));
        let life = CancellationToken::new();
        Arc::new(Gpu::new(&settings, &settings.resident, timing, Arc::default(), life))
    }

    fn models(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    async fn run_for(gpu: &Arc<Gpu>, model: &str, time: Duration) -> bool {
        let running = gpu.run(model).await.expect("room in the queue");
        tokio::time::sleep(time).await;
        running.cold
    }

    // Time is paused in these tests: it jumps to the next timer when nothing else can run, so spans are exact.

    #[tokio::test(start_paused = true)]
    async fn loads_take_turns() {
        let gpu = gpu(Settings { capacity: 3, concurrency: 3, load: SECOND, ..Settings::default() });
        let start = Instant::now();
        let cold = join_all(["a", "b", "c"].map(|model| run_for(&gpu, model, Duration::ZERO))).await;
        assert_eq!(cold, [true; 3]);
        assert!(start.elapsed() >= SECOND * 3 && start.elapsed() < SECOND * 4, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn warm_requests_run_beside_a_load() {
        let resident = models(&["a"]);
        let gpu = gpu(Settings { capacity: 2, concurrency: 2, load: SECOND * 9, resident, ..Settings::default() });
        let start = Instant::now();
        let warm = async {
            assert!(!run_for(&gpu, "a", SECOND).await);
            start.elapsed()
        };
        let (cold, warm) = tokio::join!(run_for(&gpu, "b", SECOND), warm);
        assert!(cold);
        assert!(warm < SECOND * 2, "{warm:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_given_in_order_of_arrival() {
        let gpu = gpu(Settings { resident: models(&["a"]), ..Settings::default() });
        let order = Mutex::new(Vec::new());
        let numbered = |n: usize| {
            let (gpu, order) = (&gpu, &order);
            async move {
                run_for(gpu, "a", SECOND).await;
                order.lock().push(n);
            }
        };
        join_all((0..20).map(numbered)).await;
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_model_does_not_starve_the_load_of_another() {
        let gpu = gpu(Settings { capacity: 1, concurrency: 2, resident: models(&["hot"]), ..Settings::default() });
        // Two endless clients whose runs overlap, so that the hot model is never free by itself.
        let busy = async |offset: Duration| {
            tokio::time::sleep(offset).await;
            loop {
                run_for(&gpu, "hot", SECOND).await;
            }
        };
        let start = Instant::now();
        tokio::select! {
            () = busy(Duration::ZERO) => {}
            () = busy(SECOND / 2) => {}
            cold = async {
                tokio::time::sleep(SECOND * 3).await;
                run_for(&gpu, "rare", Duration::ZERO).await
            } => assert!(cold),
        }
        // It queues behind at most one run in each place, then waits for the last hold on the hot model.
        assert!(start.elapsed() < SECOND * 7, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_or_abandoned_request_leaves_no_trace_in_the_queue() {
        let gpu = gpu(Settings { queue: 1, resident: models(&["a"]), ..Settings::default() });
        let first = gpu.run("a").await.expect("a place");
        {
            let mut second = std::pin::pin!(gpu.run("a"));
            assert!(futures_util::poll!(second.as_mut()).is_pending());
            assert_eq!(gpu.waiting(), 1);
            assert!(gpu.run("a").await.is_err());
        }
        assert_eq!(gpu.waiting(), 0);
        drop(first);
        assert!(gpu.run("a").await.is_ok());
    }
}
