//! One address that can serve models.

use crate::address::Address;
use crate::hash::hash;
use std::sync::Arc;

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
    pub id: Arc<str>,
    /// Where Envoy connects to.
    pub address: Address,
    /// Which life of the endpoint this is: a pod's uid, or whatever else changes when it starts anew. Counts of an
    /// earlier life are not its own.
    pub incarnation: u64,
    /// Models in its memory, when that is known.
    pub resident: Option<Resident>,
    /// Which models it can serve at all, resident or not.
    pub servable: Servable,
    /// Health score.
    pub score: Score,
    /// Marked by hand as not to be used.
    pub marked_unhealthy: bool,
    /// Finishes what it has and takes nothing new.
    pub draining: bool,
    /// Share of the ring, relative to 1; 0 takes it off the ring.
    pub weight: f64,
    /// How many of its virtual nodes are on the ring, when it joins or leaves in steps; `None`: all.
    pub active_nodes: Option<u32>,
    /// `key=value` labels, which rules may ask for.
    pub labels: Box<[Box<str>]>,
    /// Memory for models, in units of a model of size 1.
    pub memory_units: u32,
    /// Its warm service time relative to the pool's: 2 is twice as slow.
    pub speed: f64,
}

/// Which models an endpoint can serve at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Servable {
    /// Any, by loading it when asked.
    #[default]
    OnDemand,
    /// Only these: its list of models is fixed.
    Fixed(Resident),
}

impl Servable {
    /// Whether the model can be served.
    #[must_use]
    pub fn allows(&self, model_hash: u64) -> bool {
        match self {
            Self::OnDemand => true,
            Self::Fixed(models) => models.contains(model_hash),
        }
    }
}

impl Endpoint {
    /// An endpoint of which nothing but its name and address is known: healthy, weight 1, one unit of memory.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, address: Address) -> Self {
        Self {
            id: id.into(),
            address,
            incarnation: 0,
            resident: None,
            servable: Servable::OnDemand,
            score: Score::FULL,
            marked_unhealthy: false,
            draining: false,
            weight: 1.0,
            active_nodes: None,
            labels: [].into(),
            memory_units: 1,
            speed: 1.0,
        }
    }

    /// The endpoint's key in plans: xxh64 of its id.
    #[must_use]
    pub fn key(&self) -> u64 {
        hash(self.id.as_bytes())
    }

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
        crate::small::sort(&mut hashes, &mut u64::cmp);
        Self(hashes.into_boxed_slice())
    }

    /// The hashes, rising.
    pub fn hashes(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied()
    }

    /// Whether the model is among them.
    #[must_use]
    pub fn contains(&self, model_hash: u64) -> bool {
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
        Endpoint::new(id, address.parse().unwrap())
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
