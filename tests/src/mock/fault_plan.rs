//! What the current faults do to one request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::faults::{ErrorPattern, FaultError, Faults, ResetAt};
use super::kind::{Kind, Protocol};

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Hang,
    Reset(ResetAt),
    Http { status: StatusCode, retry_after_s: Option<u64> },
    Grpc { code: i32, trailers_only: bool },
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) delay: Duration,
    pub(super) failure: Option<Failure>,
}

/// The faults in force, switched at run time.
#[derive(Debug)]
pub(super) struct FaultSwitch {
    seed: u64,
    plan: Mutex<Option<Arc<Plan>>>,
}

impl FaultSwitch {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, plan: Mutex::new(None) }
    }

    pub(super) fn set(&self, faults: Faults) -> Result<(), FaultError> {
        let plan = Plan::new(faults, self.seed)?;
        *self.plan.lock() = Some(Arc::new(plan));
        Ok(())
    }

    pub(super) fn clear(&self) {
        *self.plan.lock() = None;
    }

    pub(super) fn get(&self) -> Faults {
        self.current().map(|plan| plan.faults.clone()).unwrap_or_default()
    }

    pub(super) fn decide(&self, kind: Kind) -> Effect {
        self.current().map(|plan| plan.decide(kind)).unwrap_or_default()
    }

    pub(super) fn slow_factor(&self) -> f64 {
        self.current().and_then(|plan| plan.faults.slow_factor).unwrap_or(1.0)
    }

    fn current(&self) -> Option<Arc<Plan>> {
        self.plan.lock().clone()
    }
}

#[derive(Debug)]
struct Plan {
    faults: Faults,
    // Inference has its own pattern, so that probes do not disturb its ratio.
    inference: Pattern,
    other: Pattern,
}

impl Plan {
    fn new(faults: Faults, seed: u64) -> Result<Self, FaultError> {
        faults.check()?;
        let ratio = faults.error_ratio.unwrap_or(1.0);
        let pattern = |seed| match faults.error_pattern.unwrap_or_default() {
            ErrorPattern::Even => Pattern::even(ratio, seed),
            ErrorPattern::Random => Pattern::random(ratio, seed),
        };
        Ok(Self { inference: pattern(seed), other: pattern(seed.wrapping_add(1)), faults })
    }

    fn decide(&self, kind: Kind) -> Effect {
        let delay = Duration::from_millis(self.faults.delay_ms.unwrap_or(0));
        let pattern = if kind.inference { &self.inference } else { &self.other };
        let failure = self.failure(kind.protocol).filter(|_| pattern.hit());
        Effect { delay, failure }
    }

    /// What a failing request of this protocol gets; nothing when no failure is set for it.
    fn failure(&self, protocol: Protocol) -> Option<Failure> {
        let faults = &self.faults;
        if faults.hang {
            return Some(Failure::Hang);
        }
        if let Some(at) = faults.reset {
            return Some(Failure::Reset(at));
        }
        let says_http = faults.status.is_some() || faults.retry_after_s.is_some();
        let grpc =
            |code: u32, trailers_only| Some(Failure::Grpc { code: i32::try_from(code).unwrap_or(2), trailers_only });
        match (protocol, faults.grpc_status) {
            (Protocol::Grpc, Some(code)) => grpc(code, faults.grpc_trailers_only),
            (Protocol::Grpc, None) if !says_http && faults.error_ratio.is_some() => grpc(13, true),
            _ if says_http || faults.error_ratio.is_some() => Some(self.http_failure()),
            _ => None,
        }
    }

    fn http_failure(&self) -> Failure {
        let retry_after_s = self.faults.retry_after_s;
        let default =
            if retry_after_s.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
        let status = self.faults.status.and_then(|status| StatusCode::from_u16(status).ok());
        Failure::Http { status: status.unwrap_or(default), retry_after_s }
    }
}

/// Chooses a share of the requests.
#[derive(Debug)]
enum Pattern {
    /// Request n fails when phase + n × ratio passes a whole number.
    Even {
        ratio: f64,
        phase: f64,
        count: AtomicU64,
    },
    Random {
        ratio: f64,
        generator: Mutex<SmallRng>,
    },
}

impl Pattern {
    fn even(ratio: f64, seed: u64) -> Self {
        Self::Even { ratio, phase: SmallRng::seed_from_u64(seed).random(), count: AtomicU64::new(0) }
    }

    fn random(ratio: f64, seed: u64) -> Self {
        Self::Random { ratio, generator: Mutex::new(SmallRng::seed_from_u64(seed)) }
    }

    fn hit(&self) -> bool {
        match self {
            Self::Even { ratio, phase, count } => {
                let before = count.fetch_add(1, Relaxed) as f64;
                (phase + (before + 1.0) * ratio).floor() > (phase + before * ratio).floor()
            }
            Self::Random { ratio, generator } => generator.lock().random::<f64>() < *ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP: Kind = Kind { protocol: Protocol::Http, inference: true };
    const GRPC: Kind = Kind { protocol: Protocol::Grpc, inference: true };

    fn failure(faults: &str, kind: Kind) -> Option<Failure> {
        let faults = serde_json::from_str(faults).expect(faults);
        Plan::new(faults, 7).expect("valid").decide(kind).failure
    }

    fn http(status: u16, retry_after_s: Option<u64>) -> Option<Failure> {
        Some(Failure::Http { status: StatusCode::from_u16(status).expect("status"), retry_after_s })
    }

    #[test]
    fn an_even_pattern_hits_exactly_its_share_of_every_stride() {
        for (ratio, stride) in [(0.5, 2), (0.1, 10), (0.03, 100), (1.0, 1), (0.0, 10)] {
            for seed in 0..20 {
                let pattern = Pattern::even(ratio, seed);
                for _ in 0..50 {
                    let hits = (0..stride).filter(|_| pattern.hit()).count();
                    let expected = ratio * f64::from(stride);
                    assert!((hits as f64 - expected).abs() < 1.001, "ratio {ratio} seed {seed}: {hits}");
                }
            }
        }
    }

    #[test]
    fn a_random_pattern_hits_about_its_share_and_repeats_with_its_seed() {
        let draw = || {
            let pattern = Pattern::random(0.3, 11);
            (0..10_000).map(|_| pattern.hit()).collect::<Vec<_>>()
        };
        let hits = draw().iter().filter(|hit| **hit).count();
        // 3,000 expected, standard deviation 46.
        assert!((2_770..=3_230).contains(&hits), "seed 11: {hits}");
        assert_eq!(draw(), draw());
    }

    #[test]
    fn the_defaults_of_a_failure_follow_what_is_said() {
        assert_eq!(failure(r#"{"error_ratio": 1}"#, HTTP), http(500, None));
        assert_eq!(failure(r#"{"status": 404}"#, HTTP), http(404, None));
        assert_eq!(failure(r#"{"retry_after_s": 3}"#, HTTP), http(503, Some(3)));
        assert_eq!(failure(r#"{"status": 429, "retry_after_s": 3}"#, HTTP), http(429, Some(3)));
        assert_eq!(failure(r#"{"error_ratio": 0}"#, HTTP), None);
        assert_eq!(failure(r#"{"delay_ms": 5}"#, HTTP), None);
    }

    #[test]
    fn a_grpc_request_fails_in_grpc_terms_unless_a_status_is_set() {
        let grpc = |code, trailers_only| Some(Failure::Grpc { code, trailers_only });
        assert_eq!(failure(r#"{"grpc_status": 14}"#, GRPC), grpc(14, false));
        let only = r#"{"grpc_status": 8, "grpc_trailers_only": true}"#;
        assert_eq!(failure(only, GRPC), grpc(8, true));
        assert_eq!(failure(r#"{"error_ratio": 1}"#, GRPC), grpc(13, true));
        assert_eq!(failure(r#"{"status": 503}"#, GRPC), http(503, None));
        assert_eq!(failure(r#"{"grpc_status": 14}"#, HTTP), None);
    }

    #[test]
    fn a_hang_comes_before_a_reset_before_a_status() {
        let all = r#"{"hang": true, "reset": "after_headers", "status": 500}"#;
        assert_eq!(failure(all, HTTP), Some(Failure::Hang));
        let two = r#"{"reset": "after_headers", "status": 500}"#;
        assert_eq!(failure(two, HTTP), Some(Failure::Reset(ResetAt::AfterHeaders)));
    }
}
