//! Payload classes: what a large request weighs, and where it may go.
//!
//! A class begins above a number of bytes and lasts until the next one begins. Its weight is what one request of it adds
//! to the in-flight count of an endpoint, in ordinary requests; its labels are those that an endpoint must have to serve
//! it (large batches only on the GPUs that have the memory for them). The size is what `content-length` says: a request
//! that does not tell it is an ordinary one.

/// One class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadClass {
    /// Its name in explanations.
    pub name: Box<str>,
    /// Requests with more bytes than this belong to it.
    pub above_bytes: u64,
    /// What a request counts, in ordinary requests.
    pub weight: u32,
    /// Labels that an endpoint must have.
    pub labels: Box<[Box<str>]>,
}

/// A pool's classes, by rising size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayloadClasses(Box<[PayloadClass]>);

impl PayloadClasses {
    /// From classes in any order.
    #[must_use]
    pub fn new(mut classes: Vec<PayloadClass>) -> Self {
        crate::small::sort(&mut classes, &mut |a, b| a.above_bytes.cmp(&b.above_bytes));
        Self(classes.into_boxed_slice())
    }

    /// The class of a request with `bytes` of body and its position here; `None` for an ordinary one.
    #[must_use]
    pub fn class_of(&self, bytes: Option<u64>) -> Option<(usize, &PayloadClass)> {
        let bytes = bytes?;
        self.0.iter().enumerate().rev().find(|(_, class)| bytes > class.above_bytes)
    }

    /// The classes, by rising size.
    pub fn iter(&self) -> impl Iterator<Item = &PayloadClass> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn class(name: &str, above_bytes: u64) -> PayloadClass {
        PayloadClass { name: name.into(), above_bytes, weight: 2, labels: [].into() }
    }

    #[test]
    fn a_class_begins_above_its_bytes_and_ends_where_the_next_begins() {
        let classes = PayloadClasses::new(vec![class("huge", 1_000), class("large", 10)]);
        for (bytes, expected) in [
            (None, None),
            (Some(0), None),
            (Some(10), None),
            (Some(11), Some("large")),
            (Some(1_000), Some("large")),
            (Some(1_001), Some("huge")),
            (Some(u64::MAX), Some("huge")),
        ] {
            let found = classes.class_of(bytes);
            assert_eq!(found.map(|(_, class)| &*class.name), expected, "{bytes:?}");
            if let Some((position, class)) = found {
                assert_eq!(classes.iter().nth(position), Some(class));
            }
        }
    }

    #[test]
    fn without_classes_everything_is_ordinary() {
        assert_eq!(PayloadClasses::default().class_of(Some(u64::MAX)), None);
    }

    #[test]
    fn a_class_may_begin_at_the_first_byte() {
        let classes = PayloadClasses::new(vec![class("any body", 0)]);
        assert!(classes.class_of(Some(0)).is_none());
        assert!(classes.class_of(Some(1)).is_some());
    }
}
