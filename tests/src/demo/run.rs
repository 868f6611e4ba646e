//! The comparison.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::picks::require_obeyed;
use super::report::{Measured, Report};
use super::{CAPACITY, Fleet, Traffic, drive};
use crate::harness::{ConfigUpdate, Envoy, config, eventually};

/// Drives `traffic` by each policy; logs go to `folder`.
///
/// # Errors
/// When a part does not start or ends on the way, and when Envoy did not obey the picks: whatever would make the
/// numbers say something else than they seem to. Failed requests are in the report.
pub async fn run(traffic: &Traffic, folder: &Path) -> Result<Report> {
    let mut fleet = Fleet::start(&folder.join("servers")).await?;
    let mut envoy =
        Envoy::builder().endpoints(fleet.addresses()).plugin_config(by_ring(&fleet)).round_robin().start().await?;
    let around = envoy.round_robin_url().context("Envoy has no second listener")?;
    let steered = envoy.base_url();

    announce(1, "round robin", traffic);
    let round_robin = measure(&fleet, &around, traffic).await?;
    require_running(&mut envoy, &mut fleet)?;
    announce(2, "Warmroute's ring", traffic);
    let ring = measure(&fleet, &steered, traffic).await?;
    require_running(&mut envoy, &mut fleet)?;
    announce(3, "Warmroute's plan", traffic);
    let update = envoy.write_plugin_config(&by_plan(&fleet)).await?;
    ensure!(update == ConfigUpdate::Applied, "Envoy refused the plan's configuration; its log:\n{}", envoy.log_tail());
    let planned = measure(&fleet, &steered, traffic).await?;
    require_running(&mut envoy, &mut fleet)?;

    let answered = round_robin.answered + ring.answered + planned.answered;
    let access_log = eventually(Duration::from_secs(10), "Envoy has logged all requests", || async {
        let log = envoy.access_log()?;
        Ok((log.len() >= answered).then_some(log))
    });
    require_obeyed(&access_log.await?, ring.answered + planned.answered)?;
    Report::new(fleet.addresses(), round_robin, ring, planned)
}

fn by_ring(fleet: &Fleet) -> Value {
    config::one_pool(config::CLUSTER, fleet.addresses())
}

/// One gateway in front of the pool, which knows how many models fit.
fn by_plan(fleet: &Fleet) -> Value {
    let mut plugin = by_ring(fleet);
    plugin["pools"][0]["plan"] = "self".into();
    plugin["pools"][0]["memory_units"] = CAPACITY.into();
    plugin
}

fn announce(number: u32, policy: &str, traffic: &Traffic) {
    let warmup = traffic.counted_from.as_secs();
    let measured = traffic.end.as_secs() - warmup;
    println!("{number}/3  {policy}: {warmup} s to warm up, then {measured} s that count");
}

/// One policy: the same start, the same traffic.
async fn measure(fleet: &Fleet, url: &str, traffic: &Traffic) -> Result<Measured> {
    fleet.reset().await?;
    let start = Instant::now();
    let before = async {
        sleep_until(start + traffic.counted_from).await;
        fleet.cold_loads().await
    };
    let (samples, before) = tokio::join!(drive(url, traffic, start), before);
    let mut samples = samples?;
    let answered = samples.iter().filter(|sample| sample.served_by.is_ok()).count();
    samples.retain(|sample| sample.counted);
    let cold_loads = fleet.cold_loads().await? - before?;
    Ok(Measured { samples, answered, cold_loads })
}

fn require_running(envoy: &mut Envoy, fleet: &mut Fleet) -> Result<()> {
    ensure!(envoy.alive()?, "Envoy ended during the run; its log:\n{}", envoy.log_tail());
    ensure!(fleet.alive()?, "a mock model server ended during the run");
    Ok(())
}
