//! Which session a request belongs to.
//!
//! The configured header, else the cookie, else the client's address. Empty values name no session. The key is a hash:
//! sessions are found by computing, and no table of them grows with what clients send.

use crate::hash::hash;

/// What tells the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// Header that names it, in lower case.
    pub header: Option<Box<str>>,
    /// Cookie that names it.
    pub cookie: Option<Box<str>>,
    /// The client's address, without its port.
    pub address: bool,
}

/// xxh64 of what names a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionKey(pub u64);

impl SessionKey {
    /// Of a session's name.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        Self(hash(name))
    }
}

/// What the headers say of the session.
#[derive(Default)]
pub(super) struct SessionFacts<'a> {
    header: Option<&'a [u8]>,
    cookie: Option<&'a [u8]>,
}

impl<'a> SessionFacts<'a> {
    pub(super) fn read(&mut self, settings: &SessionSettings, name: &[u8], value: &'a [u8]) {
        if settings.header.as_ref().is_some_and(|header| header.as_bytes() == name) {
            self.header = self.header.or(Some(value.trim_ascii()).filter(|value| !value.is_empty()));
        }
        if let Some(cookie) = settings.cookie.as_ref().filter(|_| name == b"cookie") {
            self.cookie = self.cookie.or_else(|| find_cookie(value, cookie.as_bytes()));
        }
    }

    pub(super) fn key(&self, settings: &SessionSettings, client: Option<&[u8]>) -> Option<SessionKey> {
        let address = client.filter(|_| settings.address).and_then(without_port);
        self.header.or(self.cookie).or(address).map(SessionKey::of)
    }
}

/// The value of the cookie of that exact name, without quotes; the first one that is not empty. HTTP/2 clients may send
/// each cookie in a header of its own. Source: RFC 6265 §4.2.
fn find_cookie<'a>(header: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    header.split(|byte| *byte == b';').find_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at_checked(equals)?;
        let value = value.get(1..)?.trim_ascii();
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        (name.trim_ascii() == wanted && !value.is_empty()).then_some(value)
    })
}

/// `10.0.0.7` of `10.0.0.7:34567`, `[fd00::7]` of `[fd00::7]:34567`; a client has another port for each connection.
fn without_port(address: &[u8]) -> Option<&[u8]> {
    let colon = address.iter().rposition(|byte| *byte == b':');
    let after_bracket = address.iter().rposition(|byte| *byte == b']');
    let host = match (colon, after_bracket) {
        (Some(colon), bracket) if bracket.is_none_or(|bracket| colon > bracket) => address.get(..colon)?,
        _ => address,
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn key(headers: &[(&str, &str)], client: Option<&str>) -> Option<SessionKey> {
        let settings =
            SessionSettings { header: Some("x-session-id".into()), cookie: Some("wr".into()), address: true };
        let mut facts = SessionFacts::default();
        headers.iter().for_each(|(name, value)| facts.read(&settings, name.as_bytes(), value.as_bytes()));
        facts.key(&settings, client.map(str::as_bytes))
    }

    fn named(name: &str) -> Option<SessionKey> {
        Some(SessionKey::of(name.as_bytes()))
    }

    #[test]
    fn the_header_rules_over_the_cookie_over_the_address() {
        let (header, cookie) = (("x-session-id", " h "), ("cookie", "wr=c"));
        for (headers, client, expected) in [
            (&[header, cookie][..], Some("10.0.0.1:5"), named("h")),
            (&[cookie, header], None, named("h")),
            (&[cookie], Some("10.0.0.1:5"), named("c")),
            (&[("x-session-id", ""), cookie], None, named("c")),
            (&[], Some("10.0.0.1:5"), named("10.0.0.1")),
            (&[], None, None),
        ] {
            assert_eq!(key(headers, client), expected, "{headers:?}");
        }
    }

    #[test]
    fn what_is_not_configured_names_nothing() {
        let mut facts = SessionFacts::default();
        let none = SessionSettings::default();
        facts.read(&none, b"x-session-id", b"h");
        facts.read(&none, b"cookie", b"wr=c");
        assert_eq!(facts.key(&none, Some(b"10.0.0.1:5")), None);
    }

    #[test]
    fn cookies_are_found_by_their_exact_name() {
        for (header, expected) in [
            ("wr=1", Some("1")),
            ("a=b; wr=1; c=d", Some("1")),
            ("wr=\"quoted\"", Some("quoted")),
            ("wr=a=b", Some("a=b")),
            ("wr=; wr=2", Some("2")),
            (" wr = 1 ", Some("1")),
            ("WR=1", None),
            ("xwr=1", None),
            ("wr", None),
            ("wr=", None),
            ("wr=\"\"", None),
            ("wr=\"", Some("\"")),
            (";;;", None),
            ("", None),
        ] {
            assert_eq!(find_cookie(header.as_bytes(), b"wr"), expected.map(str::as_bytes), "{header:?}");
        }
        assert_eq!(key(&[("cookie", "a=b"), ("cookie", "wr=2")], None), named("2"), "one header for each");
    }

    #[test]
    fn the_port_of_an_address_does_not_count() {
        for (address, expected) in [
            ("10.0.0.1:34567", Some("10.0.0.1")),
            ("[fd00::7]:34567", Some("[fd00::7]")),
            ("[fd00::7]", Some("[fd00::7]")),
            ("10.0.0.1", Some("10.0.0.1")),
            (":80", None),
            ("", None),
        ] {
            assert_eq!(without_port(address.as_bytes()), expected.map(str::as_bytes), "{address}");
        }
    }
}
