//! Pools, checked and compiled.

use super::compile::Check;
use super::fit::{self, Homes};
use super::{limits, shortened, wire};
use crate::address::Address;
use crate::endpoint::{Endpoint, Resident, Servable};
use crate::hash::hash;
use crate::payload::{PayloadClass, PayloadClasses};
use crate::plan::{Placement, Plan, SelfSettings};
use crate::pool::Pool;
use crate::settings::{ModelSettings, PlanSource, PoolSettings, UpdateScope};
use crate::small;
use crate::strategy::StrategyName;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// A pool that was checked, and from which nothing was built yet.
#[derive(Debug)]
pub struct PoolConfig {
    /// Name of Envoy's cluster.
    pub cluster: Box<str>,
    /// How it routes.
    pub settings: Rc<PoolSettings>,
    /// Its endpoints, when they are told.
    pub endpoints: Option<Vec<Endpoint>>,
}

impl PoolConfig {
    /// The pool, with all that is computed from its endpoints.
    #[must_use]
    pub fn build(self) -> Pool {
        let mut pool = Pool::new(self.settings);
        if let Some(endpoints) = self.endpoints {
            pool.update(endpoints);
        }
        pool
    }

    fn points(&self) -> usize {
        if !self.settings.needs_ring() {
            return 0;
        }
        let endpoints = self.endpoints.as_deref().unwrap_or_default();
        let nodes = endpoints.iter().map(|e| crate::ring::member_nodes(e, self.settings.virtual_nodes) as usize);
        nodes.fold(0, usize::saturating_add)
    }
}

impl From<wire::Strategy> for StrategyName {
    fn from(strategy: wire::Strategy) -> Self {
        match strategy {
            wire::Strategy::Homes => Self::Homes,
            wire::Strategy::Ring => Self::Ring,
            wire::Strategy::P2c => Self::P2c,
            wire::Strategy::RoundRobin => Self::RoundRobin,
            wire::Strategy::LeastRequest => Self::LeastRequest,
            wire::Strategy::Hash => Self::Hash,
        }
    }
}

impl Check {
    pub(super) fn pools(&mut self, pools: Vec<wire::Pool>) -> Vec<PoolConfig> {
        if !self.count("pools", pools.len(), limits::MAX_POOLS) {
            return Vec::new();
        }
        let mut clusters = BTreeSet::new();
        let mut configs = Vec::with_capacity(pools.len());
        for (n, pool) in pools.into_iter().enumerate() {
            let path = format!("pools[{n}]");
            self.name(&format!("{path}.cluster"), &pool.cluster);
            self.seen_once(&format!("{path}.cluster"), &mut clusters, pool.cluster.clone());
            configs.push(self.pool(&path, pool));
        }
        let points = configs.iter().map(PoolConfig::points).fold(0, usize::saturating_add);
        if points > limits::MAX_POINTS {
            let most = limits::MAX_POINTS;
            let text = format!(
                "the rings have {points} points together (virtual nodes of all endpoints), at most {most} are allowed"
            );
            self.problem("pools", text);
        }
        configs
    }

    fn pool(&mut self, path: &str, wire: wire::Pool) -> PoolConfig {
        let memory =
            self.number(path, "memory_units", wire.memory_units, limits::MEMORY_UNITS, limits::MEMORY_UNITS_RANGE);
        let nodes =
            self.number(path, "virtual_nodes", wire.virtual_nodes, limits::VIRTUAL_NODES, limits::VIRTUAL_NODES_RANGE);
        let told = wire.endpoints.as_ref().map_or(0, Vec::len);
        let endpoints = wire.endpoints.map(|endpoints| self.endpoints(path, endpoints, memory));
        let known = fit::known(endpoints.as_deref(), told);
        let default = if wire.plan.is_none() { limits::STRATEGY } else { limits::STRATEGY_WITH_PLAN };
        let strategy: StrategyName = wire.strategy.unwrap_or(default).into();
        let most_memory = fit::most_memory(wire.plan.as_ref(), known);
        let models = self.models(path, wire.models, wire.plan.is_some(), most_memory);
        let slots = self.number(path, "slots", wire.slots, limits::SLOTS, limits::SLOTS_RANGE);
        let load_cost = self.number(path, "load_cost", wire.load_cost, limits::LOAD_COST, limits::LOAD_COST_RANGE);
        self.homes_are_planned(&format!("{path}.strategy"), strategy, wire.plan.is_some());
        let plan = self.plan(path, wire.plan, &Homes::new(known, &models, strategy), slots);
        let fallbacks = self.number(path, "fallbacks", wire.fallbacks, limits::FALLBACKS, limits::FALLBACKS_RANGE);
        let settings = PoolSettings {
            strategy,
            virtual_nodes: nodes,
            // Their ranges end far below.
            fallbacks: u8::try_from(fallbacks).unwrap_or(u8::MAX),
            max_retries: u8::try_from(self.max_retries(path, wire.max_retries, fallbacks)).unwrap_or(u8::MAX),
            panic_threshold: self.number(
                path,
                "panic_threshold_ratio",
                wire.panic_threshold_ratio,
                limits::PANIC,
                limits::PANIC_RANGE,
            ),
            payload: self.payload_classes(path, wire.payload_classes, known),
            updates: match wire.updates.unwrap_or(limits::UPDATES) {
                wire::Updates::Holders => UpdateScope::Holders,
                wire::Updates::Pool => UpdateScope::Pool,
            },
            sessions: self.sessions,
            models,
            plan,
            slots,
            load_cost,
        };
        PoolConfig { cluster: wire.cluster.into_boxed_str(), settings: Rc::new(settings), endpoints }
    }

    /// Homes without anybody who plans are a mistake rather than silence.
    fn homes_are_planned(&mut self, path: &str, strategy: StrategyName, planned: bool) {
        if strategy == StrategyName::Homes && !planned {
            self.problem(path, "\"homes\" needs a plan: set `plan`, to \"self\" or to a fixed one");
        }
    }

    fn plan(&mut self, path: &str, plan: Option<wire::PlanSource>, fit: &Homes<'_>, slots: u32) -> PlanSource {
        let Some(plan) = plan else { return PlanSource::None };
        // A plan that no strategy reads is a mistake rather than silence, and one for all of its models.
        if !fit.are_read() {
            let text = "no strategy here reads a plan: use the strategy \"homes\" or leave the plan out";
            self.problem(format!("{path}.plan"), text);
            return PlanSource::None;
        }
        match plan {
            wire::PlanSource::SelfMade => PlanSource::SelfMade(self_made(fit.models, slots)),
            wire::PlanSource::Fixed(plan) => {
                PlanSource::Fixed(self.fixed_plan(&format!("{path}.plan.fixed"), plan, fit))
            }
        }
    }

    fn fixed_plan(&mut self, path: &str, plan: wire::FixedPlan, fit: &Homes<'_>) -> Plan {
        self.count(&format!("{path}.models"), plan.models.len(), limits::MAX_MODELS);
        let (mut seen, mut placements) = (BTreeSet::new(), Vec::new());
        for (n, model) in plan.models.into_iter().enumerate() {
            let path = format!("{path}.models[{n}]");
            self.routed_name(&format!("{path}.id"), &model.id);
            self.seen_once(&format!("{path}.id"), &mut seen, model.id.clone());
            self.homes_are_read(&format!("{path}.id"), &model.id, fit);
            let homes = self.homes(&format!("{path}.homes"), &model, fit);
            placements.push((hash(model.id.as_bytes()), Placement { homes, tail: false }));
        }
        let version = self.number(path, "version", plan.version, limits::PLAN_VERSION, limits::PLAN_VERSION_RANGE);
        Plan::new(version, placements)
    }

    fn homes(&mut self, path: &str, model: &wire::PlannedModel, fit: &Homes<'_>) -> Box<[u64]> {
        if model.homes.is_empty() {
            self.problem(path, "empty: name at least one endpoint, or leave the model out");
        }
        self.count(path, model.homes.len(), limits::MAX_HOMES);
        let mut seen = BTreeSet::new();
        for (n, id) in model.homes.iter().enumerate() {
            let path = format!("{path}[{n}]");
            if self.seen_once(&path, &mut seen, id.clone()) {
                self.home_fits(&path, id, &model.id, fit);
            }
        }
        model.homes.iter().map(|id| hash(id.as_bytes())).collect()
    }

    fn models(
        &mut self,
        path: &str,
        models: Vec<wire::Model>,
        planned: bool,
        most_memory: Option<u32>,
    ) -> BTreeMap<u64, ModelSettings> {
        self.count(&format!("{path}.models"), models.len(), limits::MAX_MODELS);
        let (mut seen, mut settings) = (BTreeSet::new(), BTreeMap::new());
        for (n, model) in models.into_iter().enumerate() {
            let path = format!("{path}.models[{n}]");
            self.routed_name(&format!("{path}.id"), &model.id);
            self.seen_once(&format!("{path}.id"), &mut seen, model.id.clone());
            self.optional(&path, "size_units", model.size_units, limits::SIZE_UNITS_RANGE);
            self.size_fits(&format!("{path}.size_units"), &model, most_memory);
            self.optional(&path, "load_ms", model.load_ms, limits::LOAD_MS_RANGE);
            let strategy = model.strategy.map(StrategyName::from);
            if let Some(strategy) = strategy {
                self.homes_are_planned(&format!("{path}.strategy"), strategy, planned);
            }
            let own = ModelSettings {
                strategy,
                size_units: model.size_units,
                load_time: model.load_ms.map(Duration::from_millis),
            };
            settings.insert(hash(model.id.as_bytes()), own);
        }
        settings
    }

    fn payload_classes(
        &mut self,
        path: &str,
        classes: Vec<wire::PayloadClass>,
        endpoints: Option<&[Endpoint]>,
    ) -> PayloadClasses {
        self.count(&format!("{path}.payload_classes"), classes.len(), limits::MAX_PAYLOAD_CLASSES);
        let (mut names, mut bytes, mut compiled) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for (n, class) in classes.into_iter().enumerate() {
            let path = format!("{path}.payload_classes[{n}]");
            self.name(&format!("{path}.name"), &class.name);
            self.seen_once(&format!("{path}.name"), &mut names, class.name.clone());
            self.seen_once(&format!("{path}.above_bytes"), &mut bytes, class.above_bytes);
            let weight =
                self.number(&path, "weight", class.weight, limits::PAYLOAD_WEIGHT, limits::PAYLOAD_WEIGHT_RANGE);
            let labels = self.labels(&path, class.labels);
            self.class_fits(&path, &labels, endpoints);
            compiled.push(PayloadClass {
                name: class.name.into_boxed_str(),
                above_bytes: class.above_bytes,
                weight,
                labels,
            });
        }
        PayloadClasses::new(compiled)
    }

    fn labels(&mut self, path: &str, labels: Vec<String>) -> Box<[Box<str>]> {
        self.count(&format!("{path}.labels"), labels.len(), limits::MAX_LABELS);
        let mut seen = BTreeSet::new();
        for (n, label) in labels.iter().enumerate() {
            let path = format!("{path}.labels[{n}]");
            self.name(&path, label);
            self.seen_once(&path, &mut seen, label.clone());
            if label.split_once('=').is_none_or(|(key, _)| key.is_empty()) {
                self.problem(path, format!("{:?} is no label such as \"gpu=h100\"", shortened(label)));
            }
        }
        labels.into_iter().map(String::into_boxed_str).collect()
    }

    /// The default gives way to fewer fallbacks; what a user asks for does not.
    fn max_retries(&mut self, path: &str, given: Option<u32>, fallbacks: u32) -> u32 {
        let default = limits::MAX_RETRIES.min(fallbacks);
        let retries = self.number(path, "max_retries", given, default, limits::MAX_RETRIES_RANGE);
        if retries > fallbacks && limits::MAX_RETRIES_RANGE.contains(&retries) {
            self.problem(
                format!("{path}.max_retries"),
                format!("{retries} retries need as many fallbacks, and there are {fallbacks}"),
            );
        }
        retries
    }

    fn endpoints(&mut self, path: &str, wire: Vec<wire::Endpoint>, memory: u32) -> Vec<Endpoint> {
        if !self.count(&format!("{path}.endpoints"), wire.len(), limits::MAX_ENDPOINTS) {
            return Vec::new();
        }
        let (mut ids, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        let mut endpoints = Vec::with_capacity(wire.len());
        for (n, wire) in wire.into_iter().enumerate() {
            let path = format!("{path}.endpoints[{n}]");
            let Some(endpoint) = self.endpoint(&path, wire, memory) else { continue };
            let address = endpoint.address.as_str().to_owned();
            // An id that is the address would only say the same twice.
            if self.seen_once(&format!("{path}.address"), &mut addresses, address) {
                self.seen_once(&format!("{path}.id"), &mut ids, endpoint.id.clone());
            }
            endpoints.push(endpoint);
        }
        endpoints
    }

    fn endpoint(&mut self, path: &str, wire: wire::Endpoint, memory: u32) -> Option<Endpoint> {
        let resident = self.model_list(&format!("{path}.models"), wire.models);
        let served = self.model_list(&format!("{path}.serves"), wire.serves);
        let labels = self.labels(path, wire.labels);
        let weight = self.number(path, "weight", wire.weight, limits::WEIGHT, limits::WEIGHT_RANGE);
        self.optional(path, "memory_units", wire.memory_units, limits::MEMORY_UNITS_RANGE);
        let address: Address = match wire.address.parse() {
            Ok(address) => address,
            Err(error) => {
                self.problem(format!("{path}.address"), format!("{:?}: {error}", shortened(&wire.address)));
                return None;
            }
        };
        let id = wire.id.unwrap_or_else(|| address.to_string());
        self.name(&format!("{path}.id"), &id);
        Some(Endpoint {
            resident,
            servable: served.map_or(Servable::OnDemand, Servable::Fixed),
            marked_unhealthy: wire.unhealthy.unwrap_or(limits::UNHEALTHY),
            draining: wire.draining.unwrap_or(limits::DRAINING),
            weight,
            active_nodes: wire.active_nodes,
            labels,
            memory_units: wire.memory_units.unwrap_or(memory),
            ..Endpoint::new(id, address)
        })
    }

    fn model_list(&mut self, path: &str, models: Option<Vec<String>>) -> Option<Resident> {
        let models = models?;
        self.count(path, models.len(), limits::MAX_MODELS);
        let mut seen = BTreeSet::new();
        for (n, model) in models.iter().enumerate() {
            let path = format!("{path}[{n}]");
            self.routed_name(&path, model);
            self.seen_once(&path, &mut seen, model.clone());
        }
        Some(Resident::from_ids(models.iter().map(String::as_str)))
    }
}

fn self_made(models: &BTreeMap<u64, ModelSettings>, slots: u32) -> SelfSettings {
    SelfSettings {
        slots: Some(slots),
        sizes: small::map(models.iter().filter_map(|(model, own)| Some((*model, own.size_units?)))),
        loads: small::map(models.iter().filter_map(|(model, own)| Some((*model, own.load_time?)))),
        ..SelfSettings::default()
    }
}
