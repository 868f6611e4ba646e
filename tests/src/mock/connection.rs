//! One connection: TLS if asked for, then HTTP/1.1 or HTTP/2, whichever the client speaks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::front::Front;
use super::link::Link;
use super::socket::Socket;

/// How long the answer to a crash order may take to reach its client.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// The mock's own queue is the limit, and cancelled requests are a test's daily bread, not an attack.
const NO_LIMIT: u32 = 1 << 20;

/// Spawns the tasks of a connection so that none outlives the life of the server.
#[derive(Debug, Clone)]
struct InLife(CancellationToken);

impl<F> hyper::rt::Executor<F> for InLife
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        tokio::spawn(self.0.clone().run_until_cancelled_owned(task));
    }
}

/// Serves a connection to its end, or to the end of the life.
pub(super) async fn serve(front: Front, stream: TcpStream, link: Arc<Link>, tls: Option<TlsAcceptor>) {
    let life = front.app().life.clone();
    let socket = Socket::new(stream, Arc::clone(&link));
    let Some(tls) = tls else { return speak_http(front, socket, link).await };
    match life.run_until_cancelled(tls.accept(socket)).await {
        Some(Ok(stream)) => speak_http(front, stream, link).await,
        Some(Err(error)) => tracing::debug!(%error, "TLS handshake"),
        None => {}
    }
}

async fn speak_http<I>(front: Front, io: I, link: Arc<Link>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let life = front.app().life.clone();
    let for_requests = Arc::clone(&link);
    let service = service_fn(move |request| front.clone().answer(Arc::clone(&for_requests), request));
    // The connection that orders a crash has its stream's task in this life too: it must see its answer out.
    let tasks = CancellationToken::new();
    let _end_tasks = tasks.clone().drop_guard();
    let builder = builder(tasks);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(io), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = life.cancelled() => None,
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(error, "connection"),
        None if link.outlives_crash() => {
            connection.as_mut().graceful_shutdown();
            if tokio::time::timeout(LAST_ANSWER, connection).await.is_err() {
                tracing::debug!("the answer to the crash order did not arrive in time");
            }
        }
        None => {}
    }
}

fn builder(tasks: CancellationToken) -> Builder<InLife> {
    let mut builder = Builder::new(InLife(tasks));
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
    builder
        .http2()
        .max_concurrent_streams(NO_LIMIT)
        .max_pending_accept_reset_streams(NO_LIMIT as usize)
        .max_local_error_reset_streams(NO_LIMIT as usize);
    builder
}
