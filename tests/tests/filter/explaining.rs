//! Why a request went where it went, told to whom it may be told.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_tests::harness::eventually;
use warmroute_tests::mock::MockServer;

use crate::rig::{Rig, SOON, pool, ring_order, servers};

const ASKING: (&str, &str) = ("x-warmroute-debug", "1");
const EXPLANATION: &str = "x-warmroute-explain";

async fn rig(workers: usize, change: impl FnOnce(&mut Value)) -> Result<Rig> {
    Rig::with(servers(4, "127.0.0.1:0").await?, |envoy, addresses| {
        let mut plugin = pool(addresses, json!({}));
        plugin["request"] = json!({"trusted": true});
        plugin["explain"] = json!({"header": "x-warmroute-debug"});
        change(&mut plugin);
        envoy.plugin_config(plugin).concurrency(workers)
    })
    .await
}

#[tokio::test]
async fn a_trusted_caller_is_told_pick_fallbacks_and_refusals() -> Result<()> {
    let order = ring_order(4, b"llama");
    for workers in [1, 4] {
        let rig = rig(workers, |plugin| {
            plugin["pools"][0]["endpoints"][order[0]]["draining"] = json!(true);
            plugin["pools"][0]["endpoints"][order[3]]["unhealthy"] = json!(true);
        })
        .await?;
        let reply = rig.chat_with(&[("x-model-id", "llama"), ASKING], "llama").await?;
        assert_eq!(rig.served_by(&reply)?, order[1]);
        let mut refused = [(order[0], "draining"), (order[3], "marked_unhealthy")];
        refused.sort_unstable();
        let refused = refused.map(|(n, reason)| format!("gpu-{n}:{reason}")).join(",");
        let expected = format!(
            "strategy=ring reason=model model=llama (header) pick=gpu-{} fallbacks=gpu-{} in_flight=0,0 refused={refused}",
            order[1], order[2]
        );
        assert_eq!(reply.header(EXPLANATION), Some(&*expected));
        let unasked = rig.chat("llama").await?;
        assert_eq!(unasked.header(EXPLANATION), None);
        for no in ["0", "false", ""] {
            let reply = rig.chat_with(&[("x-model-id", "llama"), ("x-warmroute-debug", no)], "llama").await?;
            assert_eq!(reply.header(EXPLANATION), None, "{no:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn strangers_and_unasked_configurations_are_told_nothing() -> Result<()> {
    let stranger: fn(&mut Value) = |plugin| plugin["request"] = json!({"trusted": false});
    let off: fn(&mut Value) = |plugin| plugin["explain"] = json!({});
    for (workers, change) in [(1, stranger), (4, stranger), (1, off), (4, off)] {
        let rig = rig(workers, change).await?;
        let reply = rig.chat_with(&[("x-model-id", "llama"), ASKING], "llama").await?;
        assert_eq!((reply.status.as_u16(), reply.header(EXPLANATION)), (200, None));
    }
    Ok(())
}

/// A proxy behind this one may trust it: what strangers may not say does not reach it.
#[tokio::test]
async fn what_strangers_may_not_say_is_not_handed_on() -> Result<()> {
    for (workers, trusted) in [(1, false), (4, false), (1, true), (4, true)] {
        let server = MockServer::builder().listen("127.0.0.1:0").record(8).start().await?;
        let rig = Rig::with(vec![server], |envoy, addresses| {
            let mut plugin = pool(addresses, json!({}));
            plugin["request"] = json!({"trusted": trusted});
            plugin["explain"] = json!({"header": ASKING.0});
            envoy.plugin_config(plugin).concurrency(workers)
        })
        .await?;
        let headers = [("x-model-id", "llama"), ASKING, ("x-warmroute-urgency", "critical"), ("x-other", "kept")];
        assert_eq!(rig.chat_with(&headers, "llama").await?.status, 200);
        let recorded = rig.servers[0].recorded();
        let there = |name: &str| recorded[0].headers.iter().any(|(header, _)| header == name);
        assert_eq!([there(ASKING.0), there("x-warmroute-urgency"), there("x-other")], [trusted, trusted, true]);
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_explains_itself() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(workers, |plugin| {
            for n in 0..4 {
                plugin["pools"][0]["endpoints"][n]["unhealthy"] = json!(true);
            }
        })
        .await?;
        let reply = rig.chat_with(&[("x-model-id", "llama"), ASKING], "llama").await?;
        assert_eq!(reply.status, 503);
        let text = reply.header(EXPLANATION).context("no explanation")?;
        assert_eq!(
            text,
            "strategy=none reason=no_healthy_endpoint model=llama (header) \
             refused=gpu-0:marked_unhealthy,gpu-1:marked_unhealthy,gpu-2:marked_unhealthy,gpu-3:marked_unhealthy"
        );
    }
    Ok(())
}

/// A name from a client cannot break the line, nor the header.
#[tokio::test]
async fn a_models_name_is_written_out_plainly() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(workers, |_| ()).await?;
        let reply = rig.chat_with(&[("x-model-id", "a b=c,d\te%"), ASKING], "llama").await?;
        let text = reply.header(EXPLANATION).context("no explanation")?;
        assert!(text.contains("model=a%20b%3Dc%2Cd%09e%25 (header)"), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn the_access_log_has_the_share_that_was_asked_for() -> Result<()> {
    for (workers, ratio, expected) in [
        (1, 1.0, 100..=100),
        (4, 1.0, 100..=100),
        (1, 0.0, 0..=0),
        (4, 0.0, 0..=0),
        (1, 0.5, 25..=75),
        (4, 0.5, 25..=75),
    ] {
        let rig = rig(workers, |plugin| plugin["explain"] = json!({"log_ratio": ratio})).await?;
        for _ in 0..100 {
            let reply = rig.chat_anew(&[("x-model-id", "llama")], "llama").await?;
            assert_eq!(reply.header(EXPLANATION), None, "for the log only");
        }
        let log = eventually(SOON, "every request is in the log", || async {
            let log = rig.envoy.access_log()?;
            Ok((log.len() >= 100).then_some(log))
        })
        .await?;
        let explained: Vec<_> = log.iter().filter_map(|line| line["explain"].as_str()).collect();
        // At one half: 50, standard deviation 5.
        assert!(expected.contains(&explained.len()), "{} of 100 at {ratio}", explained.len());
        let pick = format!("pick=gpu-{}", ring_order(4, b"llama")[0]);
        assert!(explained.iter().all(|text| text.contains(&pick)), "{explained:?}");
    }
    Ok(())
}
