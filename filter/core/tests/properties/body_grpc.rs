//! The model in the first message of a gRPC stream, written by hand.

use crate::body_json::{Said, scan};
use crate::fixed;
use proptest::prelude::*;
use warmroute_core::request::{BodyHint, Scan};

/// A field as the wire has it. Source: the Protocol Buffers encoding, by wire types 0, 1, 2 and 5.
#[derive(Clone, Debug)]
enum Field {
    Varint(u32, u64),
    Fixed64(u32, [u8; 8]),
    Bytes(u32, Vec<u8>),
    Fixed32(u32, [u8; 4]),
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7F).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

impl Field {
    fn write(&self, out: &mut Vec<u8>) {
        let mut key = |number: u32, wire: u64| varint(u64::from(number) << 3 | wire, out);
        match self {
            Self::Varint(number, value) => {
                key(*number, 0);
                varint(*value, out);
            }
            Self::Fixed64(number, bytes) => {
                key(*number, 1);
                out.extend(bytes);
            }
            Self::Bytes(number, bytes) => {
                key(*number, 2);
                varint(bytes.len() as u64, out);
                out.extend(bytes);
            }
            Self::Fixed32(number, bytes) => {
                key(*number, 5);
                out.extend(bytes);
            }
        }
    }
}

/// One message in its frame: not compressed, and its length.
fn framed(fields: &[Field]) -> Vec<u8> {
    let mut message = Vec::new();
    fields.iter().for_each(|field| field.write(&mut message));
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    frame
}

/// Fields of any number; field 1 as a number is not the name.
fn fields() -> impl Strategy<Value = Vec<Field>> {
    let number = || prop_oneof![3 => 1u32..9, 1 => 1u32..=0x1FFF_FFFF];
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    let field = prop_oneof![
        (number(), any::<u64>()).prop_map(|(number, value)| Field::Varint(number, value)),
        (number(), any::<[u8; 8]>()).prop_map(|(number, bytes)| Field::Fixed64(number, bytes)),
        (number(), bytes).prop_map(|(number, bytes)| Field::Bytes(number, bytes)),
        (number(), any::<[u8; 4]>()).prop_map(|(number, bytes)| Field::Fixed32(number, bytes)),
    ];
    prop::collection::vec(field, 0..8)
}

/// `model_name` is field 1; the first one counts, and an empty one names no model.
fn expected(fields: &[Field]) -> Said {
    let name = fields.iter().find_map(|field| match field {
        Field::Bytes(1, bytes) => Some(bytes),
        _ => None,
    });
    name.filter(|name| !name.is_empty()).map_or_else(Said::absent, |name| Said::Found(name.clone()))
}

fn read(body: &[u8], chunks: &[usize]) -> Said {
    scan(BodyHint::GrpcModelInfer, body, chunks)
}

proptest! {
    #![proptest_config(fixed(2_000))]

    /// As clients write it, the name first, and behind or between any other fields.
    #[test]
    fn the_name_is_read_wherever_it_stands(
        mut fields in fields(),
        name in "\\PC{1,40}",
        at in any::<prop::sample::Index>(),
    ) {
        prop_assert_eq!(read(&framed(&fields), &[]), expected(&fields));
        fields.insert(at.index(fields.len() + 1), Field::Bytes(1, name.into_bytes()));
        prop_assert_eq!(read(&framed(&fields), &[]), expected(&fields), "{:?}", fields);
    }

    /// Up to any cut the scanner knows nothing, or what it says in the end, and chunks change nothing.
    #[test]
    fn a_message_that_was_cut_says_nothing_wrong(
        fields in fields(),
        cut in any::<prop::sample::Index>(),
        chunks in prop::collection::vec(1usize..9, 1..6),
    ) {
        let body = framed(&fields);
        let whole = read(&body, &[]);
        let part = read(&body[..cut.index(body.len() + 1)], &[]);
        prop_assert!(part == Said::More || part == whole, "{:?}, in the end {:?}", part, whole);
        prop_assert_eq!(read(&body, &chunks), whole);
    }

    #[test]
    fn damaged_messages_are_read_or_refused(
        fields in fields(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        chunks in prop::collection::vec(1usize..9, 1..6),
    ) {
        let mut body = framed(&fields);
        let at = at.index(body.len());
        body[at] = byte;
        let said = read(&body, &[]);
        prop_assert_eq!(read(&body, &chunks), said.clone());
        prop_assert!(said != Said::Found(Vec::new()));
    }

    #[test]
    fn a_compressed_message_is_not_read(fields in fields()) {
        let mut body = framed(&fields);
        body[0] = 1;
        prop_assert_eq!(read(&body, &[]), Said::of(Scan::Unreadable));
    }

    /// What comes behind the first message is not its business.
    #[test]
    fn only_the_first_message_counts(fields in fields(), behind in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut body = framed(&fields);
        body.extend(behind);
        prop_assert_eq!(read(&body, &[]), expected(&fields));
    }
}
