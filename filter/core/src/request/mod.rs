//! What a request asks for, read from its headers in one pass.

mod path;

use crate::hash::hash;
use std::borrow::Cow;

/// Names of the headers that carry a request's facts; lower case, as HTTP/2 and Envoy have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// The model id: the first of these that is there and not empty.
    pub model: Box<[Box<str>]>,
    /// The request type: the first of these that is there and not empty.
    pub request_type: Box<[Box<str>]>,
}

/// A model id and its place on the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model<'a> {
    /// As the client wrote it; not necessarily UTF-8.
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

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The model, when the request names one.
    pub model: Option<Model<'a>>,
    /// The kind of work.
    pub request_type: RequestType,
    /// Whether the client speaks gRPC, so that refusals and outcomes are read the gRPC way.
    pub grpc: bool,
}

impl<'a> Request<'a> {
    /// Reads a request's headers, `(name, value)` as bytes. Of several headers with one name the first counts.
    ///
    /// Model: the configured headers in their order, else the path. Type: the configured headers in their order, else
    /// the path, else inference.
    pub fn from_headers(names: &HeaderNames, headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut model = FirstOf::default();
        let mut request_type = FirstOf::default();
        let mut path = None;
        let mut grpc = false;
        for (name, value) in headers {
            match name {
                b":path" => path = path.or(Some(value)),
                b"content-type" => grpc |= is_grpc(value),
                _ => {
                    model.offer(&names.model, name, value);
                    request_type.offer(&names.request_type, name, value);
                }
            }
        }
        let path = path.map(path::parse).unwrap_or_default();
        Self {
            model: model.value.and_then(Model::new).or_else(|| path.model.and_then(Model::new)),
            request_type: request_type.value.map_or(path.request_type, parse_type),
            grpc,
        }
    }

    /// An inference request for `model`.
    #[must_use]
    pub fn for_model(model: &'a [u8]) -> Self {
        Self { model: Model::new(model), request_type: RequestType::Inference, grpc: false }
    }

    /// An update request for `model`.
    #[must_use]
    pub fn update(model: &'a [u8]) -> Self {
        Self { request_type: RequestType::Update, ..Self::for_model(model) }
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

    fn names() -> HeaderNames {
        HeaderNames {
            model: ["x-model-id".into(), "model-id".into()].into(),
            request_type: ["x-request-type".into(), "request-type".into()].into(),
        }
    }

    fn read<'a>(headers: &[(&'a str, &'a str)]) -> Request<'a> {
        Request::from_headers(&names(), headers.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())))
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
        let request = Request::from_headers(&names(), headers);
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
}
