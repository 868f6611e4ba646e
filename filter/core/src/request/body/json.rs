//! The member `model` of a JSON object at the top of a body.
//!
//! Only the top level counts: `model` within nested values, within strings, or as a value is none. Keys are compared as
//! they read, escapes decoded. If `model` is there twice the first one counts: a parser that reads everything would take
//! the last one, but what is behind the prompt is not read here. What is found is what the bytes say; whether the rest is
//! JSON is for the server to judge. Source: RFC 8259.

use super::State;

/// Bytes of a key that are kept: enough to tell `model` from any other.
const KEY: usize = 6;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before the object.
    #[default]
    Start,
    /// So many bytes into a byte order mark.
    Mark(u8),
    /// Before a key or the end; after a comma the end may not come.
    Key {
        comma: bool,
    },
    /// In a string.
    String(Place, Text),
    Colon,
    Value,
    /// In a number or a word.
    Scalar,
    /// In a nested value, so many deep.
    Nested(u32),
    /// After a value.
    Next,
}

/// Which string it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Key,
    /// The value of `model`.
    Model,
    /// Any other value at the top.
    Value,
    /// Within a value, so many deep.
    Nested(u32),
}

/// Where in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Plain,
    /// After a backslash.
    Escape,
    /// In `\uXXXX`: digits so far, and their value.
    Unicode(u8, u32),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct JsonScanner {
    at: At,
    key: arrayvec::ArrayVec<u8, KEY>,
    /// The first half of a pair of `\u` escapes.
    surrogate: Option<u32>,
}

impl JsonScanner {
    pub(super) fn read(&mut self, byte: u8, name: &mut Vec<u8>) -> State {
        match self.at {
            At::Start => self.start(byte),
            At::Mark(read) => self.mark(read, byte),
            At::Key { comma } => self.before_key(comma, byte),
            At::String(place, text) => self.string(place, text, byte, name),
            At::Colon => self.expect(byte, b':', At::Value),
            At::Value => self.value(byte),
            At::Scalar => self.scalar(byte),
            At::Nested(depth) => self.nested(depth, byte),
            At::Next => self.next(byte),
        }
    }

    fn go(&mut self, at: At) -> State {
        self.at = at;
        State::More
    }

    fn start(&mut self, byte: u8) -> State {
        match byte {
            b'{' => self.go(At::Key { comma: false }),
            0xEF => self.go(At::Mark(1)),
            _ if is_space(byte) => State::More,
            // Another JSON value, which has no members, or no JSON.
            b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => State::Absent,
            _ => State::Malformed,
        }
    }

    /// Some clients send a byte order mark, EF BB BF.
    fn mark(&mut self, read: u8, byte: u8) -> State {
        match (read, byte) {
            (1, 0xBB) => self.go(At::Mark(2)),
            (2, 0xBF) => self.go(At::Start),
            _ => State::Malformed,
        }
    }

    fn before_key(&mut self, comma: bool, byte: u8) -> State {
        match byte {
            b'"' => {
                self.key.clear();
                self.go(At::String(Place::Key, Text::Plain))
            }
            b'}' if !comma => State::Absent,
            _ if is_space(byte) => State::More,
            _ => State::Malformed,
        }
    }

    fn expect(&mut self, byte: u8, wanted: u8, then: At) -> State {
        match byte {
            _ if byte == wanted => self.go(then),
            _ if is_space(byte) => State::More,
            _ => State::Malformed,
        }
    }

    fn value(&mut self, byte: u8) -> State {
        let is_model = self.key.as_slice() == b"model";
        match byte {
            b'"' if is_model => self.go(At::String(Place::Model, Text::Plain)),
            b'"' => self.go(At::String(Place::Value, Text::Plain)),
            _ if is_space(byte) => State::More,
            // A model that is no text is none, and a second one would not make it better.
            b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' if is_model => State::Absent,
            b'{' | b'[' => self.go(At::Nested(1)),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => self.go(At::Scalar),
            _ => State::Malformed,
        }
    }

    fn scalar(&mut self, byte: u8) -> State {
        match byte {
            b',' | b'}' => self.next(byte),
            b'+' | b'-' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E' => State::More,
            _ if is_space(byte) => self.go(At::Next),
            _ => State::Malformed,
        }
    }

    /// Brackets are counted, not matched: whatever is in here is not at the top.
    fn nested(&mut self, depth: u32, byte: u8) -> State {
        match byte {
            b'"' => self.go(At::String(Place::Nested(depth), Text::Plain)),
            // Deeper than the bytes that are read can go.
            b'{' | b'[' => self.go(At::Nested(depth.saturating_add(1))),
            b'}' | b']' if depth <= 1 => self.go(At::Next),
            b'}' | b']' => self.go(At::Nested(depth.saturating_sub(1))),
            _ => State::More,
        }
    }

    fn next(&mut self, byte: u8) -> State {
        match byte {
            b',' => self.go(At::Key { comma: true }),
            b'}' => State::Absent,
            _ if is_space(byte) => State::More,
            _ => State::Malformed,
        }
    }

    fn string(&mut self, place: Place, text: Text, byte: u8, name: &mut Vec<u8>) -> State {
        match (text, byte) {
            (Text::Plain, b'"') => self.string_ends(place, name),
            (Text::Plain, b'\\') => self.go(At::String(place, Text::Escape)),
            // A control character has to be escaped.
            (Text::Plain, 0..=0x1F) => State::Malformed,
            (Text::Plain, byte) => {
                self.lone_surrogate(place, name);
                self.keep(place, byte, name);
                State::More
            }
            (Text::Escape, byte) => self.escape(place, byte, name),
            (Text::Unicode(digits, value), byte) => self.unicode(place, digits, value, byte, name),
        }
    }

    fn string_ends(&mut self, place: Place, name: &mut Vec<u8>) -> State {
        self.lone_surrogate(place, name);
        match place {
            Place::Key => self.go(At::Colon),
            Place::Model => {
                self.at = At::Next;
                State::Found
            }
            Place::Value => self.go(At::Next),
            Place::Nested(depth) => self.go(At::Nested(depth)),
        }
    }

    fn escape(&mut self, place: Place, byte: u8, name: &mut Vec<u8>) -> State {
        let plain = match byte {
            b'u' => return self.go(At::String(place, Text::Unicode(0, 0))),
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            _ => return State::Malformed,
        };
        self.lone_surrogate(place, name);
        self.keep(place, plain, name);
        self.go(At::String(place, Text::Plain))
    }

    fn unicode(&mut self, place: Place, digits: u8, value: u32, byte: u8, name: &mut Vec<u8>) -> State {
        let Some(digit) = char::from(byte).to_digit(16) else { return State::Malformed };
        let value = value.wrapping_shl(4) | digit;
        if digits < 3 {
            return self.go(At::String(place, Text::Unicode(digits.saturating_add(1), value)));
        }
        self.code_unit(place, value, name);
        self.go(At::String(place, Text::Plain))
    }

    /// A UTF-16 code unit: a character, or half of one.
    fn code_unit(&mut self, place: Place, unit: u32, name: &mut Vec<u8>) {
        match (self.surrogate.take(), unit) {
            (Some(high), 0xDC00..=0xDFFF) => {
                let low = unit.wrapping_sub(0xDC00);
                self.character(
                    place,
                    high.wrapping_sub(0xD800).wrapping_shl(10).wrapping_add(low).wrapping_add(0x1_0000),
                    name,
                );
            }
            (Some(_), unit) => {
                self.character(place, REPLACEMENT, name);
                self.code_unit(place, unit, name);
            }
            (None, 0xD800..=0xDBFF) => self.surrogate = Some(unit),
            (None, unit) => self.character(place, unit, name),
        }
    }

    /// Half a character without the other half.
    fn lone_surrogate(&mut self, place: Place, name: &mut Vec<u8>) {
        if self.surrogate.take().is_some() {
            self.character(place, REPLACEMENT, name);
        }
    }

    fn character(&mut self, place: Place, code: u32, name: &mut Vec<u8>) {
        let mut bytes = [0; 4];
        let text = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut bytes);
        text.bytes().for_each(|byte| self.keep(place, byte, name));
    }

    fn keep(&mut self, place: Place, byte: u8, name: &mut Vec<u8>) {
        match place {
            // A key that is longer than `model` is another one; what is cut off does not matter.
            Place::Key => drop(self.key.try_push(byte)),
            Place::Model => name.push(byte),
            Place::Value | Place::Nested(_) => {}
        }
    }
}

/// Whether `body` is one whole JSON object that names its model once, so that every parser reads the same name: where a
/// key stands twice, most parsers take the last one, and some do not tell `Model` from `model`.
#[must_use]
pub fn names_model_once(body: &[u8]) -> bool {
    let (mut scanner, mut name) = (JsonScanner::default(), Vec::new());
    let (mut keys, mut found) = (0_u32, false);
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        let in_key = matches!(scanner.at, At::String(Place::Key, _));
        match scanner.read(*byte, &mut name) {
            State::More => {}
            State::Found => found = true,
            State::Absent => return found && keys == 1 && bytes.all(|byte| is_space(*byte)),
            _ => return false,
        }
        if in_key && scanner.at == At::Colon && scanner.key.eq_ignore_ascii_case(b"model") {
            keys = keys.saturating_add(1);
        }
    }
    false
}

/// What stands for half a character.
const REPLACEMENT: u32 = char::REPLACEMENT_CHARACTER as u32;

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::super::{BodyHint, BodyScanner, BodySettings, Scan};
    use super::names_model_once;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// The verdict on a body, the same for every way to cut it in two and for single bytes.
    fn scan(body: &[u8]) -> (String, Option<Vec<u8>>) {
        let whole = verdict(&[body]);
        for cut in 0..=body.len() {
            let (left, right) = body.split_at(cut);
            assert_eq!(verdict(&[left, right]), whole, "cut at {cut} of {}", body.escape_ascii());
        }
        let single: Vec<_> = body.chunks(1).collect();
        assert_eq!(verdict(&single), whole, "byte by byte: {}", body.escape_ascii());
        whole
    }

    fn verdict(chunks: &[&[u8]]) -> (String, Option<Vec<u8>>) {
        let mut scanner = BodyScanner::new(BodyHint::Json, &BodySettings { max_bytes: 65_536 }).unwrap();
        for chunk in chunks {
            scanner.feed(chunk);
        }
        match scanner.feed(b"") {
            Scan::Found(name) => ("Found".into(), Some(name.to_vec())),
            other => (format!("{other:?}"), None),
        }
    }

    #[test]
    fn the_model_at_the_top_is_found() {
        for (body, expected) in [
            (r#"{"model":"llama"}"#, "llama"),
            ("\u{feff}{\"model\":\"llama\"}", "llama"),
            (" \r\n\t{ \"model\" : \"llama\" , ", "llama"),
            (r#"{"stream":true,"n":-1.5e+3,"x":null,"model":"llama"}"#, "llama"),
            (r#"{"messages":[{"role":"user","content":"}]\"model\":\"no\""}],"model":"llama"}"#, "llama"),
            (r#"{"a":{"model":"no","b":[{"model":"no"}]},"model":"llama"}"#, "llama"),
            (r#"{"x":"model","model":"llama"}"#, "llama"),
            (r#"{"model":"first","model":"second"}"#, "first"),
            (r#"{"models":"no","mode":"no","Model":"no","model":"llama"}"#, "llama"),
            (r#"{"mod\u0065l":"llama"}"#, "llama"),
            (r#"{"model":"org\/llama\n\"3\"\\"}"#, "org/llama\n\"3\"\\"),
            (r#"{"model":"\u00e9\u20AC\ud83d\ude00"}"#, "é€😀"),
            (r#"{"model":"\ud83dx"}"#, "\u{fffd}x"),
            (r#"{"model":"\ude00"}"#, "\u{fffd}"),
            (r#"{"model":"\ud83d\ud83d\ude00"}"#, "\u{fffd}😀"),
            (r#"{"model":"é"}"#, "é"),
            (r#"{"":1,"model":"llama"}"#, "llama"),
            (r#"{"a":[],"b":{},"c":[[[]]],"model":"llama"}"#, "llama"),
        ] {
            assert_eq!(scan(body.as_bytes()), ("Found".into(), Some(expected.as_bytes().to_vec())), "{body}");
        }
    }

    #[test]
    fn a_body_without_a_model_says_so() {
        for body in [
            "{}",
            r#"{"a":1}"#,
            r#"{"model":1}"#,
            r#"{"model":null}"#,
            r#"{"model":{"name":"x"}}"#,
            r#"{"model":["x"]}"#,
            r#"{"model":""}"#,
            r#"{"a":{"model":"x"}}"#,
            r#"{"a":"model"}"#,
            r#"{"a\":\"model":"x"}"#,
            "[{\"model\":\"x\"}]",
            "\"model\"",
            "17",
            "null",
        ] {
            assert_eq!(scan(body.as_bytes()), ("Absent".into(), None), "{body}");
        }
    }

    #[test]
    fn what_cannot_be_json_is_told_early() {
        for body in [
            "model=llama",
            "<model>llama</model>",
            "{model:\"llama\"}",
            "{\"a\" 1}",
            "{\"a\":1 2}",
            "{\"a\":1,}",
            "{,\"a\":1}",
            "{\"a\":}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12g4\"}",
            "{\"a\":\"\n\"}",
            "{'model':'x'}",
        ] {
            assert_eq!(scan(body.as_bytes()).0, "Malformed", "{body}");
        }
    }

    #[test]
    fn a_body_that_is_cut_needs_more() {
        let body = br#"{"messages":[{"role":"user"}],"model":"llama""#;
        for end in 0..body.len() {
            assert_eq!(verdict(&[&body[..end]]).0, "More", "{}", body[..end].escape_ascii());
        }
    }

    #[test]
    fn a_model_that_is_named_once_is_the_same_for_every_parser() {
        for body in [
            r#"{"model":"llama"}"#,
            " { \"model\" : \"llama\" } \r\n",
            r#"{"stream":true,"model":"llama","messages":[{"model":"other"}],"n":1}"#,
            r#"{"models":"x","mode":"y","modelx":"z","mod\u0065l":"llama"}"#,
        ] {
            assert!(names_model_once(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn a_model_that_stands_twice_or_may_come_again_is_not_named_once() {
        for body in [
            r#"{"model":"llama","model":"none"}"#,
            r#"{"model":"llama","model":7}"#,
            r#"{"model":"llama","messages":[],"mod\u0065l":"none"}"#,
            r#"{"model":"llama","Model":"none"}"#,
            r#"{"MODEL":"none","model":"llama"}"#,
            // The rest has not come.
            r#"{"model":"llama","#,
            r#"{"model":"llama""#,
            // No name, or no object.
            r#"{"model":7}"#,
            r#"{"model":""#,
            r#"{"Model":"llama"}"#,
            "{}",
            "[]",
            "",
            r#"{"model":"llama",}"#,
            r#"{"model":"llama"}{"model":"none"}"#,
        ] {
            assert!(!names_model_once(body.as_bytes()), "{body}");
        }
    }

    /// Depth is a number: a body of brackets costs nothing.
    #[test]
    fn nesting_is_only_counted() {
        let mut body = b"{\"a\":".to_vec();
        body.extend([b'['; 60_000]);
        assert_eq!(verdict(&[&body]).0, "More");
    }
}
