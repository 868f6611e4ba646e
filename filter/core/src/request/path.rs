//! Models and request types that a path tells.
//!
//! | path | model | type | body |
//! |---|---|---|---|
//! | `/v2/models/{m}[/versions/{v}]/{infer, infer_stream, generate, generate_stream}` | m | inference | |
//! | `/v2/repository/models/{m}/{load, unload}` | m | update | |
//! | `/v1/models/{m}[/versions/{v} or /labels/{l}]:{predict, classify, regress, explain}` | m | inference | |
//! | `…/v1/{chat/completions, completions, embeddings, responses, rerank, score, …}` | | inference | JSON |
//! | `…/openai/deployments/{m}/{chat/completions, …}` | m | inference | JSON |
//! | `/v1/{load_lora_adapter, unload_lora_adapter}` | | update | |
//! | `/inference.GRPCInferenceService/{ModelInfer, ModelStreamInfer}` | | inference | ModelInferRequest |
//! | `/inference.GRPCInferenceService/{RepositoryModelLoad, RepositoryModelUnload}` | | update | |
//!
//! Any other path names no model and is inference as far as the path says. Sources: the KServe v1 and v2 protocols, Triton's
//! repository extension, TensorFlow Serving's REST API, OpenAI's API as vLLM and SGLang serve it.

use super::{BodyHint, RequestType};
use std::borrow::Cow;

/// What a path tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathFacts<'a> {
    pub(super) model: Option<Cow<'a, [u8]>>,
    pub(super) request_type: RequestType,
    /// Where the body could name the model.
    pub(super) body_hint: BodyHint,
    /// It is a path on which models are run, …
    pub(super) inference: bool,
    /// … from its first byte to its last, and it asks for no version of the model.
    pub(super) plain: bool,
    /// What an update does to the model.
    pub(super) change: Option<Change>,
}

/// What an update does to a model at the endpoint that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is in memory afterwards.
    Load,
    /// It is not.
    Unload,
}

impl Default for PathFacts<'_> {
    fn default() -> Self {
        Self {
            model: None,
            request_type: RequestType::Inference,
            body_hint: BodyHint::None,
            inference: false,
            plain: false,
            change: None,
        }
    }
}

impl<'a> PathFacts<'a> {
    fn runs(model: Option<&'a [u8]>, body_hint: BodyHint) -> Self {
        Self { model: model.map(decode), body_hint, inference: true, plain: true, ..Self::default() }
    }

    fn updates(model: Option<&'a [u8]>, change: Change) -> Self {
        Self { model: model.map(decode), request_type: RequestType::Update, change: Some(change), ..Self::default() }
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
    if let Some(rest) = path.strip_prefix(b"/v1/models/") {
        return serving(rest);
    }
    if let Some(method) = path.strip_prefix(b"/inference.GRPCInferenceService/") {
        return grpc(method);
    }
    match path {
        b"/v1/load_lora_adapter" => PathFacts::updates(None, Change::Load),
        b"/v1/unload_lora_adapter" => PathFacts::updates(None, Change::Unload),
        _ => openai(path),
    }
}

fn kserve(rest: &[u8]) -> PathFacts<'_> {
    let mut segments = rest.split(|byte| *byte == b'/');
    let model = segments.next();
    let mut action = segments.next();
    let versioned = action == Some(b"versions");
    if versioned {
        segments.next();
        action = segments.next();
    }
    match (action, segments.next()) {
        (Some(b"infer" | b"infer_stream" | b"generate" | b"generate_stream"), None) => {
            PathFacts { plain: !versioned, ..PathFacts::runs(model, BodyHint::None) }
        }
        _ => PathFacts::default(),
    }
}

fn repository(rest: &[u8]) -> PathFacts<'_> {
    let mut segments = rest.split(|byte| *byte == b'/');
    match (segments.next(), segments.next(), segments.next()) {
        (Some(model), Some(b"load"), None) => PathFacts::updates(Some(model), Change::Load),
        (Some(model), Some(b"unload"), None) => PathFacts::updates(Some(model), Change::Unload),
        _ => PathFacts::default(),
    }
}

/// A verb behind the last colon. Model names may hold colons themselves, but no slashes that are not encoded.
fn serving(rest: &[u8]) -> PathFacts<'_> {
    let Some(colon) = rest.iter().rposition(|byte| *byte == b':') else { return PathFacts::default() };
    let (Some(name), Some(verb)) = (rest.get(..colon), rest.get(colon.saturating_add(1)..)) else {
        return PathFacts::default();
    };
    let mut segments = name.split(|byte| *byte == b'/');
    let model = segments.next();
    let place = (segments.next(), segments.next(), segments.next());
    match (verb, place) {
        (
            b"predict" | b"classify" | b"regress" | b"explain",
            (None, None, None) | (Some(b"versions" | b"labels"), Some(_), None),
        ) => PathFacts { plain: place.0.is_none(), ..PathFacts::runs(model, BodyHint::None) },
        _ => PathFacts::default(),
    }
}

fn grpc(method: &[u8]) -> PathFacts<'_> {
    match method {
        // The message may ask for a version.
        b"ModelInfer" | b"ModelStreamInfer" => {
            PathFacts { plain: false, ..PathFacts::runs(None, BodyHint::GrpcModelInfer) }
        }
        b"RepositoryModelLoad" => PathFacts::updates(None, Change::Load),
        b"RepositoryModelUnload" => PathFacts::updates(None, Change::Unload),
        _ => PathFacts::default(),
    }
}

/// What OpenAI's API calls below `/v1/`, or below a deployment.
const OPENAI: [&[u8]; 14] = [
    b"chat/completions",
    b"completions",
    b"embeddings",
    b"responses",
    b"messages",
    b"rerank",
    b"score",
    b"classify",
    b"pooling",
    b"audio/transcriptions",
    b"audio/translations",
    b"audio/speech",
    b"images/generations",
    b"images/edits",
];

/// The others refer to more than a model: earlier responses, files, voices.
fn is_plain(call: &[u8]) -> bool {
    matches!(
        call,
        b"chat/completions" | b"completions" | b"embeddings" | b"rerank" | b"score" | b"classify" | b"pooling"
    )
}

fn openai(path: &[u8]) -> PathFacts<'_> {
    if let Some(rest) = path.strip_prefix(b"/openai/deployments/") {
        let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (model, call) = rest.split_at_checked(slash).unwrap_or_default();
        let known = call.strip_prefix(b"/").is_some_and(|call| OPENAI.contains(&call));
        // What stands before the name may be what is not found, a resource or a deployment.
        return match known {
            true => PathFacts { plain: false, ..PathFacts::runs(Some(model), BodyHint::Json) },
            false => PathFacts::default(),
        };
    }
    let prefix = |call: &&'static [u8]| {
        let prefix = path.strip_suffix(*call).filter(|prefix| prefix.ends_with(b"/v1/"))?;
        Some((*call, prefix))
    };
    match OPENAI.iter().find_map(prefix) {
        Some((call, prefix)) => {
            PathFacts { plain: prefix == b"/v1/" && is_plain(call), ..PathFacts::runs(None, BodyHint::Json) }
        }
        None => PathFacts::default(),
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

    fn model(path: &str) -> Option<String> {
        parse(path.as_bytes()).model.map(|model| String::from_utf8_lossy(&model).into_owned())
    }

    #[test]
    fn inference_paths_name_their_model() {
        for (path, expected) in [
            ("/v2/models/llama/infer", "llama"),
            ("/v2/models/llama/versions/3/infer", "llama"),
            ("/v2/models/llama/infer?trace=1", "llama"),
            ("/v2/models/llama/generate", "llama"),
            ("/v2/models/llama/generate_stream", "llama"),
            ("/v2/models/org%2Fllama%203/infer", "org/llama 3"),
            ("/v2/models/100%/infer", "100%"),
            ("/v2/models/versions/infer", "versions"),
            ("/v1/models/llama:predict", "llama"),
            ("/v1/models/llama:classify", "llama"),
            ("/v1/models/llama:regress?x=1", "llama"),
            ("/v1/models/llama/versions/3:predict", "llama"),
            ("/v1/models/llama/labels/stable:predict", "llama"),
            ("/v1/models/base:adapter:predict", "base:adapter"),
            ("/v1/models/org%2Fllama:predict", "org/llama"),
            ("/openai/deployments/gpt-4o/chat/completions?api-version=1", "gpt-4o"),
        ] {
            let facts = parse(path.as_bytes());
            assert_eq!(model(path).as_deref(), Some(expected), "{path}");
            assert!(facts.request_type == RequestType::Inference && facts.inference, "{path}");
        }
    }

    #[test]
    fn some_inference_paths_leave_the_model_to_the_body() {
        for (path, hint) in [
            ("/v1/chat/completions", BodyHint::Json),
            ("/v1/completions", BodyHint::Json),
            ("/v1/embeddings", BodyHint::Json),
            ("/v1/audio/transcriptions", BodyHint::Json),
            ("/openai/v1/chat/completions", BodyHint::Json),
            ("/team-a/v1/rerank", BodyHint::Json),
            ("/inference.GRPCInferenceService/ModelInfer", BodyHint::GrpcModelInfer),
            ("/inference.GRPCInferenceService/ModelStreamInfer", BodyHint::GrpcModelInfer),
        ] {
            let facts = parse(path.as_bytes());
            assert_eq!((facts.body_hint, facts.inference, facts.model), (hint, true, None), "{path}");
        }
    }

    /// Anything else than the model may be what is not there: a version, or whatever a prefix leads to.
    #[test]
    fn not_found_means_the_model_on_plain_paths_only() {
        for (path, plain) in [
            ("/v2/models/llama/infer", true),
            ("/v2/models/llama/infer?x=1", true),
            ("/v2/models/llama/versions/99/infer", false),
            ("/v1/models/llama:predict", true),
            ("/v1/models/llama/versions/3:predict", false),
            ("/v1/models/llama/labels/stable:predict", false),
            ("/v1/chat/completions", true),
            ("/nothing/v1/score", false),
            ("/v1/embeddings", true),
            ("/v1/responses", false),
            ("/v1/messages", false),
            ("/v1/audio/speech", false),
            ("/openai/deployments/gpt-4o/chat/completions", false),
            ("/inference.GRPCInferenceService/ModelInfer", false),
            ("/v2/repository/models/llama/load", false),
            ("/anything", false),
        ] {
            assert_eq!(parse(path.as_bytes()).plain, plain, "{path}");
        }
    }

    #[test]
    fn paths_that_change_what_is_loaded_are_updates() {
        for (path, named, change) in [
            ("/v2/repository/models/llama/load", Some("llama"), Change::Load),
            ("/v2/repository/models/llama/unload", Some("llama"), Change::Unload),
            ("/inference.GRPCInferenceService/RepositoryModelLoad", None, Change::Load),
            ("/inference.GRPCInferenceService/RepositoryModelUnload", None, Change::Unload),
            ("/v1/load_lora_adapter", None, Change::Load),
            ("/v1/unload_lora_adapter", None, Change::Unload),
        ] {
            let facts = parse(path.as_bytes());
            assert_eq!((facts.request_type, facts.inference), (RequestType::Update, false), "{path}");
            assert_eq!(facts.change, Some(change), "{path}");
            assert_eq!(model(path).as_deref(), named, "{path}");
        }
    }

    #[test]
    fn any_other_path_says_nothing() {
        for path in [
            "",
            "/",
            "*",
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
            "/inference.GRPCInferenceService/ServerLive",
            "/inference.GRPCInferenceService/ModelInfer/x",
            "v2/models/llama/infer",
            "?/v2/models/llama/infer",
            "/v1/models",
            "/v1/models/llama",
            "/v1/models/llama/metadata",
            "/v1/models/llama:delete",
            "/v1/models/llama/versions:predict",
            "/v1/models/llama/versions/1/x:predict",
            "/v1/chat",
            "/v1/chat/completions/x",
            "/chat/completions",
            "/xv1/chat/completions",
            "/openai/deployments/gpt-4o",
            "/openai/deployments/gpt-4o/files",
            "/health",
            "/metrics",
        ] {
            assert_eq!(parse(path.as_bytes()), PathFacts::default(), "{path:?}");
        }
    }

    /// An empty model name reaches the request as no model at all.
    #[test]
    fn an_empty_segment_is_an_empty_name() {
        for path in [&b"/v2/models//infer"[..], b"/v1/models/:predict", b"/openai/deployments//completions"] {
            assert_eq!(parse(path).model.as_deref(), Some(&b""[..]));
            let settings = super::super::RequestSettings::default();
            let request = super::super::Request::from_headers(&settings, [(&b":path"[..], path)], None);
            assert_eq!(request.model, None);
        }
    }
}
