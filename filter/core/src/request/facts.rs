//! The facts of a request, gathered while its headers go by.

use super::path::{self, PathFacts};
use super::session::SessionFacts;
use super::{BodyHint, DEBUG_HEADER, Model, ModelSource, Request, RequestSettings, RequestType, Urgency};
use crate::hash::hash;
use std::borrow::Cow;

/// What the headers say, as they come by.
#[derive(Default)]
pub(super) struct Facts<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    upgrade: bool,
    expect: bool,
    model: FirstOf<'a>,
    request_type: FirstOf<'a>,
    path: Option<&'a [u8]>,
    content_type: Option<&'a [u8]>,
    content_length: Option<&'a [u8]>,
    urgency: Option<&'a [u8]>,
    debug: Option<&'a [u8]>,
    forged: bool,
    key: Option<&'a [u8]>,
    session: SessionFacts<'a>,
}

impl<'a> Facts<'a> {
    pub(super) fn read(&mut self, settings: &RequestSettings, name: &'a [u8], value: &'a [u8]) {
        match name {
            b":method" => self.method = self.method.or(Some(value)),
            b":scheme" => self.scheme = self.scheme.or(Some(value)),
            b"upgrade" => self.upgrade = true,
            b"expect" => self.expect = true,
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
        match (is(&settings.urgency_header), is(&settings.debug_header)) {
            (false, false) if name != DEBUG_HEADER.as_bytes() => {}
            _ if !settings.trusted => self.forged = true,
            (true, _) => first(&mut self.urgency),
            (_, true) => first(&mut self.debug),
            (false, false) => {}
        }
        if let Some(session) = &settings.session {
            self.session.read(session, name, value);
        }
    }

    pub(super) fn request(self, settings: &RequestSettings, client: Option<&[u8]>) -> Request<'a> {
        let grpc = self.content_type.is_some_and(is_grpc);
        let path = self.path.map_or_else(PathFacts::default, path::parse);
        let request_type = self.request_type.value.map_or(path.request_type, parse_type);
        let body_hint = self.body_hint(&path);
        let sends_work = self.sends_work();
        let (model, model_source) = model(settings, self.model.value, path.model);
        // Under another name, or by a header alone, it is another model that the server changes.
        let by_path = model_source == ModelSource::Path && model.as_ref().is_some_and(|model| !model.aliased);
        Request {
            model,
            model_source,
            request_type,
            urgency: self.urgency.map_or(Urgency::Normal, parse_urgency),
            payload_bytes: self.content_length.and_then(parse_length),
            session: settings.session.as_ref().and_then(|session| self.session.key(session, client)),
            key: self.key.filter(|key| !key.is_empty()).map(hash),
            grpc,
            secure: self.scheme == Some(b"https"),
            debug: self.debug.is_some_and(|value| value == b"1" || value.eq_ignore_ascii_case(b"true")),
            forged: self.forged,
            body_hint,
            on_inference_path: path.inference,
            on_plain_path: path.plain,
            sends_work,
            change: path.change.filter(|_| by_path && request_type == RequestType::Update),
        }
    }

    /// Whether the method is one by which work is sent; nothing else runs a model. (A test's headers may lack it.)
    fn sends_work(&self) -> bool {
        matches!(self.method, None | Some(b"POST" | b"PUT" | b"PATCH"))
    }

    /// A form's parts are not read, an upgraded connection may stay silent for as long as it likes, and a client that
    /// expects `100-continue` sends no body before the server has said so (RFC 9110 §10.1.1).
    fn body_hint(&self, path: &PathFacts<'_>) -> BodyHint {
        let form = self.content_type.is_some_and(|value| starts_with(value, b"multipart/"));
        let silent = self.upgrade || self.expect;
        if form || silent || !self.sends_work() { BodyHint::None } else { path.body_hint }
    }
}

fn starts_with(value: &[u8], prefix: &[u8]) -> bool {
    value.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
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
