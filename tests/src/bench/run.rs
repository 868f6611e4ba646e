//! The measuring itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cpu::cpu_time;
use super::report::Report;
use super::variants::{Upstream, Variant, check_choices, destinations};
use super::wrk;
use crate::harness::{Envoy, eventually};

/// Envoy's own counts of the listener and the cluster that all variants share by name.
const REQUESTS: &str = "http.inference.downstream_rq_total";
const FAILURES: [&str; 4] = [
    "http.inference.downstream_rq_4xx",
    "http.inference.downstream_rq_5xx",
    "cluster.model-servers.upstream_cx_connect_fail",
    "cluster.model-servers.upstream_rq_retry",
];
/// The filter's picks, one counter per strategy.
const PICKS: &str = "wasmcustom.warmroute.pick.";
/// Before a measured run: connections get opened, and V8 optimises the filter.
const WARM_UP: Duration = Duration::from_secs(1);
/// Longer than the filter takes to hand over its counts.
const SETTLED: Duration = Duration::from_secs(5);
/// Fewer requests than this in a run say that something is stuck, not what a request costs.
const MINIMUM: u64 = 1000;

/// How much to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    pub rounds: usize,
    pub time: Duration,
    /// Another build of the filter to be measured in the same rounds.
    pub other: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    requests: u64,
    failures: u64,
    picks: u64,
}

/// Starts everything, measures, and stops everything.
///
/// # Errors
/// When something does not start, a run had errors or too few requests, or picks were missing.
pub async fn run(plan: Plan) -> Result<Report> {
    let folder = tempfile::TempDir::with_prefix("warmroute-bench-")?;
    let upstream = Upstream::start().await?;
    let destinations = destinations(&upstream.hosts, wrk::MODELS);
    let script = wrk::write_script(folder.path(), &destinations)?;
    let version = envoy_version(&upstream.envoy).await?;
    let mut rounds = Vec::with_capacity(plan.rounds);
    for round in 0..plan.rounds {
        eprint!("round {} of {}:", round + 1, plan.rounds);
        let mut costs = BTreeMap::new();
        let mut variants = Variant::ALL.to_vec();
        variants.retain(|variant| *variant != Variant::Other || plan.other.is_some());
        // Each round starts with another variant, so that none always follows the same one.
        let first = round % variants.len();
        variants.rotate_left(first);
        for variant in variants {
            let envoy = variant.start(&upstream.hosts, plan.other.as_deref()).await?;
            check_choices(variant, &envoy, &destinations).await?;
            one_run(variant, &envoy, &script, WARM_UP).await.context("the warm-up failed")?;
            let cost = one_run(variant, &envoy, &script, plan.time).await?;
            envoy.stop().await?;
            eprint!(" {} {cost:.1}", variant.name());
            costs.insert(variant, cost);
        }
        eprintln!(" µs");
        rounds.push(costs);
    }
    Report::new(rounds, plan.time, version)
}

/// Microseconds of CPU time per request.
async fn one_run(variant: Variant, envoy: &Envoy, script: &Path, time: Duration) -> Result<f64> {
    // The counts are read outside of the measured span: answering costs the process CPU time too.
    let before = settled_counts(variant, envoy).await?;
    let cpu_before = cpu_time(envoy.process_id())?;
    let load = wrk::run(script, &envoy.base_url(), time).await?;
    let cpu = cpu_time(envoy.process_id())?.saturating_sub(cpu_before);
    let after = settled_counts(variant, envoy).await?;
    check(variant, load, before, after).with_context(|| format!("a run of {} is void", variant.name()))?;
    let requests = after.requests - before.requests;
    Ok(cpu.as_secs_f64() * 1e6 / requests as f64)
}

fn check(variant: Variant, load: wrk::Load, before: Counts, after: Counts) -> Result<()> {
    let requests = after.requests - before.requests;
    let failures = after.failures - before.failures;
    if requests < MINIMUM {
        bail!("only {requests} requests were sent");
    }
    if load.errors + failures > 0 {
        bail!("wrk saw {} errors, Envoy {failures} failures", load.errors);
    }
    // When time is up, wrk hangs up with at most one request open on each connection.
    if requests.abs_diff(load.requests) > wrk::CONNECTIONS {
        bail!("wrk counted {} requests, Envoy {requests}", load.requests);
    }
    let picks = after.picks - before.picks;
    let expected = if variant.picks() { requests } else { 0 };
    if picks != expected {
        bail!("Warmroute counted {picks} picks for {requests} requests");
    }
    Ok(())
}

/// The filter hands its counts over ten times a second: waits until every request has its pick.
async fn settled_counts(variant: Variant, envoy: &Envoy) -> Result<Counts> {
    let settled = eventually(SETTLED, "every request is counted", || async {
        let counts = counts(envoy).await?;
        Ok((!variant.picks() || counts.picks >= counts.requests).then_some(counts))
    });
    match settled.await {
        Ok(counts) => Ok(counts),
        // What is missing is told by the check of the counts.
        Err(_) => counts(envoy).await,
    }
}

async fn counts(envoy: &Envoy) -> Result<Counts> {
    let stats = envoy.admin().stats("").await?;
    let stat = |name: &str| stats.get(name).copied().unwrap_or(0);
    let picks = stats.iter().filter(|(name, _)| name.starts_with(PICKS)).map(|(_, count)| count).sum();
    let requests = *stats.get(REQUESTS).with_context(|| format!("Envoy has no counter {REQUESTS}"))?;
    Ok(Counts { requests, failures: FAILURES.iter().map(|name| stat(name)).sum(), picks })
}

/// For instance `1.40.0`.
async fn envoy_version(envoy: &Envoy) -> Result<String> {
    let info = envoy.admin().get("/server_info").await?.json()?;
    // commit/version/…
    let version = info["version"].as_str().and_then(|version| version.split('/').nth(1));
    Ok(version.context("Envoy does not say its version")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Counts = Counts { requests: 10, failures: 0, picks: 10 };

    fn after(requests: u64, failures: u64, picks: u64) -> Counts {
        Counts { requests: 10 + requests, failures, picks: 10 + picks }
    }

    fn verdict(variant: Variant, sent: u64, after: Counts) -> bool {
        check(variant, wrk::Load { requests: sent, errors: 0 }, BEFORE, after).is_ok()
    }

    #[test]
    fn a_run_counts_only_when_whole_clean_and_steered() {
        assert!(verdict(Variant::Warmroute, 4990, after(5000, 0, 5000)));
        assert!(!verdict(Variant::Warmroute, 5000, after(5000, 0, 4999)), "a pick is missing");
        assert!(!verdict(Variant::Warmroute, 5000, after(5000, 1, 5000)), "a failure");
        assert!(!verdict(Variant::Warmroute, 4900, after(5000, 0, 5000)), "the counts disagree");
        assert!(!verdict(Variant::Plain, 5, after(5, 0, 0)), "empty");
        assert!(verdict(Variant::Plain, 5000, after(5000, 0, 0)));
        assert!(!verdict(Variant::Empty, 5000, after(5000, 0, 5000)), "an empty filter cannot pick");
    }

    #[test]
    fn errors_of_wrk_void_a_run() {
        let load = wrk::Load { requests: 5000, errors: 1 };
        assert!(check(Variant::Plain, load, BEFORE, after(5000, 0, 0)).is_err());
    }
}
