//! Nothing on the request's way through the core allocates memory.
//!
//! Allocations are counted per thread, so that tests beside each other do not count each other's.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;
use warmroute_core::arming;
use warmroute_core::endpoint::{Endpoint, Resident, Servable};
use warmroute_core::hash::hash;
use warmroute_core::live::{End, LivePool};
use warmroute_core::load::Registry;
use warmroute_core::outcome::Outcome;
use warmroute_core::payload::{PayloadClass, PayloadClasses};
use warmroute_core::picker::{Answer, Reason};
use warmroute_core::plan::{Placement, Plan, SelfSettings};
use warmroute_core::pool::Pool;
use warmroute_core::request::{
    BodyHint, BodyScanner, BodySettings, Request, RequestSettings, RequestType, Scan, SessionSettings,
};
use warmroute_core::settings::{PlanSource, PoolSettings};
use warmroute_core::strategy::StrategyName;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that is on its way out has no counter any more, and no test either.
    let _counted = ALLOCATIONS.try_with(|count| count.set(count.get() + 1)).is_ok();
}

#[expect(unsafe_code, reason = "the interface of allocators; every call is handed on as it came")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are handed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `body` allocated.
fn allocations(body: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    body();
    ALLOCATIONS.with(Cell::get) - before
}

const NOW: Duration = Duration::from_secs(100);

fn endpoints(count: usize) -> Vec<Endpoint> {
    let address = |n: usize| format!("10.0.{}.{}:8000", n / 256, n % 256);
    let mut endpoints: Vec<_> =
        (0..count).map(|n| Endpoint::new(format!("gpu-{n}"), address(n).parse().unwrap())).collect();
    endpoints.iter_mut().step_by(5).for_each(|endpoint| endpoint.marked_unhealthy = true);
    endpoints.iter_mut().skip(1).step_by(5).for_each(|endpoint| {
        endpoint.resident = Some(Resident::from_ids(["llama"]));
        endpoint.labels = ["tier=batch".into()].into();
    });
    endpoints.iter_mut().skip(2).step_by(5).for_each(|endpoint| {
        endpoint.servable = Servable::Fixed(Resident::from_ids(["llama", "bert"]));
    });
    endpoints
}

fn live(settings: PoolSettings) -> LivePool {
    let mut pool = Pool::new(settings);
    pool.update(endpoints(60));
    LivePool::new(pool, &mut Registry::default())
}

fn settings(strategy: StrategyName) -> PoolSettings {
    let large =
        PayloadClass { name: "large".into(), above_bytes: 1_000, weight: 8, labels: ["tier=batch".into()].into() };
    let placement = Placement { homes: [1, 6, 11].map(|n| hash(format!("gpu-{n}").as_bytes())).into(), tail: false };
    PoolSettings {
        strategy,
        sessions: true,
        fallbacks: 7,
        payload: PayloadClasses::new(vec![large]),
        plan: PlanSource::Fixed(Plan::new(1, [(hash(b"llama"), placement)])),
        ..PoolSettings::default()
    }
}

/// Sends a request all the way and tells why it was picked so.
fn whole_way(
    live: &LivePool,
    request: &Request<'_>,
    rng: &mut Xoshiro256PlusPlus,
    list: &mut String,
) -> Option<Reason> {
    let Answer::Pick(pick) = live.answer(request, NOW, rng) else { return None };
    arming::write_destination(&pick.endpoints, live.pool().endpoints().unwrap_or_default(), list);
    let sent = live.start(request, &pick, NOW)?;
    let end = End {
        endpoint: pick.endpoints[0],
        outcome: Outcome::Success,
        service_time: Duration::from_millis(50),
        model_unknown: false,
    };
    live.ended(&sent, &end, NOW);
    Some(pick.reason)
}

#[test]
fn the_counter_counts() {
    let made = allocations(|| drop(std::hint::black_box(Vec::<u8>::with_capacity(100))));
    assert_eq!(made, 1);
}

#[test]
fn no_strategy_allocates() {
    for strategy in StrategyName::ALL {
        let live = live(settings(strategy));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
        let mut list = String::with_capacity(4_096);
        let named = Request::for_model(b"llama");
        let requests = [
            named.clone(),
            Request::for_model(b"other"),
            Request::for_model(b""),
            Request::update(b"llama"),
            Request { request_type: RequestType::Unknown, ..named.clone() },
            Request { payload_bytes: Some(5_000), ..named.clone() },
            Request { key: Some(77), ..named.clone() },
            Request { session: Some(warmroute_core::request::SessionKey(7)), ..named },
        ];
        // The first request of a model under `round_robin` makes room for its turns.
        requests.iter().for_each(|request| assert!(whole_way(&live, request, &mut rng, &mut list).is_some()));
        for request in &requests {
            let made = allocations(|| {
                for _ in 0..50 {
                    whole_way(&live, request, &mut rng, &mut list);
                }
            });
            assert_eq!(made, 0, "{strategy:?}: {request:?}");
        }
    }
}

#[test]
fn a_pool_of_nobody_refuses_without_allocating() {
    let mut pool = Pool::new(settings(StrategyName::Ring));
    pool.update(Vec::new());
    let live = LivePool::new(pool, &mut Registry::default());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let request = Request::for_model(b"llama");
    assert_eq!(allocations(|| assert!(matches!(live.answer(&request, NOW, &mut rng), Answer::Refuse(_)))), 0);
}

/// Marks of unknown models are kept in a table of fixed size.
#[test]
fn marks_of_unknown_models_do_not_allocate() {
    let live = live(settings(StrategyName::Ring));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let mut list = String::with_capacity(4_096);
    let request = Request::for_model(b"llama");
    let keys: Vec<_> = live.pool().endpoints().unwrap().iter().map(Endpoint::key).collect();
    keys.iter().for_each(|key| assert!(live.pool().unknown().mark(*key, hash(b"llama"), NOW)));
    let made = allocations(|| {
        live.pool().unknown().mark(keys[3], hash(b"llama"), NOW);
        whole_way(&live, &request, &mut rng, &mut list);
    });
    assert_eq!(made, 0);
}

/// A gateway that plans for itself counts requests of the models that it knows; a new one takes up room.
#[test]
fn a_planner_of_its_own_counts_without_allocating() {
    let live =
        live(PoolSettings { plan: PlanSource::SelfMade(SelfSettings::default()), ..settings(StrategyName::Homes) });
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let mut list = String::with_capacity(4_096);
    let request = Request::for_model(b"llama");
    for second in 0..5 {
        (0..200).for_each(|_| assert!(whole_way(&live, &request, &mut rng, &mut list).is_some()));
        live.tick(NOW + Duration::from_secs(second));
    }
    assert_eq!(whole_way(&live, &request, &mut rng, &mut list), Some(Reason::Model), "planned by now");
    let made = allocations(|| {
        for _ in 0..500 {
            whole_way(&live, &request, &mut rng, &mut list);
        }
    });
    assert_eq!(made, 0);
}

#[test]
fn reading_a_request_does_not_allocate() {
    let settings = RequestSettings {
        model_headers: ["x-model-id".into(), "model-id".into()].into(),
        type_headers: ["x-request-type".into()].into(),
        hash_header: Some("x-tenant".into()),
        trusted: true,
        urgency_header: Some("x-warmroute-urgency".into()),
        debug_header: Some("x-warmroute-debug".into()),
        session: Some(SessionSettings {
            header: Some("x-session-id".into()),
            cookie: Some("sid".into()),
            address: true,
        }),
        ..RequestSettings::default()
    };
    let plain: [(&[u8], &[u8]); 7] = [
        (b":path", b"/v2/models/llama/versions/3/infer?x=1"),
        (b"content-type", b"application/json"),
        (b"content-length", b"1234"),
        (b"cookie", b"theme=dark; sid=abc; lang=en"),
        (b"x-tenant", b"acme"),
        (b"x-warmroute-urgency", b"high"),
        (b"user-agent", b"curl/8"),
    ];
    let header: [(&[u8], &[u8]); 2] = [(b":path", b"/v1/chat/completions"), (b"x-model-id", b"llama")];
    for headers in [&plain[..], &header] {
        let made = allocations(|| {
            let request = Request::from_headers(&settings, headers.iter().copied(), Some(b"10.0.0.9:4711"));
            assert_eq!(request.model.as_ref().map(|model| &*model.id), Some(&b"llama"[..]));
        });
        assert_eq!(made, 0, "{headers:?}");
    }
    // Percent signs have to be undone somewhere.
    let escaped: [(&[u8], &[u8]); 1] = [(b":path", b"/v2/models/org%2Fllama/infer")];
    let made = allocations(|| {
        let request = Request::from_headers(&settings, escaped, None);
        assert_eq!(request.model.as_ref().map(|model| &*model.id), Some(&b"org/llama"[..]));
    });
    assert!((1..=4).contains(&made), "{made} allocations for one name");
}

/// A body's prompt is passed over, not kept.
#[test]
fn reading_past_a_prompt_does_not_allocate() {
    let mut scanner = BodyScanner::new(BodyHint::Json, &BodySettings { max_bytes: 65_536 }).unwrap();
    assert_eq!(scanner.feed(br#"{"messages":[{"role":"user","content":"some "#), Scan::More);
    let made = allocations(|| {
        for _ in 0..100 {
            assert_eq!(scanner.feed(br#"lorem ipsum \"dolor\" sit amet, consectetur \u00e4 "#), Scan::More);
        }
    });
    assert_eq!(made, 0);
    assert_eq!(scanner.feed(br#""}],"model":"llama"}"#), Scan::Found(b"llama"));
}
