//! What a request's path and headers name.

use crate::fixed;
use proptest::prelude::*;
use std::collections::BTreeMap;
use warmroute_core::hash::hash;
use warmroute_core::pairs::{Pairs, serialize};
use warmroute_core::request::{ModelSource, Request, RequestSettings, RequestType, SessionKey, SessionSettings};

fn settings() -> RequestSettings {
    RequestSettings {
        model_headers: ["x-model-id".into()].into(),
        session: Some(SessionSettings { header: Some("x-session".into()), cookie: Some("sid".into()), address: true }),
        ..RequestSettings::default()
    }
}

/// What a percent-encoded text stands for; a percent sign without two digits behind it stands for itself.
/// Source: RFC 3986 §2.1.
fn decoded(text: &str) -> Vec<u8> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let digits = text.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.filter(|_| bytes[at] == b'%') {
            Some(digits) => {
                out.push(u8::from_str_radix(digits, 16).unwrap());
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

fn encoded(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

/// Known paths of every shape, and the type that each tells.
fn path(shape: usize, model: &str) -> (String, RequestType) {
    use RequestType::{Inference, Update};
    match shape {
        0 => (format!("/v2/models/{model}/infer"), Inference),
        1 => (format!("/v2/models/{model}/versions/7/generate_stream"), Inference),
        2 => (format!("/v2/repository/models/{model}/load"), Update),
        3 => (format!("/v2/repository/models/{model}/unload"), Update),
        4 => (format!("/v1/models/{model}:predict"), Inference),
        5 => (format!("/v1/models/{model}/versions/3:classify"), Inference),
        6 => (format!("/v1/models/{model}/labels/stable:explain"), Inference),
        _ => (format!("/openai/deployments/{model}/chat/completions"), Inference),
    }
}

const SHAPES: usize = 8;

fn queries() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "?x=/v2/models/y/infer", "#f", "?"])
}

proptest! {
    #![proptest_config(fixed(2_000))]

    /// Percent signs and all, colons included; never empty.
    #[test]
    fn any_model_in_a_known_path_is_read(model in "[%a-f0-9:._-]{0,12}", shape in 0..SHAPES, query in queries()) {
        let (path, request_type) = path(shape, &model);
        let path = path + query;
        let buffer = serialize(&[(":path", &path)]);
        let request = Request::from_headers(&settings(), Pairs::parse(&buffer).unwrap(), None);
        prop_assert_eq!(request.request_type, request_type, "{}", path);
        let expected = Some(decoded(&model)).filter(|model| !model.is_empty());
        let source = if expected.is_some() { ModelSource::Path } else { ModelSource::None };
        prop_assert_eq!(request.model_source, source);
        prop_assert_eq!(request.model.as_ref().map(|model| model.hash), expected.as_deref().map(hash));
        prop_assert_eq!(request.model.map(|model| model.id.into_owned()), expected, "{}", path);
    }

    /// Any bytes at all, encoded, name the same model as they do in a header, slashes and question marks included.
    #[test]
    fn an_encoded_path_and_a_header_name_the_same_model(
        model in prop::collection::vec(any::<u8>(), 1..12).prop_filter("white space", |m| m.trim_ascii() == m),
        shape in 0..SHAPES,
    ) {
        let (path, _) = path(shape, &encoded(&model));
        let by_path = Request::from_headers(&settings(), [(&b":path"[..], path.as_bytes())], None);
        let by_header = Request::from_headers(&settings(), [(&b"x-model-id"[..], &model[..])], None);
        prop_assert_eq!(by_path.model, by_header.model);
    }

    #[test]
    fn a_path_with_more_behind_it_names_nothing(model in "[a-z0-9]{1,8}", more in "/[a-z]{1,5}", shape in 0..SHAPES) {
        let (path, _) = path(shape, &model);
        let path = path + &more;
        let request = Request::from_headers(&settings(), [(&b":path"[..], path.as_bytes())], None);
        prop_assert_eq!(request.model, None, "{}", path);
    }

    /// By one step, whatever named it: an alias of an alias is not looked up again.
    #[test]
    fn an_alias_stands_for_its_model_by_one_step(
        aliases in prop::collection::btree_map("[a-d]", "[a-d]", 0..5),
        model in "[a-d]",
        shape in 0..=SHAPES,
    ) {
        let bytes = |text: &String| -> Box<[u8]> { text.as_bytes().into() };
        let table: BTreeMap<Box<[u8]>, Box<[u8]>> = aliases.iter().map(|(k, v)| (bytes(k), bytes(v))).collect();
        let settings = RequestSettings { aliases: table, ..settings() };
        let expected = aliases.get(&model).unwrap_or(&model);
        let (path, _) = path(shape, &model);
        let headers = if shape == SHAPES { [("x-model-id", &*model)] } else { [(":path", &*path)] };
        let request = Request::from_headers(&settings, headers.map(|(n, v)| (n.as_bytes(), v.as_bytes())), None);
        let routed = request.model.unwrap();
        prop_assert_eq!(routed.aliased, aliases.contains_key(&model));
        prop_assert_eq!(routed.hash, Request::for_model(expected.as_bytes()).model.unwrap().hash);
        prop_assert_eq!(&*routed.id, expected.as_bytes());
    }

    /// The header that stands first in the configuration, of several with one name the first, among those that are not
    /// empty; only then the path.
    #[test]
    fn the_first_header_in_the_configured_order_names_the_model(
        headers in prop::collection::vec(("(a|b|c|d)", " ?[x-z]{0,2} ?"), 0..8),
        order in Just(vec!["a", "b", "c"]).prop_shuffle(),
    ) {
        let model_headers = order.iter().map(|name| Box::from(*name)).collect();
        let settings = RequestSettings { model_headers, ..settings() };
        let path = (&b":path"[..], &b"/v2/models/p/infer"[..]);
        let given = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let request = Request::from_headers(&settings, given.chain([path]), None);
        let named = |name: &&str| headers.iter().find(|(header, value)| header == name && !value.trim().is_empty());
        let expected = order.iter().find_map(named).map_or("p", |(_, value)| value.trim());
        prop_assert_eq!(request.model, Request::for_model(expected.as_bytes()).model);
    }

    /// The first cookie of that very name that is not empty, among any others, however they are spread over headers.
    #[test]
    fn a_session_is_told_by_its_cookie(
        cookies in prop::collection::vec(("(sid|sid2|si|SID)", "[a-z0-9=]{0,4}"), 0..6),
        split in any::<bool>(),
    ) {
        let pairs: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let headers = if split { pairs } else { vec![pairs.join("; ")] };
        let request =
            Request::from_headers(&settings(), headers.iter().map(|value| (&b"cookie"[..], value.as_bytes())), None);
        let expected = cookies.iter().find(|(name, value)| name == "sid" && !value.is_empty());
        prop_assert_eq!(request.session, expected.map(|(_, value)| SessionKey::of(value.as_bytes())));
    }

    #[test]
    fn a_session_by_address_does_not_depend_on_the_port(
        address in any::<std::net::IpAddr>(),
        ports in any::<[u16; 2]>(),
    ) {
        let session = |port| {
            let client = std::net::SocketAddr::new(address, port).to_string();
            Request::from_headers(&settings(), [], Some(client.as_bytes())).session
        };
        prop_assert!(session(ports[0]).is_some());
        prop_assert_eq!(session(ports[0]), session(ports[1]));
    }

    /// A header list with any byte changed, or cut anywhere, is read or refused; a model is never empty.
    #[test]
    fn a_damaged_header_list_is_read_or_refused(at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let mut buffer =
            serialize(&[("x-model-id", "m"), (":path", "/v2/models/qwen/infer"), ("content-type", "application/grpc")]);
        let length = buffer.len();
        buffer[at % length] = byte;
        buffer.truncate(cut % (length + 1));
        if let Ok(pairs) = Pairs::parse(&buffer) {
            let request = Request::from_headers(&settings(), pairs, None);
            prop_assert!(request.model.is_none_or(|model| !model.id.is_empty()));
        }
    }
}
