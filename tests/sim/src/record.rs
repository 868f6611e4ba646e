//! How the requests of a run ended.

use crate::cell::{GIVE_UP, GOOD};
use crate::policy::Churn;
use serde::Serialize;
use std::time::Duration;

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Answered after that time.
    Answered(Duration),
    /// The client gave up.
    GaveUp,
    /// An error.
    Failed,
}

/// What a request caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caused {
    /// Its model was there.
    #[default]
    Nothing,
    /// A load.
    Load,
    /// The first load of its model in the whole pool.
    FirstLoad,
}

impl Fate {
    fn is_good(self) -> bool {
        matches!(self, Self::Answered(after) if after <= GOOD)
    }
}

/// The requests that arrived in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// All.
    pub requests: u64,
    /// Answered in time.
    pub good: u64,
}

impl Second {
    fn goodput(&self) -> f64 {
        self.good as f64 / self.requests as f64
    }
}

/// The requests of a run that arrived in its measured time.
#[derive(Clone, Debug)]
pub struct Record {
    from: Duration,
    latencies: Vec<Duration>,
    seconds: Vec<Second>,
    requests: u64,
    good: u64,
    cold: u64,
    first: u64,
    failed: u64,
}

impl Record {
    /// Of a run that is measured from then on.
    #[must_use]
    pub fn new(from: Duration) -> Self {
        Self { from, latencies: Vec::new(), seconds: Vec::new(), requests: 0, good: 0, cold: 0, first: 0, failed: 0 }
    }

    /// A request ended.
    pub fn add(&mut self, arrival: Duration, fate: Fate, caused: Caused) {
        let Some(since) = arrival.checked_sub(self.from) else { return };
        self.requests += 1;
        self.good += u64::from(fate.is_good());
        self.cold += u64::from(caused != Caused::Nothing);
        self.first += u64::from(caused == Caused::FirstLoad);
        match fate {
            Fate::Answered(after) => self.latencies.push(after),
            Fate::GaveUp => self.latencies.push(GIVE_UP),
            Fate::Failed => self.failed += 1,
        }
        let at = since.as_secs() as usize;
        if self.seconds.len() <= at {
            self.seconds.resize(at + 1, Second::default());
        }
        self.seconds[at].requests += 1;
        self.seconds[at].good += u64::from(fate.is_good());
    }

    /// The sums. `fault`: when something went wrong, if anything did.
    #[must_use]
    pub fn summary(mut self, fault: Option<Duration>, churn: Option<Churn>) -> Summary {
        self.latencies.sort_unstable();
        let quantile = |ratio: f64| {
            let at = (self.latencies.len() as f64 * ratio) as usize;
            self.latencies.get(at.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or(GIVE_UP)
        };
        let all = self.requests.max(1) as f64;
        Summary {
            requests: self.requests,
            goodput: self.good as f64 / all,
            cold: self.cold as f64 / all,
            first: self.first as f64 / all,
            failed: self.failed as f64 / all,
            not_good: self.requests - self.good,
            p50: quantile(0.5).as_secs_f64(),
            p95: quantile(0.95).as_secs_f64(),
            p99: quantile(0.99).as_secs_f64(),
            after_fault: fault.and_then(|at| self.after(at - self.from)),
            churn,
        }
    }

    fn after(&self, fault: Duration) -> Option<AfterFault> {
        let seconds = self.seconds.get(fault.as_secs() as usize..)?;
        let some = || seconds.iter().enumerate().filter(|(_, second)| second.requests > 0);
        let (worst_at, worst) = some().min_by(|(_, a), (_, b)| a.goodput().total_cmp(&b.goodput()))?;
        let (requests, good) = some().fold((0, 0), |sum, (_, second)| (sum.0 + second.requests, sum.1 + second.good));
        Some(AfterFault {
            goodput: good as f64 / requests as f64,
            worst_second: worst.goodput(),
            worst_after_seconds: worst_at,
            not_good: requests - good,
        })
    }
}

/// What a run came to. Ratios are of all requests, times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Requests.
    pub requests: u64,
    /// Answered within [`GOOD`].
    pub goodput: f64,
    /// Requests that caused a load.
    pub cold: f64,
    /// Those of them whose model nobody had loaded before: no policy saves these.
    pub first: f64,
    /// Requests that ended in an error.
    pub failed: f64,
    /// Requests that were not answered in time.
    pub not_good: u64,
    /// Half of the answers came within this; one that was given up counts as [`GIVE_UP`].
    pub p50: f64,
    /// 95 % did.
    pub p95: f64,
    /// 99 % did.
    pub p99: f64,
    /// From the fault on.
    pub after_fault: Option<AfterFault>,
    /// What the planner did.
    pub churn: Option<Churn>,
}

/// What a fault came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AfterFault {
    /// Goodput from the fault to the end.
    pub goodput: f64,
    /// Goodput of the requests of the worst second.
    pub worst_second: f64,
    /// Which second that was, 0 being that of the fault.
    pub worst_after_seconds: usize,
    /// Requests from the fault to the end that were not answered in time.
    pub not_good: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(milliseconds: u64) -> Fate {
        Fate::Answered(Duration::from_millis(milliseconds))
    }

    /// Four seconds of ten requests from second 5 on; the fault is at second 7, and in second 8 three go wrong in
    /// three ways.
    #[test]
    fn sums_are_of_what_arrived_in_the_measured_time() {
        let mut record = Record::new(Duration::from_secs(5));
        record.add(Duration::from_secs(4), Fate::Failed, Caused::Load);
        for n in 0..40u64 {
            let fate = match n {
                30 => Fate::Failed,
                31 => Fate::GaveUp,
                32 => answered(1_001),
                _ => answered(n + 1),
            };
            record.add(
                Duration::from_millis(5_000 + 100 * n),
                fate,
                if n < 4 { Caused::Load } else { Caused::Nothing },
            );
        }
        let summary = record.summary(Some(Duration::from_secs(7)), None);
        assert_eq!((summary.requests, summary.not_good), (40, 3));
        assert_eq!((summary.goodput, summary.cold, summary.failed), (37.0 / 40.0, 0.1, 0.025));
        // 39 answers: the one at position 19 (of 1, 2, …, 30, 34, …) took 20 ms, the one at 38 was given up.
        assert_eq!((summary.p50, summary.p99), (0.020, 10.0));
        let after = summary.after_fault.unwrap();
        assert_eq!((after.goodput, after.worst_second, after.worst_after_seconds), (17.0 / 20.0, 0.7, 1));
        assert_eq!(after.not_good, 3);
    }
}
