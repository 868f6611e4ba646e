//! The member `model` of a JSON body, against a parser that reads everything.

use crate::bodies::{Input, MAX_NAME, Said};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use warmroute_core::request::{BodyHint, Scan};

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
        Some(Value::String(name)) if name.len() > MAX_NAME => Said::of(Scan::TooLong),
        Some(Value::String(name)) if !name.is_empty() => Said::Found(name.into_bytes()),
        _ => Said::of(Scan::Absent),
    })
}

/// See the module.
pub fn check(bytes: &[u8]) {
    let Some(input) = Input::read(bytes) else { return };
    let said = input.scan(BodyHint::Json);
    // Whatever the limit, what a scanner says with less is what it says with more, or that the limit is reached.
    let over = Said::of(Scan::OverLimit);
    if let Some(expected) = expected(input.body)
        && said != over
        && said != Said::More
    {
        assert_eq!(said, expected, "{:?}", String::from_utf8_lossy(input.body));
    }
    if input.body.len() <= input.limit {
        assert_ne!(said, over, "{} bytes, limit {}", input.body.len(), input.limit);
        if let Some(expected) = self::expected(input.body) {
            assert_eq!(said, expected);
        }
    }
}
