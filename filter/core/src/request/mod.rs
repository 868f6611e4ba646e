//! What a request asks for, read from its headers in one pass, and from its body where nothing else names the model.
//!
//! | fact | told by |
//! |---|---|
//! | model | the configured headers in their order, else the path, else the body, else the default model |
//! | type | the configured headers in their order, else the path, else inference |
//! | session | the configured header, else the cookie, else the client's address |
//! | key | the header that the strategy `hash` is configured with |
//! | urgency, debug | their headers, from trusted callers only |
//! | payload | `content-length` |
//!
//! Of several headers with one name the first counts, except for cookies, of which all are read. An alias stands for
//! another model whatever named it, by one step. LoRA adapters are models of their own: nothing is cut off a name.

mod body;
mod path;
mod session;
mod settings;

pub use body::{BodyHint, BodyScanner, BodySettings, Scan};
pub use session::{SessionKey, SessionSettings};
pub use settings::RequestSettings;

use crate::hash::hash;
use path::PathFacts;
use session::SessionFacts;
use std::borrow::Cow;

/// A model id and its place on the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model<'a> {
    /// As the client wrote it, or what its name is an alias of; not necessarily UTF-8.
    pub id: Cow<'a, [u8]>,
    /// xxh64 of the id.
    pub hash: u64,
}

impl<'a> Model<'a> {
    fn new(id: impl Into<Cow<'a, [u8]>>) -> Option<Self> {
        let id = id.into();
        (!id.is_empty()).then(|| Self { hash: hash(&id), id })
    }
}

/// What kind of work a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestType {
    /// Runs a model; also when nothing says otherwise.
    Inference,
    /// Loads, unloads or otherwise changes what an endpoint holds.
    Update,
    /// A type header with a value that we do not know.
    Unknown,
}

/// How much a request matters in overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Like any other.
    #[default]
    Normal,
    /// More than others.
    High,
    /// More than all others.
    Critical,
}

/// What named the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelSource {
    /// One of the configured headers.
    Header,
    /// The path.
    Path,
    /// The body.
    Body,
    /// The configuration, since the request does not.
    Default,
    /// Nothing.
    #[default]
    None,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The model, when one is named.
    pub model: Option<Model<'a>>,
    /// What named it.
    pub model_source: ModelSource,
    /// The kind of work.
    pub request_type: RequestType,
    /// How much it matters.
    pub urgency: Urgency,
    /// Bytes of its body, when it says so.
    pub payload_bytes: Option<u64>,
    /// The session that it belongs to.
    pub session: Option<SessionKey>,
    /// Hash of the header that the strategy `hash` goes by.
    pub key: Option<u64>,
    /// Whether the client speaks gRPC, so that refusals and outcomes are read the gRPC way.
    pub grpc: bool,
    /// A trusted caller wants to know why it goes where it goes.
    pub debug: bool,
    /// Where the body could name the model.
    pub body_hint: BodyHint,
    /// Its path is one of those on which models are run, so that "not found" means the model.
    pub on_inference_path: bool,
}

impl<'a> Request<'a> {
    /// Reads a request's headers, `(name, value)` as bytes; see the module. `client` is the client's address, where
    /// [`RequestSettings::needs_client_address`].
    pub fn from_headers(
        settings: &RequestSettings,
        headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        client: Option<&[u8]>,
    ) -> Self {
        let mut facts = Facts::default();
        for (name, value) in headers {
            facts.read(settings, name, value);
        }
        let mut request = facts.request(settings, client);
        if request.model.is_none() && request.request_type == RequestType::Inference && request.on_inference_path {
            request.model = settings.default_model.as_deref().and_then(|id| Model::new(id.to_vec()));
            request.model_source = if request.model.is_some() { ModelSource::Default } else { ModelSource::None };
        }
        request
    }

    /// Whether the request itself, and not the configuration, names a model.
    #[must_use]
    pub fn names_model(&self) -> bool {
        !matches!(self.model_source, ModelSource::None | ModelSource::Default)
    }

    /// The body names the model.
    pub fn name_by_body(&mut self, settings: &RequestSettings, model: &'a [u8]) {
        if let Some(model) = settings.resolve(Cow::Borrowed(model)) {
            (self.model, self.model_source) = (Some(model), ModelSource::Body);
        }
    }

    /// An inference request for `model`.
    #[must_use]
    pub fn for_model(model: &'a [u8]) -> Self {
        Self {
            model: Model::new(model),
            model_source: if model.is_empty() { ModelSource::None } else { ModelSource::Header },
            request_type: RequestType::Inference,
            urgency: Urgency::Normal,
            payload_bytes: None,
            session: None,
            key: None,
            grpc: false,
            debug: false,
            body_hint: BodyHint::None,
            on_inference_path: true,
        }
    }

    /// An update request for `model`.
    #[must_use]
    pub fn update(model: &'a [u8]) -> Self {
        Self { request_type: RequestType::Update, ..Self::for_model(model) }
    }
}

/// What the headers say, as they come by.
#[derive(Default)]
struct Facts<'a> {
    model: FirstOf<'a>,
    request_type: FirstOf<'a>,
    path: Option<&'a [u8]>,
    content_type: Option<&'a [u8]>,
    content_length: Option<&'a [u8]>,
    urgency: Option<&'a [u8]>,
    debug: Option<&'a [u8]>,
    key: Option<&'a [u8]>,
    session: SessionFacts<'a>,
}

impl<'a> Facts<'a> {
    fn read(&mut self, settings: &RequestSettings, name: &'a [u8], value: &'a [u8]) {
        match name {
            b":path" => self.path = self.path.or(Some(value)),
            b"content-type" => self.content_type = self.content_type.or(Some(value)),
            b"content-length" => self.content_length = self.content_length.or(Some(value)),
            _ => {
                self.model.offer(&settings.model_headers, name, value);
                self.request_type.offer(&settings.type_headers, name, value);
                self.read_optional(settings, name, value);
            }
        }
    }

    fn read_optional(&mut self, settings: &RequestSettings, name: &[u8], value: &'a [u8]) {
        let is = |header: &Option<Box<str>>| header.as_ref().is_some_and(|header| header.as_bytes() == name);
        let first = |fact: &mut Option<&'a [u8]>| *fact = fact.or(Some(value.trim_ascii()));
        if is(&settings.hash_header) {
            first(&mut self.key);
        }
        if settings.trusted && is(&settings.urgency_header) {
            first(&mut self.urgency);
        }
        if settings.trusted && is(&settings.debug_header) {
            first(&mut self.debug);
        }
        if let Some(session) = &settings.session {
            self.session.read(session, name, value);
        }
    }

    fn request(self, settings: &RequestSettings, client: Option<&[u8]>) -> Request<'a> {
        let grpc = self.content_type.is_some_and(is_grpc);
        let path = self.path.map_or_else(PathFacts::default, path::parse);
        let (model, model_source) = model(settings, self.model.value, path.model);
        Request {
            model,
            model_source,
            request_type: self.request_type.value.map_or(path.request_type, parse_type),
            urgency: self.urgency.map_or(Urgency::Normal, parse_urgency),
            payload_bytes: self.content_length.and_then(parse_length),
            session: settings.session.as_ref().and_then(|session| self.session.key(session, client)),
            key: self.key.filter(|key| !key.is_empty()).map(hash),
            grpc,
            debug: self.debug.is_some_and(|value| value == b"1" || value.eq_ignore_ascii_case(b"true")),
            body_hint: path.body_hint,
            on_inference_path: path.inference,
        }
    }
}

fn model<'a>(
    settings: &RequestSettings,
    header: Option<&'a [u8]>,
    path: Option<Cow<'a, [u8]>>,
) -> (Option<Model<'a>>, ModelSource) {
    if let Some(model) = header.and_then(|id| settings.resolve(Cow::Borrowed(id))) {
        return (Some(model), ModelSource::Header);
    }
    match path.and_then(|id| settings.resolve(id)) {
        Some(model) => (Some(model), ModelSource::Path),
        None => (None, ModelSource::None),
    }
}

/// The value of the header that stands first in a list of names.
#[derive(Default)]
struct FirstOf<'a> {
    value: Option<&'a [u8]>,
    /// Position in the list of the name whose value is kept.
    rank: usize,
}

impl<'a> FirstOf<'a> {
    fn offer(&mut self, names: &[Box<str>], name: &[u8], value: &'a [u8]) {
        let Some(rank) = names.iter().position(|candidate| candidate.as_bytes() == name) else { return };
        let value = value.trim_ascii();
        if !value.is_empty() && (self.value.is_none() || rank < self.rank) {
            (self.value, self.rank) = (Some(value), rank);
        }
    }
}

fn parse_type(value: &[u8]) -> RequestType {
    if value.eq_ignore_ascii_case(b"inference") {
        RequestType::Inference
    } else if value.eq_ignore_ascii_case(b"update") {
        RequestType::Update
    } else {
        RequestType::Unknown
    }
}

/// Anything else is normal: a word that we do not know must not overtake others.
fn parse_urgency(value: &[u8]) -> Urgency {
    if value.eq_ignore_ascii_case(b"critical") {
        Urgency::Critical
    } else if value.eq_ignore_ascii_case(b"high") {
        Urgency::High
    } else {
        Urgency::Normal
    }
}

/// Digits alone; what is no number, or none that fits, says nothing.
fn parse_length(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| all_digits)?.parse().ok()
}

/// `application/grpc` or `application/grpc+…`, by the letter: what Envoy takes for gRPC, since it is Envoy that turns a
/// refusal into a gRPC answer. Not `application/grpc-web`, which has answers of its own.
fn is_grpc(content_type: &[u8]) -> bool {
    content_type.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+')))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn names() -> RequestSettings {
        RequestSettings {
            model_headers: ["x-model-id".into(), "model-id".into()].into(),
            type_headers: ["x-request-type".into(), "request-type".into()].into(),
            ..RequestSettings::default()
        }
    }

    fn read_with<'a>(settings: &RequestSettings, headers: &[(&'a str, &'a str)]) -> Request<'a> {
        Request::from_headers(settings, headers.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())), None)
    }

    fn read<'a>(headers: &[(&'a str, &'a str)]) -> Request<'a> {
        read_with(&names(), headers)
    }

    fn model(request: &Request<'_>) -> Option<String> {
        request.model.as_ref().map(|model| String::from_utf8_lossy(&model.id).into_owned())
    }

    #[test]
    fn the_first_configured_header_that_is_not_empty_names_the_model() {
        for (headers, expected) in [
            (&[("x-model-id", "a")][..], Some("a")),
            (&[("model-id", "b"), ("x-model-id", "a")], Some("a")),
            (&[("x-model-id", ""), ("model-id", "b")], Some("b")),
            (&[("x-model-id", "  "), ("model-id", " b\t")], Some("b")),
            (&[("x-model-id", "first"), ("x-model-id", "second")], Some("first")),
            (&[("x-model-id", "a"), (":path", "/v2/models/p/infer")], Some("a")),
            (&[(":path", "/v2/models/p/infer")], Some("p")),
            (&[("x-model-id", ""), (":path", "/v2/models/p/infer")], Some("p")),
            (&[(":path", "/v1/chat/completions")], None),
            (&[("x-model", "a")], None),
            (&[], None),
        ] {
            assert_eq!(model(&read(headers)).as_deref(), expected, "{headers:?}");
        }
    }

    #[test]
    fn the_hash_is_that_of_the_id() {
        let request = read(&[("x-model-id", "lyft")]);
        assert_eq!(request.model.unwrap().hash, 4400747396090729504);
    }

    #[test]
    fn a_model_id_may_be_any_bytes() {
        let id = [0x31, 0x20, 0xC0, 0xA7, 0xFF];
        let headers = [(&b"\xc0\xff"[..], &b"\xff"[..]), (b"x-model-id", &id)];
        let request = Request::from_headers(&names(), headers, None);
        assert_eq!(request.model.unwrap().id.as_ref(), id);
    }

    #[test]
    fn the_type_is_said_by_header_else_by_path_else_inference() {
        for (headers, expected) in [
            (&[][..], RequestType::Inference),
            (&[("x-request-type", "update")], RequestType::Update),
            (&[("request-type", "Update ")], RequestType::Update),
            (&[("x-request-type", "INFERENCE"), ("request-type", "update")], RequestType::Inference),
            (&[("x-request-type", "train")], RequestType::Unknown),
            (&[("x-request-type", "")], RequestType::Inference),
            (&[(":path", "/v2/repository/models/m/load")], RequestType::Update),
            (&[(":path", "/v2/repository/models/m/load"), ("x-request-type", "inference")], RequestType::Inference),
        ] {
            assert_eq!(read(headers).request_type, expected, "{headers:?}");
        }
    }

    #[test]
    fn grpc_is_told_by_its_content_type() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/GRPC", false),
            ("application/grpc;charset=utf-8", false),
            ("application/grpc-web", false),
            ("application/json", false),
            ("application/grp", false),
            ("", false),
        ] {
            assert_eq!(read(&[("content-type", content_type)]).grpc, expected, "{content_type}");
        }
    }

    #[test]
    fn an_alias_stands_for_its_model_whatever_named_it() {
        let settings = RequestSettings {
            aliases: [(b"chat"[..].into(), b"llama-70b"[..].into()), (b"llama-70b"[..].into(), b"other"[..].into())]
                .into(),
            ..names()
        };
        let read = |headers| read_with(&settings, headers);
        assert_eq!(model(&read(&[("x-model-id", "chat")])).as_deref(), Some("llama-70b"), "one step only");
        assert_eq!(model(&read(&[(":path", "/v2/models/chat/infer")])).as_deref(), Some("llama-70b"));
        let mut request = read(&[(":path", "/v1/completions")]);
        request.name_by_body(&settings, b"chat");
        assert_eq!((model(&request).as_deref(), request.model_source), (Some("llama-70b"), ModelSource::Body));
        assert_eq!(request.model.unwrap().hash, hash(b"llama-70b"));
        assert_eq!(model(&read(&[("x-model-id", "Chat")])).as_deref(), Some("Chat"), "names are exact");
    }

    /// An adapter is asked for by its own name; whoever wants it beside its base gives it that alias.
    #[test]
    fn an_adapter_is_a_model_of_its_own() {
        let of = |id| read(&[("x-model-id", id)]).model.unwrap().hash;
        assert_ne!(of("llama:sql-adapter"), of("llama"));
        assert_ne!(of("llama:sql-adapter"), of("llama:chat-adapter"));
    }

    #[test]
    fn the_default_model_is_for_inference_that_names_none() {
        let settings = RequestSettings { default_model: Some(b"llama"[..].into()), ..names() };
        for (headers, expected, source) in [
            (&[(":path", "/v1/chat/completions")][..], Some("llama"), ModelSource::Default),
            (&[(":path", "/v1/chat/completions"), ("x-model-id", "bert")], Some("bert"), ModelSource::Header),
            (&[(":path", "/v2/models/gpt/infer")], Some("gpt"), ModelSource::Path),
            (&[(":path", "/v1/models")], None, ModelSource::None),
            (&[(":path", "/health")], None, ModelSource::None),
            (&[(":path", "/v1/completions"), ("x-request-type", "update")], None, ModelSource::None),
        ] {
            let request = read_with(&settings, headers);
            assert_eq!((model(&request).as_deref(), request.model_source), (expected, source), "{headers:?}");
            assert_eq!(request.names_model(), matches!(source, ModelSource::Header | ModelSource::Path));
        }
    }

    #[test]
    fn only_trusted_callers_say_how_much_they_matter() {
        let headers = [("x-urgency", "critical"), ("x-debug", "1")];
        let settings = |trusted| RequestSettings {
            trusted,
            urgency_header: Some("x-urgency".into()),
            debug_header: Some("x-debug".into()),
            ..names()
        };
        let request = read_with(&settings(true), &headers);
        assert_eq!((request.urgency, request.debug), (Urgency::Critical, true));
        let request = read_with(&settings(false), &headers);
        assert_eq!((request.urgency, request.debug), (Urgency::Normal, false));
        for (value, expected) in
            [("HIGH", Urgency::High), ("normal", Urgency::Normal), ("utmost", Urgency::Normal), ("", Urgency::Normal)]
        {
            assert_eq!(read_with(&settings(true), &[("x-urgency", value)]).urgency, expected, "{value:?}");
        }
        for (value, expected) in [("true", true), ("TRUE", true), ("0", false), ("yes", false), ("", false)] {
            assert_eq!(read_with(&settings(true), &[("x-debug", value)]).debug, expected, "{value:?}");
        }
    }

    #[test]
    fn the_size_is_what_content_length_says() {
        for (value, expected) in [
            ("0", Some(0)),
            (" 1024 ", Some(1024)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("+1", None),
            ("1e3", None),
            ("", None),
        ] {
            assert_eq!(read(&[("content-length", value)]).payload_bytes, expected, "{value:?}");
        }
        assert_eq!(read(&[]).payload_bytes, None);
    }

    #[test]
    fn the_key_is_the_configured_headers_first_value() {
        let settings = RequestSettings { hash_header: Some("x-tenant".into()), ..names() };
        let key = |headers| read_with(&settings, headers).key;
        assert_eq!(key(&[("x-tenant", " a "), ("x-tenant", "b")]), Some(hash(b"a")));
        assert_eq!(key(&[("x-tenant", "")]), None);
        assert_eq!(key(&[("tenant", "a")]), None);
        assert_eq!(read(&[("x-tenant", "a")]).key, None, "not configured");
    }
}
