//! What sort of request this is, from its head alone: enough to count it and to choose how it fails.

use http::{Method, Request, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Grpc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) protocol: Protocol,
    /// One model runs for it. (A gRPC inference stream is not one request but many: its messages are counted.)
    pub(super) inference: bool,
}

impl Kind {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        let protocol = if grpc { Protocol::Grpc } else { Protocol::Http };
        let inference = request.method() == Method::POST && is_inference(protocol, request.uri().path());
        Self { protocol, inference }
    }
}

fn is_inference(protocol: Protocol, path: &str) -> bool {
    match protocol {
        Protocol::Grpc => path == "/inference.GRPCInferenceService/ModelInfer",
        Protocol::Http => {
            matches!(path, "/v1/chat/completions" | "/v1/completions" | "/v1/embeddings") || is_kserve_infer(path)
        }
    }
}

/// `/v2/models/{model}[/versions/{version}]/infer`
fn is_kserve_infer(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("/v2/models/").and_then(|rest| rest.strip_suffix("/infer")) else {
        return false;
    };
    let mut parts = rest.split('/');
    let named = parts.next().is_some_and(|model| !model.is_empty());
    match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => named,
        (Some("versions"), Some(version), None) => named && !version.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kserve_paths_are_inference_only_in_their_exact_form() {
        for path in ["/v2/models/m/infer", "/v2/models/a%2Fb/infer", "/v2/models/m/versions/1/infer"] {
            assert!(is_inference(Protocol::Http, path), "{path}");
        }
        for path in [
            "/v2/models/m",
            "/v2/models//infer",
            "/v2/models/m/versions/infer",
            "/v2/models/m/versions/1/x/infer",
            "/v2/models/m/ready",
            "/v1/models",
        ] {
            assert!(!is_inference(Protocol::Http, path), "{path}");
        }
    }
}
