//! The Open Inference Protocol (KServe v2) over HTTP.
//!
//! A model is ready when it is resident; inference on one that is not loads it. The answer to any inference is one
//! FP32 tensor of four numbers.

use std::sync::Arc;

use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::answer::{Shape, cold};
use super::app::App;
use super::ticket::Ticket;

pub(super) const OUTPUT: [f32; 4] = [0.1, 0.2, 0.3, 0.4];
pub(super) const SERVER_NAME: &str = "mock-model-server";

/// Triton's binary tensors: the JSON part of the body is this long, raw tensors follow.
const JSON_LENGTH: &str = "inference-header-content-length";

#[derive(Debug, Deserialize)]
struct InferRequest {
    id: Option<String>,
    inputs: Vec<Tensor>,
}

/// Checked, not used.
#[derive(Debug, Deserialize)]
struct Tensor {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "shape")]
    _shape: Vec<i64>,
    #[serde(rename = "datatype")]
    _datatype: String,
    #[serde(rename = "data")]
    _data: Option<IgnoredAny>,
}

/// The model of the path, with its version where the path has one.
#[derive(Debug, Deserialize)]
pub(super) struct Named {
    model: String,
    version: Option<String>,
}

pub(super) async fn server_metadata() -> Json<Value> {
    Json(json!({
        "name": SERVER_NAME, "version": env!("CARGO_PKG_VERSION"), "extensions": ["model_repository"],
    }))
}

/// Live and ready: it answers.
pub(super) async fn healthy() -> StatusCode {
    StatusCode::OK
}

pub(super) async fn metadata(State(app): State<Arc<App>>, Path(named): Path<Named>) -> Response {
    if let Err(refusal) = app.serves(&named.model) {
        return Shape::Kserve.refusal(&refusal);
    }
    let tensor = |name, shape: [i64; 2]| json!([{ "name": name, "datatype": "FP32", "shape": shape }]);
    Json(json!({
        "name": named.model, "versions": [named.version.as_deref().unwrap_or("1")], "platform": "mock",
        "inputs": tensor("INPUT0", [-1, -1]), "outputs": tensor("OUTPUT0", [1, OUTPUT.len() as i64]),
    }))
    .into_response()
}

pub(super) async fn ready(State(app): State<Arc<App>>, Path(named): Path<Named>) -> Response {
    if let Err(refusal) = app.serves(&named.model) {
        return Shape::Kserve.refusal(&refusal);
    }
    if app.gpu.is_resident(&named.model) {
        return StatusCode::OK.into_response();
    }
    let message = format!("the model `{}` is not loaded", named.model);
    Shape::Kserve.error(StatusCode::BAD_REQUEST, &message)
}

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    Path(named): Path<Named>,
    Extension(ticket): Extension<Arc<Ticket>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let json_part = match body.map(|body| json_part(&headers, body)) {
        Ok(Some(part)) => Ok(part),
        Ok(None) => {
            let message = format!("{JSON_LENGTH}: not the length of a part of the body");
            return Shape::Kserve.error(StatusCode::BAD_REQUEST, &message);
        }
        Err(rejection) => Err(rejection),
    };
    let request: InferRequest = match Shape::Kserve.parse(json_part) {
        Ok(request) => request,
        Err(answer) => return *answer,
    };
    if request.inputs.is_empty() {
        return Shape::Kserve.error(StatusCode::BAD_REQUEST, "inputs: at least one tensor is required");
    }
    let (model, running) = match app.admit(&ticket, Some(&named.model), &headers).await {
        Ok(admitted) => admitted,
        Err(refusal) => return Shape::Kserve.refusal(&refusal),
    };
    app.work(0).await;
    ticket.succeeded();
    let was_cold = running.cold;
    drop(running);
    let output = json!({ "name": "OUTPUT0", "datatype": "FP32", "shape": [1, OUTPUT.len()], "data": OUTPUT });
    let mut answer = json!({
        "model_name": model, "model_version": named.version.as_deref().unwrap_or("1"), "outputs": [output],
    });
    if let Some(id) = request.id {
        answer["id"] = Value::String(id);
    }
    (cold(was_cold), Json(answer)).into_response()
}

/// The part of the body that is JSON; none if the header that says how long it is makes no sense.
fn json_part(headers: &HeaderMap, body: Bytes) -> Option<Bytes> {
    let Some(length) = headers.get(JSON_LENGTH) else { return Some(body) };
    let length: usize = length.to_str().ok()?.parse().ok()?;
    (length <= body.len()).then(|| body.slice(..length))
}
