//! A pool that plans for itself while requests of all kinds go through it.

use crate::fixed;
use crate::picks::check;
use crate::scene::{MODELS, Scene, asked, scenes};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::time::Duration;
use warmroute_core::endpoint::EndpointIndex;
use warmroute_core::hash::hash;
use warmroute_core::live::{End, LivePool};
use warmroute_core::load::Load;
use warmroute_core::outcome::Outcome;
use warmroute_core::strategy::StrategyName;

proptest! {
    #![proptest_config(fixed(150))]

    /// Answers stay right while the plan changes under them, every home is in service and can hold its model, and
    /// what is in flight comes back to nothing. Marks aside: no server says that it does not know a model.
    #[test]
    fn a_pool_that_plans_for_itself_keeps_every_promise(
        scene in scenes(),
        requests in prop::collection::vec((asked(), 0usize..3, 0usize..8, 1u64..400), 1..60),
        seed in any::<u64>(),
    ) {
        let mut scene = Scene { unknown: Vec::new(), busy: Vec::new(), ..scene };
        scene.routes.strategy = StrategyName::Homes;
        scene.routes.ring_pending = false;
        let (live, load) = scene.self_made();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let most = usize::from(scene.routes.fallbacks) + 1;
        let (mut now, mut sent) = (Duration::ZERO, Vec::new());
        for (asked, outcome, ended, milliseconds) in requests {
            now += Duration::from_millis(milliseconds);
            live.tick(now);
            homes_may_serve(&scene, &live)?;
            let request = asked.request();
            if let Some(pick) = check(live.answer(&request, now, &mut rng), &scene.eligible(&asked), most)? {
                sent.push((pick.endpoints[0], live.start(&request, &pick, now).unwrap()));
            }
            if ended < sent.len() {
                let (endpoint, sent) = sent.swap_remove(ended);
                let service_time = Duration::from_millis(milliseconds);
                let outcome = Outcome::ALL[outcome % Outcome::ALL.len()];
                live.ended(&sent, &End { endpoint, outcome, service_time, model_unknown: false }, now);
            }
        }
        sent.clear();
        let mut all = (0..).map(EndpointIndex).take(scene.spots.len());
        prop_assert!(all.all(|endpoint| (load.in_flight(endpoint), load.cold(endpoint)) == (0, 0)));
    }
}

/// Homes that the planner chose: neither marked nor draining, able to serve the model, and with room for all models of
/// size 1 that are not in the tail.
fn homes_may_serve(scene: &Scene, live: &LivePool) -> Result<(), TestCaseError> {
    let plan = live.pool().plan();
    let mut used = vec![0; scene.spots.len()];
    for (n, model) in MODELS.iter().enumerate() {
        let Some(planned) = plan.get(hash(model.as_bytes())) else { continue };
        for home in &planned.homes {
            let spot = &scene.spots[home.endpoint.position()];
            prop_assert!(!spot.marked && !spot.draining, "{} lives at {:?}", model, spot);
            prop_assert!(spot.serves.is_none_or(|serves| serves[n]), "{} lives at {:?}", model, spot);
            used[home.endpoint.position()] += u32::from(!planned.tail);
        }
    }
    prop_assert!(used.iter().zip(&scene.spots).all(|(used, spot)| *used <= spot.memory), "{:?}", used);
    Ok(())
}
