//! Writes that will become visible together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Change, CommitError, Entry, Event, Key, Resource,
    change::{Clash, Write},
    state::State,
};

/// What one writer asks for.
pub(super) enum Work {
    /// All of them or none.
    Changes(Vec<Change>),
    Drop(Resource),
}

impl Work {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Changes(changes) => changes.iter().map(Change::len).sum(),
            Self::Drop(_) => 0,
        }
    }
}

/// What one revision does.
pub(super) enum Step {
    Event(Arc<Event>),
    Drop { resource: Resource, revision: u64 },
}

/// Judges writes against what is committed and what the batch itself already holds. It changes nothing: what it holds
/// is applied once it is durable.
pub(super) struct Batch<'state> {
    state: &'state State,
    overlay: BTreeMap<Key, Option<Arc<Entry>>>,
    dropped: BTreeSet<Resource>,
    steps: Vec<Step>,
    revision: u64,
}

impl<'state> Batch<'state> {
    pub(super) fn over(state: &'state State) -> Self {
        Self {
            state,
            overlay: BTreeMap::new(),
            dropped: BTreeSet::new(),
            steps: Vec::new(),
            revision: state.revision(),
        }
    }

    pub(super) fn stage(&mut self, work: Work) -> Result<Vec<Arc<Entry>>, CommitError> {
        match work {
            Work::Changes(changes) => self.stage_changes(changes),
            Work::Drop(resource) => {
                self.stage_drop(resource);
                Ok(Vec::new())
            }
        }
    }

    pub(super) fn into_steps(self) -> Vec<Step> {
        self.steps
    }

    fn stage_changes(&mut self, changes: Vec<Change>) -> Result<Vec<Arc<Entry>>, CommitError> {
        let mark = self.steps.len();
        let staged: Result<_, _> = changes.into_iter().map(|change| self.stage_change(change)).collect();
        if staged.is_err() {
            self.forget_after(mark);
        }
        staged
    }

    fn stage_change(&mut self, Change { key, write, clash }: Change) -> Result<Arc<Entry>, CommitError> {
        let before = self.current(&key);
        if write.expected() != before.as_ref().map(|entry| entry.revision) {
            return Err(CommitError::Conflict { key, current: before });
        }
        if let Some(with) = clash.and_then(|clash| self.clashing(&key, &clash)) {
            return Err(CommitError::Clash { with });
        }
        self.revision += 1;
        let (draft, deleted) = match write {
            Write::Create(draft) | Write::Update { draft, .. } => (draft, false),
            Write::Delete { last, .. } => (last, true),
        };
        let entry = Arc::new(draft.finish(self.revision));
        self.overlay.insert(key.clone(), (!deleted).then(|| Arc::clone(&entry)));
        let event = Event { key, entry: Arc::clone(&entry), deleted, before };
        self.steps.push(Step::Event(Arc::new(event)));
        Ok(entry)
    }

    fn stage_drop(&mut self, resource: Resource) {
        self.revision += 1;
        self.overlay.retain(|key, _| key.resource != resource);
        self.dropped.insert(Arc::clone(&resource));
        self.steps.push(Step::Drop { resource, revision: self.revision });
    }

    /// The first other object of the resource for which the clash holds.
    fn clashing(&self, key: &Key, Clash(clash): &Clash) -> Option<Key> {
        let mut staged =
            self.overlay.iter().filter(|(other, _)| other.resource == key.resource && *other != key);
        let staged = staged.find(|(_, entry)| entry.as_ref().is_some_and(|entry| clash(entry)));
        if let Some((other, _)) = staged {
            return Some(other.clone());
        }
        let stored =
            if self.dropped.contains(&key.resource) { None } else { self.state.entries(&key.resource) };
        let clashing = stored.into_iter().flatten().filter(|(_, entry)| clash(entry));
        let mut clashing =
            clashing.map(|(place, _)| Key { resource: Arc::clone(&key.resource), place: place.clone() });
        clashing.find(|other| other != key && !self.overlay.contains_key(other))
    }

    fn current(&self, key: &Key) -> Option<Arc<Entry>> {
        if let Some(staged) = self.overlay.get(key) {
            return staged.clone();
        }
        if self.dropped.contains(&key.resource) { None } else { self.state.get(key) }
    }

    fn forget_after(&mut self, mark: usize) {
        for step in self.steps.drain(mark..).rev() {
            let Step::Event(event) = step else { continue };
            self.revision -= 1;
            self.overlay.insert(event.key.clone(), event.before.clone());
        }
    }
}
