//! The paths under `/mock/`, by which tests and people watch a server and break it. Faults do not touch them.
//!
//! | | |
//! |---|---|
//! | `GET /mock/stats` | counters and the resident models |
//! | `POST /mock/reset` | zeroes the counters; `{"resident": [..]}` also sets the memory |
//! | `GET`, `POST`, `DELETE /mock/faults` | shows, replaces, clears the faults |
//! | `GET /mock/requests` | the last requests as they arrived (with `--record`) |
//!
//! A crash is answered when the server is already dead: its port closed, every other connection cut.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::answer::parse_json;
use super::app::App;
use super::faults::Faults;
use super::link::Link;

/// What the supervisor is asked to do; it answers when it is done.
#[derive(Debug)]
pub(super) enum Command {
    Crash { restart_after: Option<Duration>, done: oneshot::Sender<()> },
    Restart { done: oneshot::Sender<std::io::Result<()>> },
}

pub(super) type Commands = mpsc::UnboundedSender<Command>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    resident: Option<Vec<String>>,
}

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/mock/stats", get(stats))
        .route("/mock/reset", post(reset))
        .route("/mock/faults", get(show_faults).post(set_faults).delete(clear_faults))
        .route("/mock/requests", get(requests))
        .fallback(unknown)
        .with_state(app)
}

/// Asks for a crash and waits until the server is dead.
pub(super) async fn crash(commands: &Commands, restart_after: Option<Duration>) {
    let (done, dead) = oneshot::channel();
    let sent = commands.send(Command::Crash { restart_after, done });
    // A supervisor that is gone, or goes now, leaves a server that is dead already.
    if sent.is_ok() && dead.await.is_err() {
        tracing::debug!("the server stopped during a crash");
    }
}

async fn stats(State(app): State<Arc<App>>) -> Response {
    Json(app.stats()).into_response()
}

async fn reset(State(app): State<Arc<App>>, body: Bytes) -> Response {
    let reset: Reset = match parse_or_default(&body) {
        Ok(reset) => reset,
        Err(message) => return bad_request(&message),
    };
    match app.reset(reset.resident.as_deref()) {
        Ok(()) => Json(app.stats()).into_response(),
        Err(message) => bad_request(&format!("resident: {message}")),
    }
}

async fn show_faults(State(app): State<Arc<App>>) -> Json<Faults> {
    Json(app.shared.faults.get())
}

async fn set_faults(State(app): State<Arc<App>>, Extension(link): Extension<Arc<Link>>, body: Bytes) -> Response {
    let faults: Faults = match parse_json(&body) {
        Ok(faults) => faults,
        Err(message) => return bad_request(&message),
    };
    if let Err(error) = faults.check() {
        return bad_request(&error.to_string());
    }
    if faults.crash {
        link.outlive_crash();
        crash(&app.shared.commands, faults.restart_after()).await;
        return Json(faults).into_response();
    }
    match app.shared.faults.set(faults) {
        Ok(()) => Json(app.shared.faults.get()).into_response(),
        Err(error) => bad_request(&error.to_string()),
    }
}

async fn clear_faults(State(app): State<Arc<App>>) -> Json<Faults> {
    app.shared.faults.clear();
    Json(app.shared.faults.get())
}

async fn requests(State(app): State<Arc<App>>) -> Response {
    if app.shared.recorder.is_on() {
        return Json(app.shared.recorder.list()).into_response();
    }
    error(StatusCode::CONFLICT, "recording is off; start the server with --record")
}

async fn unknown() -> Response {
    error(StatusCode::NOT_FOUND, "there are /mock/stats, /mock/reset, /mock/faults and /mock/requests")
}

fn parse_or_default<T: serde::de::DeserializeOwned + Default>(body: &[u8]) -> Result<T, String> {
    if body.is_empty() { Ok(T::default()) } else { parse_json(body) }
}

fn bad_request(message: &str) -> Response {
    error(StatusCode::BAD_REQUEST, message)
}

fn error(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "error": message }))).into_response()
}
