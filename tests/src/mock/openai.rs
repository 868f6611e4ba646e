//! The OpenAI paths, as vLLM serves them: chat, completions, embeddings, the list of models.
//!
//! The model is the body's `model`, else the header `x-model-id`. A completion has exactly `max_tokens` tokens.
//! A prompt counts one token for every four bytes of the body.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Shape, cold};
use super::app::App;
use super::openai_stream::{self, Script};
use super::ticket::Ticket;

/// More tokens than any context holds: a mistake of the client, as it would be in a real server.
const MOST_TOKENS: u32 = 131_072;
const EMBEDDING_SIZE: usize = 8;

type Body = Result<Bytes, BytesRejection>;

/// What chat and completions have in common, as far as this server cares. Other fields are the model's business.
#[derive(Debug, Deserialize)]
struct CompletionRequest {
    model: Option<String>,
    stream: Option<bool>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct EmbeddingRequest {
    model: Option<String>,
    input: Option<Input>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    One(#[expect(dead_code, reason = "its being a text is all that is asked")] String),
    /// Texts, or token numbers of one or several texts.
    Many(Vec<Value>),
}

/// Which of the two completion paths: they differ in the shape of their answers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Chat,
    Text,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    prompt: usize,
    pub(super) completion: u32,
}

impl Usage {
    pub(super) fn json(self) -> Value {
        let total = self.prompt + self.completion as usize;
        json!({ "prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total })
    }
}

pub(super) async fn chat(
    State(app): State<Arc<App>>,
    Extension(ticket): Extension<Arc<Ticket>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    complete(app, ticket, headers, body, Style::Chat).await
}

pub(super) async fn completions(
    State(app): State<Arc<App>>,
    Extension(ticket): Extension<Arc<Ticket>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    complete(app, ticket, headers, body, Style::Text).await
}

async fn complete(app: Arc<App>, ticket: Arc<Ticket>, headers: HeaderMap, body: Body, style: Style) -> Response {
    let prompt = body.as_ref().map_or(0, Bytes::len).div_ceil(4);
    let request: CompletionRequest = match Shape::OpenAi.parse(body) {
        Ok(request) => request,
        Err(answer) => return *answer,
    };
    let said = request.max_completion_tokens.or(request.max_tokens);
    let tokens = said.unwrap_or(app.shared.settings.default_tokens);
    if !(1..=MOST_TOKENS).contains(&tokens) {
        let message = format!("max_tokens must be between 1 and {MOST_TOKENS}, got {tokens}");
        return Shape::OpenAi.error(StatusCode::BAD_REQUEST, &message);
    }
    let (model, running) = match app.admit(&ticket, request.model.as_deref(), &headers).await {
        Ok(admitted) => admitted,
        Err(refusal) => return Shape::OpenAi.refusal(&refusal),
    };
    let was_cold = running.cold;
    let reason = if said.is_some() { "length" } else { "stop" };
    let usage = Usage { prompt, completion: tokens };
    if request.stream == Some(true) {
        let with_usage = request.stream_options.and_then(|options| options.include_usage) == Some(true);
        let script = Script { style, model, usage, with_usage, reason };
        return openai_stream::respond(app, ticket, running, script).await;
    }
    app.work(tokens - 1).await;
    ticket.succeeded();
    drop(running);
    (cold(was_cold), Json(completion(style, &model, usage, reason))).into_response()
}

fn completion(style: Style, model: &str, usage: Usage, reason: &str) -> Value {
    let text: String = (0..usage.completion).map(token_text).collect();
    let (id, object, choice) = match style {
        Style::Chat => {
            let message = json!({ "role": "assistant", "content": text });
            ("chatcmpl-mock", "chat.completion", json!({ "index": 0, "message": message, "finish_reason": reason }))
        }
        Style::Text => {
            let choice = json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": reason });
            ("cmpl-mock", "text_completion", choice)
        }
    };
    json!({
        "id": id, "object": object, "created": created(), "model": model,
        "choices": [choice], "usage": usage.json(),
    })
}

/// The text of the `n`th token, the same in every answer.
pub(super) fn token_text(n: u32) -> String {
    format!("t{n} ")
}

#[expect(clippy::disallowed_methods, reason = "the protocol asks for the time of day")]
pub(super) fn created() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map(|time| time.as_secs()).unwrap_or_default()
}

pub(super) async fn embeddings(
    State(app): State<Arc<App>>,
    Extension(ticket): Extension<Arc<Ticket>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let prompt = body.as_ref().map_or(0, Bytes::len).div_ceil(4);
    let request: EmbeddingRequest = match Shape::OpenAi.parse(body) {
        Ok(request) => request,
        Err(answer) => return *answer,
    };
    let inputs = match &request.input {
        Some(Input::Many(items)) if items.iter().all(Value::is_number) => usize::from(!items.is_empty()),
        Some(Input::Many(items)) => items.len(),
        Some(Input::One(_)) => 1,
        None => 0,
    };
    if inputs == 0 {
        return Shape::OpenAi.error(StatusCode::BAD_REQUEST, "input: a text or a list of texts is required");
    }
    let (model, running) = match app.admit(&ticket, request.model.as_deref(), &headers).await {
        Ok(admitted) => admitted,
        Err(refusal) => return Shape::OpenAi.refusal(&refusal),
    };
    app.work(0).await;
    ticket.succeeded();
    let was_cold = running.cold;
    drop(running);
    let vector = [1.0 / (EMBEDDING_SIZE as f64).sqrt(); EMBEDDING_SIZE];
    let data: Vec<Value> =
        (0..inputs).map(|index| json!({ "object": "embedding", "index": index, "embedding": vector })).collect();
    let usage = json!({ "prompt_tokens": prompt, "total_tokens": prompt });
    let body = json!({ "object": "list", "data": data, "model": model, "usage": usage });
    (cold(was_cold), Json(body)).into_response()
}

/// What can be served: the configured models, else those in memory.
pub(super) async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    let configured = &app.shared.settings.models;
    let names = if configured.is_empty() { app.gpu.resident() } else { configured.clone() };
    let data: Vec<Value> = names
        .iter()
        .map(|name| json!({ "id": name, "object": "model", "created": created(), "owned_by": "mock" }))
        .collect();
    Json(json!({ "object": "list", "data": data }))
}
