//! Homes: the less loaded of two random homes that a plan gave the model.
//!
//! Placing models is slow work for one brain (see [`crate::plan`]); picking is this. The cost of a home is the wait there
//! ([`super::wait`]) by this proxy's own requests, and the model's load if it is not there yet. There is no escape to an
//! endpoint that would have to load the model just because the homes are busy: loads beget queues, queues beget loads,
//! and the pool collapses at half of its capacity.
//!
//! Two random homes, not the least loaded of all: proxies do not see each other's requests, and the one that looks idle
//! to each of them would get everything. A planned home that does not hold the model gets a request with chance
//! [`TRIGGER`] even so: somebody has to start it, and all at once would queue behind its load.
//!
//! A session stays at one of the homes (the one that wins a hash of both, so that homes that come and go move few
//! sessions), for the sake of what the server has cached for it, until that home is far more loaded than another. Where
//! that home does not hold the model yet, most of its requests go to the session's next one that does.
//!
//! Without a plan for the model, and behind the homes in the list, comes the ring's order. Source: the simulation,
//! docs/routing.md.

use super::{PickList, Strategy, StrategyName, View, ring, wait};
use crate::endpoint::EndpointIndex;
use crate::homes::Home;
use crate::refusal::Refusal;
use crate::request::{Request, SessionKey};
use rand::{Rng, RngExt};

/// Chance that a home without the model is taken although another one is warm.
const TRIGGER: f64 = 0.2;

/// A session leaves its home when it would wait there more than this many service times, and …
const SESSION_WAIT: f64 = 8.0;
/// … more than this many times as long as elsewhere. Either alone fires on noise: on a few requests more, or at a load
/// that all homes share.
const SESSION_RATIO: f64 = 2.0;

/// See the module.
#[derive(Debug, Default)]
pub struct Homes;

impl Strategy for Homes {
    fn name(&self) -> StrategyName {
        StrategyName::Homes
    }

    fn pick(&self, request: &Request<'_>, view: &View<'_>, rng: &mut dyn Rng) -> Result<PickList, Refusal> {
        let mut picks = PickList::new();
        if let Some(planned) = view.planned() {
            let first = match request.session {
                Some(session) => of_session(&planned.homes, session.0, view, rng),
                None => of_two(&planned.homes, view, rng),
            };
            if let Some(home) = first.filter(|_| view.limit() > 0) {
                picks.push(home.endpoint);
                extend_with_homes(&mut picks, &planned.homes, view);
            }
        }
        ring::extend(&mut picks, request.model.as_ref().map_or(0, |model| model.hash), view);
        if picks.is_empty() { Err(Refusal::NoHealthyEndpoint) } else { Ok(picks) }
    }
}

fn extend_with_homes(picks: &mut PickList, homes: &[Home], view: &View<'_>) {
    for home in homes {
        if picks.len() >= view.limit() {
            return;
        }
        if !picks.contains(&home.endpoint) && view.may_serve(home.endpoint) {
            picks.push(home.endpoint);
        }
    }
}

/// A home and what it would cost, in service times.
#[derive(Clone, Copy)]
struct Offer<'a> {
    home: &'a Home,
    wait: f64,
    warm: bool,
}

impl<'a> Offer<'a> {
    fn of(home: &'a Home, view: &View<'_>) -> Self {
        let endpoint = home.endpoint;
        let speed = view.endpoints.get(endpoint.position()).map_or(1.0, |endpoint| endpoint.speed);
        let (in_flight, cold) = (view.load.in_flight(endpoint), view.load.cold(endpoint));
        Self { home, wait: wait(in_flight, view.slots, speed, cold, view.load_cost), warm: is_warm(home, view) }
    }

    fn cost(&self, view: &View<'_>) -> f64 {
        if self.warm { self.wait } else { self.wait + view.load_cost }
    }
}

/// What is not known is taken for warm: a missing signal must not repel traffic. A home that was sent to since the
/// residency was seen has the model by now.
fn is_warm(home: &Home, view: &View<'_>) -> bool {
    let lately = home.sent.get().is_some_and(|sent| view.now.saturating_sub(sent) < view.residency_age);
    lately || view.need.model_hash.and_then(|model| view.residency.holds(home.endpoint, model)) != Some(false)
}

/// The cheaper one of two random homes that may serve.
fn of_two<'a>(homes: &'a [Home], view: &View<'_>, rng: &mut dyn Rng) -> Option<&'a Home> {
    let first = Offer::of(draw(homes, None, view, rng)?, view);
    let Some(second) = draw(homes, Some(first.home.endpoint), view, rng) else { return Some(first.home) };
    let second = Offer::of(second, view);
    // Drawn in random order, so that the first of two that cost the same is a random one.
    let (better, other) = if second.cost(view) < first.cost(view) { (second, first) } else { (first, second) };
    let start_other = better.warm && !other.warm && rng.random_bool(TRIGGER);
    Some(if start_other { other.home } else { better.home })
}

/// A random home that may serve and is not `taken`.
fn draw<'a>(homes: &'a [Home], taken: Option<EndpointIndex>, view: &View<'_>, rng: &mut dyn Rng) -> Option<&'a Home> {
    let count = homes.len();
    if count == 0 {
        return None;
    }
    let start = rng.random_range(0..count);
    // From a random place onwards is uniform while all may serve; where a few may not, their neighbours get a little
    // more, and the second draw evens that out.
    let free = |home: &&Home| Some(home.endpoint) != taken && view.may_serve(home.endpoint);
    homes.iter().cycle().skip(start).take(count).find(free)
}

/// What the home of a new session would cost.
pub(crate) fn session_at_home(session: SessionKey, view: &View<'_>, rng: &mut dyn Rng) -> Option<f64> {
    let home = of_session(&view.planned()?.homes, session.0, view, rng)?;
    Some(Offer::of(home, view).cost(view))
}

/// The session's own home, or the next of its order that is not far more loaded than the least loaded one.
fn of_session<'a>(homes: &'a [Home], session: u64, view: &View<'_>, rng: &mut dyn Rng) -> Option<&'a Home> {
    let able = || homes.iter().filter(|home| view.may_serve(home.endpoint));
    let own = Offer::of(able().max_by_key(|home| affinity(session, home))?, view);
    if own.wait <= SESSION_WAIT && (own.warm || rng.random_bool(TRIGGER)) {
        return Some(own.home);
    }
    // Rarely more is to be known of the others.
    let offers = || able().map(|home| Offer::of(home, view));
    let least = offers().map(|offer| offer.wait).fold(f64::INFINITY, f64::min);
    let bearable = |offer: &Offer<'_>| offer.wait <= SESSION_WAIT || offer.wait <= SESSION_RATIO * least;
    let best = |offers: &mut dyn Iterator<Item = Offer<'a>>| {
        offers.max_by_key(|offer| affinity(session, offer.home)).map(|offer| offer.home)
    };
    // A home that is new has the model of nobody's session: a part of the requests starts it, as without sessions.
    best(&mut offers().filter(|offer| offer.warm && bearable(offer))).or_else(|| best(&mut offers().filter(bearable)))
}

/// Highest random weight of the session at a home. Source: Thaler and Ravishankar, "A Name-Based Mapping Scheme for
/// Rendezvous", 1996.
fn affinity(session: u64, home: &Home) -> u64 {
    let mut bytes = [0; 16];
    let (left, right) = bytes.split_at_mut(8);
    left.copy_from_slice(&session.to_le_bytes());
    right.copy_from_slice(&home.key.to_le_bytes());
    crate::hash::hash(&bytes)
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::Scene;
    use super::*;
    use crate::endpoint::tests::endpoints;
    use crate::endpoint::{Endpoint, Resident};
    use crate::hash::hash;
    use crate::plan::{Placement, Plan};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// A pool whose plan gives `llama` these homes.
    fn scene(pool: Vec<Endpoint>, homes: &[usize]) -> Scene {
        let keys = homes.iter().map(|&n| pool[n].key()).collect();
        let plan = Plan::new(1, [(hash(b"llama"), Placement { homes: keys, tail: false })]);
        Scene::new(pool).planned(&plan)
    }

    fn firsts(scene: &Scene, rounds: usize) -> Vec<usize> {
        let mut counts = vec![0; scene.endpoints.len()];
        for _ in 0..rounds {
            counts[scene.pick(&Homes, &Request::for_model(b"llama"), 1).unwrap()[0] as usize] += 1;
        }
        counts
    }

    fn holding(mut pool: Vec<Endpoint>, holders: &[usize]) -> Vec<Endpoint> {
        for (n, endpoint) in pool.iter_mut().enumerate() {
            let models = if holders.contains(&n) { &["llama"][..] } else { &[] };
            endpoint.resident = Some(Resident::from_ids(models.iter().copied()));
        }
        pool
    }

    #[test]
    fn requests_go_to_the_homes_and_nowhere_else() {
        let counts = firsts(&scene(endpoints(6), &[1, 4, 5]), 3_000);
        // 1,000 each, ± 5 standard deviations of 26.
        for (n, count) in counts.iter().enumerate() {
            let expected = if [1, 4, 5].contains(&n) { 870..=1_130 } else { 0..=0 };
            assert!(expected.contains(count), "{counts:?}");
        }
    }

    #[test]
    fn the_list_goes_on_with_the_other_homes_and_then_the_ring() {
        let scene = scene(endpoints(6), &[1, 4]);
        let ring = Scene::new(endpoints(6)).pick(&super::super::RingOrder, &Request::for_model(b"llama"), 6).unwrap();
        let rest: Vec<_> = ring.into_iter().filter(|n| ![1, 4].contains(n)).collect();
        for _ in 0..20 {
            let list = scene.pick(&Homes, &Request::for_model(b"llama"), 4).unwrap();
            assert!(list[..2] == [1, 4] || list[..2] == [4, 1], "{list:?}");
            assert_eq!(list[2..], rest[..2]);
        }
    }

    /// With two homes both are always compared, and the idle one wins; of three, the busiest is never the better one.
    #[test]
    fn the_less_loaded_of_two_homes_wins() {
        let two = scene(endpoints(4), &[0, 2]);
        let busy = two.busy(0, 1);
        assert_eq!(firsts(&two, 100), [0, 0, 100, 0]);
        drop(busy);
        let three = scene(endpoints(4), &[0, 1, 2]);
        let busy = [three.busy(0, 2), three.busy(1, 1)];
        let counts = firsts(&three, 300);
        assert!(counts[0] == 0 && counts[2] > counts[1] && counts[1] > 0, "{counts:?}");
        drop(busy);
    }

    #[test]
    fn a_slow_home_gets_less() {
        let mut pool = endpoints(2);
        pool[0].speed = 3.0;
        let scene = scene(pool, &[0, 1]);
        // Idle, it costs two service times more; with three in flight at the other the slow one is cheaper.
        assert_eq!(firsts(&scene, 50), [0, 50]);
        let busy = scene.busy(1, 3);
        assert_eq!(firsts(&scene, 50), [50, 0]);
        drop(busy);
    }

    /// One home holds the model, one does not yet: it gets a fifth, so that it is loaded, until a request was sent there.
    #[test]
    fn a_home_without_the_model_is_started_by_a_few_requests() {
        let mut started_first = 0;
        for seed in 0..400usize {
            let scene = scene(holding(endpoints(2), &[0]), &[0, 1]);
            // Each round begins elsewhere in the generator's sequence.
            assert!((0..seed).all(|_| scene.draw() > 0), "a zero once in 2^64");
            started_first += firsts(&scene, 1)[1];
        }
        // 400 · 0.2 = 80, ± 4 standard deviations of 8.
        assert!((48..=112).contains(&started_first), "{started_first}");
        let scene = scene(holding(endpoints(2), &[0]), &[0, 1]);
        scene.plan.sent(hash(b"llama"), EndpointIndex(1), scene.now);
        let counts = firsts(&scene, 400);
        assert!(counts[1] > 150, "once sent to, it counts as warm: {counts:?}");
    }

    #[test]
    fn a_cold_home_is_taken_when_the_warm_ones_wait_exceeds_the_load() {
        let scene = scene(holding(endpoints(2), &[0]), &[0, 1]);
        let busy = scene.busy(0, 11);
        assert_eq!(firsts(&scene, 1), [0, 1], "a load costs 10 service times");
        drop(busy);
    }

    #[test]
    fn a_missing_signal_repels_nobody() {
        let mut pool = holding(endpoints(2), &[0]);
        pool[1].resident = None;
        let counts = firsts(&scene(pool, &[0, 1]), 200);
        assert!(counts.iter().all(|&count| count > 60), "{counts:?}");
    }

    #[test]
    fn homes_that_may_not_serve_are_left_out_and_without_one_the_ring_serves() {
        let mut pool = endpoints(5);
        pool[1].draining = true;
        assert_eq!(firsts(&scene(pool.clone(), &[1, 3]), 20), [0, 0, 0, 20, 0]);
        pool[3].marked_unhealthy = true;
        let ring = Scene::new(pool.clone()).pick(&super::super::RingOrder, &Request::for_model(b"llama"), 1).unwrap();
        assert_eq!(firsts(&scene(pool, &[1, 3]), 20)[ring[0] as usize], 20);
    }

    #[test]
    fn a_model_that_is_not_planned_goes_by_the_ring() {
        let scene = scene(endpoints(5), &[1]);
        let request = Request::for_model(b"bert");
        let by_ring = scene.pick(&super::super::RingOrder, &request, 3).unwrap();
        assert_eq!(scene.pick(&Homes, &request, 3).unwrap(), by_ring);
    }

    fn in_session(scene: &Scene, session: u64) -> u32 {
        let request = Request { session: Some(SessionKey(session)), ..Request::for_model(b"llama") };
        scene.pick(&Homes, &request, 1).unwrap()[0]
    }

    #[test]
    fn a_session_stays_at_one_home_and_sessions_spread() {
        let scene = scene(endpoints(6), &[1, 4, 5]);
        let mut counts = [0; 6];
        for session in 0..300 {
            let home = in_session(&scene, hash(&[session as u8, 1]));
            assert_eq!(in_session(&scene, hash(&[session as u8, 1])), home);
            counts[home as usize] += 1;
        }
        assert!([1, 4, 5].iter().all(|&n| counts[n] > 50), "{counts:?}");
    }

    /// Nine service times are more than eight and more than twice the none elsewhere; four are not.
    #[test]
    fn a_session_leaves_a_home_that_is_far_more_loaded_and_comes_back() {
        let scene = scene(endpoints(3), &[0, 1]);
        let home = in_session(&scene, 42);
        let some = scene.busy(home, 4);
        assert_eq!(in_session(&scene, 42), home);
        let many = scene.busy(home, 5);
        assert_ne!(in_session(&scene, 42), home);
        let everywhere = scene.busy(1 - home, 9);
        assert_eq!(in_session(&scene, 42), home, "the others are no better");
        drop((some, many, everywhere));
        assert_eq!(in_session(&scene, 42), home);
    }

    /// Another home that comes takes about its share of the sessions and moves no other.
    #[test]
    fn a_new_home_takes_only_its_share_of_sessions() {
        let (two, three) = (scene(endpoints(6), &[1, 4]), scene(endpoints(6), &[1, 4, 5]));
        let moved: Vec<_> = (0..600u64)
            .map(|n| hash(&n.to_le_bytes()))
            .filter(|&session| in_session(&two, session) != in_session(&three, session))
            .map(|session| in_session(&three, session))
            .collect();
        assert!(moved.iter().all(|&home| home == 5));
        // A third of 600, ± 5 standard deviations of 11.5.
        assert!((142..=258).contains(&moved.len()), "{}", moved.len());
    }

    /// One in five requests starts the session's own home, the others go where the model is.
    #[test]
    fn a_session_is_not_sent_to_a_load_when_another_home_is_warm() {
        let home = in_session(&scene(endpoints(3), &[0, 1, 2]), 42);
        let others: Vec<usize> = (0..3).filter(|n| *n != home as usize).collect();
        let scene = scene(holding(endpoints(3), &others), &[0, 1, 2]);
        let firsts: Vec<u32> = (0..1_000).map(|_| in_session(&scene, 42)).collect();
        let own = firsts.iter().filter(|first| **first == home).count();
        // 1,000 · 0.2 ± 5 standard deviations of 12.6.
        assert!((137..=263).contains(&own), "{own}");
        let mut others: Vec<_> = firsts.into_iter().filter(|first| *first != home).collect();
        others.dedup();
        assert_eq!(others.len(), 1, "one other home, the session's next");
    }
}
