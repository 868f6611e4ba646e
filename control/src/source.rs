//! The arguments that say which endpoints: a list, or the proxies' own configuration.

use crate::fault::Fault;
use crate::spec;
use crate::view::View;
use clap::{ArgGroup, Args, value_parser};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use warmroute_core::config::{self, Config, ConfigError, PoolConfig, limits};
use warmroute_core::endpoint::Endpoint;
use warmroute_core::ring::member_nodes;

/// Clusters that an error lists; the rest are counted.
const LISTED: usize = 20;

/// See the module.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").args(["endpoints", "config"]).required(true))]
pub struct Source {
    /// Endpoints as [id=]ip:port[*weight], separated by commas; IPv6 in brackets.
    ///
    /// The id places an endpoint on the ring; without one it is the address, as in the proxies. The weight is its share
    /// of the ring relative to the others' 1, from 0 to 10.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = spec::endpoint)]
    endpoints: Vec<Endpoint>,

    /// The plugin configuration of the proxies, a JSON file: ids, weights, active nodes, virtual nodes, fallbacks and
    /// aliases are those of its pool.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The pool of --config, by the name of its cluster. May be left out when there is only one.
    #[arg(long, value_name = "NAME", conflicts_with = "endpoints")]
    cluster: Option<String>,

    /// Points on the ring of an endpoint of weight 1, 1 to 1000 [default: 150, or what --config says].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(virtual_nodes_range()))]
    virtual_nodes: Option<u32>,
}

fn virtual_nodes_range() -> std::ops::RangeInclusive<i64> {
    let range = limits::VIRTUAL_NODES_RANGE;
    i64::from(*range.start())..=i64::from(*range.end())
}

impl Source {
    /// Whether a configuration is asked, and not a list of endpoints.
    #[must_use]
    pub fn is_config(&self) -> bool {
        self.config.is_some()
    }

    /// The pool that the arguments mean.
    ///
    /// # Errors
    /// What is wrong with them, with the file, or with the pool.
    pub fn view(&self) -> Result<View, Fault> {
        match &self.config {
            Some(file) => self.configured(file),
            None => self.listed(),
        }
    }

    fn listed(&self) -> Result<View, Fault> {
        let fault = |message| Fault::input("--endpoints", message);
        let virtual_nodes = self.virtual_nodes.unwrap_or(limits::VIRTUAL_NODES);
        check_distinct(&self.endpoints).map_err(fault)?;
        check_size(&self.endpoints, virtual_nodes).map_err(fault)?;
        let view = View::of_endpoints(self.endpoints.clone(), virtual_nodes);
        view.map_err(|error| fault(format!("the list {error}")))
    }

    fn configured(&self, file: &Path) -> Result<View, Fault> {
        let fault = |message| Fault::input("--config", message);
        let bytes = std::fs::read(file).map_err(|error| fault(format!("cannot read {file:?}: {error}")))?;
        let Config { pools, request, .. } = config::parse(&bytes).map_err(|error| fault(refused(file, &error)))?;
        let mut pool = select(pools, self.cluster.as_deref(), file)?;
        if let Some(virtual_nodes) = self.virtual_nodes {
            Rc::make_mut(&mut pool.settings).virtual_nodes = virtual_nodes;
            let size = check_size(pool.endpoints.as_deref().unwrap_or_default(), virtual_nodes);
            size.map_err(|message| Fault::input("--virtual-nodes", message))?;
        }
        let name = pool.cluster.clone();
        View::of_config(pool, request).map_err(|error| fault(format!("the pool {name:?} of {file:?} {error}")))
    }
}

/// As the configuration's validation has it: a second endpoint of one id would lie on the first one's points.
fn check_distinct(endpoints: &[Endpoint]) -> Result<(), String> {
    let (mut addresses, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for endpoint in endpoints {
        if !addresses.insert(endpoint.address.as_str()) {
            return Err(format!("the address {:?} is there twice, must be there once", endpoint.address.as_str()));
        }
        if !ids.insert(&*endpoint.id) {
            return Err(format!("the id {:?} is there twice, must be there once", endpoint.id));
        }
    }
    Ok(())
}

fn check_size(endpoints: &[Endpoint], virtual_nodes: u32) -> Result<(), String> {
    if endpoints.len() > limits::MAX_ENDPOINTS {
        return Err(format!("{} endpoints, at most {} are allowed", endpoints.len(), limits::MAX_ENDPOINTS));
    }
    let nodes = endpoints.iter().map(|endpoint| member_nodes(endpoint, virtual_nodes) as usize);
    let points = nodes.fold(0, usize::saturating_add);
    if points > limits::MAX_POINTS {
        let most = limits::MAX_POINTS;
        return Err(format!(
            "the ring would have {points} points (virtual nodes of all endpoints), at most {most} are allowed"
        ));
    }
    Ok(())
}

/// Every problem with its path, one a line.
fn refused(file: &Path, error: &ConfigError) -> String {
    let lines = error.problems.iter().map(|problem| format!("\n  {problem}"));
    let more = if error.more > 0 { format!("\n  and {} more", error.more) } else { String::new() };
    format!("the proxies would refuse {file:?}:{}{more}", lines.collect::<String>())
}

fn select(mut pools: Vec<PoolConfig>, cluster: Option<&str>, file: &Path) -> Result<PoolConfig, Fault> {
    let listed = clusters(&pools);
    let position = match (cluster, pools.len()) {
        (_, 0) => return Err(Fault::input("--config", format!("{file:?} names no pool, must name at least one"))),
        (None, 1) => Some(0),
        (None, count) => {
            let message = format!("{file:?} has {count} pools; say which one by --cluster: {listed}");
            return Err(Fault::input("--config", message));
        }
        (Some(name), _) => pools.iter().position(|pool| &*pool.cluster == name),
    };
    let message = || format!("{:?} is no cluster of {file:?}; it has {listed}", cluster.unwrap_or_default());
    position.map(|position| pools.swap_remove(position)).ok_or_else(|| Fault::input("--cluster", message()))
}

fn clusters(pools: &[PoolConfig]) -> String {
    let names: Vec<_> = pools.iter().take(LISTED).map(|pool| format!("{:?}", pool.cluster)).collect();
    let more = pools.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(count: usize, weight: f64) -> Vec<Endpoint> {
        let spec = |n: usize| format!("10.0.{}.{}:80*{weight}", n / 256, n % 256);
        (0..count).map(|n| spec::endpoint(&spec(n)).unwrap()).collect()
    }

    /// 10,000 endpoints of 200 points are the most; of 201 they are 10,000 too many.
    #[test]
    fn a_ring_is_no_larger_than_a_proxy_would_take() {
        assert_eq!(check_size(&endpoints(10_000, 1.0), 200), Ok(()));
        let message = check_size(&endpoints(10_000, 1.0), 201).unwrap_err();
        assert!(message.contains("2010000 points") && message.contains("at most 2000000"), "{message}");
        let message = check_size(&endpoints(10_001, 0.1), 10).unwrap_err();
        assert_eq!(message, "10001 endpoints, at most 10000 are allowed");
    }

    #[test]
    fn an_id_that_is_the_address_of_another_is_there_twice() {
        let both = ["10.0.0.1:80", "10.0.0.1:80=10.0.0.2:80"].map(|spec| spec::endpoint(spec).unwrap());
        let message = check_distinct(&both).unwrap_err();
        assert_eq!(message, "the id \"10.0.0.1:80\" is there twice, must be there once");
    }

    #[test]
    fn a_long_list_of_clusters_is_cut() {
        let pools = (0..25).map(|n| format!("{{\"cluster\": \"c{n}\"}}")).collect::<Vec<_>>().join(",");
        let Config { pools, .. } = config::parse(format!("{{\"pools\": [{pools}]}}").as_bytes()).unwrap();
        let listed = clusters(&pools);
        assert!(listed.starts_with("\"c0\", \"c1\", ") && listed.ends_with("\"c19\" and 5 more"), "{listed}");
    }
}
