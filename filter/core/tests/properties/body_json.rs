//! The model in a JSON body, against a parser that reads everything.

use crate::fixed;
use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use warmroute_core::request::{BodyHint, BodyScanner, BodySettings, Scan};

/// What a scanner said in the end, as a value of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    More,
    Found(Vec<u8>),
    Other(String),
}

impl Said {
    pub fn of(scan: Scan<'_>) -> Self {
        match scan {
            Scan::More => Self::More,
            Scan::Found(name) => Self::Found(name.to_vec()),
            other => Self::Other(format!("{other:?}")),
        }
    }

    pub fn absent() -> Self {
        Self::of(Scan::Absent)
    }
}

/// What a scanner says of a body in chunks of these lengths, again and again.
pub fn scan(hint: BodyHint, body: &[u8], chunks: &[usize]) -> Said {
    let mut scanner = BodyScanner::new(hint, &BodySettings { max_bytes: 65_536 }).unwrap();
    let (mut rest, mut lengths) = (body, chunks.iter().cycle());
    let mut said = Said::of(scanner.feed(b""));
    while !rest.is_empty() {
        let length = lengths.next().map_or(rest.len(), |length| (*length).clamp(1, rest.len()));
        said = Said::of(scanner.feed(&rest[..length]));
        rest = &rest[length..];
    }
    said
}

/// The first member `model` of an object, if there is one.
struct FirstModel(Option<Value>);

impl<'de> Deserialize<'de> for FirstModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct First;
        impl<'de> Visitor<'de> for First {
            type Value = FirstModel;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FirstModel, A::Error> {
                let mut first = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key == "model" && first.is_none() {
                        first = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(FirstModel(first))
            }
        }
        deserializer.deserialize_map(First)
    }
}

/// What the scanner should say of a valid body: of several members `model` the first counts, and one that is no text,
/// or empty, names no model. `None`: it is no JSON, or names something with half a character, which is no text either.
fn expected(body: &[u8]) -> Option<Said> {
    let text = std::str::from_utf8(body).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let object = text.trim_ascii_start().starts_with('{');
    let first = if object { serde_json::from_str::<FirstModel>(text).ok()?.0 } else { None };
    Some(match first {
        Some(Value::String(name)) if name.len() > 1_024 => Said::of(Scan::TooLong),
        Some(Value::String(name)) if !name.is_empty() => Said::Found(name.into_bytes()),
        _ => Said::absent(),
    })
}

/// A string as a client may write it: plain, or with everything as `\uXXXX`.
fn written(text: &str, escaped: bool) -> String {
    if !escaped {
        return serde_json::to_string(text).unwrap();
    }
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "\\PC{0,6}",
        2 => any::<String>(),
        1 => prop::sample::select(vec!["model", "\"model\":\"x\"", "}", "{\"model\":\"x\"}", "\\", "𝄞"])
            .prop_map(str::to_owned),
        1 => "[a-z]{1000,1030}",
    ]
}

fn values() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => (texts(), any::<bool>()).prop_map(|(text, escaped)| written(&text, escaped)),
        1 => any::<f64>().prop_filter("JSON has no others", |n| n.is_finite()).prop_map(|n| Value::from(n).to_string()),
        1 => any::<i64>().prop_map(|n| n.to_string()),
        1 => prop::sample::select(vec!["true", "null", "-0", "1e5", "2E-7", "{}", "[]"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            members(inner).prop_map(|members| object(&members, "")),
        ]
    })
}

/// Keys, most of which are easily confused with `model`, and values.
fn members(value: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<(String, String)>> {
    let key = prop_oneof![
        3 => prop::sample::select(vec!["model", "models", "mode", "Model", "model ", "", "m\u{e9}del", "prompt"])
            .prop_map(str::to_owned),
        1 => texts(),
    ];
    let key = (key, any::<bool>()).prop_map(|(key, escaped)| written(&key, escaped));
    prop::collection::vec((key, value), 0..5)
}

fn object(members: &[(String, String)], space: &str) -> String {
    let members: Vec<String> =
        members.iter().map(|(key, value)| format!("{space}{key}{space}:{space}{value}{space}")).collect();
    format!("{space}{{{space}{}}}{space}", members.join(","))
}

fn bodies() -> impl Strategy<Value = String> {
    let space = prop::sample::select(vec!["", "", " ", "\r\n\t "]);
    prop_oneof![
        8 => (members(values()), space).prop_map(|(members, space)| object(&members, space)),
        1 => values(),
    ]
}

fn chunks() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..9, 1..6)
}

proptest! {
    #![proptest_config(fixed(2_000))]

    #[test]
    fn a_scanner_agrees_with_a_parser_that_reads_everything(body in bodies()) {
        let expected = expected(body.as_bytes());
        prop_assert!(expected.is_some(), "the test writes JSON: {}", body);
        prop_assert_eq!(Some(scan(BodyHint::Json, body.as_bytes(), &[])), expected, "{}", body);
    }

    #[test]
    fn chunks_of_any_size_say_the_same(body in bodies(), chunks in chunks(), cut in any::<prop::sample::Index>()) {
        let body = &body.as_bytes()[..cut.index(body.len() + 1)];
        let whole = scan(BodyHint::Json, body, &[]);
        prop_assert_eq!(scan(BodyHint::Json, body, &chunks), whole.clone());
        prop_assert_eq!(scan(BodyHint::Json, body, &[1]), whole);
    }

    /// Damaged, a body is read as what it is now when it is still JSON; else it says anything, but the same in any
    /// chunks, and never an empty name.
    #[test]
    fn a_damaged_body_is_read_or_refused(
        body in bodies(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        chunks in chunks(),
    ) {
        let mut body = body.into_bytes();
        if !body.is_empty() {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let said = scan(BodyHint::Json, &body, &[]);
        prop_assert_eq!(scan(BodyHint::Json, &body, &chunks), said.clone());
        prop_assert!(said != Said::Found(Vec::new()));
        if let Some(expected) = expected(&body) {
            prop_assert_eq!(said, expected, "{}", String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..200), chunks in chunks()) {
        prop_assert_eq!(scan(BodyHint::Json, &body, &chunks), scan(BodyHint::Json, &body, &[]));
    }
}
