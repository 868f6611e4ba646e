//! An HTTP client for tests and load: HTTP/1.1, or HTTP/2 without TLS, over one API.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;

/// Longer than any answer that a test waits for, so that a hang becomes a failure that says so.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client that keeps connections and can be cloned; clones share them.
#[derive(Debug, Clone)]
pub struct Client {
    inner: legacy::Client<HttpConnector, Full<Bytes>>,
    patience: Duration,
}

impl Client {
    /// One request at a time on each of as many connections as needed.
    pub fn http1() -> Self {
        Self::new(false)
    }

    /// HTTP/2 by prior knowledge: all requests of this client share one connection per address.
    pub fn http2() -> Self {
        Self::new(true)
    }

    fn new(http2: bool) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let inner = legacy::Client::builder(TokioExecutor::new())
            .http2_only(http2)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(10))
            .build(connector);
        Self { inner, patience: PATIENCE }
    }

    /// The longest time that one exchange may take.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends a request and reads the whole answer.
    ///
    /// Header values may be any bytes that HTTP allows ([`http::HeaderValue::from_bytes`]), UTF-8 or not.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Reply> {
        let what = format!("{} {}", request.method(), request.uri());
        let exchange = async { Reply::read(self.inner.request(request).await?).await };
        let ended = tokio::time::timeout(self.patience, exchange).await;
        let ended = ended.with_context(|| format!("{what}: no answer in {:?}", self.patience))?;
        ended.with_context(|| format!("{what} failed"))
    }

    /// Sends a request and returns at the answer's headers; dropping the response hangs up.
    pub async fn open(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let what = format!("{} {}", request.method(), request.uri());
        let opened = tokio::time::timeout(self.patience, self.inner.request(request)).await;
        let opened = opened.with_context(|| format!("{what}: no headers in {:?}", self.patience))?;
        opened.with_context(|| format!("{what} failed"))
    }

    pub async fn get(&self, url: &str) -> Result<Reply> {
        self.get_with(url, &[]).await
    }

    pub async fn get_with(&self, url: &str, headers: &[(&str, &str)]) -> Result<Reply> {
        self.send(request(Method::GET, url, headers, Bytes::new())?).await
    }

    /// Sends `body` as JSON.
    pub async fn post(&self, url: &str, headers: &[(&str, &str)], body: &Value) -> Result<Reply> {
        let body = Bytes::from(body.to_string());
        let mut request = request(Method::POST, url, headers, body)?;
        let json = http::HeaderValue::from_static("application/json");
        request.headers_mut().entry(http::header::CONTENT_TYPE).or_insert(json);
        self.send(request).await
    }
}

fn request(method: Method, url: &str, headers: &[(&str, &str)], body: Bytes) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).with_context(|| format!("{url} makes no valid request"))
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: StatusCode,
    pub version: Version,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Reply {
    async fn read(response: Response<Incoming>) -> Result<Self> {
        let (head, body) = response.into_parts();
        let body = body.collect().await.context("the answer broke off")?;
        let trailers = body.trailers().cloned();
        let body = body.to_bytes();
        Ok(Self { status: head.status, version: head.version, headers: head.headers, body, trailers })
    }

    /// A header's value, if it is there and text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }
}
