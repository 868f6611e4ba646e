//! Who really served a request, read from what Envoy says at its end.
//!
//! With the list L as sent, `attempts` as Envoy counts them, and s the position in L of the endpoint that served:
//! an attempt takes one entry, and entries that Envoy does not know are skipped without an attempt. So
//! `attempts − 1 < s` says that some entries were unknown, and an endpoint outside L that Envoy's fallback policy chose
//! either after L ran out or because it knew no entry.
//!
//! Who is charged, while no hedge is armed: each entry that was tried before the one that served gets one failure, since
//! only a failed try leads to the next; with unknown entries it cannot be told which were tried, and none is charged.
//! The one that served gets the request's outcome; a list that ran out is charged whole.

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
    /// How many entries, from the list's start, were tried in vain before another endpoint served.
    pub failed_before: usize,
}

impl Account {
    const fn of(served: Served) -> Self {
        Self { served, endpoint_unknown: false, failed_before: 0 }
    }
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
        return Account::of(Served::Nobody);
    };
    let serves = |pick: &EndpointIndex| {
        endpoints.get(pick.position()).is_some_and(|endpoint| endpoint.address.as_str().as_bytes() == address)
    };
    let position = picks.iter().position(serves);
    let served = match position.and_then(|position| picks.get(position).map(|pick| (position, *pick))) {
        Some((0, pick)) => return Account::of(Served::Pick(pick)),
        Some((_, fallback)) => Served::Fallback(fallback),
        None => Served::Outside,
    };
    let before = position.unwrap_or(picks.len());
    match attempts().map(|attempts| attempts.saturating_sub(1)) {
        Some(tried) if tried < before as u64 => Account { endpoint_unknown: true, ..Account::of(served) },
        Some(_) => Account { failed_before: before, ..Account::of(served) },
        None => Account::of(served),
    }
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
        for (upstream, attempts, served, endpoint_unknown, failed_before) in [
            (Some("10.0.0.1:8000"), Some(1), Served::Pick(A), false, 0),
            // Tried A, then B.
            (Some("10.0.0.2:8000"), Some(2), Served::Fallback(B), false, 1),
            // B at the first attempt: Envoy did not know A.
            (Some("10.0.0.2:8000"), Some(1), Served::Fallback(B), true, 0),
            // Tried A and B, then the fallback policy.
            (Some("10.0.0.3:8000"), Some(3), Served::Outside, false, 2),
            // The fallback policy at once: Envoy knew neither.
            (Some("10.0.0.3:8000"), Some(1), Served::Outside, true, 0),
            // One of the two was tried, and it cannot be told which.
            (Some("10.9.9.9:1"), Some(2), Served::Outside, true, 0),
            (None, Some(0), Served::Nobody, false, 0),
            (Some(""), Some(0), Served::Nobody, false, 0),
            // Without a count nothing is claimed.
            (Some("10.0.0.2:8000"), None, Served::Fallback(B), false, 0),
        ] {
            let expected = Account { served, endpoint_unknown, failed_before };
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
