//! What an endpoint can serve, from what it serves and from how many requests are there.
//!
//! A hub cannot measure service times by totals: a proxy does not see the requests of the others in the queue. The
//! median total of warm requests that found nothing of their own proxy's there was 1.7 times the service time at a load
//! of 0.7, and once there are queues it grows with them; the planner takes that for demand, gives models more homes than
//! memory has, and the loads make more queues.
//!
//! What all proxies report adds up, though: completions X per second and, by Little's law, L = X · mean total requests
//! at the endpoint. In a queue with Poisson arrivals, exponential work and S slots, whose batches of n serve
//! n ÷ (1 + 0.15 (n − 1)) at a time, L depends on the utilisation ρ alone (for S = 1, L = ρ ÷ (1 − ρ)), so ρ follows from L,
//! and the capacity is X ÷ ρ. However long the queue is, ρ is at most 1, and the capacity at least what is served. Work that
//! varies less than exponentially queues less, and its ρ is found too low: by 6 to 14 % with a variation of 0.5.

use crate::cell::BATCH_COST;

/// Window of the sums, in seconds: a hundred requests of a busy endpoint.
const WINDOW_SECONDS: f64 = 10.0;

/// Requests in the window below which an endpoint says nothing.
const ENOUGH: f64 = 10.0;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Throughput {
    slots: usize,
    endpoints: Vec<Sums>,
    seen_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    total_seconds: f64,
    cold: f64,
}

impl Throughput {
    /// Of endpoints that have served nothing yet.
    pub fn new(endpoints: usize, slots: usize) -> Self {
        Self { slots: slots.max(1), endpoints: vec![Sums::default(); endpoints], seen_seconds: 0.0 }
    }

    /// A request was served.
    pub fn served(&mut self, endpoint: usize, total_seconds: f64, cold: bool) {
        if let Some(sums) = self.endpoints.get_mut(endpoint) {
            sums.count += 1.0;
            sums.total_seconds += total_seconds;
            sums.cold += f64::from(u8::from(cold));
        }
    }

    /// Time passes.
    pub fn pass(&mut self, seconds: f64) {
        let keep = (-seconds / WINDOW_SECONDS).exp();
        self.seen_seconds = (self.seen_seconds + seconds) * keep;
        for Sums { count, total_seconds, cold } in &mut self.endpoints {
            *count *= keep;
            *total_seconds *= keep;
            *cold *= keep;
        }
    }

    /// Requests per second of one warm endpoint; `None` until enough were served.
    pub fn capacity(&self) -> Option<f64> {
        let busy = || self.endpoints.iter().filter(|sums| sums.count >= ENOUGH);
        // Loads hold up everybody behind them, so those who load tell too little.
        self.over(busy().filter(|sums| sums.cold < 0.5)).or_else(|| self.over(busy()))
    }

    fn over<'a>(&self, endpoints: impl Iterator<Item = &'a Sums>) -> Option<f64> {
        let (rate, used) = endpoints.fold((0.0, 0.0), |(rate, used), sums| {
            let in_flight = sums.total_seconds / self.seen_seconds;
            (rate + sums.count / self.seen_seconds, used + utilisation(in_flight, self.slots))
        });
        (used > 0.0).then(|| rate / used)
    }
}

/// The utilisation at which `in_flight` requests are at an endpoint on average.
fn utilisation(in_flight: f64, slots: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if mean_in_flight(middle, slots) < in_flight { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Requests at an endpoint on average, by the weights of each number of them: w(n) = w(n − 1) · ρ ÷ g(n), where g(n) is
/// the speed of a batch of n relative to a full one.
fn mean_in_flight(utilisation: f64, slots: usize) -> f64 {
    let full = speed(slots);
    let idle = 1.0 - utilisation;
    let (mut weight, mut all, mut sum) = (1.0, 0.0, 0.0);
    for n in 0..slots {
        all += weight;
        sum += n as f64 * weight;
        weight *= utilisation * full / speed(n + 1);
    }
    all += weight / idle;
    sum += weight * (slots as f64 / idle + utilisation / (idle * idle));
    sum / all
}

fn speed(batch: usize) -> f64 {
    batch as f64 / (1.0 + BATCH_COST * (batch as f64 - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One slot: L = ρ ÷ (1 − ρ).
    #[test]
    fn one_slot_is_the_textbook_queue() {
        for utilisation_ in [0.1, 0.5, 0.9] {
            let in_flight = mean_in_flight(utilisation_, 1);
            assert!((in_flight - utilisation_ / (1.0 - utilisation_)).abs() < 1e-9, "{in_flight}");
            assert!((utilisation(in_flight, 1) - utilisation_).abs() < 1e-6);
        }
        assert!(utilisation(1e9, 1) <= 1.0);
    }

    /// Two slots, ρ = 0.5: g(1) = 1.15 ÷ 2 = 0.575, so w(0) = 1, w(1) = 0.8696, w(2) = 0.4348 and half of the one before
    /// from there on. Σ w = 1.8696 + 0.4348 ÷ 0.5 = 2.7391; Σ n w = 0.8696 + 0.4348 · (2 ÷ 0.5 + 0.5 ÷ 0.25) = 3.4783.
    #[test]
    fn slots_work_faster_together() {
        assert!((mean_in_flight(0.5, 2) - 3.4783 / 2.7391).abs() < 1e-4, "{}", mean_in_flight(0.5, 2));
    }

    /// 10 a second of 100 ms each: L = 1, ρ = 0.5, so 20 a second; the window's decay cancels.
    #[test]
    fn capacity_is_what_is_served_over_the_utilisation() {
        let mut throughput = Throughput::new(2, 1);
        assert_eq!(throughput.capacity(), None);
        for _ in 0..60 {
            (0..10).for_each(|_| throughput.served(0, 0.1, false));
            throughput.served(1, 0.1, true);
            throughput.pass(1.0);
        }
        let capacity = throughput.capacity().unwrap();
        assert!((capacity - 20.0).abs() < 1e-3, "{capacity}");
    }
}
