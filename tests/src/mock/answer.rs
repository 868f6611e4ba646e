//! Answers of the HTTP side that several families of paths share.

use axum::Json;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::app::Refusal;

/// `x-mock-cold`: whether the request had to wait for a load.
pub(super) const COLD: &str = "x-mock-cold";

/// The two shapes that errors have in the protocols served here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    OpenAi,
    Kserve,
}

impl Shape {
    pub(super) fn of_path(path: &str) -> Self {
        if path == "/v2" || path.starts_with("/v2/") { Self::Kserve } else { Self::OpenAi }
    }

    pub(super) fn error(self, status: StatusCode, message: &str) -> Response {
        (status, Json(self.body(status, message))).into_response()
    }

    fn body(self, status: StatusCode, message: &str) -> Value {
        if self == Self::Kserve {
            return json!({ "error": message });
        }
        let kind = match status.as_u16() {
            404 => "NotFoundError",
            429 => "RateLimitError",
            400..=499 => "BadRequestError",
            503 => "ServiceUnavailableError",
            _ => "InternalServerError",
        };
        json!({ "error": { "message": message, "type": kind, "param": null, "code": status.as_u16() } })
    }

    pub(super) fn refusal(self, refusal: &Refusal) -> Response {
        let status = match refusal {
            Refusal::NoModel => StatusCode::BAD_REQUEST,
            Refusal::UnknownModel(_) => StatusCode::NOT_FOUND,
            Refusal::Overloaded(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut response = self.error(status, &refusal.to_string());
        if matches!(refusal, Refusal::Overloaded(_)) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// Reads a whole JSON body, or makes the answer that says what is wrong with it.
    pub(super) fn parse<T: DeserializeOwned>(self, body: Result<Bytes, BytesRejection>) -> Result<T, Box<Response>> {
        let body = body.map_err(|r| Box::new(self.error(r.status(), &r.body_text())))?;
        parse_json(&body).map_err(|message| Box::new(self.error(StatusCode::BAD_REQUEST, &message)))
    }
}

/// Reads JSON and nothing after it; the error names the field. Of a key that is there twice the last one counts, as in
/// Python's parser.
pub(super) fn parse_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    serde_path_to_error::deserialize(value).map_err(|error| error.to_string())
}

pub(super) fn cold(cold: bool) -> [(&'static str, &'static str); 1] {
    [(COLD, if cold { "true" } else { "false" })]
}
