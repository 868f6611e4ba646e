//! Plugin configurations: taken within their ranges and at work, or refused with a path.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use std::time::Duration;
use warmroute_core::config::{Config, ConfigError, limits, parse};
use warmroute_core::live::LivePool;
use warmroute_core::load::Registry;
use warmroute_core::picker::Answer;
use warmroute_core::request::Request;
use warmroute_core::snapshot::Snapshot;

/// See the module.
pub fn check(bytes: &[u8]) {
    let taken = parse(bytes);
    match (&taken, parse(bytes)) {
        (Ok(_), Ok(_)) => {}
        (Err(first), Err(second)) => assert_eq!(*first, second),
        _ => panic!("taken once and refused once"),
    }
    match taken {
        Ok(config) => check_config(config),
        Err(error) => check_error(&error),
    }
}

/// At least one problem, each with its path, and no line of a log that a user wrote.
fn check_error(error: &ConfigError) {
    assert!(!error.problems.is_empty() && error.problems.len() <= limits::MAX_PROBLEMS);
    for problem in &error.problems {
        assert!(!problem.path.is_empty() && !problem.message.is_empty(), "{problem:?}");
    }
    assert!(!error.to_string().contains(char::is_control));
}

fn check_config(config: Config) {
    let mut clusters = BTreeSet::new();
    for pool in &config.pools {
        assert!(clusters.insert(pool.cluster.clone()), "{} is there twice", pool.cluster);
        let settings = &pool.settings;
        assert!(limits::VIRTUAL_NODES_RANGE.contains(&settings.virtual_nodes));
        assert!(
            limits::FALLBACKS_RANGE.contains(&settings.fallbacks.into()) && settings.max_retries <= settings.fallbacks
        );
        assert!(limits::PANIC_RANGE.contains(&settings.panic_threshold));
        assert!(limits::SLOTS_RANGE.contains(&settings.slots) && limits::LOAD_COST_RANGE.contains(&settings.load_cost));
        let endpoints = pool.endpoints.iter().flatten();
        let addresses: BTreeSet<&str> = endpoints.clone().map(|endpoint| endpoint.address.as_str()).collect();
        assert_eq!(addresses.len(), endpoints.count(), "addresses are distinct");
    }
    let snapshot = Snapshot::complete(config.pools, &mut Registry::default());
    assert_eq!(snapshot.pools().len(), clusters.len());
    snapshot.pools().values().for_each(|live| check_pool(live));
}

/// Shares of the ring add up, and lists are what they must be.
fn check_pool(live: &LivePool) {
    let count = live.pool().endpoints().map_or(0, <[_]>::len);
    if let Some(ring) = live.pool().ring().filter(|ring| !ring.is_empty()) {
        let sum: f64 = ring.shares(count).iter().sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    }
    let now = Duration::from_secs(1);
    for request in [Request::for_model(b"llama"), Request::for_model(b""), Request::update(b"m")] {
        match live.answer(&request, now, &mut Xoshiro256PlusPlus::seed_from_u64(1)) {
            Answer::Pick(pick) => {
                let listed: BTreeSet<_> = pick.endpoints.iter().collect();
                assert!(!listed.is_empty() && listed.len() == pick.endpoints.len());
                assert!(listed.len() <= usize::from(live.pool().settings().fallbacks) + 1);
                for endpoint in listed.iter().filter_map(|index| live.pool().endpoint(**index)) {
                    assert!(!endpoint.marked_unhealthy && !endpoint.draining);
                }
            }
            Answer::Pass(_) => assert!(live.pool().endpoints().is_none()),
            Answer::Refuse(_) => {}
        }
    }
}
