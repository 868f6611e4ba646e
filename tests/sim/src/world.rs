//! A run: arrivals, endpoints and a policy in virtual time.
//!
//! A request goes to the first endpoint of its list that is alive: connections to a dead one are refused at once, and
//! Envoy retries along the list. What an endpoint had when it died is lost. A client that gives up frees its place in
//! the queue; what runs already runs to its end.

use crate::arrivals::{Arrival, Arrivals};
use crate::cell::{Cell, DETECTION, Fault, GIVE_UP};
use crate::events::Events;
use crate::gpu::{Begun, Gpu, Job};
use crate::policy::{Asked, Ended, Policy, Seen};
use crate::record::{Caused, Fate, Record, Summary};
use std::collections::VecDeque;
use std::time::Duration;
use warmroute_core::outcome::Outcome;

/// Part of an interval after which the first look at the pool is taken.
const FIRST_TICK: f64 = 0.37;

#[derive(Clone, Copy, Debug)]
enum Event {
    Loaded { endpoint: usize },
    Done { endpoint: usize, request: usize },
    Tick,
    Fault(Fault),
    Told,
}

/// One request of the run.
#[derive(Clone, Copy, Debug)]
struct Request {
    arrival: Arrival,
    endpoint: Option<usize>,
    caused: Caused,
    over: bool,
}

struct World<'a> {
    cell: &'a Cell,
    policy: &'a mut dyn Policy,
    gpus: Vec<Gpu>,
    alive: Vec<bool>,
    told_up: Vec<bool>,
    answered: Vec<u64>,
    /// Models that were loaded somewhere, ever.
    loaded: Vec<bool>,
    requests: Vec<Request>,
    events: Events<Event>,
    /// Who gives up next, in the order of arrival.
    deadlines: VecDeque<usize>,
    record: Record,
    now: Duration,
}

/// Runs `policy` in `cell` on the arrivals of that seed.
#[must_use]
pub fn run(cell: &Cell, policy: &mut dyn Policy, seed: u64) -> Summary {
    run_on(cell, policy, Arrivals::new(cell, seed))
}

fn run_on(cell: &Cell, policy: &mut dyn Policy, arrivals: impl Iterator<Item = Arrival>) -> Summary {
    let mut world = World::new(cell, policy);
    world.plan_ahead();
    world.go(arrivals);
    let churn = world.policy.churn();
    world.record.summary(cell.fault.map(|_| cell.fault_at()), churn)
}

impl<'a> World<'a> {
    fn new(cell: &'a Cell, policy: &'a mut dyn Policy) -> Self {
        Self {
            cell,
            policy,
            gpus: vec![Gpu::new(cell.slots, cell.memory); cell.endpoints],
            alive: vec![true; cell.endpoints],
            told_up: vec![true; cell.endpoints],
            answered: vec![0; cell.endpoints],
            loaded: vec![false; cell.models],
            requests: Vec::new(),
            events: Events::default(),
            deadlines: VecDeque::new(),
            record: Record::new(cell.warm_up),
            now: Duration::ZERO,
        }
    }

    fn plan_ahead(&mut self) {
        if let Some(interval) = self.policy.interval() {
            self.events.push(interval.mul_f64(FIRST_TICK), Event::Tick);
        }
        if let Some(fault) = self.cell.fault {
            self.events.push(self.cell.fault_at(), Event::Fault(fault));
        }
    }

    /// Until nothing is left to happen.
    fn go(&mut self, arrivals: impl Iterator<Item = Arrival>) {
        let mut arrivals = arrivals.peekable();
        loop {
            let event = self.events.next_at();
            let arrival = arrivals.peek().map(|arrival| arrival.at);
            let deadline = self.next_deadline();
            let Some(now) = [event, deadline, arrival].into_iter().flatten().min() else { return };
            self.now = now;
            if event == Some(now) {
                self.happen();
            } else if deadline == Some(now) {
                self.give_up();
            } else if let Some(arrival) = arrivals.next() {
                self.arrive(arrival);
            }
        }
    }

    fn happen(&mut self) {
        match self.events.pop() {
            Some(Event::Loaded { endpoint }) if self.alive[endpoint] => {
                self.gpus[endpoint].loaded(self.now);
                self.begin(endpoint);
            }
            Some(Event::Done { endpoint, request }) if self.alive[endpoint] => self.done(endpoint, request),
            Some(Event::Tick) => self.tick(),
            Some(Event::Fault(Fault::EndpointDeath)) => self.kill_busiest(),
            Some(Event::Fault(Fault::HubDeath)) => self.policy.hub_died(),
            Some(Event::Told) => {
                self.told_up.clone_from(&self.alive);
                self.policy.told(&Seen { gpus: &self.gpus, up: &self.told_up, now: self.now });
            }
            Some(Event::Loaded { .. } | Event::Done { .. } | Event::Fault(Fault::Nothing)) | None => {}
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let request = self.requests.len();
        self.requests.push(Request { arrival, endpoint: None, caused: Caused::Nothing, over: false });
        self.deadlines.push_back(request);
        let list = self.policy.send(&self.asked(request));
        for endpoint in list.iter().map(|index| index.position()) {
            self.requests[request].endpoint = Some(endpoint);
            if self.alive[endpoint] {
                self.gpus[endpoint].push(Job { request, model: arrival.model, work: arrival.work });
                return self.begin(endpoint);
            }
            self.policy.attempt_failed(&self.asked(request), endpoint);
        }
        self.finish(request, Fate::Failed);
    }

    fn begin(&mut self, endpoint: usize) {
        while let Some(begun) = self.gpus[endpoint].begin(self.now) {
            match begun {
                Begun::Load { request, until } => {
                    self.note_load(request);
                    self.events.push(until, Event::Loaded { endpoint });
                }
                Begun::Run { job, until } => {
                    self.events.push(until, Event::Done { endpoint, request: job.request });
                }
            }
        }
    }

    fn note_load(&mut self, request: usize) {
        let Request { arrival, caused, .. } = &mut self.requests[request];
        let known = std::mem::replace(&mut self.loaded[arrival.model], true);
        *caused = if known { Caused::Load } else { Caused::FirstLoad };
    }

    fn done(&mut self, endpoint: usize, request: usize) {
        let Request { arrival, over, .. } = self.requests[request];
        self.gpus[endpoint].ended(arrival.model, self.now);
        self.answered[endpoint] += 1;
        if !over {
            self.finish(request, Fate::Answered(self.now - arrival.at));
        }
        self.begin(endpoint);
    }

    /// When the next client gives up whose request is under way.
    fn next_deadline(&mut self) -> Option<Duration> {
        while let Some(request) = self.deadlines.front().map(|at| &self.requests[*at]) {
            if !request.over {
                return Some(request.arrival.at + GIVE_UP);
            }
            self.deadlines.pop_front();
        }
        None
    }

    fn give_up(&mut self) {
        let Some(request) = self.deadlines.pop_front() else { return };
        self.finish(request, Fate::GaveUp);
        if let Some(endpoint) = self.requests[request].endpoint {
            self.gpus[endpoint].give_up(request);
            self.begin(endpoint);
        }
    }

    fn finish(&mut self, request: usize, fate: Fate) {
        let outcome = match fate {
            Fate::Answered(_) => Outcome::Success,
            Fate::GaveUp => Outcome::Neutral,
            Fate::Failed => Outcome::Failure,
        };
        let asked = self.asked(request);
        let Request { arrival, endpoint, caused, over } = &mut self.requests[request];
        *over = true;
        self.record.add(arrival.at, fate, *caused);
        self.policy.ended(&Ended { asked, endpoint: *endpoint, outcome, now: self.now });
    }

    fn asked(&self, request: usize) -> Asked {
        let Arrival { at, model, proxy, .. } = self.requests[request].arrival;
        Asked { request, proxy, model, now: at }
    }

    fn tick(&mut self) {
        self.policy.tick(&Seen { gpus: &self.gpus, up: &self.told_up, now: self.now });
        if let Some(interval) = self.policy.interval().filter(|_| self.now < self.cell.end()) {
            self.events.push(self.now + interval, Event::Tick);
        }
    }

    fn kill_busiest(&mut self) {
        let busiest = (0..self.answered.len()).max_by_key(|endpoint| self.answered[*endpoint]);
        let Some(endpoint) = busiest else { return };
        self.alive[endpoint] = false;
        self.gpus[endpoint].die();
        let lost = |request: &Request| !request.over && request.endpoint == Some(endpoint);
        let lost: Vec<usize> = (0..self.requests.len()).filter(|at| lost(&self.requests[*at])).collect();
        lost.into_iter().for_each(|request| self.finish(request, Fate::Failed));
        self.events.push(self.now + DETECTION, Event::Told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{LOAD, SERVICE};
    use warmroute_core::endpoint::EndpointIndex;
    use warmroute_core::strategy::PickList;

    /// Sends everything along one list, and remembers how requests ended.
    #[derive(Default)]
    struct Fixed {
        list: Vec<u32>,
        ended: Vec<Ended>,
        failed_attempts: usize,
        told: Vec<(Duration, Vec<bool>)>,
    }

    impl Policy for Fixed {
        fn send(&mut self, _asked: &Asked) -> PickList {
            self.list.iter().map(|at| EndpointIndex(*at)).collect()
        }

        fn attempt_failed(&mut self, _asked: &Asked, _endpoint: usize) {
            self.failed_attempts += 1;
        }

        fn ended(&mut self, ended: &Ended) {
            self.ended.push(*ended);
        }

        fn told(&mut self, seen: &Seen<'_>) {
            self.told.push((seen.now, seen.up.to_vec()));
        }
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn small(endpoints: usize) -> Cell {
        let (warm_up, measured) = (Duration::ZERO, Duration::from_secs(60));
        Cell { endpoints, models: 1, proxies: 1, warm_up, measured, ..Cell::default() }
    }

    fn arrival(at: Duration, work: Duration) -> Arrival {
        Arrival { at, model: 0, work, proxy: 0 }
    }

    /// M/D/1 at ρ = 0.7: the mean wait is ρ s ÷ (2 (1 − ρ)) = 58.3 ms (Pollaczek and Khinchine). Waits are correlated over
    /// some 2 ÷ (1 − ρ)² = 22 requests, so 400,000 of them are worth 18,000, whose mean has an error of 1.2 ÷ √18,000 = 0.9 %
    /// with the waits' variation of 1.2 or less; four of these are 3.6 %.
    #[test]
    fn one_slot_waits_as_the_textbook_says() {
        let rate = 0.7 / SERVICE.as_secs_f64();
        let requests = 400_000;
        let seconds = requests as f64 / rate;
        let cell = Cell { measured: Duration::from_secs_f64(2.0 * seconds), ..small(1) };
        let gaps = Cell { load: 0.7, ramp: Duration::ZERO, ..cell.clone() };
        let arrivals = Arrivals::new(&gaps, 7).map(|random| arrival(random.at, SERVICE)).take(requests);
        let mut policy = Fixed { list: vec![0], ..Fixed::default() };
        run_on(&cell, &mut policy, arrivals);
        // What waits for the only load is left out.
        let totals = policy.ended.iter().skip(1_000).map(|ended| (ended.now - ended.asked.now).as_secs_f64());
        let mean = totals.sum::<f64>() / (requests - 1_000) as f64;
        let wait = mean - SERVICE.as_secs_f64();
        assert!((wait / 0.05833 - 1.0).abs() < 0.036, "{wait} s by seed 7");
    }

    /// The load and 6 s of work end at 6.5 s; the second runs from then on and the third waits when their clients leave.
    #[test]
    fn clients_give_up_after_ten_seconds_wherever_their_request_is() {
        let arrivals = [0, 100, 200].map(|at| arrival(ms(at), ms(6_000)));
        let mut policy = Fixed { list: vec![0], ..Fixed::default() };
        let summary = run_on(&small(1), &mut policy, arrivals.into_iter());
        let ends: Vec<(Duration, Outcome)> = policy.ended.iter().map(|ended| (ended.now, ended.outcome)).collect();
        let expected =
            [(LOAD + ms(6_000), Outcome::Success), (ms(10_100), Outcome::Neutral), (ms(10_200), Outcome::Neutral)];
        assert_eq!(ends, expected);
        assert_eq!((summary.requests, summary.not_good), (3, 3), "6.5 s are not good either");
        assert!((summary.cold - 1.0 / 3.0).abs() < 1e-9 && summary.first == summary.cold);
    }

    /// The fault is at 20 s. What is at endpoint 0 is lost; what comes later is retried at endpoint 1; all are told at 21 s.
    #[test]
    fn a_dead_endpoint_loses_what_it_has_and_retries_go_along_the_list() {
        let cell = Cell { fault: Some(Fault::EndpointDeath), ..small(2) };
        assert_eq!(cell.fault_at(), ms(20_000));
        let arrivals = [1_000, 19_980, 20_010].map(|at| arrival(ms(at), SERVICE));
        let mut policy = Fixed { list: vec![0, 1], ..Fixed::default() };
        let summary = run_on(&cell, &mut policy, arrivals.into_iter());
        let ends: Vec<(Option<usize>, Outcome, Duration)> =
            policy.ended.iter().map(|ended| (ended.endpoint, ended.outcome, ended.now)).collect();
        let expected = [
            (Some(0), Outcome::Success, ms(1_550)),
            (Some(0), Outcome::Failure, ms(20_000)),
            (Some(1), Outcome::Success, ms(20_560)),
        ];
        assert_eq!(ends, expected);
        assert_eq!(policy.failed_attempts, 1);
        assert_eq!(policy.told, [(ms(21_000), vec![false, true])]);
        assert!((summary.failed - 1.0 / 3.0).abs() < 1e-9);
    }
}
