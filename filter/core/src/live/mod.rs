//! A pool at work: its endpoints and strategies, the requests in flight, and the planner of a proxy that is alone.

mod cluster;
mod planning;

use crate::endpoint::EndpointIndex;
use crate::explain::Explanation;
use crate::load::{InFlight, PoolLoad, Registry};
use crate::outcome::Outcome;
use crate::picker::{self, Answer, Pick};
use crate::plan::{Ended, Plan, SelfPlanner, SelfSettings, Warmth};
use crate::pool::Pool;
use crate::request::{Change, Request, SessionKey};
use crate::settings::PlanSource;
use crate::strategy::{Report, Residency, Told};
use planning::{Planning, Token};
use rand::Rng;
use std::rc::Rc;
use std::time::Duration;

pub(crate) use cluster::Cluster;

/// A pool that nobody asked anything of for so long has nothing to plan from.
const IDLE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub struct LivePool {
    pool: Pool,
    load: PoolLoad,
    cluster: Rc<Cluster>,
    token: Token,
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
    /// A pool alone, with the requests in flight that `registry` knows of.
    pub fn new(pool: Pool, registry: &mut Registry) -> Self {
        Self::with(pool, Rc::default(), registry)
    }

    /// One of the pools of Envoy's cluster of that name, the newest if its ring is its own.
    pub fn in_cluster(name: &[u8], pool: Pool, registry: &mut Registry) -> Self {
        let cluster = registry.cluster(name);
        Self::with(pool, cluster, registry)
    }

    fn with(mut pool: Pool, cluster: Rc<Cluster>, registry: &mut Registry) -> Self {
        pool.share_unknown(cluster.unknown());
        let load = registry.bind(pool.endpoints().unwrap_or_default());
        let live = Self { pool, load, cluster, token: Token::default() };
        if let Some(settings) = live.self_settings().filter(|_| !live.pool.stands_in()) {
            live.cluster.planning(settings).lead(&live.token, settings);
        }
        live.follow_plan();
        live
    }

    /// Goes on where the pool of the same cluster was, as far as pools do not share it anyway: a plan that is written by
    /// hand does not tell which homes have loaded.
    pub fn succeed(&mut self, before: &Self) {
        self.pool.succeed(&before.pool);
    }

    fn self_settings(&self) -> Option<&SelfSettings> {
        match &self.pool.settings().plan {
            PlanSource::SelfMade(settings) => Some(settings),
            PlanSource::None | PlanSource::Fixed(_) => None,
        }
    }

    fn planning(&self) -> Option<&Planning> {
        Some(self.cluster.planning(self.self_settings()?))
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
        self.self_settings().is_some()
    }

    /// Whether a request was answered lately, by this pool or another one of its cluster. A VM that is not asked must not
    /// keep others from planning.
    #[must_use]
    pub fn was_asked(&self, now: Duration) -> bool {
        self.cluster.was_asked_within(IDLE, now)
    }

    /// Somebody else plans: models go by the ring here.
    pub fn stop_planning(&self, now: Duration) {
        if let Some(planning) = self.planning() {
            planning.pause(now);
        }
        if self.pool.plan().version() > 0 {
            self.pool.set_plan(&Plan::default());
        }
    }

    /// Answers a request; see [`picker::answer`].
    pub fn answer(&self, request: &Request<'_>, now: Duration, rng: &mut dyn Rng) -> Answer {
        self.cluster.asked(now);
        picker::answer(&self.pool, &self.load, self, request, now, rng)
    }

    /// Answers a request that may begin one of two new sessions: the one whose endpoint costs less. Position of the
    /// session that it begins; `None` where no session decides where the request goes.
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
        let chosen = picker::new_session(&self.pool, &self.load, self, request, &sessions, now, rng);
        request.session = chosen.and_then(|chosen| sessions.get(chosen)).copied();
        (self.answer(request, now, rng), chosen)
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
        match self.planning() {
            Some(planning) => planning.with(|planner| Some(planner.sent(key, model))).unwrap_or(Warmth::Warm),
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
        let unknown = end.model_unknown && self.pool.unknown().mark(key, model, now);
        match (sent.lesson, end.outcome) {
            (Lesson::Run, _) if unknown => self.lost(end.endpoint, key, model),
            (Lesson::Run, outcome) => self.ran(sent, end, (key, model), outcome, now),
            (Lesson::Change(Change::Load), Outcome::Success) => self.found(end.endpoint, key, model, now),
            (Lesson::Change(Change::Unload), Outcome::Success) => self.lost(end.endpoint, key, model),
            (Lesson::Change(_) | Lesson::None, _) => {}
        }
    }

    fn ran(&self, sent: &Sent, end: &End, (key, model): (u64, u64), outcome: Outcome, now: Duration) {
        if outcome == Outcome::Success {
            self.pool.unknown().served(key, model, now);
        }
        if key != sent.endpoint {
            // A fallback served: its warmth and its queue when the request came are not known.
            if outcome == Outcome::Success {
                self.pool.plan().sent(model, end.endpoint, now);
                self.teach(|planner| planner.served(key, model));
            }
            return;
        }
        if outcome == Outcome::Failure && sent.warmth == Warmth::Cold {
            self.pool.plan().failed(model, end.endpoint);
        }
        if self.plans_itself() {
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
            self.teach(|planner| planner.ended(&ended));
        }
    }

    fn teach(&self, lesson: impl FnOnce(&mut SelfPlanner)) {
        if let Some(planning) = self.planning() {
            planning.with(lesson);
        }
    }

    fn found(&self, endpoint: EndpointIndex, key: u64, model: u64, now: Duration) {
        self.pool.plan().sent(model, endpoint, now);
        self.teach(|planner| planner.found(key, model));
    }

    fn lost(&self, endpoint: EndpointIndex, key: u64, model: u64) {
        self.pool.plan().failed(model, endpoint);
        self.teach(|planner| planner.lost(key, model));
    }

    /// An endpoint was tried in vain before another one served: what it should have loaded need not be there. (A model
    /// that was there is there still, for all that is known: a busy endpoint may reset a request, too.)
    pub fn attempt_failed(&self, sent: Option<&Sent>, endpoint: EndpointIndex) {
        self.pool.report(&Report { endpoint, outcome: Outcome::Failure, service_time: None });
        if let Some(Sent { pick, endpoint: key, model: Some(model), lesson: Lesson::Run, warmth: Warmth::Cold, .. }) =
            sent
            && *pick == endpoint
        {
            self.lost(endpoint, *key, *model);
        }
    }

    /// Whether [`LivePool::tick`] would make a plan, which takes a moment where there are many models.
    #[must_use]
    pub fn is_plan_due(&self, now: Duration) -> bool {
        !self.pool.stands_in() && self.planning().is_some_and(|planning| planning.is_due(&self.token, now))
    }

    /// Lets the planner plan, if there is one and it is time, and follows its plan. To be called at each tick.
    pub fn tick(&self, now: Duration) -> Planned {
        let Some(settings) = self.self_settings() else { return Planned::default() };
        let planning = self.cluster.planning(settings);
        let version = self.pool.plan().version();
        let before = planning.planner().map(|planner| planner.current().version);
        let change = planning.tick(&self.token, settings, &self.pool, now);
        match &change {
            Some(change) if before == Some(version) => self.pool.apply_plan(change),
            _ => self.follow_plan(),
        }
        let Some(planner) = change.as_ref().and_then(|_| planning.planner()) else { return Planned::default() };
        let defaults = planner.report().defaults;
        let defaults = [defaults.service, defaults.slots, defaults.loads, defaults.sizes]
            .into_iter()
            .fold(0, usize::saturating_add);
        Planned { changed: true, defaults }
    }

    /// A tick that has no time for a plan of this pool: follows the one there is.
    ///
    /// The planner's plan may not be the pool's already: another pool's tick made it, or this one's was taken away when
    /// somebody else planned.
    pub fn follow_plan(&self) {
        let Some(planner) = self.planning().and_then(Planning::planner) else { return };
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
        let Some(planning) = self.planning() else { return Told(endpoints).holds(endpoint, model_hash) };
        let key = endpoints.get(endpoint.position())?.key();
        planning.planner()?.holds(key, model_hash)
    }
}

#[cfg(test)]
mod tests;
