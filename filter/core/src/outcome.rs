//! How a request ended, as far as its endpoint is concerned.
//!
//! | what happened | class |
//! |---|---|
//! | Envoy could not connect, was reset, or gave up waiting | failure |
//! | the response broke off after its headers | failure |
//! | the client left | neutral |
//! | Envoy refused by itself (overflow, no route, no host, a filter) | neutral |
//! | HTTP 429, 503 with Retry-After, gRPC 8 | back-pressure |
//! | HTTP 5xx otherwise; gRPC 2, 4, 13, 14, 15 | failure |
//! | HTTP 4xx; every other gRPC error | neutral: the caller's own mistake |
//! | anything else | success |

/// The class of an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Served well.
    Success,
    /// The endpoint's fault.
    Failure,
    /// The endpoint asks for less; not a fault.
    BackPressure,
    /// Says nothing about the endpoint.
    Neutral,
}

impl Outcome {
    /// Every class, in the order of [`Outcome::position`].
    pub const ALL: [Self; 4] = [Self::Success, Self::Failure, Self::BackPressure, Self::Neutral];

    /// The name in stats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::BackPressure => "back_pressure",
            Self::Neutral => "neutral",
        }
    }

    /// Position in [`Outcome::ALL`].
    #[must_use]
    pub fn position(self) -> usize {
        self as usize
    }
}

/// Envoy's response flags, as the `response.flags` attribute carries them: one bit each, in the order of Envoy's
/// `CoreResponseFlag` enum.
pub mod flags {
    /// UH, no healthy upstream.
    pub const NO_HEALTHY_UPSTREAM: u64 = 0x2;
    /// UT, upstream request time-out.
    pub const UPSTREAM_TIMEOUT: u64 = 0x4;
    /// LR, connection reset by Envoy's side.
    pub const LOCAL_RESET: u64 = 0x8;
    /// UR, reset by the endpoint.
    pub const REMOTE_RESET: u64 = 0x10;
    /// UF, connect failure.
    pub const CONNECT_FAILURE: u64 = 0x20;
    /// UC, connection ended by the endpoint.
    pub const CONNECTION_TERMINATION: u64 = 0x40;
    /// UO, a circuit breaker of Envoy's own.
    pub const OVERFLOW: u64 = 0x80;
    /// NR, no route.
    pub const NO_ROUTE: u64 = 0x100;
    /// DC, the client left.
    pub const DOWNSTREAM_GONE: u64 = 0x4000;
    /// UPE, the endpoint broke the protocol.
    pub const UPSTREAM_PROTOCOL_ERROR: u64 = 0x80_0000;

    /// The endpoint, or the way to it, failed.
    pub const ENDPOINT_FAILED: u64 = UPSTREAM_TIMEOUT
        | LOCAL_RESET
        | REMOTE_RESET
        | CONNECT_FAILURE
        | CONNECTION_TERMINATION
        | UPSTREAM_PROTOCOL_ERROR;
}

/// What the proxy saw at the end of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// HTTP status sent to the client; `None` when none was.
    pub status: Option<u16>,
    /// Whether an endpoint was reached or tried at all.
    pub upstream: bool,
    /// Envoy's response flags.
    pub flags: u64,
    /// Whether the response carried Retry-After.
    pub retry_after: bool,
    /// For gRPC requests: `grpc-status` from the trailers, else from trailers-only headers.
    pub grpc: Option<GrpcEnding>,
}

/// The end of a gRPC request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcEnding {
    /// A number came.
    Status(u32),
    /// None came, or none that is a number: the stream broke off.
    Missing,
}

impl GrpcEnding {
    /// From the bytes of a `grpc-status` value, if there was one.
    #[must_use]
    pub fn parse(value: Option<&[u8]>) -> Self {
        value
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .and_then(|text| text.parse().ok())
            .map_or(Self::Missing, Self::Status)
    }
}

/// The class of an ending; see the module's table, which is tried from top to bottom.
#[must_use]
pub fn classify(ending: &Ending) -> Outcome {
    if ending.flags & flags::DOWNSTREAM_GONE != 0 {
        return Outcome::Neutral;
    }
    // With a retry limit exceeded (URX) the last answer counts: the flag alone says nothing.
    if ending.flags & flags::ENDPOINT_FAILED != 0 {
        return Outcome::Failure;
    }
    if !ending.upstream {
        return Outcome::Neutral;
    }
    match (ending.status, ending.grpc) {
        (None, _) => Outcome::Neutral,
        (Some(200), Some(grpc)) => classify_grpc(grpc),
        (Some(status), _) => classify_http(status, ending.retry_after),
    }
}

fn classify_http(status: u16, retry_after: bool) -> Outcome {
    match status {
        429 => Outcome::BackPressure,
        503 if retry_after => Outcome::BackPressure,
        500..=599 => Outcome::Failure,
        400..=499 => Outcome::Neutral,
        _ => Outcome::Success,
    }
}

/// Codes by the gRPC status code list, <https://grpc.io/docs/guides/status-codes/>: UNKNOWN 2, DEADLINE_EXCEEDED 4,
/// INTERNAL 13, UNAVAILABLE 14 and DATA_LOSS 15 are the server's; RESOURCE_EXHAUSTED 8 asks for less.
fn classify_grpc(grpc: GrpcEnding) -> Outcome {
    match grpc {
        GrpcEnding::Status(0) => Outcome::Success,
        GrpcEnding::Status(8) => Outcome::BackPressure,
        GrpcEnding::Status(2 | 4 | 13 | 14 | 15) | GrpcEnding::Missing => Outcome::Failure,
        GrpcEnding::Status(_) => Outcome::Neutral,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn http(status: u16) -> Ending {
        Ending { status: Some(status), upstream: true, ..Ending::default() }
    }

    #[test]
    fn every_http_status_has_its_class() {
        for status in 100..=599 {
            let expected = match status {
                429 => Outcome::BackPressure,
                400..=499 => Outcome::Neutral,
                500..=599 => Outcome::Failure,
                _ => Outcome::Success,
            };
            assert_eq!(classify(&http(status)), expected, "{status}");
        }
    }

    #[test]
    fn retry_after_turns_only_a_503_into_back_pressure() {
        for (status, expected) in
            [(503, Outcome::BackPressure), (500, Outcome::Failure), (404, Outcome::Neutral), (200, Outcome::Success)]
        {
            let ending = Ending { retry_after: true, ..http(status) };
            assert_eq!(classify(&ending), expected, "{status}");
        }
    }

    #[test]
    fn every_grpc_status_has_its_class() {
        let class = |grpc| classify(&Ending { grpc: Some(grpc), ..http(200) });
        for status in 0..=99 {
            let expected = match status {
                0 => Outcome::Success,
                8 => Outcome::BackPressure,
                2 | 4 | 13 | 14 | 15 => Outcome::Failure,
                _ => Outcome::Neutral,
            };
            assert_eq!(class(GrpcEnding::Status(status)), expected, "{status}");
        }
        assert_eq!(class(GrpcEnding::Missing), Outcome::Failure);
    }

    #[test]
    fn a_grpc_request_answered_by_plain_http_counts_by_its_http_status() {
        let ending = Ending { grpc: Some(GrpcEnding::Missing), ..http(503) };
        assert_eq!(classify(&ending), Outcome::Failure);
        let ending = Ending { grpc: Some(GrpcEnding::Missing), ..http(404) };
        assert_eq!(classify(&ending), Outcome::Neutral);
    }

    #[test]
    fn a_grpc_status_is_a_number_or_missing() {
        for (bytes, expected) in [
            (Some(&b"0"[..]), GrpcEnding::Status(0)),
            (Some(b"14"), GrpcEnding::Status(14)),
            (Some(b""), GrpcEnding::Missing),
            (Some(b"abc"), GrpcEnding::Missing),
            (Some(b"\xff"), GrpcEnding::Missing),
            (Some(b"99999999999"), GrpcEnding::Missing),
            (None, GrpcEnding::Missing),
        ] {
            assert_eq!(GrpcEnding::parse(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn what_the_endpoint_broke_is_a_failure_whatever_the_status() {
        for flag in [
            flags::UPSTREAM_TIMEOUT,
            flags::LOCAL_RESET,
            flags::REMOTE_RESET,
            flags::CONNECT_FAILURE,
            flags::CONNECTION_TERMINATION,
            flags::UPSTREAM_PROTOCOL_ERROR,
        ] {
            for status in [None, Some(200), Some(503)] {
                let ending = Ending { status, upstream: true, flags: flag, ..Ending::default() };
                assert_eq!(classify(&ending), Outcome::Failure, "flag {flag:#x} status {status:?}");
            }
        }
    }

    #[test]
    fn a_client_that_left_is_neutral_whatever_else() {
        let ending = Ending { flags: flags::DOWNSTREAM_GONE | flags::LOCAL_RESET, upstream: true, ..Ending::default() };
        assert_eq!(classify(&ending), Outcome::Neutral);
    }

    #[test]
    fn what_envoy_refused_by_itself_is_neutral() {
        for flag in [flags::OVERFLOW, flags::NO_ROUTE, flags::NO_HEALTHY_UPSTREAM] {
            let ending = Ending { status: Some(503), upstream: false, flags: flag, ..Ending::default() };
            assert_eq!(classify(&ending), Outcome::Neutral, "flag {flag:#x}");
        }
    }

    #[test]
    fn a_retry_limit_exceeded_counts_by_the_last_answer() {
        const URX: u64 = 0x8000;
        assert_eq!(classify(&Ending { flags: URX, ..http(200) }), Outcome::Success);
        assert_eq!(classify(&Ending { flags: URX, ..http(500) }), Outcome::Failure);
    }

    #[test]
    fn positions_follow_the_list() {
        for (position, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome.position(), position);
        }
    }
}
