//! The field `model_name` of the first message of a gRPC stream of `inference.ModelInferRequest`.
//!
//! A message is framed by a flag (compressed or not) and a length of four bytes; in it, fields are a key (number and
//! wire type) and a value. `model_name` is field 1, text. Every encoder writes it first and once; if it is there twice the
//! first one counts. Sources: gRPC over HTTP/2, the Protocol Buffers wire format, the KServe v2 gRPC protocol.

use super::State;

/// Wire types.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED_32: u64 = 5;

/// `model_name`: number 1, with a length.
const MODEL_NAME: u64 = (1 << 3) | LENGTH;

/// Bytes of the longest varint.
const MAX_VARINT: u8 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// In the frame's head, so many bytes into it, with the length so far.
    #[default]
    Flag,
    Length(u8, u32),
    /// In a key.
    Key(Varint),
    /// In a value that is a varint.
    Value(Varint),
    /// In the length of a value of that field.
    Size(u64, Varint),
    /// In a value that does not matter: bytes left.
    Skip(u64),
    /// In the name: bytes left.
    Name(u64),
}

/// A varint so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Varint {
    value: u64,
    bytes: u8,
}

impl Varint {
    /// `Ok(Some)` with the last byte; an error when it is longer than 64 bits.
    fn read(&mut self, byte: u8) -> Result<Option<u64>, State> {
        let shift = u32::from(self.bytes).saturating_mul(7);
        let bits = u64::from(byte & 0x7F);
        let fits = shift < 64 && bits.checked_shl(shift).is_some_and(|shifted| shifted >> shift == bits);
        if self.bytes >= MAX_VARINT || !fits {
            return Err(State::Malformed);
        }
        self.value |= bits << shift;
        self.bytes = self.bytes.saturating_add(1);
        Ok((byte & 0x80 == 0).then_some(self.value))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct GrpcScanner {
    at: At,
    /// Bytes of the message that are left.
    left: u32,
}

impl GrpcScanner {
    pub(super) fn read(&mut self, byte: u8, name: &mut Vec<u8>) -> State {
        match self.at {
            At::Flag => self.flag(byte),
            At::Length(read, length) => self.length(read, length, byte),
            _ => {
                self.left = self.left.saturating_sub(1);
                let state = self.field(byte, name).unwrap_or_else(|state| state);
                self.at_end(state)
            }
        }
    }

    fn go(&mut self, at: At) -> State {
        self.at = at;
        State::More
    }

    fn flag(&mut self, byte: u8) -> State {
        match byte {
            0 => self.go(At::Length(0, 0)),
            1 => State::Unreadable,
            _ => State::Malformed,
        }
    }

    fn length(&mut self, read: u8, length: u32, byte: u8) -> State {
        let length = (length << 8) | u32::from(byte);
        if read < 3 {
            return self.go(At::Length(read.saturating_add(1), length));
        }
        self.left = length;
        if length == 0 { State::Absent } else { self.go(At::Key(Varint::default())) }
    }

    /// A message may end only between two fields.
    fn at_end(&self, state: State) -> State {
        match (state, self.left, self.at) {
            (State::More, 0, At::Key(Varint { bytes: 0, .. })) => State::Absent,
            (State::More, 0, _) => State::Malformed,
            (state, _, _) => state,
        }
    }

    fn field(&mut self, byte: u8, name: &mut Vec<u8>) -> Result<State, State> {
        let next = match self.at {
            At::Key(mut varint) => match varint.read(byte)? {
                Some(key) => value_of(key)?,
                None => At::Key(varint),
            },
            At::Value(mut varint) => match varint.read(byte)? {
                Some(_) => At::Key(Varint::default()),
                None => At::Value(varint),
            },
            At::Size(key, mut varint) => match varint.read(byte)? {
                Some(size) => self.sized(key, size)?,
                None => At::Size(key, varint),
            },
            At::Skip(left) => after(left, At::Skip),
            At::Name(left) => {
                name.push(byte);
                after(left, At::Name)
            }
            At::Flag | At::Length(..) => return Err(State::Malformed),
        };
        let name_ends = matches!(self.at, At::Name(1)) || matches!(next, At::Name(0));
        self.at = next;
        Ok(if name_ends { State::Found } else { State::More })
    }

    fn sized(&self, key: u64, size: u64) -> Result<At, State> {
        if size > u64::from(self.left) {
            return Err(State::Malformed);
        }
        Ok(match (key == MODEL_NAME, size) {
            (true, size) => At::Name(size),
            (false, 0) => At::Key(Varint::default()),
            (false, size) => At::Skip(size),
        })
    }
}

/// One byte less is left of a value, or the next field begins.
fn after(left: u64, more: impl FnOnce(u64) -> At) -> At {
    match left.saturating_sub(1) {
        0 => At::Key(Varint::default()),
        left => more(left),
    }
}

fn value_of(key: u64) -> Result<At, State> {
    if key >> 3 == 0 {
        return Err(State::Malformed);
    }
    match key & 7 {
        VARINT => Ok(At::Value(Varint::default())),
        FIXED_64 => Ok(At::Skip(8)),
        LENGTH => Ok(At::Size(key, Varint::default())),
        FIXED_32 => Ok(At::Skip(4)),
        _ => Err(State::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BodyHint, BodyScanner, BodySettings, Scan};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend((message.len() as u32).to_be_bytes());
        bytes.extend(message);
        bytes
    }

    /// The verdict, the same for every way to cut the bytes in two.
    fn scan(bytes: &[u8]) -> String {
        let verdict = |chunks: &[&[u8]]| {
            let mut scanner = BodyScanner::new(BodyHint::GrpcModelInfer, &BodySettings { max_bytes: 65_536 }).unwrap();
            chunks.iter().for_each(|chunk| drop(format!("{:?}", scanner.feed(chunk))));
            match scanner.feed(b"") {
                Scan::Found(name) => format!("Found {}", name.escape_ascii()),
                other => format!("{other:?}"),
            }
        };
        let whole = verdict(&[bytes]);
        for cut in 0..=bytes.len() {
            assert_eq!(verdict(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut} of {bytes:?}");
        }
        whole
    }

    #[test]
    fn the_name_is_found_before_and_behind_other_fields() {
        // Field 1 "llama"; field 2 (version) "1"; field 15 varint 300; field 16 fixed64; field 17 fixed32.
        let name = b"\x0a\x05llama";
        let others = b"\x12\x011\x78\xac\x02\x81\x01\x01\x02\x03\x04\x05\x06\x07\x08\x8d\x01\x01\x02\x03\x04\x1a\x00";
        assert_eq!(scan(&framed(name)), "Found llama");
        assert_eq!(scan(&framed(&[&name[..], others].concat())), "Found llama");
        assert_eq!(scan(&framed(&[&others[..], name].concat())), "Found llama");
        assert_eq!(scan(&framed(&[&name[..], b"\x0a\x05other"].concat())), "Found llama", "the first one");
    }

    #[test]
    fn a_message_without_a_name_says_so() {
        for message in [&b""[..], b"\x12\x011", b"\x0a\x00", b"\x08\x07", b"\x1a\x03\x0a\x01m"] {
            assert_eq!(scan(&framed(message)), "Absent", "{message:?}");
        }
    }

    #[test]
    fn what_is_no_message_is_told() {
        for (bytes, expected) in [
            (&b"\x01\x00\x00\x00\x05"[..], "Unreadable"),
            (b"\x02", "Malformed"),
            // A name longer than the message.
            (&framed(b"\x0a\x7fllama"), "Malformed"),
            (&framed(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x"), "Malformed"),
            // A varint of more than 64 bits, and one that does not end.
            (&framed(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), "Malformed"),
            (&framed(&[0x80; 12]), "Malformed"),
            // Field 0, a group, an unknown wire type.
            (&framed(b"\x02\x00"), "Malformed"),
            (&framed(b"\x0b"), "Malformed"),
            (&framed(b"\x0f"), "Malformed"),
            // The message ends in a key, and in a value.
            (&framed(b"\x80"), "Malformed"),
            (&framed(b"\x11\x01"), "Malformed"),
        ] {
            assert_eq!(scan(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_message_that_is_cut_needs_more() {
        let bytes = framed(b"\x12\x011\x0a\x05llama");
        for end in 0..bytes.len() {
            assert_eq!(scan(&bytes[..end]), "More", "{end} bytes");
        }
    }

    /// A length of 4 GiB is a number; nothing is set aside for it.
    #[test]
    fn a_huge_message_is_only_counted() {
        assert_eq!(scan(b"\x00\xff\xff\xff\xff\x12\xff\xff\xff\x0f"), "More");
    }
}
