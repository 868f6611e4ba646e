//! The model as the beginning of a body names it.
//!
//! A scanner is fed the body as it comes, in chunks of any size, and says at each whether it knows. It keeps a few bytes
//! of state and the name, never the body, and gives up after a limit of at most 64 KiB: most clients write the model
//! before the prompt, and one that does not is routed as a request without a model.

mod grpc;
mod json;

use grpc::GrpcScanner;
use json::JsonScanner;
pub use json::names_model_once;

/// A model's name in a body is no longer than this.
const MAX_NAME: usize = 1_024;

/// The most that is read of a body, whatever the configuration says.
const MAX_BYTES: usize = 65_536;

/// How bodies are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodySettings {
    /// Bytes that are read at most.
    pub max_bytes: u32,
}

/// Where a body could name the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyHint {
    /// Nowhere that is known.
    #[default]
    None,
    /// In the member `model` of a JSON object.
    Json,
    /// In the field `model_name` of a `ModelInferRequest`, the first message of the stream.
    GrpcModelInfer,
}

/// What a scanner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan<'a> {
    /// Not enough yet.
    More,
    /// The model's name; never empty.
    Found(&'a [u8]),
    /// The body names no model.
    Absent,
    /// The body is not what it should be.
    Malformed,
    /// The limit is reached.
    OverLimit,
    /// The name is longer than any model's.
    TooLong,
    /// The message is compressed.
    Unreadable,
}

/// How far a scanner has come; what it found is kept apart, so that it can be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    More,
    Found,
    Absent,
    Malformed,
    OverLimit,
    TooLong,
    Unreadable,
}

/// See the module.
#[derive(Debug)]
pub struct BodyScanner {
    format: Format,
    left: usize,
    name: Vec<u8>,
    state: State,
}

#[derive(Debug)]
enum Format {
    Json(JsonScanner),
    Grpc(GrpcScanner),
}

impl BodyScanner {
    /// For a body of that kind; `None` where no body would help.
    #[must_use]
    pub fn new(hint: BodyHint, settings: &BodySettings) -> Option<Self> {
        let format = match hint {
            BodyHint::None => return None,
            BodyHint::Json => Format::Json(JsonScanner::default()),
            BodyHint::GrpcModelInfer => Format::Grpc(GrpcScanner::default()),
        };
        let left = usize::try_from(settings.max_bytes).unwrap_or(usize::MAX).min(MAX_BYTES);
        Some(Self { format, left, name: Vec::new(), state: State::More })
    }

    /// Reads on. Once it has said anything but [`Scan::More`] it says the same whatever follows.
    pub fn feed(&mut self, chunk: &[u8]) -> Scan<'_> {
        for byte in chunk {
            if self.state != State::More {
                break;
            }
            self.state = match self.left.checked_sub(1) {
                Some(left) => {
                    self.left = left;
                    self.read(*byte)
                }
                None => State::OverLimit,
            };
        }
        self.say()
    }

    fn read(&mut self, byte: u8) -> State {
        let state = match &mut self.format {
            Format::Json(scanner) => scanner.read(byte, &mut self.name),
            Format::Grpc(scanner) => scanner.read(byte, &mut self.name),
        };
        match state {
            State::Found if self.name.is_empty() => State::Absent,
            _ if self.name.len() > MAX_NAME => State::TooLong,
            state => state,
        }
    }

    fn say(&self) -> Scan<'_> {
        match self.state {
            State::More => Scan::More,
            State::Found => Scan::Found(&self.name),
            State::Absent => Scan::Absent,
            State::Malformed => Scan::Malformed,
            State::OverLimit => Scan::OverLimit,
            State::TooLong => Scan::TooLong,
            State::Unreadable => Scan::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn json(max_bytes: u32) -> BodyScanner {
        BodyScanner::new(BodyHint::Json, &BodySettings { max_bytes }).unwrap()
    }

    #[test]
    fn a_body_that_cannot_help_is_not_read() {
        assert!(BodyScanner::new(BodyHint::None, &BodySettings { max_bytes: 1_000 }).is_none());
    }

    #[test]
    fn what_was_said_is_said_again() {
        let mut scanner = json(1_000);
        assert_eq!(scanner.feed(b"{\"model\":\"lla"), Scan::More);
        assert_eq!(scanner.feed(b"ma\",\"x\":1"), Scan::Found(b"llama"));
        assert_eq!(scanner.feed(b"}"), Scan::Found(b"llama"));
        assert_eq!(scanner.feed(b""), Scan::Found(b"llama"));
    }

    /// `{"model":"m"}` is 13 bytes, of which 12 must be read to know the name.
    #[test]
    fn the_limit_counts_every_byte() {
        assert_eq!(json(12).feed(b"{\"model\":\"m\"}"), Scan::Found(b"m"));
        assert_eq!(json(11).feed(b"{\"model\":\"m\"}"), Scan::OverLimit);
        let mut scanner = json(u32::MAX);
        assert_eq!(scanner.feed(&[b' '; 65_536]), Scan::More, "64 KiB whatever is asked for");
        assert_eq!(scanner.feed(b" "), Scan::OverLimit);
    }

    #[test]
    fn a_name_is_no_longer_than_a_kilobyte() {
        let body = |length: usize| format!("{{\"model\":\"{}\"}}", "m".repeat(length));
        assert_eq!(json(65_536).feed(body(1_024).as_bytes()), Scan::Found("m".repeat(1_024).as_bytes()));
        assert_eq!(json(65_536).feed(body(1_025).as_bytes()), Scan::TooLong);
    }

    #[test]
    fn an_empty_name_is_none() {
        assert_eq!(json(100).feed(b"{\"model\":\"\"}"), Scan::Absent);
    }
}
