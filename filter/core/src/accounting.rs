//! Who really served a request, read from what Envoy says at its end.
//!
//! With the list L as sent, `attempts` as Envoy counts them, and s the position in L of the endpoint that served:
//! an attempt takes one entry, and entries that Envoy does not know are skipped without an attempt. So
//! `attempts − 1 < s` says that some entries were unknown, and an endpoint outside L that Envoy's fallback policy chose
//! either after L ran out or because it knew no entry.

use crate::endpoint::{Endpoint, EndpointIndex};
use crate::strategy::PickList;

/// Who served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The pick.
    Pick(EndpointIndex),
    /// A fallback of the list, after the ones before it were tried or unknown to Envoy.
    Fallback(EndpointIndex),
    /// An endpoint that was not in the list, by Envoy's fallback policy.
    Outside,
    /// Nobody: no endpoint was tried.
    Nobody,
}

impl Served {
    /// Every case's name, in the order of [`Served::position`].
    pub const NAMES: [&'static str; 4] = ["pick", "fallback", "outside", "nobody"];

    /// Position in [`Served::NAMES`].
    #[must_use]
    pub fn position(self) -> usize {
        match self {
            Self::Pick(_) => 0,
            Self::Fallback(_) => 1,
            Self::Outside => 2,
            Self::Nobody => 3,
        }
    }

    /// The endpoint of the list that served, if one did.
    #[must_use]
    pub fn endpoint(self) -> Option<EndpointIndex> {
        match self {
            Self::Pick(endpoint) | Self::Fallback(endpoint) => Some(endpoint),
            Self::Outside | Self::Nobody => None,
        }
    }
}

/// The account of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Who served.
    pub served: Served,
    /// Whether Envoy did not know some entries of the list: its cluster lags behind our endpoints, or the other way.
    pub endpoint_unknown: bool,
}

/// Reads the account of a request whose list was `picks`. `upstream` is `upstream.address` and `attempts` is
/// `upstream.request_attempt_count`, asked for only when it is needed: for all but the pick itself.
pub fn account(
    picks: &PickList,
    endpoints: &[Endpoint],
    upstream: Option<&[u8]>,
    attempts: impl FnOnce() -> Option<u64>,
) -> Account {
    let Some(address) = upstream.filter(|address| !address.is_empty()) else {
        return Account { served: Served::Nobody, endpoint_unknown: false };
    };
    let serves = |pick: &EndpointIndex| {
        endpoints.get(pick.position()).is_some_and(|endpoint| endpoint.address.as_str().as_bytes() == address)
    };
    let position = picks.iter().position(serves);
    let served = match position.and_then(|position| picks.get(position).map(|pick| (position, *pick))) {
        Some((0, pick)) => return Account { served: Served::Pick(pick), endpoint_unknown: false },
        Some((_, fallback)) => Served::Fallback(fallback),
        None => Served::Outside,
    };
    let skipped_to = position.unwrap_or(picks.len()) as u64;
    let tried_before = attempts().map(|attempts| attempts.saturating_sub(1));
    Account { served, endpoint_unknown: tried_before.is_some_and(|tried| tried < skipped_to) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoints;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const A: EndpointIndex = EndpointIndex(0);
    const B: EndpointIndex = EndpointIndex(1);

    /// The list is [A, B] of `10.0.0.1:8000`, `10.0.0.2:8000`, `10.0.0.3:8000`.
    fn account_of(upstream: Option<&str>, attempts: Option<u64>) -> Account {
        let picks: PickList = [A, B].into_iter().collect();
        account(&picks, &endpoints(3), upstream.map(str::as_bytes), || attempts)
    }

    #[test]
    fn each_case_is_told_apart() {
        for (upstream, attempts, served, endpoint_unknown) in [
            (Some("10.0.0.1:8000"), Some(1), Served::Pick(A), false),
            // Tried A, then B.
            (Some("10.0.0.2:8000"), Some(2), Served::Fallback(B), false),
            // B at the first attempt: Envoy did not know A.
            (Some("10.0.0.2:8000"), Some(1), Served::Fallback(B), true),
            // Tried A and B, then the fallback policy.
            (Some("10.0.0.3:8000"), Some(3), Served::Outside, false),
            // The fallback policy at once: Envoy knew neither.
            (Some("10.0.0.3:8000"), Some(1), Served::Outside, true),
            (Some("10.9.9.9:1"), Some(2), Served::Outside, true),
            (None, Some(0), Served::Nobody, false),
            (Some(""), Some(0), Served::Nobody, false),
            // Without a count nothing is claimed.
            (Some("10.0.0.2:8000"), None, Served::Fallback(B), false),
        ] {
            let expected = Account { served, endpoint_unknown };
            assert_eq!(account_of(upstream, attempts), expected, "{upstream:?} {attempts:?}");
        }
    }

    /// The commonest case by far asks Envoy for nothing more.
    #[test]
    fn a_request_that_the_pick_served_needs_no_count() {
        let picks: PickList = [A, B].into_iter().collect();
        let mut asked = false;
        account(&picks, &endpoints(2), Some(b"10.0.0.1:8000"), || {
            asked = true;
            None
        });
        assert!(!asked);
    }

    #[test]
    fn only_endpoints_of_the_list_are_named() {
        assert_eq!(Served::Pick(A).endpoint(), Some(A));
        assert_eq!(Served::Fallback(B).endpoint(), Some(B));
        assert_eq!(Served::Outside.endpoint(), None);
        assert_eq!(Served::Nobody.endpoint(), None);
        assert_eq!(Served::NAMES[Served::Outside.position()], "outside");
        assert_eq!(Served::NAMES[Served::Nobody.position()], "nobody");
    }
}
