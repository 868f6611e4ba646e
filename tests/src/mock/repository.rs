//! Triton's model repository calls over HTTP: list, load, unload.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::answer::Shape;
use super::app::App;

/// Name and whether it is resident: the configured models, and everything in memory.
pub(super) fn index(app: &App) -> BTreeMap<String, bool> {
    let configured = app.shared.settings.models.iter().map(|model| (model.clone(), false));
    let resident = app.gpu.resident().into_iter().map(|model| (model, true));
    configured.chain(resident).collect()
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Json<Vec<Value>> {
    let entry = |(name, resident): (String, bool)| {
        if resident {
            json!({ "name": name, "version": "1", "state": "READY" })
        } else {
            json!({ "name": name, "version": "1", "state": "UNAVAILABLE", "reason": "unloaded" })
        }
    };
    Json(index(&app).into_iter().map(entry).collect())
}

pub(super) async fn load(State(app): State<Arc<App>>, Path(model): Path<String>) -> Response {
    if let Err(refusal) = app.serves(&model) {
        return Shape::Kserve.refusal(&refusal);
    }
    app.gpu.load(&model).await;
    StatusCode::OK.into_response()
}

/// Unloading what is not loaded is no error, as in Triton.
pub(super) async fn unload(State(app): State<Arc<App>>, Path(model): Path<String>) -> Response {
    if let Err(refusal) = app.serves(&model) {
        return Shape::Kserve.refusal(&refusal);
    }
    app.gpu.unload(&model);
    StatusCode::OK.into_response()
}
