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
mod facts;
mod path;
mod session;
mod settings;

pub use body::{BodyHint, BodyScanner, BodySettings, Scan, names_model_once};
pub use path::Change;
pub use session::{SessionKey, SessionSettings};
pub use settings::RequestSettings;

use crate::hash::hash;
use facts::Facts;
use std::borrow::Cow;

/// The header that asks for an explanation in the documentation's examples: a stranger's is removed also where this proxy
/// explains nothing, since the next one may.
pub const DEBUG_HEADER: &str = "x-warmroute-debug";

/// A model id and its place on the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model<'a> {
    /// As the client wrote it, or what its name is an alias of; not necessarily UTF-8.
    pub id: Cow<'a, [u8]>,
    /// xxh64 of the id.
    pub hash: u64,
    /// The client wrote another name, and that is what the server reads.
    pub aliased: bool,
}

impl<'a> Model<'a> {
    fn new(id: impl Into<Cow<'a, [u8]>>) -> Option<Self> {
        let id = id.into();
        (!id.is_empty()).then(|| Self { hash: hash(&id), id, aliased: false })
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
    /// It came by https.
    pub secure: bool,
    /// A trusted caller wants to know why it goes where it goes.
    pub debug: bool,
    /// It has a header that only trusted callers may set, and its caller is none: to be removed before the request goes
    /// on, since the next proxy may trust this one.
    pub forged: bool,
    /// Where the body could name the model.
    pub body_hint: BodyHint,
    /// Its path is one of those on which models are run.
    pub on_inference_path: bool,
    /// … and "not found" there can mean the model only: the path is complete, and asks for no version of it.
    pub on_plain_path: bool,
    /// Its method is one by which work is sent.
    pub sends_work: bool,
    /// What an update does to its model, where the path tells.
    pub change: Option<Change>,
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

    /// Whether it runs a model: what endpoints learn and what is planned comes from these requests alone, and not from
    /// updates, probes and questions about a model.
    #[must_use]
    pub fn runs_model(&self) -> bool {
        self.request_type == RequestType::Inference && self.sends_work
    }

    /// Whether "not found" would mean that the endpoint does not know the model: only where the server reads the same
    /// name. A header is ours alone, and would let any client move any model by asking for another one; so would a body
    /// that names two, for which the caller asks [`names_model_once`].
    #[must_use]
    pub fn not_found_means_model(&self) -> bool {
        let read_by_server = matches!(self.model_source, ModelSource::Path | ModelSource::Body);
        let renamed = self.model.as_ref().is_none_or(|model| model.aliased);
        self.runs_model() && self.on_plain_path && read_by_server && !renamed
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
            secure: false,
            debug: false,
            forged: false,
            body_hint: BodyHint::None,
            on_inference_path: true,
            on_plain_path: true,
            sends_work: true,
            change: None,
        }
    }

    /// An update request for `model`.
    #[must_use]
    pub fn update(model: &'a [u8]) -> Self {
        Self { request_type: RequestType::Update, ..Self::for_model(model) }
    }
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
        assert_eq!((request.urgency, request.debug, request.forged), (Urgency::Critical, true, false));
        // What a stranger wrote is not obeyed, nor is it to be handed on to a proxy that trusts this one.
        for headers in [&headers[..], &headers[..1], &headers[1..]] {
            let request = read_with(&settings(false), headers);
            assert_eq!((request.urgency, request.debug, request.forged), (Urgency::Normal, false, true));
        }
        assert!(!read_with(&settings(false), &[("x-other", "1")]).forged);
        assert!(!read_with(&names(), &headers).forged, "headers that mean nothing here");
        assert!(read_with(&names(), &[("x-warmroute-debug", "1")]).forged, "but may where it goes");
        for (value, expected) in
            [("HIGH", Urgency::High), ("normal", Urgency::Normal), ("utmost", Urgency::Normal), ("", Urgency::Normal)]
        {
            assert_eq!(read_with(&settings(true), &[("x-urgency", value)]).urgency, expected, "{value:?}");
        }
        for (value, expected) in [("true", true), ("TRUE", true), ("0", false), ("yes", false), ("", false)] {
            assert_eq!(read_with(&settings(true), &[("x-debug", value)]).debug, expected, "{value:?}");
        }
    }

    /// A header is ours: the server reads another name, or the name that an alias stands for, or a version.
    #[test]
    fn not_found_means_the_model_where_the_server_reads_its_name() {
        let settings = RequestSettings { aliases: [((*b"chat").into(), (*b"llama").into())].into(), ..names() };
        let means = |headers: &[(&str, &str)]| read_with(&settings, headers).not_found_means_model();
        assert!(means(&[(":path", "/v2/models/llama/infer")]));
        assert!(means(&[(":method", "POST"), (":path", "/v2/models/llama/infer")]));
        for headers in [
            &[(":path", "/v2/models/llama/infer"), ("x-model-id", "llama")][..],
            &[(":path", "/v2/models/chat/infer")],
            &[(":path", "/v2/models/llama/versions/99/infer")],
            &[(":path", "/v2/models/llama/infer"), (":method", "GET")],
            &[(":path", "/v2/models/llama/infer"), ("x-request-type", "update")],
            &[(":path", "/nothing/v1/score"), ("x-model-id", "llama")],
            &[(":path", "/v1/completions")],
        ] {
            assert!(!means(headers), "{headers:?}");
        }
        let by_body = |path, model: &'static [u8]| {
            let mut request = read_with(&settings, &[(":path", path)]);
            request.name_by_body(&settings, model);
            request.not_found_means_model()
        };
        assert!(by_body("/v1/completions", b"llama"));
        assert!(!by_body("/v1/completions", b"chat") && !by_body("/team-a/v1/completions", b"llama"));
    }

    /// What the server changes is what the path names.
    #[test]
    fn an_update_changes_the_model_of_its_path() {
        let settings = RequestSettings { aliases: [((*b"chat").into(), (*b"llama").into())].into(), ..names() };
        let change = |headers: &[(&str, &str)]| read_with(&settings, headers).change;
        let unload = (":path", "/v2/repository/models/llama/unload");
        assert_eq!(change(&[unload]), Some(Change::Unload));
        assert_eq!(change(&[unload, ("x-model-id", "bert")]), None);
        assert_eq!(change(&[unload, ("x-request-type", "inference")]), None);
        assert_eq!(change(&[(":path", "/v2/repository/models/chat/load")]), None);
        assert_eq!(change(&[(":path", "/v1/load_lora_adapter"), ("x-model-id", "llama")]), None);
    }

    /// Questions about a model run nothing, whatever header they carry.
    #[test]
    fn only_work_runs_a_model() {
        for (headers, runs) in [
            (&[("x-model-id", "a"), (":method", "POST"), (":path", "/predict")][..], true),
            (&[("x-model-id", "a"), (":method", "GET"), (":path", "/v2/models/a/ready")], false),
            (&[("x-model-id", "a"), (":method", "HEAD"), (":path", "/health")], false),
            (&[(":method", "POST"), (":path", "/v2/repository/models/a/unload")], false),
            (&[("x-model-id", "a"), (":method", "POST"), ("x-request-type", "warm-up")], false),
        ] {
            assert_eq!(read(headers).runs_model(), runs, "{headers:?}");
        }
    }

    #[test]
    fn bodies_are_read_of_work_that_has_one() {
        let chat = (":path", "/v1/chat/completions");
        for (headers, hint) in [
            (&[chat, (":method", "POST"), ("content-type", "application/json")][..], BodyHint::Json),
            (&[chat, (":method", "POST")], BodyHint::Json),
            (&[chat, (":method", "PATCH")], BodyHint::Json),
            (&[chat, (":method", "GET")], BodyHint::None),
            (&[chat, (":method", "CONNECT")], BodyHint::None),
            (&[chat, (":method", "POST"), ("upgrade", "websocket")], BodyHint::None),
            (&[chat, (":method", "POST"), ("expect", "100-continue")], BodyHint::None),
            (
                &[(":path", "/v1/audio/transcriptions"), ("content-type", "Multipart/form-data; boundary=x")],
                BodyHint::None,
            ),
            (&[(":path", "/v1/audio/speech"), ("content-type", "application/json")], BodyHint::Json),
        ] {
            assert_eq!(read(headers).body_hint, hint, "{headers:?}");
        }
    }

    #[test]
    fn the_scheme_tells_whether_a_cookie_may_be_secure() {
        assert!(read(&[(":scheme", "https")]).secure);
        assert!(!read(&[(":scheme", "http")]).secure && !read(&[]).secure);
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
