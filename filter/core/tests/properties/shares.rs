//! How evenly picks spread.

use crate::{fixed, pool};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::time::Duration;
use warmroute_core::endpoint::Endpoint;
use warmroute_core::hash::hash;
use warmroute_core::live::{LivePool, Sent};
use warmroute_core::load::Registry;
use warmroute_core::picker::Answer;
use warmroute_core::plan::{Placement, Plan};
use warmroute_core::pool::Pool;
use warmroute_core::request::Request;
use warmroute_core::settings::{PlanSource, PoolSettings};
use warmroute_core::strategy::StrategyName;

const NOW: Duration = Duration::from_secs(50);

fn live(strategy: StrategyName, endpoints: Vec<Endpoint>, homes: &[usize]) -> LivePool {
    let homes: Box<[u64]> = homes.iter().map(|n| endpoints[*n].key()).collect();
    let plan = PlanSource::Fixed(Plan::new(1, [(hash(b"llama"), Placement { homes, tail: false })]));
    let mut pool = Pool::new(PoolSettings { strategy, plan, ..PoolSettings::default() });
    pool.update(endpoints);
    LivePool::new(pool, &mut Registry::default())
}

/// How many of `requests` each endpoint gets; they stay in flight, or end at once.
fn counts(live: &LivePool, requests: usize, stay: bool, seed: u64) -> Vec<u32> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut counts = vec![0; live.pool().endpoints().unwrap().len()];
    let mut in_flight: Vec<Sent> = Vec::new();
    let request = Request::for_model(b"llama");
    for _ in 0..requests {
        let Answer::Pick(pick) = live.answer(&request, NOW, &mut rng) else { panic!("refused") };
        counts[pick.endpoints[0].position()] += 1;
        in_flight.extend(live.start(&request, &pick, NOW).filter(|_| stay));
    }
    counts
}

/// Five standard deviations around the mean of a fair share of `requests` over `choices`.
fn fair(requests: usize, choices: usize) -> (f64, f64) {
    let (requests, share) = (requests as f64, 1.0 / choices as f64);
    let spread = 5.0 * (requests * share * (1.0 - share)).sqrt();
    (requests * share - spread, requests * share + spread)
}

/// The most that two choices leave one of n with, over a mean that is a whole number: ln ln n ÷ ln 2 and a small
/// constant (Azar, Broder, Karlin, Upfal, "Balanced Allocations", 1994; heavily loaded: Berenbrink et al., 2000). For
/// n = 40 that is 1.9, and with a constant of 3 less than 5.
fn two_choices_gap(n: usize) -> f64 {
    (n.max(3) as f64).ln().ln() / 2f64.ln() + 3.0
}

proptest! {
    #![proptest_config(fixed(60))]

    /// Those that may serve take turns, wherever the first one begins: after k rounds each has k.
    #[test]
    fn round_robin_is_exact(
        out in prop::collection::vec(prop::bool::weighted(0.3), 1..20),
        rounds in 1usize..6,
        seed in any::<u64>(),
    ) {
        let mut endpoints = pool(out.len());
        endpoints.iter_mut().zip(&out).for_each(|(endpoint, out)| endpoint.draining = *out);
        let able = out.iter().filter(|out| !**out).count();
        prop_assume!(able > 0);
        let counts = counts(&live(StrategyName::RoundRobin, endpoints, &[]), able * rounds, true, seed);
        let expected: Vec<u32> = out.iter().map(|out| if *out { 0 } else { u32::try_from(rounds).unwrap() }).collect();
        prop_assert_eq!(counts, expected);
    }

    /// Nothing stays in flight, so that all cost the same and each gets a fair share.
    #[test]
    fn idle_endpoints_get_fair_shares(
        n in 2usize..30,
        strategy in prop::sample::select(vec![StrategyName::Homes, StrategyName::P2c, StrategyName::LeastRequest]),
        seed in any::<u64>(),
    ) {
        let all: Vec<usize> = (0..n).collect();
        let counts = counts(&live(strategy, pool(n), &all), 2_000, false, seed);
        let (least, most) = fair(2_000, n);
        prop_assert!(counts.iter().all(|count| (least..=most).contains(&f64::from(*count))), "{:?}", counts);
    }

    /// Everything stays in flight: 20 each, and the most loaded one has few more.
    #[test]
    fn two_choices_keep_loads_together(n in 2usize..40, homes in any::<bool>(), seed in any::<u64>()) {
        let all: Vec<usize> = (0..n).collect();
        let strategy = if homes { StrategyName::Homes } else { StrategyName::P2c };
        let counts = counts(&live(strategy, pool(n), &all), 20 * n, true, seed);
        let most = counts.iter().max().unwrap();
        prop_assert!(f64::from(*most) <= 20.0 + two_choices_gap(n), "{:?}", counts);
    }

    /// A model's requests go to its homes only, and of two random ones to the less loaded.
    #[test]
    fn homes_get_everything(
        n in 2usize..30,
        homes in prop::collection::btree_set(0usize..30, 1..6),
        seed in any::<u64>(),
    ) {
        let homes: Vec<usize> = homes.into_iter().filter(|home| *home < n).collect();
        prop_assume!(!homes.is_empty());
        let counts = counts(&live(StrategyName::Homes, pool(n), &homes), 20 * homes.len(), true, seed);
        for (endpoint, count) in counts.iter().enumerate() {
            let most = if homes.contains(&endpoint) { 20.0 + two_choices_gap(homes.len()) } else { 0.0 };
            prop_assert!(f64::from(*count) <= most, "{:?} of homes {:?}", counts, homes);
        }
    }

    /// Up to 32 endpoints are compared as a whole: nobody gets a second request before everybody has one.
    #[test]
    fn least_request_levels_a_small_pool(n in 1usize..=32, requests in 0usize..200, seed in any::<u64>()) {
        let counts = counts(&live(StrategyName::LeastRequest, pool(n), &[]), requests, true, seed);
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
    }

    /// One model has one endpoint, whatever is in flight there; another endpoint moves it only by being its own.
    #[test]
    fn the_ring_keeps_a_model_where_it_is(n in 1usize..30, seed in any::<u64>()) {
        let counts = |n| counts(&live(StrategyName::Ring, pool(n), &[]), 50, true, seed);
        let owner = |n| counts(n).iter().position(|count| *count == 50);
        let (before, after) = (owner(n), owner(n + 1));
        prop_assert!(before.is_some());
        prop_assert!(after == before || after == Some(n), "{:?}, then {:?}", before, after);
    }

    /// 1,000 keys over n endpoints of 150 points: a share's standard deviation is its mean ÷ √150; five of them, and
    /// five of the keys' own.
    #[test]
    fn hashed_keys_spread_like_the_ring(n in 2usize..20, seed in any::<u64>()) {
        let live = live(StrategyName::Hash, pool(n), &[]);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut counts = vec![0u32; n];
        for key in 0..1_000u64 {
            let request = Request { key: Some(hash(&(key ^ seed).to_le_bytes())), ..Request::for_model(b"llama") };
            let Answer::Pick(pick) = live.answer(&request, NOW, &mut rng) else { panic!("refused") };
            counts[pick.endpoints[0].position()] += 1;
        }
        let (least, most) = fair(1_000, n);
        let uneven = 5.0 / 150f64.sqrt() * 1_000.0 / n as f64;
        let near = |count: &u32| (least - uneven..=most + uneven).contains(&f64::from(*count));
        prop_assert!(counts.iter().all(near), "{:?}", counts);
    }
}
