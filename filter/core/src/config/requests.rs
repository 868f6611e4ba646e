//! How requests are read, checked and compiled.

use super::compile::{Check, SessionCookie};
use super::headers::{EXPLAIN_HEADER, TOKEN};
use super::{limits, shortened, wire};
use crate::request::{BodySettings, RequestSettings, SessionSettings};
use std::collections::BTreeMap;

/// What requests are read by, where a pick goes, and the cookie that is set.
type Requests = (RequestSettings, Box<str>, Option<SessionCookie>);

impl Check {
    pub(super) fn request(&mut self, wire: wire::Request, debug_header: Option<String>) -> Requests {
        let model_headers = self.header_list("request.model_headers", wire.model_headers, &limits::MODEL_HEADERS);
        let type_headers = self.header_list("request.type_headers", wire.type_headers, &limits::TYPE_HEADERS);
        let (session, cookie) = self.session(wire.session);
        let aliases = self.aliases(wire.aliases);
        let settings = RequestSettings {
            model_headers,
            type_headers,
            default_model: wire.default_model.map(|model| self.default_model(model, &aliases)),
            aliases,
            trusted: wire.trusted.unwrap_or(limits::TRUSTED),
            urgency_header: Some(self.own_header(
                "request.urgency_header",
                wire.urgency_header.unwrap_or_else(|| limits::URGENCY_HEADER.to_owned()),
            )),
            debug_header: debug_header.map(|name| self.own_header(EXPLAIN_HEADER, name)),
            hash_header: wire.hash_header.map(|name| self.read_header("request.hash_header", name)),
            session,
            body: wire.body.map(|body| BodySettings {
                max_bytes: self.number(
                    "request.body",
                    "max_bytes",
                    body.max_bytes,
                    limits::BODY_BYTES,
                    limits::BODY_BYTES_RANGE,
                ),
            }),
        };
        let destination = wire.destination_header.unwrap_or_else(|| limits::DESTINATION_HEADER.to_owned());
        (settings, self.own_header("request.destination_header", destination), cookie)
    }

    fn session(&mut self, wire: Option<wire::Session>) -> (Option<SessionSettings>, Option<SessionCookie>) {
        let Some(wire) = wire else { return (None, None) };
        let header = self
            .read_header("request.session.header", wire.header.unwrap_or_else(|| limits::SESSION_HEADER.to_owned()));
        let cookie = wire.cookie.map(|cookie| self.cookie(cookie));
        let settings = SessionSettings {
            header: Some(header),
            cookie: cookie.as_ref().map(|cookie| cookie.name.clone()),
            address: wire.address.unwrap_or(limits::SESSION_ADDRESS),
        };
        (Some(settings), cookie.filter(|cookie| cookie.ttl_seconds > 0))
    }

    fn cookie(&mut self, wire: wire::Cookie) -> SessionCookie {
        let path = "request.session.cookie";
        self.name(&format!("{path}.name"), &wire.name);
        if !wire.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || TOKEN.contains(&byte)) {
            let text = shortened(&wire.name);
            self.problem(format!("{path}.name"), format!("{text:?} is no cookie name, such as \"session\""));
        }
        let ttl_seconds =
            self.number(path, "ttl_seconds", wire.ttl_seconds, limits::COOKIE_TTL, limits::COOKIE_TTL_RANGE);
        self.cookie_is_kept(&format!("{path}.name"), &wire.name, ttl_seconds);
        SessionCookie { name: wire.name.into_boxed_str(), ttl_seconds }
    }

    /// Browsers drop a cookie of such a name that is set without `Secure`, as ours is, and each request of theirs would
    /// begin another session. Source: RFC 6265bis §4.1.3; they do not mind the case.
    fn cookie_is_kept(&mut self, path: &str, name: &str, ttl_seconds: u32) {
        let name = name.to_ascii_lowercase();
        if ttl_seconds > 0 && ["__host-", "__secure-"].iter().any(|prefix| name.starts_with(prefix)) {
            let text = "browsers drop a cookie of this prefix that is set without `Secure`; write a name without it, or \
                        set `ttl_seconds` to 0";
            self.problem(path, text);
        }
    }

    /// Resolved here, once, as the name of every request is, in one step.
    fn default_model(&mut self, model: String, aliases: &BTreeMap<Box<[u8]>, Box<[u8]>>) -> Box<[u8]> {
        self.model_name("request.default_model", &model);
        aliases.get(model.as_bytes()).cloned().unwrap_or_else(|| model.into_bytes().into_boxed_slice())
    }

    fn aliases(&mut self, aliases: BTreeMap<String, String>) -> BTreeMap<Box<[u8]>, Box<[u8]>> {
        self.count("request.aliases", aliases.len(), limits::MAX_ALIASES);
        for (alias, model) in &aliases {
            let path = match alias.as_str() {
                "" => "request.aliases[\"\"]".to_owned(),
                alias => format!("request.aliases.{}", shortened(alias)),
            };
            self.model_name(&path, alias);
            self.model_name(&path, model);
            if alias == model {
                self.problem(path, "an alias of itself");
            }
        }
        let bytes = |text: String| text.into_bytes().into_boxed_slice();
        crate::small::map(aliases.into_iter().map(|(alias, model)| (bytes(alias), bytes(model))))
    }
}
