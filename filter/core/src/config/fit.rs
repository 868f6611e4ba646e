//! What has to fit a pool's endpoints: classes of requests, homes and sizes of models, and a default model that nobody
//! there could take.
//!
//! Decided only where the endpoints are told, are not none (a pool scaled to zero), and passed their own checks: what
//! is not known is not held against anybody. Endpoints that drain or are marked count, since they may come back.

use super::compile::Check;
use super::pools::PoolConfig;
use super::{limits, shortened, wire};
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

/// The largest memory that a plan made here can place a model in; `None`: not known, or no such plan.
pub(super) fn most_memory(plan: Option<&wire::PlanSource>, endpoints: Option<&[Endpoint]>) -> Option<u32> {
    match plan {
        Some(wire::PlanSource::SelfMade) => endpoints?.iter().map(|endpoint| endpoint.memory_units).max(),
        Some(wire::PlanSource::Fixed(_)) | None => None,
    }
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

    /// A model that no memory holds would never be placed. One that is out of range is told so already.
    pub(super) fn size_fits(&mut self, path: &str, model: &wire::Model, most: Option<u32>) {
        let (Some(size), Some(most)) = (model.size_units, most) else { return };
        if size > most && limits::SIZE_UNITS_RANGE.contains(&size) {
            let text = format!(
                "`{}` takes {size}, and no endpoint of this pool has more than {most} memory_units; write a size that \
                 one has, or give an endpoint as many",
                shortened(&model.id)
            );
            self.problem(path, text);
        }
    }

    /// Somebody must serve the model of requests that name none, where all pools tell what they serve.
    pub(super) fn default_fits(&mut self, model: Option<&[u8]>, pools: &[PoolConfig]) {
        let Some(model) = model.filter(|_| self.found() == 0 && !pools.is_empty()) else { return };
        let model_hash = hash(model);
        let may_serve = |pool: &PoolConfig| {
            let endpoints = pool.endpoints.as_deref().unwrap_or_default();
            endpoints.is_empty() || endpoints.iter().any(|endpoint| endpoint.servable.allows(model_hash))
        };
        if !pools.iter().any(may_serve) {
            let text = format!(
                "no endpoint of any pool has `{}` in its `serves`, and requests that name no model would all get 503; \
                 write a model that one serves",
                shortened(&String::from_utf8_lossy(model))
            );
            self.problem("request.default_model", text);
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
