//! The faults a server can be given at run time: their wire form and its rules.
//!
//! Two kinds of faults. `delay_ms` and `slow_factor` hold for every request. `hang`, `reset`, `status` (with
//! `retry_after_s`) and `grpc_status` are failures; they hit the share `error_ratio` of the requests, all of them
//! when it is left out. Of several failures the first in that order is used. `crash` happens once and at once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The body of `POST /mock/faults`. A post replaces all earlier faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Share of the requests that fail, 0–1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_ratio: Option<f64>,
    /// How the failing requests are chosen; see [`ErrorPattern`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_pattern: Option<ErrorPattern>,
    /// HTTP status of failing requests, 400–599; 500 when left out, 503 with `retry_after_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// `Retry-After` in seconds, with status 429 or 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
    /// Status of failing gRPC requests, 1–16. A failing gRPC request without it gets `status` as its HTTP status if
    /// that is set, else 13 (internal), trailers-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u32>,
    /// The gRPC status comes with the response headers, without a message; otherwise in trailers after one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub grpc_trailers_only: bool,
    /// Failing requests are read and never answered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hang: bool,
    /// Failing requests end in a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<ResetAt>,
    /// Every request waits this long before anything else happens to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Service and token times are multiplied by this (load times are not).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_factor: Option<f64>,
    /// The server dies: its port is closed and its connections are cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub crash: bool,
    /// After a crash, the server comes back on its port with an empty memory and without faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_after_ms: Option<u64>,
}

/// When a failing request is reset: HTTP/2 by RST_STREAM, HTTP/1.1 by a TCP RST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetAt {
    BeforeHeaders,
    /// After the response headers and a first piece of the body.
    AfterHeaders,
}

/// Which requests fail at an `error_ratio` between 0 and 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorPattern {
    /// Evenly spread: of any n requests in a row, n × ratio fail, give or take one.
    #[default]
    Even,
    /// Each by its own draw from the seeded generator, so that failures bunch as in life.
    Random,
}

/// A fault that makes no sense, by field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct FaultError {
    pub field: &'static str,
    pub reason: &'static str,
}

/// A day: more is surely a mistake of units.
const LONGEST_MS: u64 = 24 * 60 * 60 * 1000;

impl Faults {
    pub(super) fn check(&self) -> Result<(), FaultError> {
        let rule = |holds: bool, field, reason| if holds { Ok(()) } else { Err(FaultError { field, reason }) };
        let within = |ms: Option<u64>| ms.is_none_or(|ms| ms <= LONGEST_MS);
        let ratio = self.error_ratio.unwrap_or(0.0);
        rule((0.0..=1.0).contains(&ratio), "error_ratio", "a share between 0 and 1")?;
        let status = self.status.unwrap_or(500);
        rule((400..=599).contains(&status), "status", "an HTTP status between 400 and 599")?;
        let code = self.grpc_status.unwrap_or(1);
        rule((1..=16).contains(&code), "grpc_status", "a gRPC status between 1 and 16")?;
        let factor = self.slow_factor.unwrap_or(1.0);
        rule((0.0..=10_000.0).contains(&factor), "slow_factor", "a factor between 0 and 10000")?;
        rule(within(self.delay_ms), "delay_ms", "at most a day")?;
        rule(within(self.restart_after_ms), "restart_after_ms", "at most a day")?;
        let retries = self.retry_after_s.is_none() || matches!(self.status, None | Some(429 | 503));
        rule(retries, "retry_after_s", "goes with status 429 or 503")?;
        let trailers = !self.grpc_trailers_only || self.grpc_status.is_some();
        rule(trailers, "grpc_trailers_only", "goes with grpc_status")?;
        let patterned = self.error_pattern.is_none() || self.error_ratio.is_some();
        rule(patterned, "error_pattern", "goes with error_ratio")?;
        let restarts = self.restart_after_ms.is_none() || self.crash;
        rule(restarts, "restart_after_ms", "goes with crash")?;
        let alone = Self { crash: true, restart_after_ms: self.restart_after_ms, ..Self::default() };
        rule(!self.crash || *self == alone, "crash", "goes with nothing but restart_after_ms")
    }

    pub(super) fn restart_after(&self) -> Option<Duration> {
        self.restart_after_ms.map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> &'static str {
        let faults: Faults = serde_json::from_str(json).expect(json);
        faults.check().expect_err(json).field
    }

    #[test]
    fn a_bad_value_is_refused_by_its_field() {
        assert_eq!(refused(r#"{"error_ratio": 1.1}"#), "error_ratio");
        assert_eq!(refused(r#"{"error_ratio": -0.1}"#), "error_ratio");
        assert_eq!(refused(r#"{"status": 200}"#), "status");
        assert_eq!(refused(r#"{"status": 600}"#), "status");
        assert_eq!(refused(r#"{"status": 500, "retry_after_s": 1}"#), "retry_after_s");
        assert_eq!(refused(r#"{"grpc_status": 0}"#), "grpc_status");
        assert_eq!(refused(r#"{"grpc_status": 17}"#), "grpc_status");
        assert_eq!(refused(r#"{"grpc_trailers_only": true}"#), "grpc_trailers_only");
        assert_eq!(refused(r#"{"slow_factor": -1}"#), "slow_factor");
        assert_eq!(refused(r#"{"delay_ms": 86400001}"#), "delay_ms");
        assert_eq!(refused(r#"{"error_pattern": "even"}"#), "error_pattern");
        assert_eq!(refused(r#"{"restart_after_ms": 10}"#), "restart_after_ms");
        assert_eq!(refused(r#"{"crash": true, "hang": true}"#), "crash");
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let error = serde_json::from_str::<Faults>(r#"{"error_rate": 0.5}"#).expect_err("unknown field");
        assert!(error.to_string().contains("error_rate"), "{error}");
    }

    #[test]
    fn what_is_not_set_is_not_shown() {
        let faults = Faults { delay_ms: Some(5), ..Faults::default() };
        assert_eq!(serde_json::to_string(&faults).expect("json"), r#"{"delay_ms":5}"#);
    }
}
