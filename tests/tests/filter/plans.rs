//! A gateway that plans for itself.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use warmroute_tests::harness::{Client, config, eventually, filter_wasm};
use warmroute_tests::mock::MockServer;

use crate::rig::{Rig, SOON, chat_body, pool};

const MODELS: usize = 8;

/// Four servers with room for two models each, for eight models: they just fit.
async fn small_servers() -> Result<Vec<MockServer>> {
    let mut servers = Vec::new();
    for _ in 0..4 {
        let builder = MockServer::builder().listen("127.0.0.1:0").capacity(2).record(0);
        servers.push(builder.service(Duration::from_millis(2)).load(Duration::from_millis(20)).start().await?);
    }
    Ok(servers)
}

fn cold_loads(rig: &Rig) -> u64 {
    rig.servers.iter().map(|server| server.stats().cold_loads).sum()
}

/// Once each model over one connection.
async fn round(rig: &Rig) -> Result<()> {
    for n in 0..MODELS {
        let reply = rig.chat(&format!("model-{n}")).await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    Ok(())
}

/// Every model gets a home, all of them fit, and then nothing is loaded any more.
#[tokio::test]
async fn models_that_fit_are_loaded_once_and_stay() -> Result<()> {
    let rig = Rig::with(small_servers().await?, |envoy, addresses| {
        envoy.plugin_config(pool(addresses, json!({"plan": "self", "memory_units": 2})))
    })
    .await?;
    eventually(SOON, "ten rounds without a load, by the plan", || async {
        let before = cold_loads(&rig);
        for _ in 0..10 {
            round(&rig).await?;
        }
        let planned = rig.count("pick.homes").await? > 0;
        Ok((planned && cold_loads(&rig) == before).then_some(()))
    })
    .await?;
    for server in &rig.servers {
        assert_eq!(server.stats().resident_models.len(), 2, "{:?}", server.stats());
    }
    let counts = rig.counts().await?;
    assert!(counts["plan_changed"] > 0 && counts["planner_input_default"] > 0, "{counts:?}");
    assert!(!counts.contains_key("plan_elsewhere"), "{counts:?}");
    Ok(())
}

/// Picks of a strategy, once all requests that were sent are counted: counts are handed over ten times a second.
async fn picks(rig: &Rig, strategy: &str, sent: usize) -> Result<u64> {
    let counts = eventually(SOON, "every request is counted", || async {
        let counts = rig.counts().await?;
        let all: u64 = counts.iter().filter(|(name, _)| name.starts_with("pick.")).map(|(_, count)| count).sum();
        anyhow::ensure!(all <= sent as u64, "{all} of {sent} were sent");
        Ok((all == sent as u64).then_some(counts))
    })
    .await?;
    Ok(counts.get(&format!("pick.{strategy}")).copied().unwrap_or_default())
}

/// Two listeners, each with a configuration of its own for the one cluster, and with rings that take a while: requests of
/// either go by the one plan, also where only the other listener was asked for the models until now.
#[tokio::test]
async fn two_listeners_of_one_cluster_share_a_plan() -> Result<()> {
    const SECOND: &str = "second";
    let mut servers = small_servers().await?;
    for _ in 0..3 {
        servers.extend(small_servers().await?);
    }
    let rig = Rig::with(servers, |envoy, addresses| {
        let plugin = pool(addresses, json!({"plan": "self", "memory_units": 2, "virtual_nodes": 1000}));
        let mut other = plugin.clone();
        other["request"] = json!({"model_headers": ["x-model-id"]});
        envoy.plugin_config(plugin).edit(move |bootstrap| {
            let mut filter = config::shipped_filter()?;
            config::set_plugin_config(&mut filter, &other)?;
            config::set_wasm(&mut filter, &filter_wasm()?)?;
            let mut copy = config::listener(bootstrap, config::LISTENER)?.clone();
            copy["name"] = SECOND.into();
            let listeners = config::at(bootstrap, "/static_resources/listeners")?;
            listeners.as_array_mut().context("no list")?.push(copy);
            let http = config::http_manager(bootstrap, SECOND)?;
            http["stat_prefix"] = SECOND.into();
            http["http_filters"][0] =
                json!({"name": config::FILTER, "typed_config": filter["resources"][0]["typed_config"]});
            Ok(())
        })
    })
    .await?;
    let second = rig.envoy.admin().listener(SECOND).await?.context("not bound")?;
    let sent = Cell::new(0);
    eventually(SOON, "ten rounds by the plan", || async {
        let before = picks(&rig, "homes", sent.get()).await?;
        for _ in 0..10 {
            round(&rig).await?;
        }
        sent.set(sent.get() + 10 * MODELS);
        Ok((picks(&rig, "homes", sent.get()).await? == before + 10 * MODELS as u64).then_some(()))
    })
    .await?;
    let by_plan = picks(&rig, "homes", sent.get()).await?;
    let client = Client::http1();
    let url = format!("http://{second}/v1/chat/completions");
    for n in (0..MODELS).cycle().take(5 * MODELS) {
        let model = format!("model-{n}");
        let reply = client.post(&url, &[("x-model-id", &model)], &chat_body(&model)).await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(picks(&rig, "homes", sent.get() + 5 * MODELS).await?, by_plan + 5 * MODELS as u64);
    Ok(())
}

/// A home that comes back without its models is loaded again, and what was planned holds.
#[tokio::test]
async fn a_plan_outlives_a_configuration_update() -> Result<()> {
    let plugin = |addresses: &[_]| pool(addresses, json!({"plan": "self", "memory_units": 2}));
    let mut rig = Rig::with(small_servers().await?, |envoy, addresses| envoy.plugin_config(plugin(addresses))).await?;
    eventually(SOON, "every request goes by the plan", || async {
        let before = rig.count("pick.homes").await?;
        round(&rig).await?;
        rig.await_in_flight(0).await?;
        Ok((rig.count("pick.homes").await? >= before + MODELS as u64).then_some(()))
    })
    .await?;
    let ring_before = rig.count("pick.ring").await?;
    let mut next = plugin(&rig.addresses());
    next["request"] = json!({"model_headers": ["x-model-id"]});
    rig.envoy.write_plugin_config(&next).await?;
    eventually(SOON, "the new configuration steers", || async {
        let reply = rig.chat_with(&[("model-id", "model-0")], "model-0").await?;
        assert_eq!(reply.status, 200);
        Ok((rig.count("pick_reason.no_model").await? > 0).then_some(()))
    })
    .await?;
    let before = rig.count("pick.homes").await?;
    round(&rig).await?;
    rig.await_count("pick.homes", before + MODELS as u64).await?;
    assert_eq!(rig.count("pick.ring").await?, ring_before, "the plan was taken over");
    Ok(())
}

/// With four workers one plans, the others say that they go by the ring, and every request is served.
#[tokio::test]
async fn only_one_of_four_workers_plans() -> Result<()> {
    let rig = Rig::with(small_servers().await?, |envoy, addresses| {
        envoy.plugin_config(pool(addresses, json!({"plan": "self", "memory_units": 2}))).concurrency(4)
    })
    .await?;
    eventually(SOON, "requests by homes and by the ring, and ticks that left the plan to another", || async {
        for n in 0..24 {
            let model = format!("model-{}", n % MODELS);
            let headers = [("x-model-id", &*model)];
            let reply = Client::http1().post(&rig.url("/v1/chat/completions"), &headers, &chat_body(&model)).await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        let counts = rig.counts().await?;
        let count = |name: &str| counts.get(name).copied().unwrap_or(0);
        Ok((count("pick.homes") > 0 && count("pick.ring") > 0 && count("plan_elsewhere") > 0).then_some(()))
    })
    .await?;
    let log = rig.envoy.log()?;
    let lines = log.lines().filter(|line| line.contains("plan_elsewhere: another worker plans")).count();
    // Once in ten seconds for each of the other workers.
    assert!((1..=9).contains(&lines), "{lines} warnings");
    Ok(())
}
