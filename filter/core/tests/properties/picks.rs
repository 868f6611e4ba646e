//! Lists: whoever is in one may serve, and whoever may serve is in it as far as there is room.

use crate::fixed;
use crate::scene::{Asked, NOW, asked, scenes};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use warmroute_core::live::LivePool;
use warmroute_core::load::Registry;
use warmroute_core::picker::{Answer, Pass, Pick};
use warmroute_core::pool::Pool;
use warmroute_core::refusal::Refusal;

fn answer(live: &LivePool, asked: &Asked, seed: u64) -> Answer {
    live.answer(&asked.request(), NOW, &mut Xoshiro256PlusPlus::seed_from_u64(seed))
}

/// What holds of every answer, whatever the strategy; the pick, if there is one.
pub fn check(answer: Answer, allowed: &BTreeSet<u32>, most: usize) -> Result<Option<Pick>, TestCaseError> {
    match answer {
        Answer::Pick(pick) => {
            let listed: BTreeSet<u32> = pick.endpoints.iter().map(|endpoint| endpoint.0).collect();
            prop_assert_eq!(listed.len(), pick.endpoints.len(), "distinct: {:?}", pick);
            prop_assert!(listed.is_subset(allowed), "{:?} has others than {:?}", pick, allowed);
            prop_assert_eq!(listed.len(), allowed.len().min(most), "{:?} of {:?}", pick, allowed);
            Ok(Some(pick))
        }
        Answer::Refuse(refusal) => {
            prop_assert_eq!(refusal, Refusal::NoHealthyEndpoint);
            prop_assert!(allowed.is_empty(), "refused although {:?} may serve", allowed);
            Ok(None)
        }
        Answer::Pass(pass) => Err(TestCaseError::fail(format!("{pass:?} although the endpoints are known"))),
    }
}

proptest! {
    #![proptest_config(fixed(4_000))]

    #[test]
    fn lists_are_distinct_eligible_and_complete_whatever_the_strategy(
        scene in scenes(),
        asked in asked(),
        seed in any::<u64>(),
    ) {
        let (live, in_flight) = scene.live();
        let (allowed, ignored) = scene.allowed(&asked);
        let most = usize::from(scene.routes.fallbacks) + 1;
        if let Some(pick) = check(answer(&live, &asked, seed), &allowed, most)? {
            prop_assert_eq!(pick.weight, asked.class().1);
            prop_assert_eq!(pick.marks_ignored, ignored);
        }
        drop(in_flight);
    }
}

proptest! {
    #![proptest_config(fixed(500))]

    /// Ring, hash and sessions outside a plan draw nothing: all proxies agree, whatever each has in flight.
    #[test]
    fn what_goes_by_the_ring_goes_alike_in_every_proxy(
        scene in scenes(),
        asked in asked(),
        seeds in any::<[u64; 2]>(),
    ) {
        use warmroute_core::strategy::StrategyName::{Hash, Ring};
        let (busy, in_flight) = scene.live();
        let idle = crate::scene::Scene { busy: Vec::new(), ..scene }.live().0;
        if let (Answer::Pick(a), Answer::Pick(b)) = (answer(&busy, &asked, seeds[0]), answer(&idle, &asked, seeds[1]))
            && matches!(a.strategy, Ring | Hash)
        {
            prop_assert_eq!(a, b);
        }
        drop(in_flight);
    }

    #[test]
    fn an_explanation_is_one_line_whatever_the_answer(scene in scenes(), asked in asked(), seed in any::<u64>()) {
        let (live, in_flight) = scene.live();
        let answer = answer(&live, &asked, seed);
        let text = live.explain(&asked.request(), &answer, NOW);
        prop_assert!(!text.is_empty() && !text.contains(char::is_control), "{:?}", text);
        drop(in_flight);
    }

    #[test]
    fn the_choice_is_envoys_until_the_endpoints_are_known(scene in scenes(), asked in asked(), seed in any::<u64>()) {
        let live = LivePool::new(Pool::new(scene.settings()), &mut Registry::default());
        prop_assert_eq!(answer(&live, &asked, seed), Answer::Pass(Pass::NoSnapshot));
    }
}
