//! The memory of one GPU, as a plain data structure: which models it holds, which it will load, which are in use.
//!
//! Memory is a number of slots, one model each. A model is in one of three states:
//!
//! - *queued*: somebody wants it, its load has not begun; it takes no slot;
//! - *loading*: it has a slot and nobody can run it yet;
//! - *resident*: it can run.
//!
//! A load that finds no free slot evicts the least recently used resident model that no request holds. When every
//! model is held, the load waits, and until it gets its slot no new request may take hold of a model: otherwise a
//! busy model would be renewed for ever and the load would starve.
//!
//! There is no time and no waiting in here: the caller sleeps and wakes ([`super::gpu`]).

/// What a request for a model finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// The model is resident, and held for the caller.
    Resident,
    /// A load is queued or under way; the model is held for the caller as soon as it is there.
    Loading,
    /// As `Loading`, but nobody has asked before: the caller has to start the load.
    StartLoad,
    /// Nothing is held: ask again after the next change.
    Wait,
}

/// What the start of a load finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// A slot is taken; `evicted` lost it.
    Started { evicted: Option<String> },
    /// Every slot holds a model in use: ask again after the next change.
    NoRoom,
    /// Nobody waits for this load any more.
    Unwanted,
}

/// What an explicit unload finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unload {
    Gone,
    /// In use: no new request takes hold of it, and it leaves with its last holder.
    Leaving,
    NotResident,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    Loading,
    Resident,
}

#[derive(Debug)]
struct Entry {
    model: String,
    state: State,
    holders: usize,
    leaving: bool,
}

#[derive(Debug)]
pub(super) struct Memory {
    capacity: usize,
    /// Most recently used first.
    entries: Vec<Entry>,
    room_wanted: bool,
}

impl Memory {
    /// An empty memory of `capacity` slots, then `resident` in it, most recent first.
    pub(super) fn new(capacity: usize, resident: &[String]) -> Self {
        let mut memory = Self { capacity, entries: Vec::new(), room_wanted: false };
        memory.reset(resident);
        memory
    }

    /// Asks for `model`; every answer but `Wait` holds it until [`Memory::release`].
    pub(super) fn want(&mut self, model: &str) -> Want {
        let Some(at) = self.find(model) else {
            self.entries.insert(0, Entry { model: model.to_owned(), state: State::Queued, holders: 1, leaving: false });
            return Want::StartLoad;
        };
        let entry = &mut self.entries[at];
        match entry.state {
            State::Resident if entry.leaving || self.room_wanted => Want::Wait,
            State::Resident => {
                entry.holders += 1;
                self.touch(at);
                Want::Resident
            }
            State::Queued | State::Loading => {
                entry.holders += 1;
                Want::Loading
            }
        }
    }

    /// Takes a slot for a queued model.
    pub(super) fn begin_load(&mut self, model: &str) -> Begin {
        let queued = self.find(model).filter(|at| self.entries[*at].state == State::Queued);
        if queued.is_none() {
            self.room_wanted = false;
            return Begin::Unwanted;
        }
        let evicted = if self.slots_taken() < self.capacity {
            None
        } else if let Some(victim) = self.victim() {
            Some(self.entries.remove(victim).model)
        } else {
            self.room_wanted = true;
            return Begin::NoRoom;
        };
        self.room_wanted = false;
        if let Some(at) = self.find(model) {
            self.entries[at].state = State::Loading;
        }
        Begin::Started { evicted }
    }

    /// The load of `model` is complete.
    pub(super) fn loaded(&mut self, model: &str) {
        if let Some(at) = self.find(model) {
            self.entries[at].state = State::Resident;
            self.touch(at);
        }
    }

    /// Gives back one hold on `model`.
    pub(super) fn release(&mut self, model: &str) {
        let Some(at) = self.find(model) else { return };
        let entry = &mut self.entries[at];
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders == 0 && (entry.leaving || entry.state == State::Queued) {
            self.entries.remove(at);
        }
    }

    /// Takes `model` out, at once or with its last holder.
    pub(super) fn unload(&mut self, model: &str) -> Unload {
        match self.find(model) {
            Some(at) if self.entries[at].state == State::Resident => {
                if self.entries[at].holders == 0 {
                    self.entries.remove(at);
                    return Unload::Gone;
                }
                self.entries[at].leaving = true;
                Unload::Leaving
            }
            _ => Unload::NotResident,
        }
    }

    /// Makes `resident` (most recent first, at most the capacity) the content. Models that requests hold stay, as
    /// the least recent ones, and the new content gives way to them.
    pub(super) fn reset(&mut self, resident: &[String]) {
        let mut kept: Vec<Entry> = self.entries.drain(..).filter(|e| e.holders > 0).collect();
        let taken = |kept: &[Entry]| kept.iter().filter(|e| e.state != State::Queued).count();
        let mut fresh: Vec<Entry> = Vec::new();
        for model in resident {
            if let Some(at) = kept.iter().position(|e| &e.model == model) {
                fresh.push(kept.remove(at));
            } else if taken(&fresh) + taken(&kept) < self.capacity {
                let model = model.clone();
                fresh.push(Entry { model, state: State::Resident, holders: 0, leaving: false });
            }
        }
        fresh.append(&mut kept);
        self.entries = fresh;
    }

    pub(super) fn is_resident(&self, model: &str) -> bool {
        self.find(model).is_some_and(|at| self.entries[at].state == State::Resident)
    }

    /// The resident models, most recently used first.
    pub(super) fn resident(&self) -> Vec<String> {
        let resident = self.entries.iter().filter(|e| e.state == State::Resident);
        resident.map(|e| e.model.clone()).collect()
    }

    fn find(&self, model: &str) -> Option<usize> {
        self.entries.iter().position(|e| e.model == model)
    }

    fn touch(&mut self, at: usize) {
        self.entries[..=at].rotate_right(1);
    }

    fn slots_taken(&self) -> usize {
        self.entries.iter().filter(|e| e.state != State::Queued).count()
    }

    fn victim(&self) -> Option<usize> {
        self.entries.iter().rposition(|e| e.state == State::Resident && e.holders == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(capacity: usize, resident: &[&str]) -> Memory {
        Memory::new(capacity, &resident.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>())
    }

    fn use_once(memory: &mut Memory, model: &str) -> Option<String> {
        let evicted = match memory.want(model) {
            Want::StartLoad => match memory.begin_load(model) {
                Begin::Started { evicted } => evicted,
                other => panic!("load of {model}: {other:?}"),
            },
            _ => None,
        };
        memory.loaded(model);
        memory.release(model);
        evicted
    }

    #[test]
    fn the_least_recently_used_model_is_evicted() {
        let mut m = memory(3, &["a", "b", "c"]);
        assert_eq!(use_once(&mut m, "c"), None);
        assert_eq!(m.resident(), ["c", "a", "b"]);
        assert_eq!(use_once(&mut m, "d").as_deref(), Some("b"));
        assert_eq!(use_once(&mut m, "e").as_deref(), Some("a"));
        assert_eq!(m.resident(), ["e", "d", "c"]);
    }

    #[test]
    fn a_free_slot_is_used_before_anything_is_evicted() {
        let mut m = memory(2, &["a"]);
        assert_eq!(use_once(&mut m, "b"), None);
        assert_eq!(m.resident(), ["b", "a"]);
    }

    #[test]
    fn only_the_first_of_several_requests_starts_the_load() {
        let mut m = memory(1, &[]);
        assert_eq!(m.want("a"), Want::StartLoad);
        assert_eq!(m.want("a"), Want::Loading);
        assert_eq!(m.begin_load("a"), Begin::Started { evicted: None });
        assert_eq!(m.want("a"), Want::Loading);
        m.loaded("a");
        assert_eq!(m.want("a"), Want::Resident);
    }

    #[test]
    fn a_model_in_use_is_passed_over() {
        let mut m = memory(2, &["a", "b"]);
        assert_eq!(m.want("b"), Want::Resident);
        assert_eq!(m.want("a"), Want::Resident);
        m.release("a");
        assert_eq!(m.want("c"), Want::StartLoad);
        assert_eq!(m.begin_load("c"), Begin::Started { evicted: Some("a".to_owned()) });
    }

    #[test]
    fn a_load_without_room_holds_new_requests_back_until_it_has_its_slot() {
        let mut m = memory(1, &["a"]);
        assert_eq!(m.want("a"), Want::Resident);
        assert_eq!(m.want("b"), Want::StartLoad);
        assert_eq!(m.begin_load("b"), Begin::NoRoom);
        assert_eq!(m.want("a"), Want::Wait);
        m.release("a");
        assert_eq!(m.begin_load("b"), Begin::Started { evicted: Some("a".to_owned()) });
        assert_eq!(m.want("a"), Want::StartLoad);
    }

    #[test]
    fn a_queued_load_that_everybody_left_is_dropped_and_holds_nobody_back() {
        let mut m = memory(1, &["a"]);
        assert_eq!(m.want("a"), Want::Resident);
        assert_eq!(m.want("b"), Want::StartLoad);
        assert_eq!(m.begin_load("b"), Begin::NoRoom);
        m.release("b");
        assert_eq!(m.begin_load("b"), Begin::Unwanted);
        assert_eq!(m.want("a"), Want::Resident);
    }

    #[test]
    fn a_load_under_way_goes_on_without_its_requests() {
        let mut m = memory(1, &[]);
        assert_eq!(m.want("a"), Want::StartLoad);
        assert_eq!(m.begin_load("a"), Begin::Started { evicted: None });
        m.release("a");
        m.loaded("a");
        assert_eq!(m.resident(), ["a"]);
    }

    #[test]
    fn an_unload_waits_for_the_last_holder() {
        let mut m = memory(2, &["a", "b"]);
        assert_eq!(m.unload("b"), Unload::Gone);
        assert_eq!(m.want("a"), Want::Resident);
        assert_eq!(m.unload("a"), Unload::Leaving);
        assert_eq!(m.want("a"), Want::Wait);
        m.release("a");
        assert_eq!(m.resident(), [""; 0]);
        assert_eq!(m.unload("a"), Unload::NotResident);
    }

    #[test]
    fn a_reset_keeps_what_is_in_use_and_never_exceeds_the_capacity() {
        let mut m = memory(2, &["a", "b"]);
        assert_eq!(m.want("b"), Want::Resident);
        m.reset(&["c".to_owned(), "d".to_owned()]);
        assert_eq!(m.resident(), ["c", "b"]);
    }
}
