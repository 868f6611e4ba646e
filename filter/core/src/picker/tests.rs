use super::*;
use crate::endpoint::tests::endpoints;
use crate::endpoint::{Resident, Servable};
use crate::hash::hash;
use crate::live::LivePool;
use crate::load::Registry;
use crate::payload::PayloadClasses;
use crate::plan::{Placement, Plan};
use crate::request::SessionKey;
use crate::settings::{ModelSettings, PlanSource, PoolSettings};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const NOW: Duration = Duration::from_secs(50);

fn by(strategy: StrategyName) -> PoolSettings {
    PoolSettings { strategy, ..PoolSettings::default() }
}

fn live(settings: PoolSettings, endpoints: Option<Vec<Endpoint>>) -> LivePool {
    let mut pool = Pool::new(settings);
    if let Some(endpoints) = endpoints {
        pool.update(endpoints);
    }
    LivePool::new(pool, &mut Registry::default())
}

fn answer_of(live: &LivePool, request: &Request<'_>) -> Answer {
    live.answer(request, NOW, &mut Xoshiro256PlusPlus::seed_from_u64(3))
}

fn pick_of(live: &LivePool, request: &Request<'_>) -> Pick {
    match answer_of(live, request) {
        Answer::Pick(pick) => pick,
        answer => panic!("{request:?}: {answer:?}"),
    }
}

#[test]
fn the_strategy_follows_the_request() {
    let live = live(by(StrategyName::Ring), Some(endpoints(4)));
    let inference = Request::for_model(b"llama");
    let session = Request { session: Some(SessionKey(9)), ..Request::for_model(b"") };
    for (request, strategy, reason) in [
        (inference.clone(), StrategyName::Ring, Reason::Model),
        (Request::update(b"llama"), StrategyName::P2c, Reason::Update),
        (Request { request_type: RequestType::Unknown, ..inference.clone() }, StrategyName::P2c, Reason::UnknownType),
        (Request::for_model(b""), StrategyName::P2c, Reason::NoModel),
        (session, StrategyName::Hash, Reason::Session),
    ] {
        let pick = pick_of(&live, &request);
        assert_eq!((pick.strategy, pick.reason, pick.endpoints.len()), (strategy, reason, 3), "{request:?}");
    }
}

#[test]
fn a_key_of_its_own_rules_where_the_pool_goes_by_hash() {
    let live = live(by(StrategyName::Hash), Some(endpoints(16)));
    let keyed = |key, model: &'static [u8]| Request { key: Some(key), ..Request::for_model(model) };
    let first = |request: &Request<'_>| pick_of(&live, request).endpoints[0];
    for key in 0..50_u64 {
        let key = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let pick = pick_of(&live, &keyed(key, b""));
        assert_eq!((pick.strategy, pick.reason), (StrategyName::Hash, Reason::Key));
        assert_eq!(first(&keyed(key, b"llama")), pick.endpoints[0], "whatever the model");
        let session = Request { session: Some(SessionKey(9)), ..keyed(key, b"") };
        assert_eq!(first(&session), pick.endpoints[0], "over the session");
    }
    let session = Request { session: Some(SessionKey(9)), ..Request::for_model(b"llama") };
    assert_eq!(pick_of(&live, &session).reason, Reason::Session);
    let pick = pick_of(&live, &Request::for_model(b""));
    assert_eq!((pick.strategy, pick.reason), (StrategyName::P2c, Reason::NoKey));
}

#[test]
fn a_key_for_other_pools_does_not_rule_over_sessions() {
    for strategy in [StrategyName::P2c, StrategyName::RoundRobin, StrategyName::LeastRequest] {
        let live = live(PoolSettings { sessions: true, ..by(strategy) }, Some(endpoints(16)));
        let keyed = |session: u64, model: &'static [u8]| Request {
            key: Some(7),
            session: Some(SessionKey(session.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
            ..Request::for_model(model)
        };
        for model in [b"llama".as_slice(), b""] {
            let places: BTreeSet<_> =
                (0..50).map(|session| pick_of(&live, &keyed(session, model)).endpoints[0]).collect();
            assert!(places.len() > 8, "{strategy:?} {model:?}: a tenant's sessions all went to {places:?}");
            let bare = Request { key: None, ..keyed(5, model) };
            assert_eq!(pick_of(&live, &bare).endpoints, pick_of(&live, &keyed(5, model)).endpoints);
        }
    }
}

/// One of many endpoints has the model, the lists of none are known: who says so is not asked again.
#[test]
fn the_one_endpoint_that_has_a_model_is_found() {
    let live = live(by(StrategyName::Ring), Some(endpoints(200)));
    let request = Request::for_model(b"rare");
    let all = live.pool().endpoints().unwrap();
    let owner = EndpointIndex(123);
    let mut tried = 0;
    loop {
        let first = pick_of(&live, &request).endpoints[0];
        if first == owner {
            break;
        }
        tried += 1;
        assert!(tried < 200, "endpoints are asked again");
        assert!(live.pool().unknown().mark(all[first.position()].key(), hash(b"rare"), NOW));
    }
    assert_eq!(pick_of(&live, &request).endpoints[0], owner);
}

#[test]
fn a_pool_may_choose_any_strategy_for_inference() {
    for name in StrategyName::ALL {
        let pick = pick_of(&live(by(name), Some(endpoints(4))), &Request::for_model(b"llama"));
        let expected = match name {
            StrategyName::Homes => (StrategyName::Ring, Reason::NotPlanned),
            name => (name, Reason::Model),
        };
        assert_eq!((pick.strategy, pick.reason), expected);
    }
}

#[test]
fn a_planned_model_goes_to_its_home() {
    let pool = endpoints(4);
    let placement = Placement { homes: [pool[2].key()].into(), tail: false };
    let plan = PlanSource::Fixed(Plan::new(1, [(hash(b"llama"), placement)]));
    let live = live(PoolSettings { plan, ..by(StrategyName::Homes) }, Some(pool));
    let pick = pick_of(&live, &Request::for_model(b"llama"));
    assert_eq!((pick.strategy, pick.reason, pick.endpoints[0].0), (StrategyName::Homes, Reason::Model, 2));
    assert_eq!(pick_of(&live, &Request::for_model(b"bert")).reason, Reason::NotPlanned);
}

fn planned(homes: &[usize], pool: Vec<Endpoint>) -> LivePool {
    let homes = homes.iter().map(|n| pool[*n].key()).collect();
    let plan = PlanSource::Fixed(Plan::new(1, [(hash(b"llama"), Placement { homes, tail: false })]));
    live(PoolSettings { plan, ..by(StrategyName::Homes) }, Some(pool))
}

#[test]
fn homes_serve_before_the_ring_is_built() {
    let set = endpoints(4);
    let placement = Placement { homes: [set[2].key()].into(), tail: false };
    let plan = PlanSource::Fixed(Plan::new(1, [(hash(b"llama"), placement)]));
    let mut pool = Pool::new(PoolSettings { plan, ..by(StrategyName::Homes) });
    pool.take(set, None);
    let live = LivePool::new(pool, &mut Registry::default());
    let pick = pick_of(&live, &Request::for_model(b"llama"));
    assert_eq!((pick.strategy, pick.reason, pick.endpoints[0].0), (StrategyName::Homes, Reason::Model, 2));
    assert_eq!(pick.endpoints.len(), 3, "with fallbacks");
    assert_eq!(pick_of(&live, &Request::for_model(b"bert")).reason, Reason::RingPending);
}

/// Homes that say "not found" are passed over, all of them if need be: the ring may lead to one that knows it.
#[test]
fn homes_that_do_not_know_the_model_are_passed_over() {
    let live = planned(&[1, 2], endpoints(5));
    let request = Request::for_model(b"llama");
    let firsts = || -> Vec<u32> {
        let pick = |seed| match live.answer(&request, NOW, &mut Xoshiro256PlusPlus::seed_from_u64(seed)) {
            Answer::Pick(pick) => pick.endpoints[0].0,
            answer => panic!("{answer:?}"),
        };
        (0..40).map(pick).collect()
    };
    let mark = |n: u32| {
        let key = live.pool().endpoint(EndpointIndex(n)).unwrap().key();
        assert!(live.pool().unknown().mark(key, hash(b"llama"), NOW));
    };
    mark(1);
    assert!(firsts().iter().all(|n| *n == 2));
    mark(2);
    assert!(firsts().iter().all(|n| [0, 3, 4].contains(n)), "{:?}", firsts());
    [0, 3, 4].into_iter().for_each(mark);
    assert!(firsts().iter().all(|n| [1, 2].contains(n)) && pick_of(&live, &request).marks_ignored);
}

/// Who is told to hold it, and who should by the plan: an unload must not go to a random endpoint.
#[test]
fn an_update_goes_to_a_home_of_its_model() {
    let mut set = endpoints(12);
    set[7].resident = Some(Resident::from_ids(["llama"]));
    let live = planned(&[4, 9], set);
    let mut used: Vec<u32> = (0..200)
        .map(|seed| match live.answer(&Request::update(b"llama"), NOW, &mut Xoshiro256PlusPlus::seed_from_u64(seed)) {
            Answer::Pick(pick) => pick.endpoints[0].0,
            answer => panic!("{answer:?}"),
        })
        .collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used, [4, 7, 9]);
}

#[test]
fn a_model_may_have_a_strategy_of_its_own() {
    let own = ModelSettings { strategy: Some(StrategyName::RoundRobin), ..ModelSettings::default() };
    let settings = PoolSettings { models: [(hash(b"bert"), own)].into(), ..by(StrategyName::Ring) };
    let live = live(settings, Some(endpoints(4)));
    assert_eq!(pick_of(&live, &Request::for_model(b"bert")).strategy, StrategyName::RoundRobin);
    assert_eq!(pick_of(&live, &Request::for_model(b"llama")).strategy, StrategyName::Ring);
}

/// Sessions keep their endpoint under strategies that know nothing of them, where there is a ring to find it.
#[test]
fn a_session_keeps_its_endpoint() {
    let own = ModelSettings { strategy: Some(StrategyName::RoundRobin), ..ModelSettings::default() };
    let settings = PoolSettings { models: [(hash(b"bert"), own)].into(), ..by(StrategyName::Ring) };
    let live = live(settings, Some(endpoints(4)));
    let request = Request { session: Some(SessionKey(77)), ..Request::for_model(b"bert") };
    let first = pick_of(&live, &request);
    assert_eq!((first.strategy, first.reason), (StrategyName::Hash, Reason::Session));
    assert!((0..10).all(|_| pick_of(&live, &request) == first));
}

#[test]
fn not_known_yet_is_not_empty() {
    let request = Request::for_model(b"llama");
    for strategy in StrategyName::ALL {
        assert_eq!(answer_of(&live(by(strategy), None), &request), Answer::Pass(Pass::NoSnapshot));
        let refused = Answer::Refuse(Refusal::NoHealthyEndpoint);
        assert_eq!(answer_of(&live(by(strategy), Some(Vec::new())), &request), refused);
        let mut marked = endpoints(2);
        marked.iter_mut().for_each(|endpoint| endpoint.marked_unhealthy = true);
        assert_eq!(answer_of(&live(by(strategy), Some(marked)), &request), refused);
    }
}

/// Every strategy obeys labels: only endpoint 2 has what a large batch needs.
#[test]
fn a_large_request_goes_where_its_class_may() {
    let class =
        PayloadClass { name: "batch".into(), above_bytes: 1_000, weight: 16, labels: ["tier=batch".into()].into() };
    for strategy in StrategyName::ALL {
        let mut set = endpoints(4);
        set[2].labels = ["tier=batch".into()].into();
        let payload = PayloadClasses::new(vec![class.clone()]);
        let live = live(PoolSettings { payload, ..by(strategy) }, Some(set.clone()));
        let large = Request { payload_bytes: Some(1_001), ..Request::for_model(b"llama") };
        let pick = pick_of(&live, &large);
        assert_eq!((pick.endpoints.as_slice(), pick.weight), (&[EndpointIndex(2)][..], 16), "{strategy:?}");
        let small = Request { payload_bytes: Some(1_000), ..large.clone() };
        assert_eq!((pick_of(&live, &small).endpoints.len(), pick_of(&live, &small).weight), (3, 1));
        set[2].draining = true;
        let payload = PayloadClasses::new(vec![class.clone()]);
        let gone = self::live(PoolSettings { payload, ..by(strategy) }, Some(set));
        assert_eq!(answer_of(&gone, &large), Answer::Refuse(Refusal::NoHealthyEndpoint), "{strategy:?}");
    }
}

#[test]
fn only_those_that_can_serve_the_model_are_listed() {
    for strategy in StrategyName::ALL {
        let mut set = endpoints(5);
        for (n, endpoint) in set.iter_mut().enumerate() {
            let models = if n % 2 == 0 { &["bert", "llama"][..] } else { &["bert"] };
            endpoint.servable = Servable::Fixed(Resident::from_ids(models.iter().copied()));
        }
        let live = live(by(strategy), Some(set));
        let mut list = pick_of(&live, &Request::for_model(b"llama")).endpoints.to_vec();
        list.sort_unstable();
        assert_eq!(list, [0, 2, 4].map(EndpointIndex), "{strategy:?}");
    }
}

#[test]
fn an_endpoint_that_does_not_know_the_model_is_passed_over_unless_nobody_does() {
    for strategy in StrategyName::ALL {
        let live = live(by(strategy), Some(endpoints(2)));
        let (request, unknown) = (Request::for_model(b"llama"), live.pool().unknown());
        unknown.mark(live.pool().endpoints().unwrap()[0].key(), hash(b"llama"), NOW);
        let pick = pick_of(&live, &request);
        assert_eq!((pick.endpoints.as_slice(), pick.marks_ignored), (&[EndpointIndex(1)][..], false));
        unknown.mark(live.pool().endpoints().unwrap()[1].key(), hash(b"llama"), NOW);
        let pick = pick_of(&live, &request);
        assert_eq!((pick.endpoints.len(), pick.marks_ignored), (2, true), "{strategy:?}");
        assert!(!pick_of(&live, &Request::for_model(b"bert")).marks_ignored, "another model is not concerned");
    }
}

#[test]
fn updates_stay_with_the_holders_or_go_over_the_pool() {
    let mut set = endpoints(6);
    set[3].resident = Some(Resident::from_ids(["llama"]));
    let firsts = |updates| {
        let live = live(PoolSettings { updates, ..by(StrategyName::Ring) }, Some(set.clone()));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut first = || match live.answer(&Request::update(b"llama"), NOW, &mut rng) {
            Answer::Pick(pick) => pick.endpoints[0].0,
            answer => panic!("{answer:?}"),
        };
        (0..100).map(|_| first()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(firsts(UpdateScope::Holders), [3].into());
    assert_eq!(firsts(UpdateScope::Pool), (0..6).collect());
}

/// Forty endpoints tell that they have the model, and it is planned for two more: an update concerns all of them.
#[test]
fn an_update_reaches_every_holder_and_home_however_many_there_are() {
    let mut set = endpoints(50);
    set.iter_mut().take(40).for_each(|endpoint| endpoint.resident = Some(Resident::from_ids(["llama"])));
    let live = planned(&[5, 44, 47], set);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut first = || match live.answer(&Request::update(b"llama"), NOW, &mut rng) {
        Answer::Pick(pick) => pick.endpoints[0].0,
        answer => panic!("{answer:?}"),
    };
    // Each is missed but by chance (41/42)^1000, about 1 in 3·10^10.
    let firsts: std::collections::BTreeSet<u32> = (0..1_000).map(|_| first()).collect();
    assert_eq!(firsts, (0..40).chain([44, 47]).collect());
}

#[test]
fn positions_follow_the_list() {
    for (position, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason.position(), position, "{}", reason.name());
    }
}
