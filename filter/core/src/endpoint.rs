//! One address that can serve models.

use crate::address::Address;
use crate::hash::hash;

/// Position of an endpoint in its pool. Only meaningful together with the pool that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointIndex(pub u32);

impl EndpointIndex {
    /// As a position in a slice.
    #[must_use]
    pub fn position(self) -> usize {
        self.0 as usize
    }
}

/// Health score, 0–1, higher is better.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Score(f64);

impl Score {
    /// Nothing is known against the endpoint.
    pub const FULL: Self = Self(1.0);

    /// A score from a number; what is not a number, and what lies outside 0–1, is no score.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The number, 0–1.
    #[must_use]
    pub fn value(self) -> f64 {
        self.0
    }
}

/// What is known of one endpoint in one snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Stable name that places the endpoint on the ring; its address unless one is given. With an id that survives a
    /// restart (a StatefulSet's pod name), a new address moves no keys.
    pub id: Box<str>,
    /// Where Envoy connects to.
    pub address: Address,
    /// Models in its memory, when that is known.
    pub resident: Option<Resident>,
    /// Health score.
    pub score: Score,
    /// Marked by hand as not to be used.
    pub marked_unhealthy: bool,
}

impl Endpoint {
    /// Whether `model_hash` is in memory; `None` when that is not known.
    #[must_use]
    pub fn holds(&self, model_hash: u64) -> Option<bool> {
        self.resident.as_ref().map(|resident| resident.contains(model_hash))
    }
}

/// The models in an endpoint's memory, as sorted hashes of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident(Box<[u64]>);

impl Resident {
    /// From model ids, in any order.
    pub fn from_ids<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hashes: Vec<u64> = ids.into_iter().map(|id| hash(id.as_bytes())).collect();
        hashes.sort_unstable();
        Self(hashes.into_boxed_slice())
    }

    /// The hashes, rising.
    pub fn hashes(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied()
    }

    fn contains(&self, model_hash: u64) -> bool {
        self.0.binary_search(&model_hash).is_ok()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Endpoints `10.0.0.1:8000`, `10.0.0.2:8000`, … whose ids are their addresses.
    pub(crate) fn endpoints(count: u32) -> Vec<Endpoint> {
        (1..=count)
            .map(|n| {
                let text = format!("10.0.{}.{}:8000", n / 256, n % 256);
                endpoint(&text, &text)
            })
            .collect()
    }

    pub(crate) fn endpoint(id: &str, address: &str) -> Endpoint {
        Endpoint {
            id: id.into(),
            address: address.parse().unwrap(),
            resident: None,
            score: Score::FULL,
            marked_unhealthy: false,
        }
    }

    #[test]
    fn a_score_is_a_number_from_0_to_1() {
        assert_eq!(Score::new(0.0).map(Score::value), Some(0.0));
        assert_eq!(Score::new(1.0), Some(Score::FULL));
        for bad in [-0.01, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Score::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn residency_is_known_absent_or_unknown() {
        let mut endpoint = endpoint("a", "10.0.0.1:8000");
        assert_eq!(endpoint.holds(hash(b"llama")), None);
        endpoint.resident = Some(Resident::from_ids(["qwen", "llama", "bert"]));
        assert_eq!(endpoint.holds(hash(b"llama")), Some(true));
        assert_eq!(endpoint.holds(hash(b"gpt")), Some(false));
        endpoint.resident = Some(Resident::default());
        assert_eq!(endpoint.holds(hash(b"llama")), Some(false));
    }
}
