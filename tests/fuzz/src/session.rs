//! Cookies, a header on each line, and which session they tell.

use warmroute_core::request::{Request, RequestSettings, SessionKey, SessionSettings};

fn settings() -> RequestSettings {
    let session = SessionSettings { header: Some("x-session".into()), cookie: Some("sid".into()), address: true };
    RequestSettings { session: Some(session), ..RequestSettings::default() }
}

fn session(headers: &[(&[u8], &[u8])], client: Option<&[u8]>) -> Option<SessionKey> {
    Request::from_headers(&settings(), headers.iter().copied(), client).session
}

/// The value of the first cookie `sid` that is not empty, read as text.
fn expected(lines: &[&str]) -> Option<String> {
    let pairs = lines.iter().flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let sid = pairs.filter(|(name, _)| name.trim_ascii() == "sid").map(|(_, value)| {
        let value = value.trim_ascii();
        value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
    });
    sid.filter(|value| !value.is_empty()).map(str::to_owned).next()
}

/// See the module.
pub fn check(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let cookies: Vec<(&[u8], &[u8])> = lines.iter().map(|line| (&b"cookie"[..], *line)).collect();
    let found = session(&cookies, None);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let expected = expected(&text.split('\n').collect::<Vec<_>>());
        assert_eq!(found, expected.map(|value| SessionKey::of(value.as_bytes())));
    }
    let joined = lines.join(&b"; "[..]);
    assert_eq!(session(&[(b"cookie", &joined)], None), found, "one header or many");
    let by_address = session(&cookies, Some(b"10.0.0.7:1"));
    assert_eq!(by_address, found.or(Some(SessionKey::of(b"10.0.0.7"))), "the address comes last");
    // A header that is not empty comes first, without the white space around it.
    let value = bytes.trim_ascii();
    let with_header = session(&[&cookies[..], &[(b"x-session", bytes)]].concat(), None);
    assert_eq!(with_header, if value.is_empty() { found } else { Some(SessionKey::of(value)) });
    let twice = session(&[(b"x-session", bytes), (b"x-session", b"other")], None);
    assert_eq!(twice, Some(SessionKey::of(if value.is_empty() { b"other" } else { value })));
}
