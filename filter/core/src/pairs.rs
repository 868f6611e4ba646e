//! Header lists as proxy-wasm lays them out in memory: a count, then the two lengths of each pair (all 32-bit little
//! endian), then each name and value, each ended by a zero byte.
//! Source: the proxy-wasm ABI 0.2.1, "serialized header map", <https://github.com/proxy-wasm/spec>.
//!
//! Names and values are bytes: clients send what is not UTF-8.

/// Bytes of a number.
const WORD: usize = 4;

/// A header list that was checked once; see [`Pairs::parse`].
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    lengths: &'a [u8],
    data: &'a [u8],
}

/// A buffer that is no header list: shorter than its own lengths say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host's header list is shorter than its lengths say")]
pub struct Truncated;

impl<'a> Pairs<'a> {
    /// Reads a header list, without copying it. An empty buffer is an empty list.
    ///
    /// # Errors
    /// [`Truncated`].
    pub fn parse(buffer: &'a [u8]) -> Result<Self, Truncated> {
        if buffer.is_empty() {
            return Ok(Self { lengths: &[], data: &[] });
        }
        let (count, rest) = word(buffer).ok_or(Truncated)?;
        let bytes = count.checked_mul(2 * WORD).ok_or(Truncated)?;
        let (lengths, data) = rest.split_at_checked(bytes).ok_or(Truncated)?;
        let pairs = Self { lengths, data };
        if pairs.iter().count() == count { Ok(pairs) } else { Err(Truncated) }
    }

    /// Names and values in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'a> {
        Iter { lengths: self.lengths, data: self.data }
    }
}

impl<'a> IntoIterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Iterator of [`Pairs`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    lengths: &'a [u8],
    data: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name_length, lengths) = word(self.lengths)?;
        let (value_length, lengths) = word(lengths)?;
        let (name, data) = terminated(self.data, name_length)?;
        let (value, data) = terminated(data, value_length)?;
        (self.lengths, self.data) = (lengths, data);
        Some((name, value))
    }
}

fn word(buffer: &[u8]) -> Option<(usize, &[u8])> {
    let (bytes, rest) = buffer.split_first_chunk::<WORD>()?;
    Some((u32::from_le_bytes(*bytes) as usize, rest))
}

fn terminated(buffer: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = buffer.split_at_checked(length)?;
    Some((text, rest.get(1..)?))
}

/// The list in the host's layout, for headers that the filter gives it.
#[must_use]
pub fn serialize(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut buffer = Vec::new();
    let mut push = |length: usize| buffer.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_le_bytes());
    push(pairs.len());
    for (name, value) in pairs {
        push(name.len());
        push(value.len());
    }
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        buffer.extend_from_slice(text.as_bytes());
        buffer.push(0);
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn what_is_serialized_is_read_back() {
        let list = [(":path", "/v1/chat"), ("x-model-id", ""), ("", "no name")];
        let buffer = serialize(&list);
        let read: Vec<_> = Pairs::parse(&buffer).unwrap().into_iter().collect();
        let expected: Vec<_> = list.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn the_layout_is_the_hosts() {
        assert_eq!(serialize(&[("a", "bc")]), b"\x01\0\0\0\x01\0\0\0\x02\0\0\0a\0bc\0");
        assert_eq!(serialize(&[]), b"\0\0\0\0");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_kept() {
        let buffer = b"\x01\0\0\0\x01\0\0\0\x02\0\0\0\xff\0\xc0\xa7\0";
        let read: Vec<_> = Pairs::parse(buffer).unwrap().into_iter().collect();
        assert_eq!(read, [(&b"\xff"[..], &b"\xc0\xa7"[..])]);
    }

    #[test]
    fn an_empty_buffer_is_an_empty_list() {
        assert_eq!(Pairs::parse(b"").unwrap().iter().count(), 0);
        assert_eq!(Pairs::parse(b"\0\0\0\0").unwrap().iter().count(), 0);
    }

    /// Every way of cutting a list short, and lengths far beyond the buffer.
    #[test]
    fn a_short_buffer_is_refused() {
        let whole = serialize(&[("x-model-id", "llama"), ("a", "b")]);
        for cut in 1..whole.len() {
            assert_eq!(Pairs::parse(&whole[..cut]).err(), Some(Truncated), "cut at {cut}");
        }
        for huge in
            [&b"\xff\xff\xff\xff"[..], b"\xff\xff\xff\x7f\0\0\0\0", b"\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xffa"]
        {
            assert_eq!(Pairs::parse(huge).err(), Some(Truncated), "{huge:?}");
        }
    }
}
