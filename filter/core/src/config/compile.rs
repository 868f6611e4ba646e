//! Validation, defaults and the runtime objects.

use super::{ConfigError, Problem, limits, wire};
use crate::address::Address;
use crate::endpoint::{Endpoint, Resident, Score};
use crate::pool::{Pool, PoolSettings};
use crate::request::HeaderNames;
use crate::strategy::StrategyName;
use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
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
    check.header("request.destination_header", &destination_header);
    if check.problems.is_empty() {
        Ok(Config { pools, header_names, destination_header: destination_header.into_boxed_str() })
    } else {
        Err(ConfigError { problems: check.problems })
    }
}

/// Collects every problem, so that a user mends them all at once.
#[derive(Default)]
struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem { path: path.into(), message: message.into() });
    }

    fn pools(&mut self, pools: Vec<wire::Pool>) -> Vec<(Box<str>, Pool)> {
        if !self.count("pools", pools.len(), limits::MAX_POOLS) {
            return Vec::new();
        }
        let mut clusters = HashSet::new();
        pools
            .into_iter()
            .enumerate()
            .map(|(n, pool)| {
                let path = format!("pools[{n}]");
                self.name(&format!("{path}.cluster"), &pool.cluster);
                self.distinct(&format!("{path}.cluster"), &mut clusters, pool.cluster.clone());
                (pool.cluster.clone().into_boxed_str(), self.pool(&path, pool))
            })
            .collect()
    }

    fn pool(&mut self, path: &str, wire: wire::Pool) -> Pool {
        let settings = PoolSettings {
            strategy: match wire.strategy {
                None | Some(wire::Strategy::Ring) => StrategyName::Ring,
                Some(wire::Strategy::P2c) => StrategyName::P2c,
            },
            virtual_nodes: self.number(
                path,
                "virtual_nodes",
                wire.virtual_nodes,
                limits::VIRTUAL_NODES,
                limits::VIRTUAL_NODES_RANGE,
            ),
            fallbacks: self.number(path, "fallbacks", wire.fallbacks, limits::FALLBACKS, limits::FALLBACKS_RANGE),
            max_retries: self.number(
                path,
                "max_retries",
                wire.max_retries,
                limits::MAX_RETRIES,
                limits::MAX_RETRIES_RANGE,
            ),
        };
        let mut pool = Pool::new(settings);
        let endpoints = wire.endpoints.map(|endpoints| self.endpoints(path, endpoints));
        // With a problem anywhere the pool is thrown away; its ring need not be built.
        if let Some(endpoints) = endpoints
            && self.problems.is_empty()
        {
            pool.update(endpoints);
        }
        pool
    }

    fn endpoints(&mut self, path: &str, wire: Vec<wire::Endpoint>) -> Vec<Endpoint> {
        if !self.count(&format!("{path}.endpoints"), wire.len(), limits::MAX_ENDPOINTS) {
            return Vec::new();
        }
        let (mut ids, mut addresses) = (HashSet::new(), HashSet::new());
        let mut endpoints = Vec::with_capacity(wire.len());
        for (n, wire) in wire.into_iter().enumerate() {
            let path = format!("{path}.endpoints[{n}]");
            let Some(endpoint) = self.endpoint(&path, wire) else { continue };
            self.distinct(&format!("{path}.address"), &mut addresses, endpoint.address.as_str().to_owned());
            self.distinct(&format!("{path}.id"), &mut ids, endpoint.id.clone());
            endpoints.push(endpoint);
        }
        endpoints
    }

    fn endpoint(&mut self, path: &str, wire: wire::Endpoint) -> Option<Endpoint> {
        let models = wire.models.as_deref();
        if let Some(models) = models {
            self.count(&format!("{path}.models"), models.len(), limits::MAX_MODELS);
            for (n, model) in models.iter().enumerate() {
                self.name(&format!("{path}.models[{n}]"), model);
            }
        }
        let address: Address = match wire.address.parse() {
            Ok(address) => address,
            Err(error) => {
                self.problem(format!("{path}.address"), format!("{:?}: {error}", wire.address));
                return None;
            }
        };
        let id = wire.id.unwrap_or_else(|| address.to_string());
        self.name(&format!("{path}.id"), &id);
        Some(Endpoint {
            id: id.into_boxed_str(),
            address,
            resident: models.map(|models| Resident::from_ids(models.iter().map(String::as_str))),
            score: Score::FULL,
            marked_unhealthy: wire.unhealthy.unwrap_or(false),
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

    fn distinct<T: Hash + Eq + std::fmt::Debug>(&mut self, path: &str, seen: &mut HashSet<T>, value: T) {
        if seen.contains(&value) {
            self.problem(path, format!("{value:?} is there twice"));
        }
        seen.insert(value);
    }

    fn header_list(&mut self, path: &str, given: Option<Vec<String>>, default: &[&str]) -> Box<[Box<str>]> {
        let names = given.unwrap_or_else(|| default.iter().map(|&name| name.to_owned()).collect());
        if self.count(path, names.len(), limits::MAX_HEADER_NAMES) {
            for (n, name) in names.iter().enumerate() {
                self.header(&format!("{path}[{n}]"), name);
            }
        }
        names.into_iter().map(String::into_boxed_str).collect()
    }

    /// Header names as HTTP/2 sends them: the token characters of RFC 9110 §5.6.2 without capitals.
    fn header(&mut self, path: &str, name: &str) {
        self.name(path, name);
        let token = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if !name.bytes().all(token) {
            self.problem(path, format!("{name:?} is no header name in lower case, such as \"x-model-id\""));
        }
        if ENVOYS_OWN.iter().any(|own| name.starts_with(own)) {
            self.problem(path, format!("{name:?} has a meaning of its own in Envoy; choose another header"));
        }
    }
}

/// Names that a request's facts and picks must not use.
const ENVOYS_OWN: [&str; 2] = ["x-envoy-", "x-forwarded-"];
