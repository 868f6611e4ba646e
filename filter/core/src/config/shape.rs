//! The wire form out of a [`Tree`], and each value only in the one form that the reference shows: what serde would take
//! besides (a list for an object's fields in order, an object for a name) is refused, with the path and what is allowed.

use super::tree::{Trail, Tree};
use super::{ConfigError, shortened};
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, Expected, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use std::fmt::{self, Display};

/// What `tree` says, as `T` has it.
pub(super) fn shaped<T: DeserializeOwned>(tree: Tree) -> Result<T, ConfigError> {
    T::deserialize(tree).map_err(|mistake| ConfigError::one(mistake.trail.path(), shortened(&mistake.message)))
}

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct Mistake {
    trail: Trail,
    message: String,
}

impl Mistake {
    fn in_field(mut self, key: &str) -> Self {
        self.trail.in_field(key);
        self
    }
}

impl Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl Error for Mistake {
    fn custom<T: Display>(message: T) -> Self {
        Self { trail: Trail::default(), message: message.to_string() }
    }
}

impl Tree {
    /// This value is not what is allowed here.
    #[cold]
    fn refused(&self, allowed: &dyn Expected) -> Mistake {
        let found = match self {
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Unsigned(value) => Unexpected::Unsigned(*value),
            Self::Negative(value) => Unexpected::Signed(*value),
            Self::Real(value) => Unexpected::Float(*value),
            Self::Text(value) => Unexpected::Str(value),
            Self::List(_) => Unexpected::Other("array"),
            Self::Object(_) => Unexpected::Other("object"),
        };
        Mistake::invalid_type(found, allowed)
    }

    fn whole_number<'de, V: Visitor<'de>>(self, max: u64, visitor: V) -> Result<V::Value, Mistake> {
        match self {
            Self::Unsigned(value) if value <= max => visitor.visit_u64(value),
            Self::Unsigned(value) => Err(Mistake::custom(format!("{value} is more than {max}"))),
            Self::Negative(value) => Err(Mistake::custom(format!("{value} is less than 0"))),
            other => Err(other.refused(&"a whole number")),
        }
    }

    fn object<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self {
            Self::Object(fields) => visitor.visit_map(Fields { rest: fields.into_iter(), value: None }),
            other => Err(other.refused(&"an object")),
        }
    }
}

impl<'de> Deserializer<'de> for Tree {
    type Error = Mistake;

    /// Every field of the wire form asks for what it is.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        Err(self.refused(&visitor))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self {
            Self::Bool(value) => visitor.visit_bool(value),
            other => Err(other.refused(&"true or false")),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.whole_number(u32::MAX.into(), visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.whole_number(u64::MAX, visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self {
            Self::Unsigned(value) => visitor.visit_u64(value),
            Self::Negative(value) => visitor.visit_i64(value),
            Self::Real(value) => visitor.visit_f64(value),
            other => Err(other.refused(&"a number")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self {
            Self::Text(text) => visitor.visit_string(text),
            other => Err(other.refused(&"a string")),
        }
    }

    /// What is there is a value, since a `null` did not come this far.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self {
            Self::List(items) => visitor.visit_seq(Items { rest: items.into_iter(), n: 0 }),
            other => Err(other.refused(&"an array")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.object(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.object(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let (name, content) = match self {
            Self::Text(name) => (name, None),
            Self::Object(mut fields) if fields.len() == 1 => match fields.pop() {
                Some((name, content)) => (name, Some(content)),
                None => return Err(Self::Object(fields).refused(&visitor)),
            },
            other => return Err(other.refused(&visitor)),
        };
        visitor.visit_enum(Choice { name, content })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char str bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct
        identifier ignored_any
    }
}

struct Items {
    rest: std::vec::IntoIter<Tree>,
    /// How many were read.
    n: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistake> {
        let Some(item) = self.rest.next() else { return Ok(None) };
        let read = seed.deserialize(item).map(Some).map_err(|mut mistake| {
            mistake.trail.in_item(self.n);
            mistake
        });
        self.n = self.n.saturating_add(1);
        read
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Fields {
    rest: std::vec::IntoIter<(String, Tree)>,
    /// Of the field whose key was read last.
    value: Option<(String, Tree)>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        let read = seed.deserialize(StrDeserializer::new(&key)).map_err(|mistake: Mistake| mistake.in_field(&key))?;
        self.value = Some((key, value));
        Ok(Some(read))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Mistake> {
        let Some((key, value)) = self.value.take() else { return Err(Mistake::custom("no value")) };
        seed.deserialize(value).map_err(|mistake| mistake.in_field(&key))
    }
}

/// One of several things by its name: the name alone, or an object with what belongs to it.
struct Choice {
    name: String,
    content: Option<Tree>,
}

impl<'de> EnumAccess<'de> for Choice {
    type Error = Mistake;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Mistake> {
        let choice = seed.deserialize(StrDeserializer::<Mistake>::new(&self.name))?;
        Ok((choice, self))
    }
}

impl<'de> VariantAccess<'de> for Choice {
    type Error = Mistake;

    fn unit_variant(self) -> Result<(), Mistake> {
        match self.content {
            None => Ok(()),
            Some(_) => Err(Mistake::custom(format!("{0:?} has nothing inside: write \"{0}\" alone", self.name))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Mistake> {
        match self.content {
            Some(content) => seed.deserialize(content).map_err(|mistake| mistake.in_field(&self.name)),
            None => Err(Mistake::custom(format!("\"{0}\" alone says too little: write {{\"{0}\": {{…}}}}", self.name))),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Mistake> {
        Err(Mistake::invalid_type(Unexpected::TupleVariant, &visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        Err(Mistake::invalid_type(Unexpected::StructVariant, &visitor))
    }
}
