//! Names of headers that a user chooses: which may be read, and which may be removed or written over besides.

use super::compile::Check;
use super::{limits, shortened};
use crate::request::DEBUG_HEADER;

impl Check {
    /// A header that is read, and left as it is.
    pub(super) fn read_header(&mut self, path: &str, name: String) -> Box<str> {
        self.header(path, &name);
        self.distinct(path, name)
    }

    /// A header that is removed from strangers' requests, or written over: nobody else may need it.
    pub(super) fn own_header(&mut self, path: &str, name: String) -> Box<str> {
        if self.header(path, &name) && is_among(&NEEDED, &name) {
            let text = "has a meaning of its own, and this one is removed from requests or written over; choose a \
                        header that nobody else reads";
            self.problem(path, format!("{:?} {text}", shortened(&name)));
        }
        self.distinct(path, name)
    }

    pub(super) fn header_list(&mut self, path: &str, given: Option<Vec<String>>, default: &[&str]) -> Box<[Box<str>]> {
        let names = given.unwrap_or_else(|| default.iter().map(|&name| name.to_owned()).collect());
        if !self.count(path, names.len(), limits::MAX_HEADER_NAMES) {
            return Box::default();
        }
        names.into_iter().enumerate().map(|(n, name)| self.read_header(&format!("{path}[{n}]"), name)).collect()
    }

    /// No header carries two things. [`DEBUG_HEADER`] is one of ours whatever the configuration says: it is removed
    /// from strangers' requests even where another one asks for explanations.
    fn distinct(&mut self, path: &str, name: String) -> Box<str> {
        if name == DEBUG_HEADER && path != EXPLAIN_HEADER {
            self.problem(path, format!("{name:?} can only be `{EXPLAIN_HEADER}`; choose another header"));
        } else if !self.headers.insert(name.clone()) {
            let text = format!("{name:?}");
            self.problem(path, format!("{} is named twice: one header cannot carry two things", shortened(&text)));
        }
        name.into_boxed_str()
    }

    /// Header names as HTTP/2 sends them: the token characters of RFC 9110 §5.6.2 without capitals. Whether it is none
    /// that is [`RESERVED`].
    fn header(&mut self, path: &str, name: &str) -> bool {
        self.name(path, name);
        let token = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || TOKEN.contains(&byte);
        if !name.bytes().all(token) {
            let text = shortened(name);
            self.problem(path, format!("{text:?} is no header name in lower case, such as \"x-model-id\""));
        }
        let reserved = is_among(&RESERVED, name);
        if reserved {
            self.problem(path, format!("{:?} has a meaning of its own; choose another header", shortened(name)));
        }
        !reserved
    }
}

/// Whether `name` is one of `headers`, or begins with one that ends in a dash.
fn is_among(headers: &[&str], name: &str) -> bool {
    headers.iter().any(|header| name == *header || (header.ends_with('-') && name.starts_with(header)))
}

/// Where a user names the header that asks for explanations.
pub(super) const EXPLAIN_HEADER: &str = "explain.header";

/// What may stand in a token beside letters and digits.
pub(super) const TOKEN: &[u8] = b"!#$%&'*+-.^_`|~";

/// Headers that cannot tell anything of ours: Envoy keeps them elsewhere or removes them from every request (those of
/// one connection), or other rules read them.
const RESERVED: [&str; 12] = [
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-envoy-",
    "x-forwarded-",
];

/// Headers that may tell something of a request, and that somebody else needs: HTTP's own (RFC 9110, 9111, 9218; CORS
/// and browsers), credentials and versions of the usual inference APIs, and what traces and logs go by.
const NEEDED: [&str; 35] = [
    "accept",
    "accept-",
    "access-control-",
    "anthropic-",
    "api-key",
    "authorization",
    "b3",
    "baggage",
    "cache-control",
    "content-",
    "date",
    "expect",
    "forwarded",
    "grpc-",
    "idempotency-key",
    "if-",
    "openai-",
    "origin",
    "pragma",
    "priority",
    "proxy-",
    "range",
    "referer",
    "sec-",
    "traceparent",
    "tracestate",
    "trailer",
    "user-agent",
    "via",
    "x-amz-",
    "x-amzn-",
    "x-api-key",
    "x-b3-",
    "x-goog-",
    "x-request-id",
];
