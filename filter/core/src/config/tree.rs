//! The configuration's JSON as it stands there, before anybody asks what a field is. Refused here, wherever it is: what
//! is no JSON, a `null`, and a field that is there twice, of which a map would keep one without a word.

use super::ConfigError;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// One value.
pub(super) enum Tree {
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Real(f64),
    Text(String),
    List(Vec<Tree>),
    /// In the order in which the fields are written.
    Object(Vec<(String, Tree)>),
}

/// The path of a mistake, put together from its end while readers give up one inside the other.
#[derive(Debug, Default)]
pub(super) struct Trail(String);

impl Trail {
    #[cold]
    pub(super) fn in_item(&mut self, n: usize) {
        self.0.insert_str(0, &format!("[{n}]"));
    }

    /// An empty key is shown by its quotes.
    #[cold]
    pub(super) fn in_field(&mut self, key: &str) {
        let step = if key.is_empty() { "[\"\"]".to_owned() } else { format!(".{key}") };
        self.0.insert_str(0, &step);
    }

    /// From the whole, which is `.` itself.
    pub(super) fn path(&self) -> &str {
        match self.0.strip_prefix('.').unwrap_or(&self.0) {
            "" => ".",
            path => path,
        }
    }
}

/// Reads all of `bytes` as one value.
pub(super) fn read(bytes: &[u8]) -> Result<Tree, ConfigError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut found = Found::default();
    let tree = Reader(&mut found).deserialize(&mut json).map_err(|error| {
        let message = found.refused.map_or_else(|| error.to_string(), str::to_owned);
        ConfigError::one(found.trail.path(), super::shortened(&message))
    })?;
    json.end().map_err(|error| ConfigError::one(".", error.to_string()))?;
    Ok(tree)
}

/// A mistake: where, and what, if it is one of ours and not of the JSON.
#[derive(Default)]
struct Found {
    trail: Trail,
    refused: Option<&'static str>,
}

struct Reader<'f>(&'f mut Found);

impl Reader<'_> {
    fn refuse<E: Error>(self, why: &'static str) -> E {
        self.0.refused = Some(why);
        E::custom(why)
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Tree, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Unsigned(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Negative(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Real(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Err(self.refuse("null is no value here: write one, or leave it out"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        loop {
            match items.next_element_seed(Reader(self.0)) {
                Ok(Some(item)) => list.push(item),
                Ok(None) => return Ok(Tree::List(list)),
                Err(error) => {
                    self.0.trail.in_item(list.len());
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree, A::Error> {
        let (mut object, mut keys) = (Vec::new(), BTreeSet::new());
        while let Some(key) = fields.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                self.0.trail.in_field(&key);
                return Err(self.refuse("is there twice, and only one can count: leave one out"));
            }
            match fields.next_value_seed(Reader(self.0)) {
                Ok(value) => object.push((key, value)),
                Err(error) => {
                    self.0.trail.in_field(&key);
                    return Err(error);
                }
            }
        }
        Ok(Tree::Object(object))
    }
}
