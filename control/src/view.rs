//! A pool and its ring, as the subcommands ask about them.

use std::rc::Rc;
use warmroute_core::config::PoolConfig;
use warmroute_core::eligibility::{self, Health, Need};
use warmroute_core::endpoint::{Endpoint, EndpointIndex};
use warmroute_core::pool::Pool;
use warmroute_core::request::{Model, Request, RequestSettings};
use warmroute_core::ring::{Ring, member_nodes};
use warmroute_core::settings::PoolSettings;

/// Why a pool has no ring to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRing {
    /// Nothing in it walks a ring.
    #[error(
        "has no ring: of the strategies only \"homes\", \"ring\" and \"hash\" use one, and no model has one of these"
    )]
    NotUsed,
    /// Nobody has told its endpoints.
    #[error("has no `endpoints`, so that the proxies do not know any")]
    NotKnown,
    /// There are none.
    #[error("has an empty list of endpoints, must have at least one")]
    NoEndpoints,
    /// All are off the ring.
    #[error("has nobody on the ring: every endpoint's weight or `active_nodes` is 0, at least one must not be")]
    NobodyOnIt,
}

/// See the module. The ring has at least one point.
#[derive(Debug)]
pub struct View {
    /// Name of Envoy's cluster, when a configuration tells it.
    pub cluster: Option<Box<str>>,
    pool: Pool,
    request: RequestSettings,
    health: Health,
    /// Endpoints on the ring.
    on_ring: usize,
}

impl View {
    /// Of endpoints that nobody has configured.
    ///
    /// # Errors
    /// When nobody is on the ring.
    pub fn of_endpoints(endpoints: Vec<Endpoint>, virtual_nodes: u32) -> Result<Self, NoRing> {
        let settings = Rc::new(PoolSettings { virtual_nodes, ..PoolSettings::default() });
        let config = PoolConfig { cluster: "".into(), settings, endpoints: Some(endpoints) };
        Ok(Self { cluster: None, ..Self::of_config(config, RequestSettings::default())? })
    }

    /// Of a configured pool, whose requests are read by `request`.
    ///
    /// # Errors
    /// When it has no ring.
    pub fn of_config(config: PoolConfig, request: RequestSettings) -> Result<Self, NoRing> {
        let endpoints = config.endpoints.as_deref().ok_or(NoRing::NotKnown)?;
        let on_ring = endpoints.iter().filter(|e| member_nodes(e, config.settings.virtual_nodes) > 0).count();
        match (endpoints.len(), config.settings.needs_ring(), on_ring) {
            (_, false, _) => return Err(NoRing::NotUsed),
            (0, ..) => return Err(NoRing::NoEndpoints),
            (_, _, 0) => return Err(NoRing::NobodyOnIt),
            _ => {}
        }
        let health = Health::of(endpoints, config.settings.panic_threshold);
        let cluster = Some(config.cluster.clone());
        Ok(Self { cluster, pool: config.build(), request, health, on_ring })
    }

    /// The endpoints, in the order in which they were given.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        self.pool.endpoints().unwrap_or_default()
    }

    /// How the pool routes.
    #[must_use]
    pub fn settings(&self) -> &PoolSettings {
        self.pool.settings()
    }

    /// How many endpoints are on the ring.
    #[must_use]
    pub fn on_ring(&self) -> usize {
        self.on_ring
    }

    /// Virtual nodes that `endpoint` has on the ring.
    #[must_use]
    pub fn nodes(&self, endpoint: &Endpoint) -> u32 {
        member_nodes(endpoint, self.settings().virtual_nodes)
    }

    /// The model that a request for `key` is routed as: itself, or what the configuration says it is an alias of. `None`
    /// for an empty key.
    #[must_use]
    pub fn model<'a>(&self, key: &'a [u8]) -> Option<Model<'a>> {
        let mut request = Request::for_model(b"");
        request.name_by_body(&self.request, key);
        request.model
    }

    /// The first `count` distinct endpoints from a place on the ring, in order; fewer when fewer are on the ring.
    #[must_use]
    pub fn owners(&self, place: u64, count: usize) -> Vec<EndpointIndex> {
        let count = count.min(self.on_ring);
        let mut seen = vec![false; self.endpoints().len()];
        let new =
            |owner: &EndpointIndex| seen.get_mut(owner.position()).is_some_and(|seen| !std::mem::replace(seen, true));
        self.ring().walk(place).filter(new).take(count).collect()
    }

    /// Who owns a place on the ring.
    #[must_use]
    pub fn first(&self, place: u64) -> Option<EndpointIndex> {
        self.ring().walk(place).next()
    }

    /// The share of the hash space, 0–1, of each endpoint.
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        self.ring().shares(self.endpoints().len())
    }

    /// Why a pick passes over `endpoint`, though it is on the ring: for a model, or for any.
    #[must_use]
    pub fn skipped(&self, endpoint: &Endpoint, model_hash: Option<u64>) -> Option<&'static str> {
        let need = Need { model_hash, labels: &[] };
        let may = eligibility::check_under(endpoint, self.health).and_then(|()| eligibility::meets(endpoint, &need));
        may.err().map(|reason| reason.name())
    }

    fn ring(&self) -> &Ring {
        self.pool.ring().unwrap_or(self.pool.no_ring())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::endpoint;

    fn pool(specs: &[&str]) -> Vec<Endpoint> {
        specs.iter().map(|spec| endpoint(spec).unwrap()).collect()
    }

    #[test]
    fn owners_are_distinct_and_no_more_than_are_on_the_ring() {
        let view = View::of_endpoints(pool(&["10.0.0.1:80", "10.0.0.2:80*0", "10.0.0.3:80"]), 150).unwrap();
        let mut owners = view.owners(7, 10);
        owners.sort_unstable();
        assert_eq!(owners, [EndpointIndex(0), EndpointIndex(2)]);
        assert_eq!(view.owners(7, 1).len(), 1);
    }

    #[test]
    fn a_pool_that_has_no_ring_says_why() {
        let of = |endpoints| View::of_endpoints(endpoints, 150).unwrap_err();
        assert_eq!(of(Vec::new()), NoRing::NoEndpoints);
        assert_eq!(of(pool(&["10.0.0.1:80*0"])), NoRing::NobodyOnIt);
    }
}
