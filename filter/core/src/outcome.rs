//! How a request ended, as far as its endpoint is concerned.
//!
//! | what happened | class |
//! |---|---|
//! | Envoy could not connect, was reset, or gave up waiting (a silent stream included) | failure |
//! | the response broke off after its headers | failure |
//! | the client left, or reset its stream | neutral |
//! | Envoy refused by itself (overflow, overload, no route, no host, a filter) | neutral |
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
    /// DC, the client closed its connection.
    pub const DOWNSTREAM_CLOSED: u64 = 0x4000;
    /// SI, nothing moved on the stream for too long.
    pub const STREAM_IDLE: u64 = 0x1_0000;
    /// DPE, the client broke the protocol.
    pub const DOWNSTREAM_PROTOCOL_ERROR: u64 = 0x4_0000;
    /// UPE, the endpoint broke the protocol.
    pub const UPSTREAM_PROTOCOL_ERROR: u64 = 0x80_0000;
    /// OM, Envoy's overload manager.
    pub const OVERLOAD: u64 = 0x200_0000;
    /// DR, the client reset its HTTP/2 stream.
    pub const DOWNSTREAM_RESET: u64 = 0x1000_0000;

    /// The client's doing, or Envoy's own.
    pub const NOT_THE_ENDPOINT: u64 = DOWNSTREAM_CLOSED | DOWNSTREAM_PROTOCOL_ERROR | DOWNSTREAM_RESET | OVERLOAD;

    /// The endpoint, or the way to it, failed.
    pub const ENDPOINT_FAILED: u64 = UPSTREAM_TIMEOUT
        | LOCAL_RESET
        | REMOTE_RESET
        | CONNECT_FAILURE
        | CONNECTION_TERMINATION
        | UPSTREAM_PROTOCOL_ERROR
        | STREAM_IDLE;
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

/// gRPC status NOT_FOUND.
const GRPC_NOT_FOUND: u32 = 5;

impl Ending {
    /// Whether an endpoint answered that it does not have what was asked for; on a path that names a model, that is the
    /// model. For the endpoint it is no failure.
    #[must_use]
    pub fn says_not_found(&self) -> bool {
        let found = match self.grpc {
            Some(GrpcEnding::Status(status)) => status != GRPC_NOT_FOUND,
            _ => self.status != Some(404),
        };
        self.upstream && !found
    }
}

/// Whether a Retry-After header would change the class of an answer with this status: worth asking for only then.
#[must_use]
pub fn asks_for_retry_after(status: Option<u16>) -> bool {
    status == Some(503)
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
    /// From `grpc-status` in the trailers, else in the headers: a response without a body has it only there.
    ///
    /// # Errors
    /// That of `header`: what could not be read says nothing about the endpoint.
    pub fn read<E>(trailer: Option<Vec<u8>>, header: impl FnOnce() -> Result<Option<Vec<u8>>, E>) -> Result<Self, E> {
        let status = match trailer {
            Some(status) => Some(status),
            None => header()?,
        };
        Ok(Self::parse(status.as_deref()))
    }

    /// From the bytes of a `grpc-status` value, if there was one.
    fn parse(value: Option<&[u8]>) -> Self {
        value
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .and_then(|text| text.parse().ok())
            .map_or(Self::Missing, Self::Status)
    }
}

/// The class of an ending; see the module's table, which is tried from top to bottom.
#[must_use]
pub fn classify(ending: &Ending) -> Outcome {
    if ending.flags & flags::NOT_THE_ENDPOINT != 0 {
        return Outcome::Neutral;
    }
    // With a retry limit exceeded (URX) the last answer counts: the flag alone says nothing.
    if !ending.upstream {
        return Outcome::Neutral;
    }
    // With a retry limit exceeded (URX) the last answer counts: the flag alone says nothing.
    if ending.flags & flags::ENDPOINT_FAILED != 0 {
        return Outcome::Failure;
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
    fn the_trailers_status_goes_before_the_headers() {
        let bytes = |text: &str| Some(text.as_bytes().to_vec());
        for (trailer, header, expected) in [
            (bytes("14"), bytes("0"), GrpcEnding::Status(14)),
            (None, bytes("5"), GrpcEnding::Status(5)),
            (bytes("0"), None, GrpcEnding::Status(0)),
            (None, None, GrpcEnding::Missing),
        ] {
            assert_eq!(GrpcEnding::read(trailer, || Ok::<_, ()>(header)), Ok(expected));
        }
        assert_eq!(GrpcEnding::read(None, || Err("unread")), Err("unread"), "not taken for a missing status");
        assert_eq!(GrpcEnding::read(bytes("0"), || Err("unread")), Ok(GrpcEnding::Status(0)), "not asked for");
    }

    #[test]
    fn only_a_503_is_asked_for_retry_after() {
        let asked: Vec<_> = (100..=599).filter(|status| asks_for_retry_after(Some(*status))).collect();
        assert_eq!(asked, [503]);
        assert!(!asks_for_retry_after(None));
    }

    #[test]
    fn not_found_is_told_by_http_or_by_grpc() {
        let grpc = |status| Ending { grpc: Some(GrpcEnding::Status(status)), ..http(200) };
        for (ending, expected) in [
            (http(404), true),
            (http(200), false),
            (http(503), false),
            (Ending { upstream: false, ..http(404) }, false),
            (grpc(5), true),
            (grpc(0), false),
            (Ending { grpc: Some(GrpcEnding::Missing), ..http(404) }, true),
        ] {
            assert_eq!(ending.says_not_found(), expected, "{ending:?}");
        }
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
            flags::STREAM_IDLE,
        ] {
            for status in [None, Some(200), Some(503)] {
                let ending = Ending { status, upstream: true, flags: flag, ..Ending::default() };
                assert_eq!(classify(&ending), Outcome::Failure, "flag {flag:#x} status {status:?}");
            }
        }
    }

    #[test]
    fn what_the_client_or_envoy_ended_is_neutral_whatever_else() {
        for flag in
            [flags::DOWNSTREAM_CLOSED, flags::DOWNSTREAM_RESET, flags::DOWNSTREAM_PROTOCOL_ERROR, flags::OVERLOAD]
        {
            for (status, grpc) in [(None, None), (Some(200), None), (Some(200), Some(GrpcEnding::Missing))] {
                let ending =
                    Ending { status, upstream: true, flags: flag | flags::LOCAL_RESET, grpc, retry_after: false };
                assert_eq!(classify(&ending), Outcome::Neutral, "flag {flag:#x}");
            }
        }
    }

    /// Overflow, no route, no host, a time-out before any endpoint was tried: nobody to blame.
    #[test]
    fn a_request_that_reached_no_endpoint_is_neutral() {
        for flag in [0, 0x2, flags::UPSTREAM_TIMEOUT, 0x80, 0x100, flags::STREAM_IDLE] {
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
