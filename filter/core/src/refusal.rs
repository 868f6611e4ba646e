//! Refusals that the filter answers itself, as HTTP and gRPC.

/// Header that names the refusal, so that a client and an access log can tell it from the model server's own errors.
pub const REFUSAL_HEADER: &str = "x-warmroute-refusal";

/// gRPC status UNAVAILABLE.
const GRPC_UNAVAILABLE: u8 = 14;

/// Why a request is not sent to any endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The pool is known, and nobody in it may serve.
    NoHealthyEndpoint,
}

impl Refusal {
    /// Every refusal, in the order of [`Refusal::position`].
    pub const ALL: [Self; 1] = [Self::NoHealthyEndpoint];

    /// Position in [`Refusal::ALL`].
    #[must_use]
    pub fn position(self) -> usize {
        self as usize
    }

    /// The name in [`REFUSAL_HEADER`], in the error body and in stats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoHealthyEndpoint => "no_healthy_endpoint",
        }
    }

    /// HTTP status.
    #[must_use]
    pub fn http_status(self) -> u16 {
        match self {
            Self::NoHealthyEndpoint => 503,
        }
    }

    /// gRPC status, sent trailers-only to gRPC clients.
    #[must_use]
    pub fn grpc_status(self) -> u8 {
        match self {
            Self::NoHealthyEndpoint => GRPC_UNAVAILABLE,
        }
    }

    /// A sentence for a person.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::NoHealthyEndpoint => "no endpoint of this pool may serve",
        }
    }

    /// Error body: for gRPC the bare sentence, which Envoy makes the status message; else JSON in the shape that OpenAI
    /// clients read.
    #[must_use]
    pub fn body(self, grpc: bool) -> String {
        if grpc {
            return self.message().to_owned();
        }
        format!(
            r#"{{"error":{{"message":"{}","type":"{}","code":{}}}}}"#,
            self.message(),
            self.name(),
            self.http_status()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn the_body_is_json_that_names_the_refusal() {
        let body: serde_json::Value = serde_json::from_str(&Refusal::NoHealthyEndpoint.body(false)).unwrap();
        assert_eq!(body["error"]["type"], "no_healthy_endpoint");
        assert_eq!(body["error"]["code"], 503);
        assert_eq!(Refusal::NoHealthyEndpoint.grpc_status(), 14);
        assert_eq!(Refusal::NoHealthyEndpoint.body(true), Refusal::NoHealthyEndpoint.message());
    }
}
