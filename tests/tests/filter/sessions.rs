//! Requests of one session stay at one endpoint.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_tests::harness::{Client, Reply, config};

use crate::rig::{Rig, pool, servers};

async fn rig(workers: usize, strategy: &str, session: Value) -> Result<Rig> {
    Rig::with(servers(4, "127.0.0.1:0").await?, move |envoy, addresses| {
        let mut plugin = pool(addresses, json!({"strategy": strategy}));
        plugin["request"] = json!({"session": session});
        envoy.plugin_config(plugin).concurrency(workers)
    })
    .await
}

async fn chat_anew(rig: &Rig, headers: &[(&str, &str)]) -> Result<Reply> {
    let headers = [headers, &[("x-model-id", "llama")]].concat();
    rig.chat_anew(&headers, "llama").await
}

/// Where the requests with these headers go, each over a connection of its own.
async fn places(rig: &Rig, headers: &[(&str, &str)]) -> Result<BTreeSet<usize>> {
    let mut places = BTreeSet::new();
    for _ in 0..10 {
        let reply = chat_anew(rig, headers).await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        places.insert(rig.served_by(&reply)?);
    }
    Ok(places)
}

#[tokio::test]
async fn a_session_header_keeps_its_requests_together() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(workers, "p2c", json!({})).await?;
        let mut used = BTreeSet::new();
        for session in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let places = places(&rig, &[("x-session-id", session)]).await?;
            assert_eq!(places.len(), 1, "{session} on {workers} workers: {places:?}");
            used.extend(places);
        }
        assert!(used.len() > 1, "sessions are spread: {used:?}");
        rig.await_count("pick_reason.session", 80).await?;
        assert!(places(&rig, &[]).await?.len() > 1, "without a session the strategy decides");
    }
    Ok(())
}

/// A model's homes come first: a session does not drag a model to a GPU that would have to load it.
#[tokio::test]
async fn a_session_does_not_move_a_model_off_its_ring() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(workers, "ring", json!({})).await?;
        let own = places(&rig, &[]).await?;
        for session in ["a", "b", "c", "d", "e"] {
            assert_eq!(places(&rig, &[("x-session-id", session)]).await?, own);
        }
    }
    Ok(())
}

/// The first answer sets a cookie; with it the next requests go the same way, and no further cookie is set.
#[tokio::test]
async fn a_cookie_begins_a_session_and_keeps_it() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(workers, "p2c", json!({"cookie": {"name": "gpu", "ttl_seconds": 600}})).await?;
        let mut values = BTreeSet::new();
        for _ in 0..6 {
            let first = chat_anew(&rig, &[]).await?;
            let cookie = first.header("set-cookie").context("no cookie")?;
            let (pair, attributes) = cookie.split_once("; ").context("no attributes")?;
            assert_eq!(attributes, "Max-Age=600; Path=/; HttpOnly; SameSite=Lax");
            assert_eq!(pair.len(), "gpu=".len() + 32, "{pair}");
            let place = rig.served_by(&first)?;
            let cookies = format!("theme=dark; {pair}; lang=en");
            for _ in 0..5 {
                let next = chat_anew(&rig, &[("cookie", &cookies)]).await?;
                assert_eq!(rig.served_by(&next)?, place, "{workers} workers");
                assert_eq!(next.header("set-cookie"), None);
            }
            values.insert(pair.to_owned());
        }
        assert_eq!(values.len(), 6, "every session has its own: {values:?}");
    }
    Ok(())
}

/// What no session decides begins none: updates, what is refused, the ring, gRPC.
#[tokio::test]
async fn a_session_begins_only_where_it_decides() -> Result<()> {
    for workers in [1, 4] {
        let cookie = json!({"cookie": {"name": "gpu"}});
        let pool_rig = rig(workers, "p2c", cookie.clone()).await?;
        let update = Client::http1().post(&pool_rig.url("/v2/repository/models/llama/load"), &[], &json!({})).await?;
        assert_eq!((update.status.as_u16(), update.header("set-cookie")), (200, None), "{}", update.text());
        let grpc = [("content-type", "application/grpc")];
        assert_eq!(chat_anew(&pool_rig, &grpc).await?.header("set-cookie"), None);
        assert!(chat_anew(&pool_rig, &[]).await?.header("set-cookie").is_some());
        let ring = rig(workers, "ring", cookie.clone()).await?;
        assert_eq!(chat_anew(&ring, &[]).await?.header("set-cookie"), None);
        let nobody = Rig::with(servers(1, "127.0.0.1:0").await?, |envoy, addresses| {
            let mut plugin = pool(addresses, json!({"strategy": "p2c"}));
            plugin["request"] = json!({"session": cookie.clone()});
            plugin["pools"][0]["endpoints"][0]["unhealthy"] = json!(true);
            envoy.plugin_config(plugin).concurrency(workers)
        })
        .await?;
        let refused = chat_anew(&nobody, &[]).await?;
        assert_eq!((refused.status.as_u16(), refused.header("set-cookie")), (503, None));
    }
    Ok(())
}

#[tokio::test]
async fn a_cookie_that_came_by_https_is_secure() -> Result<()> {
    for workers in [1, 4] {
        let rig = Rig::with(servers(2, "127.0.0.1:0").await?, |envoy, addresses| {
            let mut plugin = pool(addresses, json!({"strategy": "p2c"}));
            plugin["request"] = json!({"session": {"cookie": {"name": "gpu"}}});
            envoy.plugin_config(plugin).concurrency(workers).edit(|bootstrap| {
                let http = config::http_manager(bootstrap, config::LISTENER)?;
                http["scheme_header_transformation"] = json!({"scheme_to_overwrite": "https"});
                Ok(())
            })
        })
        .await?;
        let reply = chat_anew(&rig, &[]).await?;
        let cookie = reply.header("set-cookie").context("no cookie")?;
        assert!(cookie.ends_with("; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
    }
    Ok(())
}

#[tokio::test]
async fn a_cookie_that_is_not_to_be_set_is_still_read() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(workers, "p2c", json!({"cookie": {"name": "gpu", "ttl_seconds": 0}})).await?;
        assert_eq!(chat_anew(&rig, &[]).await?.header("set-cookie"), None);
        assert_eq!(places(&rig, &[("cookie", "gpu=mine")]).await?.len(), 1);
    }
    Ok(())
}

/// All of this machine's clients have one address, whatever their port.
#[tokio::test]
async fn a_clients_address_is_a_session_where_asked_for() -> Result<()> {
    for workers in [1, 4] {
        let rig = rig(workers, "p2c", json!({"address": true})).await?;
        assert_eq!(places(&rig, &[]).await?.len(), 1, "{workers} workers");
        rig.await_count("pick_reason.session", 10).await?;
    }
    Ok(())
}
