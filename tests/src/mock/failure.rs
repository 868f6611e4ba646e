//! Makes the failures that faults ask for.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Version, header};
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use tonic::{Code, Status};

use super::answer::Shape;
use super::fault_plan::Failure;
use super::faults::ResetAt;
use super::kind::{Kind, Protocol};
use super::link::Link;
use super::{grpc, ticket::Ticket};

/// Tells the HTTP library to end the stream (HTTP/2) or the connection (HTTP/1.1) without an answer.
#[derive(Debug, thiserror::Error)]
#[error("reset by a fault")]
pub(super) struct Reset;

/// Between the first piece of a body and its reset, for the piece to leave the process and arrive.
const BEFORE_RESET: Duration = Duration::from_millis(20);

/// The request that fails.
pub(super) struct Doomed {
    pub(super) kind: Kind,
    pub(super) version: Version,
    pub(super) path: String,
    pub(super) link: Arc<Link>,
    pub(super) ticket: Option<Arc<Ticket>>,
}

impl Doomed {
    pub(super) async fn fail(self, failure: Failure) -> Result<Response, Reset> {
        match failure {
            Failure::Hang => std::future::pending().await,
            Failure::Reset(ResetAt::BeforeHeaders) => {
                self.end();
                self.prepare_reset();
                Err(Reset)
            }
            Failure::Reset(ResetAt::AfterHeaders) => Ok(self.reset_in_body()),
            Failure::Http { status, retry_after_s } => {
                let shape = Shape::of_path(&self.path);
                let mut response = shape.error(status, "this request was chosen to fail");
                if let Some(seconds) = retry_after_s {
                    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                }
                Ok(response)
            }
            Failure::Grpc { code, trailers_only } => {
                let status = Status::new(Code::from_i32(code), "this request was chosen to fail");
                Ok(if trailers_only { status.into_http() } else { status_after_message(&status) })
            }
        }
    }

    fn reset_in_body(self) -> Response {
        if let Some(ticket) = &self.ticket {
            ticket.keep_past_head();
        }
        let (content_type, piece) = match self.kind.protocol {
            Protocol::Grpc => ("application/grpc", grpc_message()),
            Protocol::Http => ("application/json", Bytes::from_static(b"{\"id\":")),
        };
        let reset = stream::once(async move {
            tokio::time::sleep(BEFORE_RESET).await;
            self.end();
            self.prepare_reset();
            Err(Reset)
        });
        let body = Body::from_stream(stream::iter([Ok(piece)]).chain(reset));
        ([(header::CONTENT_TYPE, content_type)], body).into_response()
    }

    fn end(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.end();
        }
    }

    /// An HTTP/2 stream is reset by itself; an HTTP/1.1 connection goes as a whole.
    fn prepare_reset(&self) {
        if self.version < Version::HTTP_2 {
            self.link.close_with_reset();
        }
    }
}

/// A gRPC answer whose message arrives and whose trailers then say that it failed.
fn status_after_message(status: &Status) -> Response {
    // The head of a trailers-only answer is made of the same headers.
    let mut trailers = status.clone().into_http::<Body>().into_parts().0.headers;
    trailers.remove(header::CONTENT_TYPE);
    let frames = [Ok::<_, Reset>(Frame::data(grpc_message())), Ok(Frame::trailers(trailers))];
    let body = Body::new(StreamBody::new(stream::iter(frames)));
    ([(header::CONTENT_TYPE, "application/grpc")], body).into_response()
}

/// A whole inference answer in its gRPC frame: not compressed, length, message.
fn grpc_message() -> Bytes {
    let message = grpc::infer_response(String::new(), String::new(), String::new()).encode_to_vec();
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(&message);
    frame.freeze()
}
