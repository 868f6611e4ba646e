//! Properties of rings and lists over random pools. Seeds are fixed, and a failing case is printed by proptest.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::HashSet;
use warmroute_core::endpoint::{Endpoint, EndpointIndex, Resident, Score};
use warmroute_core::hash::hash;
use warmroute_core::load::Registry;
use warmroute_core::pairs::{Pairs, serialize};
use warmroute_core::picker::{Answer, answer};
use warmroute_core::pool::{Pool, PoolSettings};
use warmroute_core::refusal::Refusal;
use warmroute_core::request::{HeaderNames, Request};
use warmroute_core::ring::{Point, Ring};
use warmroute_core::strategy::StrategyName;

const KEYS: u64 = 4_000;

fn fixed(cases: u32) -> Config {
    Config {
        cases,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(20_260_101),
        failure_persistence: None,
        ..Config::default()
    }
}

fn endpoint(n: usize) -> Endpoint {
    let address = format!("10.{}.{}.{}:8000", n / 65_536, n / 256 % 256, n % 256);
    Endpoint::new(format!("gpu-{n}"), address.parse().unwrap())
}

fn pool(count: usize) -> Vec<Endpoint> {
    (0..count).map(endpoint).collect()
}

/// Owners by id of `KEYS` keys spread over the circle.
fn owners(endpoints: &[Endpoint]) -> Vec<Option<String>> {
    let ring = Ring::new(endpoints, 150);
    (0..KEYS)
        .map(|key| ring.walk(hash(&key.to_le_bytes())).next().map(|e| endpoints[e.position()].id.to_string()))
        .collect()
}

proptest! {
    #![proptest_config(fixed(24))]

    /// Removing one of N endpoints moves only its own keys, about 1/N of all (at most 1.5/N from 4 endpoints on).
    #[test]
    fn removing_an_endpoint_moves_only_its_keys(count in 4usize..40, gone in 0usize..40) {
        let gone = gone % count;
        let before = owners(&pool(count));
        let mut rest = pool(count);
        let name = rest.remove(gone).id;
        let after = owners(&rest);
        let moved: Vec<_> = before.iter().zip(&after).filter(|(b, a)| a != b).collect();
        prop_assert!(moved.iter().all(|(b, _)| b.as_deref() == Some(&*name)));
        prop_assert!((moved.len() as f64) < 1.5 / count as f64 * KEYS as f64, "{} of {KEYS}", moved.len());
    }

    /// The order in which endpoints are given changes nothing.
    #[test]
    fn insertion_order_is_irrelevant(count in 1usize..20, seed in any::<u64>()) {
        let mut shuffled = pool(count);
        shuffled.sort_by_key(|e| hash(format!("{seed}{}", e.id).as_bytes()));
        prop_assert_eq!(owners(&pool(count)), owners(&shuffled));
    }

    /// Whatever is marked or unhealthy: the list has distinct eligible endpoints, as many as there are up to the limit,
    /// and a refusal comes only when nobody may serve.
    #[test]
    fn lists_are_distinct_eligible_and_complete(
        marks in prop::collection::vec((any::<bool>(), 0u8..=10, any::<bool>()), 0..30),
        fallbacks in 0u8..=7,
        ring in any::<bool>(),
        update in any::<bool>(),
        busy in prop::collection::vec(0u32..30, 0..40),
        seed in any::<u64>(),
    ) {
        let mut endpoints = pool(marks.len());
        for (endpoint, (marked, score, holds)) in endpoints.iter_mut().zip(&marks) {
            endpoint.marked_unhealthy = *marked;
            endpoint.score = Score::new(f64::from(*score) / 10.0).unwrap();
            endpoint.resident = holds.then(|| Resident::from_ids(["llama"]));
        }
        let eligible: HashSet<u32> =
            (0..).zip(&marks).filter(|(_, (marked, score, _))| !marked && *score > 2).map(|(n, _)| n).collect();
        let strategy = if ring { StrategyName::Ring } else { StrategyName::P2c };
        let mut pool = Pool::new(PoolSettings { strategy, virtual_nodes: 20, fallbacks, max_retries: 2 });
        pool.update(endpoints);
        let load = Registry::default().bind(pool.endpoints().unwrap());
        let in_flight: Vec<_> = busy.iter().map(|n| load.start(EndpointIndex(*n))).collect();
        let request = if update { Request::update(b"llama") } else { Request::for_model(b"llama") };
        match answer(&pool, &load, &request, &mut Xoshiro256PlusPlus::seed_from_u64(seed)) {
            Answer::Pick(pick) => {
                let listed: HashSet<u32> = pick.endpoints.iter().map(|e| e.0).collect();
                prop_assert_eq!(listed.len(), pick.endpoints.len(), "distinct");
                prop_assert!(listed.is_subset(&eligible));
                prop_assert_eq!(listed.len(), eligible.len().min(usize::from(fallbacks) + 1));
            }
            Answer::Refuse(refusal) => {
                prop_assert_eq!(refusal, Refusal::NoHealthyEndpoint);
                prop_assert!(eligible.is_empty());
            }
            Answer::Pass(pass) => prop_assert!(false, "{pass:?} although the endpoints are known"),
        }
        drop(in_flight);
    }

    /// A header list with any byte changed, or cut anywhere, is read or refused; a model is never empty.
    #[test]
    fn a_damaged_header_list_is_read_or_refused(at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let mut buffer =
            serialize(&[("x-model-id", "llama"), (":path", "/v2/models/qwen/infer"), ("content-type", "application/grpc")]);
        let length = buffer.len();
        buffer[at % length] = byte;
        buffer.truncate(cut % (length + 1));
        if let Ok(pairs) = Pairs::parse(&buffer) {
            let names = HeaderNames { model: ["x-model-id".into()].into(), request_type: [].into() };
            let request = Request::from_headers(&names, pairs);
            prop_assert!(request.model.is_none_or(|model| !model.id.is_empty()));
        }
    }

    /// A configuration with any byte changed, or cut anywhere, is taken or refused with a reason.
    #[test]
    fn a_damaged_configuration_is_taken_or_refused(at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let mut json = br#"{"pools":[{"cluster":"c","virtual_nodes":9,"endpoints":[{"address":"10.0.0.1:80","id":"a"}]}]}"#.to_vec();
        let length = json.len();
        json[at % length] = byte;
        json.truncate(cut % (length + 1));
        if let Err(error) = warmroute_core::config::parse(&json) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// Any model in a known path is read, percent signs and all, and is never empty.
    #[test]
    fn any_model_in_a_known_path_is_read(
        model in "[%a-f0-9._-]{0,12}",
        shape in 0usize..4,
        query in prop::sample::select(vec!["", "?x=/v2/models/y/infer", "#f"]),
    ) {
        let path = match shape {
            0 => format!("/v2/models/{model}/infer{query}"),
            1 => format!("/v2/models/{model}/versions/7/generate_stream{query}"),
            2 => format!("/v2/repository/models/{model}/load{query}"),
            _ => format!("/v2/models/{model}/infer/more{query}"),
        };
        let buffer = serialize(&[(":path", &path)]);
        let names = HeaderNames { model: [].into(), request_type: [].into() };
        let request = Request::from_headers(&names, Pairs::parse(&buffer).unwrap());
        prop_assert_eq!(request.model.is_some(), shape < 3 && !model.is_empty(), "{}", path);
    }
}

/// Vector computed beforehand with another implementation: of 5 endpoints named `10.0.0.N:8000`, points
/// xxh64(`"{name}_{i}"`), removing .3 moves 22.51 % of 20,000 keys, each to its former second replica.
#[test]
fn golden_move_of_a_removed_endpoint() {
    let ring = |members: &[u32]| {
        let points = members
            .iter()
            .flat_map(|&n| {
                (0..150).map(move |i| Point {
                    hash: hash(format!("10.0.0.{n}:8000_{i}").as_bytes()),
                    endpoint: EndpointIndex(n),
                })
            })
            .collect();
        Ring::from_points(points, |_| "")
    };
    let (before, after) = (ring(&[1, 2, 3, 4, 5]), ring(&[1, 2, 4, 5]));
    let lowest: Vec<_> = before.points()[..3].iter().map(|p| (p.hash, p.endpoint.0)).collect();
    assert_eq!(lowest, [(3922712432549799, 3), (8266779997092300, 3), (25981824664566100, 2)]);
    let mut moved = 0;
    for key in 0..20_000 {
        let key = hash(format!("key-{key}").as_bytes());
        let former: Vec<_> = before.walk(key).collect();
        let now = after.walk(key).next();
        if now != former.first().copied() {
            moved += 1;
            assert_eq!(former[0], EndpointIndex(3), "only keys of the removed endpoint move");
            assert_eq!(now, former.iter().copied().find(|e| *e != EndpointIndex(3)));
        }
    }
    assert_eq!(moved, 4_502);
}
