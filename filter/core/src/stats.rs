//! Names of the filter's stats: a fixed set, made from the outcomes that they count. Envoy shows each as
//! `wasmcustom.{name}`. What they mean to an operator is told in docs/stats.md.

use crate::accounting::Served;
use crate::outcome::Outcome;
use crate::picker::{Pass, Reason};
use crate::refusal::Refusal;
use crate::strategy::StrategyName;

/// Requests left to Envoy's own policy because a host call failed.
pub const HOST_ERROR: &str = "warmroute.pass.host_error";
/// Steered requests whose end could not be read, because a host call failed.
pub const END_UNREAD: &str = "warmroute.end_unread";
/// Endpoints that were tried in vain before another one served.
pub const ATTEMPT_FAILED: &str = "warmroute.attempt_failed";
/// Requests whose list had entries that Envoy does not know.
pub const ENDPOINT_UNKNOWN: &str = "warmroute.endpoint_unknown";
/// Picks made while too few endpoints had a good score for scores to count.
pub const PANIC: &str = "warmroute.panic";
/// Picks for which all marks of a model as unknown were ignored, since they left nobody.
pub const MARKS_IGNORED: &str = "warmroute.unknown_marks_ignored";
/// Requests that waited for a body which did not come in time.
pub const BODY_OVERDUE: &str = "warmroute.body_overdue";
/// Requests whose model only the body could name, sent on at once since Envoy holds bodies back.
pub const BODY_UNREAD: &str = "warmroute.body_unread";
/// Bodies that were read and named a model.
pub const BODY_MODEL: &str = "warmroute.body_model";
/// Bodies that were read and named no model, or not within the limit.
pub const BODY_NO_MODEL: &str = "warmroute.body_no_model";
/// Changes of a plan that this proxy made for itself.
pub const PLAN_CHANGED: &str = "warmroute.plan_changed";
/// Inputs of a plan that a default stood in for.
pub const PLANNER_INPUT_DEFAULT: &str = "warmroute.planner_input_default";
/// Ticks at which a worker would have planned, while another one does.
pub const PLAN_ELSEWHERE: &str = "warmroute.plan_elsewhere";
/// Gauge: steered requests that have not ended.
pub const IN_FLIGHT: &str = "warmroute.in_flight";
/// Counter: microseconds from the pick to the end of the response, added up over all steered requests that ended.
pub const SERVICE_TIME: &str = "warmroute.service_time_us_total";

/// Picks by strategy, in the order of [`StrategyName::position`].
#[must_use]
pub fn picks() -> Vec<String> {
    group("pick", &StrategyName::ALL.map(StrategyName::name))
}

/// Picks by reason, in the order of [`Reason::position`].
#[must_use]
pub fn reasons() -> Vec<String> {
    group("pick_reason", &Reason::ALL.map(Reason::name))
}

/// Choices left to Envoy, in the order of [`Pass::position`].
#[must_use]
pub fn passes() -> Vec<String> {
    group("pass", &Pass::ALL.map(Pass::name))
}

/// Refusals, in the order of [`Refusal::position`].
#[must_use]
pub fn refusals() -> Vec<String> {
    group("refusal", &Refusal::ALL.map(Refusal::name))
}

/// Who served, in the order of [`Served::position`].
#[must_use]
pub fn served() -> Vec<String> {
    group("served", &Served::NAMES)
}

/// How requests ended, in the order of [`Outcome::position`].
#[must_use]
pub fn outcomes() -> Vec<String> {
    group("outcome", &Outcome::ALL.map(Outcome::name))
}

/// Those that belong to no group.
pub const SINGLE: [&str; 15] = [
    HOST_ERROR,
    END_UNREAD,
    ATTEMPT_FAILED,
    ENDPOINT_UNKNOWN,
    PANIC,
    MARKS_IGNORED,
    BODY_OVERDUE,
    BODY_UNREAD,
    BODY_MODEL,
    BODY_NO_MODEL,
    PLAN_CHANGED,
    PLANNER_INPUT_DEFAULT,
    PLAN_ELSEWHERE,
    IN_FLIGHT,
    SERVICE_TIME,
];

/// Every name.
#[must_use]
pub fn names() -> Vec<String> {
    let single = SINGLE.map(str::to_owned);
    [picks(), reasons(), passes(), refusals(), served(), outcomes(), single.into()].concat()
}

fn group(group: &str, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("warmroute.{group}.{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// One name for two kinds of events would add them up in Envoy.
    #[test]
    fn names_are_distinct_and_plain() {
        let names = names();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || b"._2".contains(&byte));
        assert!(names.iter().all(|name| plain(name) && name.starts_with("warmroute.")), "{names:?}");
    }
}
