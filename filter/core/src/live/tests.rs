use super::*;
use crate::endpoint::tests::endpoints;
use crate::endpoint::{Endpoint, Resident};
use crate::hash::hash;
use crate::plan::Placement;
use crate::settings::PoolSettings;
use crate::strategy::StrategyName;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// Pools of one cluster in one VM, and their time.
struct Vm {
    registry: Registry,
    rng: Xoshiro256PlusPlus,
    now: Duration,
}

impl Vm {
    fn new() -> Self {
        Self { registry: Registry::default(), rng: Xoshiro256PlusPlus::seed_from_u64(5), now: SECOND * 100 }
    }

    fn pool(&mut self, plan: PlanSource, endpoints: Vec<Endpoint>) -> LivePool {
        let mut pool = Pool::new(PoolSettings { plan, strategy: StrategyName::Homes, ..PoolSettings::default() });
        pool.update(endpoints);
        LivePool::new(pool, &mut self.registry)
    }

    fn own(&mut self, endpoints: Vec<Endpoint>) -> LivePool {
        self.own_with(SelfSettings::default(), endpoints)
    }

    /// One more pool of the one cluster.
    fn own_with(&mut self, settings: SelfSettings, endpoints: Vec<Endpoint>) -> LivePool {
        let plan = PlanSource::SelfMade(settings);
        let mut pool = Pool::new(PoolSettings { plan, strategy: StrategyName::Homes, ..PoolSettings::default() });
        pool.update(endpoints);
        LivePool::in_cluster(b"a", pool, &mut self.registry)
    }

    fn send(&mut self, live: &LivePool, request: &Request<'_>) -> Sent {
        match live.answer(request, self.now, &mut self.rng) {
            Answer::Pick(pick) => live.start(request, &pick, self.now).unwrap(),
            answer => panic!("{answer:?}"),
        }
    }

    /// Ends as sent, after 50 ms.
    fn end(&self, live: &LivePool, sent: &Sent, outcome: Outcome) {
        let service_time = Duration::from_millis(50);
        let end = End { endpoint: sent.pick, outcome, service_time, model_unknown: false };
        live.ended(sent, &end, self.now);
    }

    fn all(&mut self, live: &LivePool, models: &[&[u8]]) {
        for model in models {
            self.request(live, &Request::for_model(model));
        }
    }

    fn request(&mut self, live: &LivePool, request: &Request<'_>) -> (EndpointIndex, Warmth) {
        let sent = self.send(live, request);
        self.end(live, &sent, Outcome::Success);
        (sent.pick, sent.warmth)
    }

    /// Ten requests of each model a second and ten ticks of each pool; how many of the ticks changed the plan.
    fn run(&mut self, seconds: usize, asked: &LivePool, models: &[&[u8]], pools: &[&LivePool]) -> usize {
        let mut changes = 0;
        for _ in 0..seconds * 10 {
            self.now += TICK;
            self.all(asked, models);
            changes += pools.iter().filter(|live| live.tick(self.now).changed).count();
        }
        changes
    }
}

fn version(live: &LivePool) -> u64 {
    live.pool().plan().version()
}

fn homes(live: &LivePool, model: &[u8]) -> Vec<u32> {
    let plan = live.pool().plan();
    plan.get(hash(model)).map_or(Vec::new(), |model| model.homes.iter().map(|home| home.endpoint.0).collect())
}

fn all_homes(live: &LivePool, models: &[&[u8]]) -> usize {
    models.iter().map(|model| homes(live, model).len()).sum()
}

/// Two listeners with the same cluster: one is asked, both follow.
#[test]
fn pools_that_share_a_planner_have_its_plan() {
    let mut vm = Vm::new();
    let first = vm.own(endpoints(4));
    let second = vm.own(endpoints(4));
    vm.run(2, &first, &[b"llama"], &[&first, &second]);
    assert!(version(&first) > 0);
    assert_eq!(version(&first), version(&second));
    assert_eq!(homes(&first, b"llama"), homes(&second, b"llama"));
    assert!(!homes(&first, b"llama").is_empty());
}

/// An old configuration with four endpoints is kept by a request beside the new one with five: only the new one plans.
#[test]
fn an_old_pool_does_not_plan_against_the_new_one() {
    let mut vm = Vm::new();
    let old = vm.own(endpoints(4));
    vm.run(20, &old, &[b"llama", b"bert"], &[&old]);
    let new = vm.own(endpoints(5));
    assert_eq!(homes(&new, b"llama"), homes(&old, b"llama"), "goes on where the old one was");
    let changes = vm.run(60, &new, &[b"llama", b"bert"], &[&old, &new]);
    assert_eq!(changes, 0, "nothing happened that would move a model");
    assert_eq!(version(&old), version(&new));
}

/// The listener of the newest pool was removed: its root ticks no more.
#[test]
fn another_pool_plans_when_the_newest_is_gone() {
    let mut vm = Vm::new();
    let first = vm.own(endpoints(4));
    let second = vm.own(endpoints(4));
    vm.run(2, &first, &[b"llama"], &[&first, &second]);
    drop(second);
    vm.run(3, &first, &[b"llama", b"bert"], &[&first]);
    assert_eq!(homes(&first, b"bert").len(), 1);
}

/// One lost tick of the lease must not cost the plan for good.
#[test]
fn a_pool_that_plans_again_has_its_plan_again() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(4));
    vm.run(3, &live, &[b"llama"], &[&live]);
    let before = homes(&live, b"llama");
    live.stop_planning(vm.now);
    assert_eq!((version(&live), homes(&live, b"llama").len()), (0, 0), "the ring, while somebody else plans");
    vm.now += TICK;
    live.tick(vm.now);
    assert!(version(&live) > 0);
    assert_eq!(homes(&live, b"llama"), before);
}

/// Ten models at one request a second each, for an hour that somebody else planned: one home each, not an hour's worth.
#[test]
fn taking_over_does_not_take_an_hour_for_a_second() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(8));
    let names: Vec<String> = (0..10).map(|n| format!("model-{n}")).collect();
    let models: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    for _ in 0..3_600 {
        vm.now += SECOND;
        vm.all(&live, &models);
        live.stop_planning(vm.now);
    }
    let mut most = 0;
    // Ten ticks a second, in each of which one model is asked for.
    for n in 0..600 {
        vm.now += TICK;
        vm.all(&live, &models[n % 10..=n % 10]);
        live.tick(vm.now);
        most = most.max(all_homes(&live, &models));
    }
    assert_eq!(most, 10);
}

/// Settings of one model's size are no reason to forget what all models taught.
#[test]
fn other_settings_go_on_with_what_was_learnt() {
    let mut vm = Vm::new();
    let old = vm.own(endpoints(4));
    vm.run(3, &old, &[b"llama"], &[&old]);
    let home = homes(&old, b"llama");
    let settings = SelfSettings { sizes: [(hash(b"bert"), 2)].into(), slots: Some(2), ..SelfSettings::default() };
    let new = vm.own_with(settings, endpoints(4));
    assert_eq!(homes(&new, b"llama"), home);
    assert_eq!(vm.request(&new, &Request::for_model(b"llama")).1, Warmth::Warm);
    vm.run(2, &new, &[b"llama"], &[&new]);
    assert_eq!(homes(&new, b"llama"), home);
}

/// Which home has loaded, and who does not know a model, is known to the next configuration, whatever the positions.
#[test]
fn a_fixed_plan_hands_over_what_was_learnt() {
    let mut vm = Vm::new();
    let set = endpoints(4);
    let placement = Placement { homes: [set[2].key()].into(), tail: false };
    let plan = || PlanSource::Fixed(Plan::new(1, [(hash(b"llama"), placement.clone())]));
    let mut set_of = |range: std::ops::Range<usize>| {
        let mut set = endpoints(4)[range].to_vec();
        set.iter_mut().for_each(|endpoint| endpoint.resident = Some(Resident::from_ids([])));
        vm.pool(plan(), set)
    };
    let (old, mut new) = (set_of(0..4), set_of(1..4));
    let mut warmth = |live: &LivePool| vm.request(live, &Request::for_model(b"llama")).1;
    assert_eq!([warmth(&old), warmth(&old)], [Warmth::Cold, Warmth::Warm]);
    new.succeed(&old);
    assert_eq!(warmth(&new), Warmth::Warm, "it was sent there a moment ago");
}

/// Who does not know a model is known to all pools of the cluster, and to the planner.
#[test]
fn models_leave_a_home_that_does_not_know_them() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(3));
    vm.run(1, &live, &[b"llama"], &[&live]);
    let home = EndpointIndex(homes(&live, b"llama")[0]);
    // Its list of models changed: what it served is long ago.
    vm.now += SECOND * 61;
    let sent = vm.send(&live, &Request::for_model(b"llama"));
    assert_eq!(sent.pick, home);
    let end = End { endpoint: home, outcome: Outcome::Neutral, service_time: TICK, model_unknown: true };
    live.ended(&sent, &end, vm.now);
    assert_eq!(live.holds(home, hash(b"llama")), Some(false));
    assert_ne!(vm.request(&live, &Request::for_model(b"llama")).0, home, "at once");
    let beside = vm.own(endpoints(3));
    assert_ne!(vm.request(&beside, &Request::for_model(b"llama")).0, home, "also in another pool");
    vm.run(2, &live, &[b"llama"], &[&live, &beside]);
    assert!(!homes(&beside, b"llama").is_empty() && !homes(&beside, b"llama").contains(&home.0));
}

/// Somebody asks a home for what does not exist: it served the model a moment ago, so that is not what is missing.
#[test]
fn not_found_moves_no_model_that_is_served() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(3));
    vm.run(2, &live, &[b"llama"], &[&live]);
    for home in homes(&live, b"llama") {
        let sent = vm.send(&live, &Request::for_model(b"llama"));
        let home = EndpointIndex(home);
        let end = End { endpoint: home, outcome: Outcome::Neutral, service_time: TICK, model_unknown: true };
        let believed = live.holds(home, hash(b"llama"));
        live.ended(&sent, &end, vm.now);
        if vm.request(&live, &Request::for_model(b"llama")).0 == home {
            assert!(live.pool().unknown().is_empty(vm.now));
        }
        assert_eq!(live.holds(home, hash(b"llama")), believed);
    }
}

/// The ring's endpoint for the model is dead, a fallback serves: a plan is what ends the retries.
#[test]
fn a_model_whose_pick_is_dead_is_planned_all_the_same() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(3));
    let mut dead = None;
    for _ in 0..30 {
        vm.now += TICK;
        let sent = vm.send(&live, &Request::for_model(b"llama"));
        let dead = *dead.get_or_insert(sent.pick);
        let other = EndpointIndex((dead.0 + 1) % 3);
        if sent.pick == dead {
            live.attempt_failed(Some(&sent), dead);
            let end = End { endpoint: other, outcome: Outcome::Success, service_time: TICK, model_unknown: false };
            live.ended(&sent, &end, vm.now);
        } else {
            vm.end(&live, &sent, Outcome::Success);
        }
        live.tick(vm.now);
    }
    assert!(!homes(&live, b"llama").is_empty());
}

/// A pool with the ring of other endpoints plans nothing, also when nobody else does.
#[test]
fn a_pool_that_stands_in_does_not_plan() {
    let mut vm = Vm::new();
    let old = vm.own(endpoints(4));
    vm.run(2, &old, &[b"llama"], &[&old]);
    let planned = homes(&old, b"llama");
    let settings = PoolSettings {
        plan: PlanSource::SelfMade(SelfSettings::default()),
        strategy: StrategyName::Homes,
        ..PoolSettings::default()
    };
    let mut pool = Pool::new(settings);
    pool.take_with_old_ring(endpoints(6), old.pool().shared_ring());
    let stand_in = LivePool::in_cluster(b"a", pool, &mut vm.registry);
    assert_eq!(homes(&stand_in, b"llama"), planned, "it follows the plan");
    drop(old);
    let changes = vm.run(10, &stand_in, &[b"llama", b"bert"], &[&stand_in]);
    assert_eq!((changes, homes(&stand_in, b"bert").len()), (0, 0));
    let last = vm.own(endpoints(6));
    vm.run(2, &last, &[b"llama", b"bert"], &[&stand_in, &last]);
    assert_eq!(version(&stand_in), version(&last));
    assert!(!homes(&last, b"bert").is_empty());
}

/// A load that failed left nothing behind.
#[test]
fn a_failed_request_does_not_make_its_home_warm() {
    let mut vm = Vm::new();
    let mut set = endpoints(2);
    set.iter_mut().for_each(|endpoint| endpoint.resident = Some(Resident::from_ids([])));
    let placement = Placement { homes: [set[1].key()].into(), tail: false };
    let live = vm.pool(PlanSource::Fixed(Plan::new(1, [(hash(b"llama"), placement)])), set);
    let request = Request::for_model(b"llama");
    let sent = vm.send(&live, &request);
    vm.end(&live, &sent, Outcome::Failure);
    let again = vm.send(&live, &request);
    assert_eq!([sent.warmth, again.warmth], [Warmth::Cold; 2]);
    live.attempt_failed(Some(&again), again.pick);
    assert_eq!(vm.send(&live, &request).warmth, Warmth::Cold);
}

/// Updates, probes and requests of unknown types neither count as demand nor as samples nor as loads.
#[test]
fn only_requests_that_run_a_model_teach() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(4));
    vm.run(1, &live, &[b"llama"], &[&live]);
    let home = EndpointIndex(homes(&live, b"llama")[0]);
    let probe = Request { sends_work: false, ..Request::for_model(b"llama") };
    for _ in 0..40 {
        for request in [&Request::update(b"llama"), &probe] {
            vm.request(&live, request);
        }
    }
    let key = |n| live.pool().endpoint(EndpointIndex(n)).unwrap().key();
    let held = (0..4).filter(|n| live.holds(EndpointIndex(*n), hash(b"llama")) == Some(true));
    assert_eq!(held.collect::<Vec<_>>(), [home.0], "{:?}", (0..4).map(key).collect::<Vec<_>>());
    let rate = |live: &LivePool| live.planning().unwrap().planner().unwrap().rate(hash(b"llama"));
    vm.now += SECOND;
    live.tick(vm.now);
    // Ten requests ran it in the first second; with the eighty others it would be more than twenty a second.
    assert!(rate(&live) < 10.0, "{}", rate(&live));
}

#[test]
fn an_unload_is_believed_and_a_load_too() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(1));
    vm.run(1, &live, &[b"llama"], &[&live]);
    let only = EndpointIndex(0);
    let change = |change, outcome, vm: &mut Vm| {
        let sent = vm.send(&live, &Request { change: Some(change), ..Request::update(b"llama") });
        vm.end(&live, &sent, outcome);
        live.holds(only, hash(b"llama")).unwrap()
    };
    assert!(change(Change::Unload, Outcome::Failure, &mut vm), "nothing was unloaded");
    assert!(!change(Change::Unload, Outcome::Success, &mut vm));
    assert!(change(Change::Load, Outcome::Success, &mut vm));
}

/// The pick should have loaded the model and was reset, a fallback served: the fallback has the model now. One that had
/// it has it still.
#[test]
fn a_fallback_that_served_has_the_model() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(3));
    vm.run(1, &live, &[b"llama"], &[&live]);
    let believed = |n| live.holds(EndpointIndex(n), hash(b"llama")).unwrap();
    let warm = (0..3).filter(|n| believed(*n)).count();
    let sent = vm.send(&live, &Request::for_model(b"llama"));
    assert_eq!(sent.warmth, Warmth::Warm);
    live.attempt_failed(Some(&sent), sent.pick);
    assert!(believed(sent.pick.0));
    let other = EndpointIndex((sent.pick.0 + 1) % 3);
    let end = End { endpoint: other, outcome: Outcome::Success, service_time: SECOND, model_unknown: false };
    live.ended(&sent, &end, vm.now);
    assert!(believed(other.0) && (0..3).filter(|n| believed(*n)).count() >= warm);
    let cold = Sent { warmth: Warmth::Cold, ..vm.send(&live, &Request::for_model(b"llama")) };
    live.attempt_failed(Some(&cold), cold.pick);
    assert!(!believed(cold.pick.0));
}

/// Room for one model: the second one's load throws the first one out, however lately that was sent.
#[test]
fn an_own_planner_knows_better_than_what_was_sent_lately() {
    let mut vm = Vm::new();
    let mut set = endpoints(1);
    set[0].memory_units = 1;
    let live = vm.own(set);
    vm.run(2, &live, &[b"llama", b"bert"], &[&live]);
    let mut warmth = |model: &'static [u8]| vm.request(&live, &Request::for_model(model)).1;
    assert_eq!([warmth(b"llama"), warmth(b"bert"), warmth(b"llama")], [Warmth::Cold; 3]);
    assert_eq!(warmth(b"llama"), Warmth::Warm);
}

/// Scores are ignored in panic by picks; homes must not flee to the few that are scored well either.
#[test]
fn homes_are_placed_where_picks_go_in_panic() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(10));
    let names: Vec<String> = (0..10).map(|n| format!("model-{n}")).collect();
    let models: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    vm.run(3, &live, &models, &[&live]);
    let before: Vec<_> = models.iter().map(|model| homes(&live, model)).collect();
    let mut set = live.pool().endpoints().unwrap().to_vec();
    set.iter_mut().take(6).for_each(|endpoint| endpoint.score = crate::endpoint::Score::new(0.1).unwrap());
    let panicking = vm.own(set);
    vm.run(1, &panicking, &models, &[&panicking]);
    let after: Vec<_> = models.iter().map(|model| homes(&panicking, model)).collect();
    assert_eq!(before, after);
}

/// Idle pools give the lease away, and a plan costs nothing between two intervals.
#[test]
fn a_pool_is_asked_for_a_while_and_due_once_an_interval() {
    let mut vm = Vm::new();
    let live = vm.own(endpoints(2));
    assert!(!live.was_asked(vm.now));
    vm.request(&live, &Request::for_model(b"llama"));
    assert!(live.was_asked(vm.now + SECOND * 9) && !live.was_asked(vm.now + SECOND * 10));
    assert!(live.is_plan_due(vm.now));
    live.tick(vm.now);
    assert!(!live.is_plan_due(vm.now + SECOND / 2) && live.is_plan_due(vm.now + SECOND));
    let next = vm.own(endpoints(3));
    assert!(next.is_plan_due(vm.now), "its endpoints are not the planner's yet");
    assert!(!live.is_plan_due(vm.now + SECOND), "and the old pool leads no more");
}

/// Two new sessions: the less loaded one's endpoint serves.
#[test]
fn a_new_session_begins_where_there_is_room() {
    let mut vm = Vm::new();
    let mut pool =
        Pool::new(PoolSettings { strategy: StrategyName::LeastRequest, sessions: true, ..PoolSettings::default() });
    pool.update(endpoints(2));
    let live = LivePool::new(pool, &mut vm.registry);
    let request = Request::for_model(b"llama");
    let of = |n: u32| {
        (0..1_000u32).map(|n| SessionKey::of(&n.to_le_bytes())).find(|session| {
            let request = Request { session: Some(*session), ..request.clone() };
            let Answer::Pick(pick) = live.answer(&request, SECOND, &mut Xoshiro256PlusPlus::seed_from_u64(1)) else {
                panic!()
            };
            pick.endpoints[0].0 == n
        })
    };
    let sessions = [of(0).unwrap(), of(1).unwrap()];
    let in_first = Request { session: Some(sessions[0]), ..request.clone() };
    let busy: Vec<_> = (0..3).map(|_| vm.send(&live, &in_first)).collect();
    let mut new = request.clone();
    let (answer, chosen) = live.answer_anew(&mut new, sessions, SECOND, &mut vm.rng);
    assert_eq!((chosen, new.session), (Some(1), Some(sessions[1])));
    let Answer::Pick(pick) = answer else { panic!() };
    assert_eq!(pick.endpoints[0].0, 1);
    drop(busy);
    // A session means nothing to updates, nor on the ring.
    let mut update = Request::update(b"llama");
    assert_eq!(live.answer_anew(&mut update, sessions, SECOND, &mut vm.rng).1, None);
    assert_eq!(update.session, None);
}

/// A batch that takes ten times as long is no sample of an ordinary request, and two requests are two, whatever they
/// weigh.
#[test]
fn heavy_requests_are_no_samples() {
    let mut vm = Vm::new();
    let class = crate::payload::PayloadClass {
        name: "batch".into(),
        above_bytes: 1_000,
        weight: 16,
        labels: Default::default(),
    };
    let settings = SelfSettings { slots: Some(4), ..SelfSettings::default() };
    let mut pool = Pool::new(PoolSettings {
        plan: PlanSource::SelfMade(settings),
        strategy: StrategyName::Homes,
        payload: crate::payload::PayloadClasses::new(vec![class]),
        ..PoolSettings::default()
    });
    pool.update(endpoints(1));
    let live = LivePool::new(pool, &mut vm.registry);
    let heavy = Request { payload_bytes: Some(2_000), ..Request::for_model(b"llama") };
    for _ in 0..10 {
        vm.request(&live, &heavy);
    }
    let defaults = |live: &LivePool, vm: &mut Vm| {
        vm.now += SECOND;
        live.tick(vm.now);
        live.planning().unwrap().planner().unwrap().report().defaults.service
    };
    assert_eq!(defaults(&live, &mut vm), 1, "ten heavy ones taught nothing");
    let in_flight = vm.send(&live, &heavy);
    vm.all(&live, &[b"llama" as &[u8]; 10]);
    assert_eq!(defaults(&live, &mut vm), 0, "beside a heavy one there are three slots left");
    drop(in_flight);
}
