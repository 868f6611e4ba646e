//! The door of the server: every request of every protocol comes through here, once.
//!
//! Requests under `/mock/` go straight to [`super::control`]. All others are recorded and counted, suffer the current
//! faults, and then reach their protocol. Every answer gets `x-served-by`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tower::ServiceExt;

use super::answer::Shape;
use super::app::App;
use super::failure::{Doomed, Reset};
use super::gpu::pause;
use super::kind::{Kind, Protocol};
use super::link::Link;
use super::ticket::Ticket;
use super::{control, grpc, kserve, metrics, openai, repository};

const SERVED_BY: &str = "x-served-by";

/// Where requests go; made once for each life.
#[derive(Debug, Clone)]
pub(super) struct Front {
    app: Arc<App>,
    control: Router,
    http: Router,
    grpc: Router,
}

impl Front {
    pub(super) async fn new(app: Arc<App>) -> Self {
        let control = control::router(Arc::clone(&app));
        let grpc = grpc::routes(Arc::clone(&app)).await.into_axum_router();
        Self { control, http: http_router(Arc::clone(&app)), grpc, app }
    }

    pub(super) fn app(&self) -> &Arc<App> {
        &self.app
    }

    pub(super) async fn answer(self, link: Arc<Link>, request: Request<Incoming>) -> Result<Response, Reset> {
        let served_by = link.served_by.clone();
        let path = request.uri().path();
        let mut response = if path == "/mock" || path.starts_with("/mock/") {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(link);
            run(self.control, request).await
        } else {
            let life = self.app.life.clone();
            life.run_until_cancelled(self.serve(link, request)).await.unwrap_or(Err(Reset))?
        };
        response.headers_mut().insert(SERVED_BY, served_by);
        Ok(response)
    }

    async fn serve(self, link: Arc<Link>, request: Request<Incoming>) -> Result<Response, Reset> {
        let kind = Kind::of(&request);
        let shared = &self.app.shared;
        let recording = shared.recorder.record(&request);
        let ticket = kind.inference.then(|| Ticket::new(Arc::clone(&self.app), recording));
        if ticket.is_none() {
            shared.stats.other_request();
        }
        let effect = shared.faults.decide(kind);
        pause(effect.delay).await;
        let response = if let Some(failure) = effect.failure {
            let (version, path) = (request.version(), request.uri().path().to_owned());
            let doomed = Doomed { kind, version, path, link, ticket: ticket.clone() };
            drain(request.into_body()).await?;
            doomed.fail(failure).await?
        } else {
            let mut request = request.map(Body::new);
            if let Some(ticket) = &ticket {
                request.extensions_mut().insert(Arc::clone(ticket));
            }
            run(if kind.protocol == Protocol::Grpc { self.grpc } else { self.http }, request).await
        };
        if let Some(ticket) = ticket {
            ticket.end_with_head();
        }
        Ok(response)
    }
}

async fn run(router: Router, request: Request<Body>) -> Response {
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Reads a request to its end, so that a client's departure is noticed and the connection can be used again.
async fn drain(mut body: Incoming) -> Result<(), Reset> {
    while let Some(frame) = body.frame().await {
        frame.map_err(|error| {
            tracing::debug!(%error, "the client left while it sent its request");
            Reset
        })?;
    }
    Ok(())
}

fn http_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/completions", post(openai::completions))
        .route("/v1/embeddings", post(openai::embeddings))
        .route("/v1/models", get(openai::models))
        .route("/v2", get(kserve::server_metadata))
        .route("/v2/health/live", get(kserve::healthy))
        .route("/v2/health/ready", get(kserve::healthy))
        .route("/v2/models/{model}", get(kserve::metadata))
        .route("/v2/models/{model}/ready", get(kserve::ready))
        .route("/v2/models/{model}/infer", post(kserve::infer))
        .route("/v2/models/{model}/versions/{version}", get(kserve::metadata))
        .route("/v2/models/{model}/versions/{version}/ready", get(kserve::ready))
        .route("/v2/models/{model}/versions/{version}/infer", post(kserve::infer))
        .route("/v2/repository/index", post(repository::list))
        .route("/v2/repository/models/{model}/load", post(repository::load))
        .route("/v2/repository/models/{model}/unload", post(repository::unload))
        .route("/health", get(kserve::healthy))
        .route("/metrics", get(metrics::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(grpc::MOST_BYTES))
        .with_state(app)
}

async fn unknown_path(uri: Uri) -> Response {
    let message = format!("there is no {}", uri.path());
    Shape::of_path(uri.path()).error(StatusCode::NOT_FOUND, &message)
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    Shape::of_path(uri.path()).error(StatusCode::METHOD_NOT_ALLOWED, &message)
}
