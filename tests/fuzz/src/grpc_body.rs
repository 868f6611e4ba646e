//! The field `model_name` of a gRPC message, against a reader that has the whole message at once.
//! Source: the Protocol Buffers wire format, <https://protobuf.dev/programming-guides/encoding/>.

use crate::bodies::{Input, MAX_NAME, Said};
use warmroute_core::request::{BodyHint, Scan};

/// A varint of at most 64 bits, and what is behind it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = bytes.iter().position(|byte| byte & 0x80 == 0)?.checked_add(1)?;
    let (varint, rest) = bytes.split_at_checked(length)?;
    let value = varint
        .iter()
        .rev()
        .try_fold(0u128, |sum, byte| (length <= 10).then(|| (sum << 7) | u128::from(byte & 0x7F)))?;
    Some((u64::try_from(value).ok()?, rest))
}

/// The first text that is field 1, if there is one; `None` when the message is not sound up to there.
fn name(mut message: &[u8]) -> Option<Option<&[u8]>> {
    while !message.is_empty() {
        let (key, rest) = varint(message)?;
        if key >> 3 == 0 {
            return None;
        }
        message = match key & 7 {
            0 => varint(rest)?.1,
            1 => rest.get(8..)?,
            2 => {
                let (length, rest) = varint(rest)?;
                let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                if key >> 3 == 1 {
                    return Some(Some(value));
                }
                rest
            }
            5 => rest.get(4..)?,
            _ => return None,
        };
    }
    Some(None)
}

/// What the scanner should say of a stream whose first message is there as a whole; `None` when it is not.
fn expected(stream: &[u8]) -> Option<Said> {
    let (compressed, rest) = stream.split_first()?;
    match compressed {
        0 => {}
        1 => return Some(Said::of(Scan::Unreadable)),
        _ => return Some(Said::of(Scan::Malformed)),
    }
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let message = rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some(match name(message) {
        None => Said::of(Scan::Malformed),
        Some(Some(name)) if name.len() > MAX_NAME => Said::of(Scan::TooLong),
        Some(Some(name)) if !name.is_empty() => Said::Found(name.to_vec()),
        Some(_) => Said::of(Scan::Absent),
    })
}

/// See the module.
pub fn check(bytes: &[u8]) {
    let Some(input) = Input::read(bytes) else { return };
    let said = input.scan(BodyHint::GrpcModelInfer);
    let over = Said::of(Scan::OverLimit);
    let read_enough = said != over && said != Said::More;
    if let Some(expected) = expected(input.body)
        && (read_enough || input.body.len() <= input.limit)
    {
        assert_eq!(said, expected);
    }
    assert!(said != over || input.body.len() > input.limit);
}
