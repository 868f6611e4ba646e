//! What has to fit a pool's endpoints: classes of requests and homes of models that nobody there could take.
//!
//! Decided only where the endpoints are told, are not none (a pool scaled to zero), and passed their own checks: what
//! is not known is not held against anybody. Endpoints that drain or are marked count, since they may come back.

use super::compile::Check;
use super::{limits, shortened};
use crate::eligibility::{self, Need};
use crate::endpoint::Endpoint;
use crate::hash::hash;
use crate::settings::ModelSettings;
use crate::strategy::StrategyName;
use std::collections::BTreeMap;

/// The endpoints that a pool can be judged by; `told` is how many were written down.
pub(super) fn known(endpoints: Option<&[Endpoint]>, told: usize) -> Option<&[Endpoint]> {
    endpoints.filter(|endpoints| !endpoints.is_empty() && endpoints.len() == told)
}

/// What the homes of a fixed plan have to fit.
pub(super) struct Homes<'a> {
    /// By id; `None`: not known.
    endpoints: Option<BTreeMap<&'a str, &'a Endpoint>>,
    /// Models with settings of their own.
    pub(super) models: &'a BTreeMap<u64, ModelSettings>,
    /// The pool's strategy.
    strategy: StrategyName,
}

impl<'a> Homes<'a> {
    pub(super) fn new(
        endpoints: Option<&'a [Endpoint]>,
        models: &'a BTreeMap<u64, ModelSettings>,
        strategy: StrategyName,
    ) -> Self {
        let by_id = |endpoints: &'a [Endpoint]| crate::small::map(endpoints.iter().map(|e| (&*e.id, e)));
        Self { endpoints: endpoints.map(by_id), models, strategy }
    }

    /// Whether any model goes by its homes.
    pub(super) fn are_read(&self) -> bool {
        let own = self.models.values().filter_map(|model| model.strategy);
        own.chain([self.strategy]).any(|name| name == StrategyName::Homes)
    }

    fn size(&self, model: &str) -> u32 {
        let own = self.models.get(&hash(model.as_bytes())).and_then(|own| own.size_units);
        own.unwrap_or(limits::SIZE_UNITS)
    }

    fn strategy(&self, model: &str) -> StrategyName {
        let own = self.models.get(&hash(model.as_bytes())).and_then(|own| own.strategy);
        own.unwrap_or(self.strategy)
    }
}

impl Check {
    /// Somebody must have the labels of a class, all of them, or each of its requests is refused.
    pub(super) fn class_fits(&mut self, path: &str, labels: &[Box<str>], endpoints: Option<&[Endpoint]>) {
        let Some(endpoints) = endpoints else { return };
        let has = |labels: &[Box<str>]| {
            endpoints.iter().any(|e| eligibility::meets(e, &Need { model_hash: None, labels }).is_ok())
        };
        if has(labels) {
            return;
        }
        let before = self.found();
        for (n, label) in labels.iter().enumerate().filter(|(_, label)| !has(std::slice::from_ref(label))) {
            let text = format!(
                "no endpoint of this pool has {:?}, and the class's requests would all get 503; \
                 write a label that one has",
                shortened(label)
            );
            self.problem(format!("{path}.labels[{n}]"), text);
        }
        if self.found() == before {
            let text = "no endpoint of this pool has all of these, and the class's requests would all get 503; \
                        write labels that one has together";
            self.problem(format!("{path}.labels"), text);
        }
    }

    /// A home must be there, and able to serve the model.
    pub(super) fn home_fits(&mut self, path: &str, id: &str, model: &str, homes: &Homes<'_>) {
        let Some(endpoints) = &homes.endpoints else { return };
        let text = shortened(id);
        let Some(endpoint) = endpoints.get(id) else {
            return self.problem(path, format!("{text:?} is the id of no endpoint of this pool"));
        };
        let (size, memory) = (homes.size(model), endpoint.memory_units);
        let model_text = shortened(model);
        if !endpoint.servable.allows(hash(model.as_bytes())) {
            self.problem(
                path,
                format!("{text:?} does not have `{model_text}` in its `serves`; write an endpoint that does"),
            );
        }
        if memory < size {
            self.problem(
                path,
                format!(
                    "{text:?} has {memory} memory_units, and `{model_text}` takes {size}; \
                     write an endpoint that has as many"
                ),
            );
        }
    }

    /// Homes of a model that goes by another strategy are never asked for.
    pub(super) fn homes_are_read(&mut self, path: &str, model: &str, homes: &Homes<'_>) {
        let name = homes.strategy(model);
        if name != StrategyName::Homes {
            let text = format!(
                "`{}` goes by {:?}, which reads no homes; leave it out here, or let it go by \"homes\"",
                shortened(model),
                name.name()
            );
            self.problem(path, text);
        }
    }
}
