//! Models and request types that a path tells.
//!
//! | path | model | type |
//! |---|---|---|
//! | `/v2/models/{m}[/versions/{v}]/{infer, infer_stream, generate, generate_stream}` | m | inference |
//! | `/v2/repository/models/{m}/{load, unload}` | m | update |
//! | `/inference.GRPCInferenceService/{RepositoryModelLoad, RepositoryModelUnload}` | | update |
//!
//! Any other path names no model and is inference. Sources: the KServe v2 protocol and Triton's repository extension.

use super::RequestType;
use std::borrow::Cow;

/// What a path tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathFacts<'a> {
    pub(super) model: Option<Cow<'a, [u8]>>,
    pub(super) request_type: RequestType,
}

impl Default for PathFacts<'_> {
    fn default() -> Self {
        Self { model: None, request_type: RequestType::Inference }
    }
}

/// Reads `:path`, whose query and fragment say nothing.
pub(super) fn parse(path: &[u8]) -> PathFacts<'_> {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let path = path.get(..end).unwrap_or(path);
    if let Some(rest) = path.strip_prefix(b"/v2/models/") {
        return kserve(rest);
    }
    if let Some(rest) = path.strip_prefix(b"/v2/repository/models/") {
        return repository(rest);
    }
    match path {
        b"/inference.GRPCInferenceService/RepositoryModelLoad"
        | b"/inference.GRPCInferenceService/RepositoryModelUnload" => {
            PathFacts { model: None, request_type: RequestType::Update }
        }
        _ => PathFacts::default(),
    }
}

fn kserve(rest: &[u8]) -> PathFacts<'_> {
    let mut segments = rest.split(|byte| *byte == b'/');
    let model = segments.next();
    let mut action = segments.next();
    if action == Some(b"versions") {
        segments.next();
        action = segments.next();
    }
    match (action, segments.next()) {
        (Some(b"infer" | b"infer_stream" | b"generate" | b"generate_stream"), None) => {
            PathFacts { model: model.map(decode), request_type: RequestType::Inference }
        }
        _ => PathFacts::default(),
    }
}

fn repository(rest: &[u8]) -> PathFacts<'_> {
    let mut segments = rest.split(|byte| *byte == b'/');
    match (segments.next(), segments.next(), segments.next()) {
        (Some(model), Some(b"load" | b"unload"), None) => {
            PathFacts { model: Some(decode(model)), request_type: RequestType::Update }
        }
        _ => PathFacts::default(),
    }
}

/// A model id such as `org/model` comes percent-encoded in a path; the header and the path must name the same model.
fn decode(segment: &[u8]) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode(segment).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn facts(path: &str) -> (Option<String>, RequestType) {
        let facts = parse(path.as_bytes());
        (facts.model.map(|m| String::from_utf8_lossy(&m).into_owned()), facts.request_type)
    }

    #[test]
    fn inference_paths_name_their_model() {
        for (path, model) in [
            ("/v2/models/llama/infer", "llama"),
            ("/v2/models/llama/versions/3/infer", "llama"),
            ("/v2/models/llama/infer?trace=1", "llama"),
            ("/v2/models/llama/generate", "llama"),
            ("/v2/models/llama/generate_stream", "llama"),
            ("/v2/models/org%2Fllama%203/infer", "org/llama 3"),
            ("/v2/models/100%/infer", "100%"),
            ("/v2/models/versions/infer", "versions"),
        ] {
            assert_eq!(facts(path), (Some(model.to_owned()), RequestType::Inference), "{path}");
        }
    }

    #[test]
    fn repository_paths_are_updates() {
        for action in ["load", "unload"] {
            let path = format!("/v2/repository/models/llama/{action}");
            assert_eq!(facts(&path), (Some("llama".to_owned()), RequestType::Update));
            let verb = if action == "load" { "Load" } else { "Unload" };
            let path = format!("/inference.GRPCInferenceService/RepositoryModel{verb}");
            assert_eq!(facts(&path), (None, RequestType::Update));
        }
    }

    #[test]
    fn any_other_path_says_nothing() {
        for path in [
            "",
            "/",
            "*",
            "/v1/chat/completions",
            "/v2",
            "/v2/models",
            "/v2/models/",
            "/v2/models/llama",
            "/v2/models/llama/ready",
            "/v2/models/llama/infer/more",
            "/v2/models/llama/versions",
            "/v2/models/llama/versions/1",
            "/v2/models/llama/versions/1/infer/x",
            "/v2/repository/index",
            "/v2/repository/models/llama",
            "/v2/repository/models/llama/load/x",
            "/inference.GRPCInferenceService/ModelInfer",
            "v2/models/llama/infer",
            "?/v2/models/llama/infer",
        ] {
            assert_eq!(facts(path), (None, RequestType::Inference), "{path:?}");
        }
    }

    /// An empty model name reaches the request as no model at all.
    #[test]
    fn an_empty_segment_is_an_empty_name() {
        assert_eq!(facts("/v2/models//infer"), (Some(String::new()), RequestType::Inference));
        let request = super::super::Request::from_headers(
            &super::super::HeaderNames { model: [].into(), request_type: [].into() },
            [(&b":path"[..], &b"/v2/models//infer"[..])],
        );
        assert_eq!(request.model, None);
    }
}
