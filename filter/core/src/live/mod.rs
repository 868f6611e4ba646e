//! A pool at work: its endpoints and strategies, the requests in flight, and the planner of a proxy that is alone.

mod planning;

use crate::endpoint::EndpointIndex;
use crate::explain::Explanation;
use crate::load::{InFlight, PoolLoad, Registry};
use crate::outcome::Outcome;
use crate::picker::{self, Answer, Pick};
use crate::plan::{Ended, Plan, SelfSettings, Warmth};
use crate::pool::Pool;
use crate::request::{Change, Request, SessionKey};
use crate::settings::PlanSource;
use crate::strategy::{Report, Residency, Told};
use planning::Planning;
use rand::Rng;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// A pool that nobody asked anything of for so long has nothing to plan from.
const IDLE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub struct LivePool {
    pool: Pool,
    load: PoolLoad,
    planning: Option<(Rc<Planning>, u64)>,
    /// When somebody last wanted something of the pool.
    asked: Cell<Option<Duration>>,
}

/// A request that was sent, in flight until this is dropped.
#[derive(Debug)]
pub struct Sent {
    pick: EndpointIndex,
    endpoint: u64,
    model: Option<u64>,
    /// What is learnt from it.
    lesson: Lesson,
    warmth: Warmth,
    weight: u32,
    in_flight: InFlight,
}

/// What the end of a request teaches about its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lesson {
    /// Who has it, and how long it takes.
    Run,
    /// Who has it.
    Change(Change),
    /// Nothing.
    None,
}

impl Lesson {
    fn of(request: &Request<'_>) -> Self {
        if request.runs_model() { Self::Run } else { request.change.map_or(Self::None, Self::Change) }
    }
}

impl Sent {
    /// Whether the endpoint was believed to have the model.
    #[must_use]
    pub fn warmth(&self) -> Warmth {
        self.warmth
    }
}

/// What a tick did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// The plan is another one now.
    pub changed: bool,
    /// Inputs for which a default stood in.
    pub defaults: usize,
}

/// How a request ended at the endpoint that served it.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Who served.
    pub endpoint: EndpointIndex,
    /// How it ended.
    pub outcome: Outcome,
    /// From the pick to the end of the response.
    pub service_time: Duration,
    /// The server said that it does not know the model.
    pub model_unknown: bool,
}

impl LivePool {
    /// With the requests in flight that `registry` knows of.
    pub fn new(pool: Pool, registry: &mut Registry) -> Self {
        let load = registry.bind(pool.endpoints().unwrap_or_default());
        let planning = self_settings(&pool).map(|settings| (Rc::new(Planning::new(settings.clone())), 0));
        Self { pool, load, planning, asked: Cell::new(None) }
    }

    /// Goes on where the pool of the same cluster was: what its planner learnt, the plan, and what endpoints said of
    /// models are kept.
    pub fn succeed(&mut self, before: &Self) {
        self.stand_in(before);
        if let (Some(settings), Some((planning, number))) = (self_settings(&self.pool), &mut self.planning)
            && before.planning.is_some()
        {
            *number = planning.join(settings);
        }
    }

    /// The same for a pool that serves until its ring is built: it follows the plan and leaves planning to others.
    pub fn stand_in(&mut self, before: &Self) {
        self.pool.succeed(&before.pool);
        self.asked.set(before.asked.get());
        if let (Some((own, _)), Some((planning, _))) = (&mut self.planning, &before.planning) {
            *own = Rc::clone(planning);
            self.take_over_plan();
        }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The pool, when nothing is at work any more.
    #[must_use]
    pub fn into_pool(self) -> Pool {
        self.pool
    }

    /// Whether this proxy plans for itself.
    #[must_use]
    pub fn plans_itself(&self) -> bool {
        self.planning.is_some()
    }

    /// Whether a request was answered lately. A pool that is not asked must not keep others from planning.
    #[must_use]
    pub fn was_asked(&self, now: Duration) -> bool {
        self.asked.get().is_some_and(|asked| now.saturating_sub(asked) < IDLE)
    }

    /// Somebody else plans: models go by the ring here.
    pub fn stop_planning(&self, now: Duration) {
        if let Some((planning, _)) = &self.planning {
            planning.pause(now);
        }
        if self.pool.plan().version() > 0 {
            self.pool.set_plan(&Plan::default());
        }
    }

    /// Answers a request; see [`picker::answer`].
    pub fn answer(&self, request: &Request<'_>, now: Duration, rng: &mut dyn Rng) -> Answer {
        self.asked.set(Some(now));
        picker::answer(&self.pool, &self.load, self, request, now, rng)
    }

    /// Answers a request that may begin one of two new sessions: the one whose endpoint is less loaded. Position of the
    /// session that it begins; `None` where the answer has nothing to do with sessions.
    ///
    /// With one random session, clients that never send their cookie back would be spread by chance alone, whatever the
    /// load.
    pub fn answer_anew(
        &self,
        request: &mut Request<'_>,
        sessions: [SessionKey; 2],
        now: Duration,
        rng: &mut dyn Rng,
    ) -> (Answer, Option<usize>) {
        let mut best: Option<(u64, usize, Answer)> = None;
        for (n, session) in sessions.into_iter().enumerate() {
            request.session = Some(session);
            let Answer::Pick(pick) = self.answer(request, now, rng) else { break };
            if !pick.keeps_session {
                break;
            }
            let load = pick.endpoints.first().map_or(u64::MAX, |first| self.cost(*first));
            if best.as_ref().is_none_or(|(least, ..)| load < *least) {
                best = Some((load, n, Answer::Pick(pick)));
            }
        }
        match best {
            Some((_, n, answer)) => {
                request.session = sessions.get(n).copied();
                (answer, Some(n))
            }
            None => {
                request.session = None;
                (self.answer(request, now, rng), None)
            }
        }
    }

    fn cost(&self, endpoint: EndpointIndex) -> u64 {
        use crate::load::Load;
        u64::from(self.load.in_flight(endpoint)).saturating_add(u64::from(self.load.cold(endpoint)))
    }

    /// Why the answer is what it is; see [`crate::explain`]. To be asked before the request is counted as sent.
    #[must_use]
    pub fn explain(&self, request: &Request<'_>, answer: &Answer, now: Duration) -> String {
        let plan = self.pool.plan();
        let holders = picker::holders(&self.pool, request, &plan);
        let view = self
            .pool
            .endpoints()
            .map(|all| picker::view(&self.pool, &self.load, self, request, now, all, &plan, &holders));
        Explanation { request, answer, view }.to_string()
    }

    /// The pick goes out: counts it as in flight until the result is dropped. `None` when there is nothing to count.
    pub fn start(&self, request: &Request<'_>, pick: &Pick, now: Duration) -> Option<Sent> {
        let index = *pick.endpoints.first()?;
        let endpoint = self.pool.endpoint(index)?.key();
        let model = request.model.as_ref().map(|model| model.hash);
        let lesson = Lesson::of(request);
        let warmth = match (model, lesson) {
            (Some(model), Lesson::Run) => self.sent(index, endpoint, model, now),
            _ => Warmth::Warm,
        };
        let in_flight = self.load.start(index, pick.weight, warmth == Warmth::Cold)?;
        Some(Sent { pick: index, endpoint, model, lesson, warmth, weight: pick.weight, in_flight })
    }

    fn sent(&self, index: EndpointIndex, key: u64, model: u64, now: Duration) -> Warmth {
        let plan = self.pool.plan();
        let lately = plan.sent_within(model, index, now, self.pool.residency_age(now));
        plan.sent(model, index, now);
        match &self.planning {
            Some((planning, _)) => planning.with(|planner| Some(planner.sent(key, model))).unwrap_or(Warmth::Warm),
            None if !lately && self.holds(index, model) == Some(false) => Warmth::Cold,
            None => Warmth::Warm,
        }
    }

    /// The request ended.
    pub fn ended(&self, sent: &Sent, end: &End, now: Duration) {
        let Some(key) = self.pool.endpoint(end.endpoint).map(|endpoint| endpoint.key()) else { return };
        self.pool.report(&Report {
            endpoint: end.endpoint,
            outcome: end.outcome,
            service_time: Some(end.service_time),
        });
        let Some(model) = sent.model else { return };
        if end.model_unknown {
            self.pool.unknown().mark(key, model, now);
        }
        match (sent.lesson, end.outcome) {
            (Lesson::Run, _) if end.model_unknown => self.lost(end.endpoint, key, model),
            (Lesson::Run, outcome) => self.ran(sent, end, (key, model), outcome, now),
            (Lesson::Change(Change::Load), Outcome::Success) => self.found(end.endpoint, key, model, now),
            (Lesson::Change(Change::Unload), Outcome::Success) => self.lost(end.endpoint, key, model),
            (Lesson::Change(_) | Lesson::None, _) => {}
        }
    }

    fn ran(&self, sent: &Sent, end: &End, (key, model): (u64, u64), outcome: Outcome, now: Duration) {
        if key != sent.endpoint {
            // A fallback served: its warmth and its queue when the request came are not known.
            if outcome == Outcome::Success {
                self.found(end.endpoint, key, model, now);
            }
            return;
        }
        if outcome == Outcome::Failure && sent.warmth == Warmth::Cold {
            self.pool.plan().failed(model, end.endpoint);
        }
        if let Some((planning, _)) = &self.planning {
            let requests = sent.in_flight.before().saturating_add(1);
            let ended = Ended {
                endpoint: key,
                model,
                warmth: sent.warmth,
                // A heavy request takes longer than others: no sample of them, as if it had queued.
                in_flight_at_start: if sent.weight > 1 { u32::MAX } else { requests },
                total_time: end.service_time,
                outcome,
            };
            planning.with(|planner| planner.ended(&ended));
        }
    }

    fn found(&self, endpoint: EndpointIndex, key: u64, model: u64, now: Duration) {
        self.pool.plan().sent(model, endpoint, now);
        if let Some((planning, _)) = &self.planning {
            planning.with(|planner| planner.found(key, model));
        }
    }

    fn lost(&self, endpoint: EndpointIndex, key: u64, model: u64) {
        self.pool.plan().failed(model, endpoint);
        if let Some((planning, _)) = &self.planning {
            planning.with(|planner| planner.lost(key, model));
        }
    }

    /// An endpoint was tried in vain before another one served. Whoever refuses connections may come back with an
    /// empty memory.
    pub fn attempt_failed(&self, sent: Option<&Sent>, endpoint: EndpointIndex) {
        self.pool.report(&Report { endpoint, outcome: Outcome::Failure, service_time: None });
        if let Some(Sent { pick, endpoint: key, model: Some(model), lesson: Lesson::Run, .. }) = sent
            && *pick == endpoint
        {
            self.lost(endpoint, *key, *model);
        }
    }

    /// Whether [`LivePool::tick`] would make a plan, which takes a moment where there are many models.
    #[must_use]
    pub fn is_plan_due(&self, now: Duration) -> bool {
        self.planning.as_ref().is_some_and(|(planning, number)| planning.is_due(*number, now))
    }

    /// Lets the planner plan, if there is one and it is time, and follows its plan. To be called at each tick.
    pub fn tick(&self, now: Duration) -> Planned {
        let Some((planning, number)) = &self.planning else { return Planned::default() };
        let version = self.pool.plan().version();
        let before = planning.planner().map(|planner| planner.current().version);
        let change = planning.tick(*number, &self.pool, now);
        match &change {
            Some(change) if before == Some(version) => self.pool.apply_plan(change),
            _ => self.take_over_plan(),
        }
        let Some(planner) = change.as_ref().and_then(|_| planning.planner()) else { return Planned::default() };
        let defaults = planner.report().defaults;
        let defaults = [defaults.service, defaults.slots, defaults.loads, defaults.sizes]
            .into_iter()
            .fold(0, usize::saturating_add);
        Planned { changed: true, defaults }
    }

    /// A tick that has no time for a plan of this pool: follows the one there is.
    pub fn follow_plan(&self, now: Duration) {
        if let Some((planning, number)) = &self.planning {
            planning.came(*number, now);
            self.take_over_plan();
        }
    }

    /// Takes the planner's plan, where it is not the pool's already: another pool's tick made it, or this one's was
    /// taken away when somebody else planned.
    fn take_over_plan(&self) {
        let Some((planning, _)) = &self.planning else { return };
        let Some(planner) = planning.planner() else { return };
        if planner.current().version != self.pool.plan().version() {
            self.pool.set_plan(planner.current());
        }
    }

    /// Takes a plan that somebody else made.
    pub fn set_plan(&self, plan: &Plan) {
        self.pool.set_plan(plan);
    }
}

/// What the planner of a lone proxy believes, else what the endpoints tell.
impl Residency for LivePool {
    fn holds(&self, endpoint: EndpointIndex, model_hash: u64) -> Option<bool> {
        let endpoints = self.pool.endpoints()?;
        let Some((planning, _)) = &self.planning else { return Told(endpoints).holds(endpoint, model_hash) };
        let key = endpoints.get(endpoint.position())?.key();
        planning.planner()?.holds(key, model_hash)
    }
}

fn self_settings(pool: &Pool) -> Option<&SelfSettings> {
    match &pool.settings().plan {
        PlanSource::SelfMade(settings) => Some(settings),
        PlanSource::None | PlanSource::Fixed(_) => None,
    }
}

#[cfg(test)]
mod tests;
