//! A streamed completion as server-sent events: one event a token, then the reason, the usage if asked for, `[DONE]`.
//!
//! The response head is sent with the first token, so that a proxy that measures the time to headers sees the work
//! and a refusal can still have its status. The place and the model are held to the last event; a client that leaves
//! drops the stream, and with it everything it holds.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use serde_json::{Value, json};

use super::answer::cold;
use super::app::App;
use super::gpu::{Running, pause};
use super::openai::{Style, Usage, created, token_text};
use super::ticket::Ticket;

pub(super) struct Script {
    pub(super) style: Style,
    pub(super) model: String,
    pub(super) usage: Usage,
    pub(super) with_usage: bool,
    pub(super) reason: &'static str,
}

struct Live {
    app: Arc<App>,
    ticket: Arc<Ticket>,
    running: Running,
    script: Script,
    next: Event,
}

enum Event {
    Token(u32),
    Reason,
    Usage,
    Done,
}

pub(super) async fn respond(app: Arc<App>, ticket: Arc<Ticket>, running: Running, script: Script) -> Response {
    let was_cold = running.cold;
    app.work(0).await;
    ticket.keep_past_head();
    let live = Live { app, ticket, running, script, next: Event::Token(0) };
    let events = stream::unfold(Some(live), |live| async { step(live?).await });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, cold(was_cold), Body::from_stream(events)).into_response()
}

async fn step(mut live: Live) -> Option<(Result<Bytes, Infallible>, Option<Live>)> {
    let (event, next) = match live.next {
        Event::Token(n) => {
            if n > 0 {
                let slow_factor = live.app.shared.faults.slow_factor();
                pause(live.app.shared.timing.token(slow_factor)).await;
            }
            let last = n + 1 == live.script.usage.completion;
            (live.script.token(n), if last { Event::Reason } else { Event::Token(n + 1) })
        }
        Event::Reason => {
            let next = if live.script.with_usage { Event::Usage } else { Event::Done };
            (live.script.last(), next)
        }
        Event::Usage => (live.script.usage(), Event::Done),
        Event::Done => {
            let Live { ticket, running, .. } = live;
            drop(running);
            ticket.succeeded();
            ticket.end();
            return Some((Ok(Bytes::from_static(b"data: [DONE]\n\n")), None));
        }
    };
    live.next = next;
    Some((Ok(Bytes::from(format!("data: {event}\n\n"))), Some(live)))
}

impl Script {
    fn token(&self, n: u32) -> Value {
        let text = token_text(n);
        self.chunk(match self.style {
            Style::Chat if n == 0 => {
                json!([{ "index": 0, "delta": { "role": "assistant", "content": text }, "finish_reason": null }])
            }
            Style::Chat => json!([{ "index": 0, "delta": { "content": text }, "finish_reason": null }]),
            Style::Text => json!([{ "index": 0, "text": text, "logprobs": null, "finish_reason": null }]),
        })
    }

    fn last(&self) -> Value {
        self.chunk(match self.style {
            Style::Chat => json!([{ "index": 0, "delta": {}, "finish_reason": self.reason }]),
            Style::Text => json!([{ "index": 0, "text": "", "logprobs": null, "finish_reason": self.reason }]),
        })
    }

    fn usage(&self) -> Value {
        let mut chunk = self.chunk(json!([]));
        chunk["usage"] = self.usage.json();
        chunk
    }

    fn chunk(&self, choices: Value) -> Value {
        let (id, object) = match self.style {
            Style::Chat => ("chatcmpl-mock", "chat.completion.chunk"),
            Style::Text => ("cmpl-mock", "text_completion"),
        };
        json!({
            "id": id, "object": object, "created": created(), "model": self.model, "choices": choices,
        })
    }
}
