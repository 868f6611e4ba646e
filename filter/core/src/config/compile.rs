//! Validation and defaults: what all parts of it share, and the whole.

use super::pools::PoolConfig;
use super::{ConfigError, Problem, aliases, limits, shortened, wire};
use crate::request::RequestSettings;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// A configuration that passed every check.
#[derive(Debug)]
pub struct Config {
    /// The pools; the names of their clusters are distinct.
    pub pools: Vec<PoolConfig>,
    /// How requests are read.
    pub request: RequestSettings,
    /// How answers are explained.
    pub explain: ExplainSettings,
    /// The header that carries a pick.
    pub destination_header: Box<str>,
    /// Seconds that a session cookie lives which is set for a request without one; `None`: none is set.
    pub session_cookie: Option<SessionCookie>,
}

/// A session cookie that we set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCookie {
    /// Its name.
    pub name: Box<str>,
    /// Seconds that it lives.
    pub ttl_seconds: u32,
}

/// How answers are explained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExplainSettings {
    /// Share of the requests, 0–1, that are explained without being asked.
    pub log_ratio: f64,
}

pub(super) fn compile(plugin: wire::Plugin) -> Result<Config, ConfigError> {
    let mut check = Check {
        sessions: plugin.request.session.is_some(),
        never_routed: aliases::never_routed(&plugin.request.aliases),
        ..Check::default()
    };
    let pools = check.pools(plugin.pools);
    let explain = ExplainSettings {
        log_ratio: check.number(
            "explain",
            "log_ratio",
            plugin.explain.log_ratio,
            limits::EXPLAIN_RATIO,
            limits::EXPLAIN_RATIO_RANGE,
        ),
    };
    let (request, destination_header, session_cookie) = check.request(plugin.request, plugin.explain.header);
    check.default_fits(request.default_model.as_deref(), &pools);
    check.finish()?;
    Ok(Config { pools, request, explain, destination_header, session_cookie })
}

/// Collects every problem, so that a user mends them all at once.
#[derive(Default)]
pub(super) struct Check {
    problems: Vec<Problem>,
    more: usize,
    /// Requests may belong to sessions.
    pub(super) sessions: bool,
    /// Names that no request is routed as, and what they stand for.
    pub(super) never_routed: BTreeMap<String, String>,
    /// Header names seen so far: one header cannot carry two things.
    pub(super) headers: BTreeSet<String>,
}

impl Check {
    pub(super) fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.problems.len() < limits::MAX_PROBLEMS {
            self.problems.push(Problem::new(path, message));
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// How many problems there are so far.
    pub(super) fn found(&self) -> usize {
        self.problems.len().saturating_add(self.more)
    }

    fn finish(self) -> Result<(), ConfigError> {
        if self.problems.is_empty() { Ok(()) } else { Err(ConfigError { problems: self.problems, more: self.more }) }
    }

    /// A number that has no default.
    pub(super) fn optional<N: Copy + PartialOrd + Display>(
        &mut self,
        path: &str,
        field: &str,
        given: Option<N>,
        range: RangeInclusive<N>,
    ) {
        self.number(path, field, given, *range.start(), range);
    }

    /// A model's id, as a header could carry it.
    pub(super) fn model_name(&mut self, path: &str, model: &str) {
        self.name(path, model);
        if model.trim_ascii() != model {
            self.problem(path, "begins or ends with white space, which a header's value cannot");
        }
    }

    pub(super) fn number<N: Copy + PartialOrd + Display>(
        &mut self,
        path: &str,
        field: &str,
        given: Option<N>,
        default: N,
        range: RangeInclusive<N>,
    ) -> N {
        let number = given.unwrap_or(default);
        if !range.contains(&number) {
            self.problem(
                format!("{path}.{field}"),
                format!("{number} is out of range, allowed are {} to {}", range.start(), range.end()),
            );
        }
        number
    }

    pub(super) fn count(&mut self, path: &str, count: usize, max: usize) -> bool {
        if count > max {
            self.problem(path, format!("{count} items, at most {max} are allowed"));
        }
        count <= max
    }

    pub(super) fn name(&mut self, path: &str, name: &str) {
        if name.is_empty() || name.len() > limits::MAX_NAME_BYTES {
            self.problem(path, format!("{} bytes long, allowed are 1 to {}", name.len(), limits::MAX_NAME_BYTES));
        }
    }

    /// Whether `value` is new in `seen`; else that is a problem.
    pub(super) fn seen_once<T: Ord + std::fmt::Debug>(&mut self, path: &str, seen: &mut BTreeSet<T>, value: T) -> bool {
        let new = !seen.contains(&value);
        if new {
            seen.insert(value);
        } else {
            self.problem(path, format!("{} is there twice", shortened(&format!("{value:?}"))));
        }
        new
    }
}
