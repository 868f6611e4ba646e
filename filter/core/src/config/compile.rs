//! Validation, defaults and the runtime objects.

use super::{ConfigError, Problem, limits, shortened, wire};
use crate::address::Address;
use crate::endpoint::{Endpoint, Resident};
use crate::pool::{Pool, PoolSettings};
use crate::request::HeaderNames;
use crate::strategy::StrategyName;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// A configuration that passed every check.
#[derive(Debug)]
pub struct Config {
    /// The pools, with the names of their clusters; names are distinct.
    pub pools: Vec<(Box<str>, Pool)>,
    /// The headers that requests are read from.
    pub header_names: HeaderNames,
    /// The header that carries a pick.
    pub destination_header: Box<str>,
}

pub(super) fn compile(plugin: wire::Plugin) -> Result<Config, ConfigError> {
    let mut check = Check::default();
    let pools = check.pools(plugin.pools);
    let header_names = HeaderNames {
        model: check.header_list("request.model_headers", plugin.request.model_headers, &limits::MODEL_HEADERS),
        request_type: check.header_list("request.type_headers", plugin.request.type_headers, &limits::TYPE_HEADERS),
    };
    let destination_header = plugin.request.destination_header.unwrap_or_else(|| limits::DESTINATION_HEADER.to_owned());
    check.header("request.destination_header", &destination_header, &DESTINATION_RESERVED);
    check.distinct("request.destination_header", destination_header.clone());
    check.finish()?;
    // Only a configuration without a problem is worth its rings.
    let pools = pools.into_iter().map(PlannedPool::build).collect();
    Ok(Config { pools, header_names, destination_header: destination_header.into_boxed_str() })
}

/// A pool that was checked, and whose ring is not built yet.
struct PlannedPool {
    cluster: String,
    settings: PoolSettings,
    endpoints: Option<Vec<Endpoint>>,
}

impl PlannedPool {
    fn build(self) -> (Box<str>, Pool) {
        let mut pool = Pool::new(self.settings);
        if let Some(endpoints) = self.endpoints {
            pool.update(endpoints);
        }
        (self.cluster.into_boxed_str(), pool)
    }

    fn points(&self) -> usize {
        match self.settings.strategy {
            StrategyName::Ring => {
                let endpoints = self.endpoints.as_ref().map_or(0, Vec::len);
                endpoints.saturating_mul(self.settings.virtual_nodes as usize)
            }
            StrategyName::P2c => 0,
        }
    }
}

/// Collects every problem, so that a user mends them all at once.
#[derive(Default)]
struct Check {
    problems: Vec<Problem>,
    more: usize,
    /// Header names seen so far: one header cannot carry two things.
    headers: BTreeSet<String>,
}

impl Check {
    fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.problems.len() < limits::MAX_PROBLEMS {
            self.problems.push(Problem { path: path.into(), message: message.into() });
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    fn finish(self) -> Result<(), ConfigError> {
        if self.problems.is_empty() { Ok(()) } else { Err(ConfigError { problems: self.problems, more: self.more }) }
    }

    fn pools(&mut self, pools: Vec<wire::Pool>) -> Vec<PlannedPool> {
        if !self.count("pools", pools.len(), limits::MAX_POOLS) {
            return Vec::new();
        }
        let mut clusters = BTreeSet::new();
        let pools: Vec<_> = pools
            .into_iter()
            .enumerate()
            .map(|(n, pool)| {
                let path = format!("pools[{n}]");
                self.name(&format!("{path}.cluster"), &pool.cluster);
                self.seen_once(&format!("{path}.cluster"), &mut clusters, pool.cluster.clone());
                self.pool(&path, pool)
            })
            .collect();
        let points = pools.iter().map(PlannedPool::points).fold(0, usize::saturating_add);
        if points > limits::MAX_POINTS {
            self.problem(
                "pools",
                format!(
                    "the rings have {points} points together (endpoints × virtual_nodes), at most {} are allowed",
                    limits::MAX_POINTS
                ),
            );
        }
        pools
    }

    fn pool(&mut self, path: &str, wire: wire::Pool) -> PlannedPool {
        let fallbacks = self.number(path, "fallbacks", wire.fallbacks, limits::FALLBACKS, limits::FALLBACKS_RANGE);
        let settings = PoolSettings {
            strategy: match wire.strategy.unwrap_or(limits::STRATEGY) {
                wire::Strategy::Ring => StrategyName::Ring,
                wire::Strategy::P2c => StrategyName::P2c,
            },
            virtual_nodes: self.number(
                path,
                "virtual_nodes",
                wire.virtual_nodes,
                limits::VIRTUAL_NODES,
                limits::VIRTUAL_NODES_RANGE,
            ),
            fallbacks,
            max_retries: self.max_retries(path, wire.max_retries, fallbacks),
        };
        PlannedPool {
            cluster: wire.cluster,
            settings,
            endpoints: wire.endpoints.map(|endpoints| self.endpoints(path, endpoints)),
        }
    }

    /// The default gives way to fewer fallbacks; what a user asks for does not.
    fn max_retries(&mut self, path: &str, given: Option<u8>, fallbacks: u8) -> u8 {
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

    fn endpoints(&mut self, path: &str, wire: Vec<wire::Endpoint>) -> Vec<Endpoint> {
        if !self.count(&format!("{path}.endpoints"), wire.len(), limits::MAX_ENDPOINTS) {
            return Vec::new();
        }
        let (mut ids, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        let mut endpoints = Vec::with_capacity(wire.len());
        for (n, wire) in wire.into_iter().enumerate() {
            let path = format!("{path}.endpoints[{n}]");
            let Some(endpoint) = self.endpoint(&path, wire) else { continue };
            let address = endpoint.address.as_str().to_owned();
            // An id that is the address would only say the same twice.
            if self.seen_once(&format!("{path}.address"), &mut addresses, address) {
                self.seen_once(&format!("{path}.id"), &mut ids, endpoint.id.clone());
            }
            endpoints.push(endpoint);
        }
        endpoints
    }

    fn endpoint(&mut self, path: &str, wire: wire::Endpoint) -> Option<Endpoint> {
        let models = wire.models.as_deref();
        if let Some(models) = models {
            self.count(&format!("{path}.models"), models.len(), limits::MAX_MODELS);
            for (n, model) in models.iter().enumerate() {
                let path = format!("{path}.models[{n}]");
                self.name(&path, model);
                if model.trim_ascii() != model {
                    self.problem(path, "begins or ends with white space, which a header's value cannot");
                }
            }
        }
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
            resident: models.map(|models| Resident::from_ids(models.iter().map(String::as_str))),
            marked_unhealthy: wire.unhealthy.unwrap_or(limits::UNHEALTHY),
            ..Endpoint::new(id, address)
        })
    }

    fn number<N: Copy + PartialOrd + Display>(
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

    fn count(&mut self, path: &str, count: usize, max: usize) -> bool {
        if count > max {
            self.problem(path, format!("{count} items, at most {max} are allowed"));
        }
        count <= max
    }

    fn name(&mut self, path: &str, name: &str) {
        if name.is_empty() || name.len() > limits::MAX_NAME_BYTES {
            self.problem(path, format!("{} bytes long, allowed are 1 to {}", name.len(), limits::MAX_NAME_BYTES));
        }
    }

    /// Whether `value` is new in `seen`; else that is a problem.
    fn seen_once<T: Ord + std::fmt::Debug>(&mut self, path: &str, seen: &mut BTreeSet<T>, value: T) -> bool {
        let text = format!("{value:?}");
        let new = seen.insert(value);
        if !new {
            self.problem(path, format!("{} is there twice", shortened(&text)));
        }
        new
    }

    fn header_list(&mut self, path: &str, given: Option<Vec<String>>, default: &[&str]) -> Box<[Box<str>]> {
        let names = given.unwrap_or_else(|| default.iter().map(|&name| name.to_owned()).collect());
        if self.count(path, names.len(), limits::MAX_HEADER_NAMES) {
            for (n, name) in names.iter().enumerate() {
                let path = format!("{path}[{n}]");
                self.header(&path, name, &FACTS_RESERVED);
                self.distinct(&path, name.clone());
            }
        }
        names.into_iter().map(String::into_boxed_str).collect()
    }

    fn distinct(&mut self, path: &str, name: String) {
        let text = format!("{name:?}");
        if !self.headers.insert(name) {
            self.problem(path, format!("{} is named twice: one header cannot carry two things", shortened(&text)));
        }
    }

    /// Header names as HTTP/2 sends them: the token characters of RFC 9110 §5.6.2 without capitals. None that is
    /// `reserved`, or begins with a reserved name that ends in a dash.
    fn header(&mut self, path: &str, name: &str, reserved: &[&str]) {
        self.name(path, name);
        let token = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if !name.bytes().all(token) {
            let text = shortened(name);
            self.problem(path, format!("{text:?} is no header name in lower case, such as \"x-model-id\""));
        }
        let taken = |reserved: &&str| name == *reserved || (reserved.ends_with('-') && name.starts_with(*reserved));
        if reserved.iter().any(taken) {
            self.problem(path, format!("{name:?} has a meaning of its own; choose another header"));
        }
    }
}

/// Headers that cannot tell a model or a type: Envoy keeps them elsewhere, or other rules read them.
const FACTS_RESERVED: [&str; 5] = ["host", "content-type", "content-length", "x-envoy-", "x-forwarded-"];

/// Headers that a pick must not be written over.
const DESTINATION_RESERVED: [&str; 22] = [
    "accept",
    "accept-",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "grpc-",
    "host",
    "keep-alive",
    "proxy-",
    "te",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-envoy-",
    "x-forwarded-",
    "x-request-id",
];
