//! Who can come into question for which requests, listed once for each set of endpoints, so that a pick never searches
//! the pool for them.
//!
//! The lists are candidates, not verdicts: a strategy still asks [`crate::strategy::View::may_serve`] about each.

use crate::eligibility::{Health, Need, check_under, meets};
use crate::endpoint::{Endpoint, EndpointIndex, Resident, Servable};
use crate::payload::PayloadClasses;
use crate::small;
use std::collections::BTreeMap;

type List = Box<[EndpointIndex]>;

/// See the module.
#[derive(Debug, Default)]
pub struct Roster {
    /// Health of the pool that the lists were made under.
    health: Health,
    /// Those that may serve an ordinary request.
    ordinary: List,
    /// For each payload class, those of `ordinary` that have its labels.
    classes: Box<[List]>,
    /// Those of `ordinary` that hold a model, by the hash of its id.
    holders: BTreeMap<u64, List>,
    /// When lists of models are fixed: those of `ordinary` that can serve a model, for the models on some list.
    fixed: BTreeMap<u64, List>,
    /// When lists of models are fixed: those of `ordinary` that take any model.
    on_demand: Option<List>,
    /// Positions by the endpoints' keys.
    keys: BTreeMap<u64, EndpointIndex>,
}

impl Roster {
    /// Of a pool of that health.
    #[must_use]
    pub fn new(endpoints: &[Endpoint], classes: &PayloadClasses, health: Health) -> Self {
        let able = || indexed(endpoints).filter(|(_, endpoint)| check_under(endpoint, health).is_ok());
        let with = |labels: &[Box<str>]| {
            let need = Need { model_hash: None, labels };
            able().filter(|(_, endpoint)| meets(endpoint, &need).is_ok()).map(|(index, _)| index).collect()
        };
        let mut holders = Lists::default();
        for (index, endpoint) in able() {
            holders.add(endpoint.resident.iter().flat_map(Resident::hashes), index);
        }
        let (fixed, on_demand) = fixed(able());
        Self {
            health,
            ordinary: able().map(|(index, _)| index).collect(),
            classes: classes.iter().map(|class| with(&class.labels)).collect(),
            holders: holders.finish(),
            fixed,
            on_demand,
            keys: small::map(indexed(endpoints).map(|(index, endpoint)| (endpoint.key(), index))),
        }
    }

    /// Health of the pool.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Candidates for a request of the payload class at that position (`None`: an ordinary one) that names the model:
    /// the shorter one of the two lists that bind it.
    #[must_use]
    pub fn candidates(&self, class: Option<usize>, model_hash: Option<u64>) -> &[EndpointIndex] {
        let of_class = class.and_then(|position| self.classes.get(position)).unwrap_or(&self.ordinary);
        match (model_hash, &self.on_demand) {
            (Some(model), Some(on_demand)) => {
                let of_model = self.fixed.get(&model).unwrap_or(on_demand);
                if of_model.len() < of_class.len() { of_model } else { of_class }
            }
            _ => of_class,
        }
    }

    /// Those that may serve and are known to hold the model.
    #[must_use]
    pub fn holders(&self, model_hash: u64) -> &[EndpointIndex] {
        self.holders.get(&model_hash).map_or(&[], |list| list)
    }

    /// The position of the endpoint with that key, see [`Endpoint::key`].
    #[must_use]
    pub fn position(&self, key: u64) -> Option<EndpointIndex> {
        self.keys.get(&key).copied()
    }
}

fn indexed(endpoints: &[Endpoint]) -> impl Iterator<Item = (EndpointIndex, &Endpoint)> {
    (0..).map(EndpointIndex).zip(endpoints)
}

/// Lists by model under construction.
#[derive(Default)]
struct Lists(BTreeMap<u64, Vec<EndpointIndex>>);

impl Lists {
    fn add(&mut self, models: impl Iterator<Item = u64>, index: EndpointIndex) {
        models.for_each(|model| self.0.entry(model).or_default().push(index));
    }

    fn finish(self) -> BTreeMap<u64, List> {
        small::map(self.0.into_iter().map(|(model, list)| (model, list.into_boxed_slice())))
    }
}

/// Who can serve each model on a fixed list, and who takes any. Nothing when no list is fixed: then everybody does.
fn fixed<'a>(able: impl Iterator<Item = (EndpointIndex, &'a Endpoint)>) -> (BTreeMap<u64, List>, Option<List>) {
    let (mut lists, mut on_demand, mut any_fixed) = (Lists::default(), Vec::new(), false);
    for (index, endpoint) in able {
        match &endpoint.servable {
            Servable::OnDemand => on_demand.push(index),
            Servable::Fixed(models) => {
                any_fixed = true;
                lists.add(models.hashes(), index);
            }
        }
    }
    if !any_fixed {
        return (BTreeMap::new(), None);
    }
    for list in lists.0.values_mut() {
        list.extend(&on_demand);
        small::sort(list, &mut EndpointIndex::cmp);
    }
    (lists.finish(), Some(on_demand.into_boxed_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Score;
    use crate::endpoint::tests::endpoints;
    use crate::hash::hash;
    use crate::payload::PayloadClass;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn positions(list: &[EndpointIndex]) -> Vec<u32> {
        list.iter().map(|index| index.0).collect()
    }

    fn roster(endpoints: &[Endpoint]) -> Roster {
        Roster::new(endpoints, &PayloadClasses::default(), Health::Scored)
    }

    #[test]
    fn only_those_that_may_serve_are_listed() {
        let mut pool = endpoints(4);
        pool[0].draining = true;
        pool[2].score = Score::new(0.1).unwrap();
        pool.iter_mut().for_each(|e| e.resident = Some(Resident::from_ids(["llama"])));
        let roster = roster(&pool);
        assert_eq!(positions(roster.candidates(None, None)), [1, 3]);
        assert_eq!(positions(roster.holders(hash(b"llama"))), [1, 3]);
        assert!(roster.holders(hash(b"bert")).is_empty());
        let panic = Roster::new(&pool, &PayloadClasses::default(), Health::Panic);
        assert_eq!(positions(panic.candidates(None, None)), [1, 2, 3]);
        assert_eq!(panic.health(), Health::Panic);
    }

    #[test]
    fn a_class_lists_those_with_its_labels() {
        let mut pool = endpoints(3);
        pool[1].labels = ["gpu=h100".into()].into();
        let class = |above_bytes, labels: &[&str]| PayloadClass {
            name: "large".into(),
            above_bytes,
            weight: 4,
            labels: labels.iter().map(|&label| label.into()).collect(),
        };
        let classes = PayloadClasses::new(vec![class(10, &["gpu=h100"]), class(5, &[])]);
        let roster = Roster::new(&pool, &classes, Health::Scored);
        assert_eq!(positions(roster.candidates(Some(0), None)), [0, 1, 2], "above 5 bytes");
        assert_eq!(positions(roster.candidates(Some(1), None)), [1], "above 10 bytes");
        assert_eq!(positions(roster.candidates(Some(9), None)), [0, 1, 2], "no such class");
    }

    #[test]
    fn fixed_lists_narrow_the_candidates_of_a_model() {
        let mut pool = endpoints(4);
        pool[1].servable = Servable::Fixed(Resident::from_ids(["bert", "gpt"]));
        pool[3].servable = Servable::Fixed(Resident::from_ids(["bert"]));
        let roster = roster(&pool);
        let of = |model: &[u8]| positions(roster.candidates(None, Some(hash(model))));
        assert_eq!(of(b"gpt"), [0, 1, 2]);
        assert_eq!(of(b"llama"), [0, 2], "on nobody's list");
        assert_eq!(of(b"bert"), [0, 1, 2, 3]);
        assert_eq!(positions(roster.candidates(None, None)), [0, 1, 2, 3]);
    }

    #[test]
    fn endpoints_are_found_by_their_keys() {
        let pool = endpoints(3);
        let roster = roster(&pool);
        for (index, endpoint) in indexed(&pool) {
            assert_eq!(roster.position(endpoint.key()), Some(index));
        }
        assert_eq!(roster.position(1), None);
    }
}
