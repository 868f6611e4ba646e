//! Header lists as the proxy hands them over, and what is read from them.

use std::collections::BTreeMap;
use warmroute_core::hash::hash;
use warmroute_core::pairs::Pairs;
use warmroute_core::request::{ModelSource, Request, RequestSettings, SessionSettings};

fn settings() -> RequestSettings {
    let bytes = |text: &str| -> Box<[u8]> { text.as_bytes().into() };
    RequestSettings {
        model_headers: ["x-model-id".into(), "model-id".into()].into(),
        type_headers: ["x-request-type".into()].into(),
        aliases: BTreeMap::from([(bytes("chat"), bytes("llama")), (bytes("llama"), bytes("bert"))]),
        default_model: Some(bytes("base")),
        trusted: true,
        urgency_header: Some("x-urgency".into()),
        debug_header: Some("x-why".into()),
        hash_header: Some("x-key".into()),
        session: Some(SessionSettings { header: Some("x-session".into()), cookie: Some("sid".into()), address: true }),
        body: None,
    }
}

/// What holds of any request.
fn check_request(request: &Request<'_>) {
    assert_eq!(request.model.is_some(), request.model_source != ModelSource::None);
    if let Some(model) = &request.model {
        assert!(!model.id.is_empty());
        assert_eq!(model.hash, hash(&model.id));
        assert_ne!(&*model.id, b"chat", "an alias stands for its model");
    }
}

/// Twice the same, and the same with headers that say nothing and a query behind the path.
pub fn check(bytes: &[u8]) {
    let Ok(pairs) = Pairs::parse(bytes) else { return };
    let settings = settings();
    let headers: Vec<(&[u8], &[u8])> = pairs.iter().collect();
    assert!(headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= bytes.len());
    let read = |headers: &[(&[u8], &[u8])]| {
        let request = Request::from_headers(&settings, headers.iter().copied(), Some(b"10.0.0.7:1"));
        check_request(&request);
        format!("{request:?}")
    };
    let request = read(&headers);
    assert_eq!(read(&headers), request);
    let mut more = vec![(&b"x-other"[..], &b"x-model-id: no"[..])];
    more.extend(&headers);
    more.push((b"x-model-idx", b"no"));
    assert_eq!(read(&more), request, "other headers say nothing");
    let queried: Vec<(&[u8], Vec<u8>)> = headers
        .iter()
        .map(|(name, value)| {
            (*name, if *name == b":path" { [value, &b"?model=no"[..]].concat() } else { value.to_vec() })
        })
        .collect();
    let queried: Vec<(&[u8], &[u8])> = queried.iter().map(|(name, value)| (*name, value.as_slice())).collect();
    assert_eq!(read(&queried), request, "a query says nothing");
}
