//! The last requests as they arrived, for tests that ask what a proxy really sent.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use http::Request;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// One request, as `GET /mock/requests` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRequest {
    pub method: String,
    /// With the query.
    pub path: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    /// HTTP/2's `:authority`; HTTP/1.1 has it among the headers.
    pub authority: Option<String>,
    /// Name and value, in order of arrival per name; bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// Name and value in hexadecimal, of those headers that are not UTF-8.
    pub headers_hex: Vec<(String, String)>,
    /// The model that the server understood, once it had read that far.
    pub model: Option<String>,
}

#[derive(Debug)]
struct Entry {
    request: RecordedRequest,
    model: OnceLock<String>,
}

/// Where a request in progress adds what is learnt later.
#[derive(Debug, Clone)]
pub(super) struct Recording(Arc<Entry>);

#[derive(Debug)]
pub(super) struct Recorder {
    keep: usize,
    entries: Mutex<VecDeque<Recording>>,
}

impl Recorder {
    pub(super) fn new(keep: usize) -> Self {
        Self { keep, entries: Mutex::default() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.keep > 0
    }

    pub(super) fn record<B>(&self, request: &Request<B>) -> Option<Recording> {
        if !self.is_on() {
            return None;
        }
        let recording = Recording(Arc::new(Entry { request: describe(request), model: OnceLock::new() }));
        let mut entries = self.entries.lock();
        if entries.len() == self.keep {
            entries.pop_front();
        }
        entries.push_back(recording.clone());
        Some(recording)
    }

    pub(super) fn clear(&self) {
        self.entries.lock().clear();
    }

    /// Oldest first.
    pub(super) fn list(&self) -> Vec<RecordedRequest> {
        let with_model = |Recording(entry): &Recording| RecordedRequest {
            model: entry.model.get().cloned(),
            ..entry.request.clone()
        };
        self.entries.lock().iter().map(with_model).collect()
    }
}

impl Recording {
    /// The first word counts.
    pub(super) fn set_model(&self, model: &str) {
        self.0.model.get_or_init(|| model.to_owned());
    }
}

fn describe<B>(request: &Request<B>) -> RecordedRequest {
    let (mut headers, mut headers_hex) = (Vec::new(), Vec::new());
    for (name, value) in request.headers() {
        let lossy = String::from_utf8_lossy(value.as_bytes()).into_owned();
        if std::str::from_utf8(value.as_bytes()).is_err() {
            headers_hex.push((name.to_string(), hex(value.as_bytes())));
        }
        headers.push((name.to_string(), lossy));
    }
    RecordedRequest {
        method: request.method().to_string(),
        path: request.uri().path_and_query().map(ToString::to_string).unwrap_or_default(),
        version: format!("{:?}", request.version()),
        authority: request.uri().authority().map(ToString::to_string),
        headers,
        headers_hex,
        model: None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}
