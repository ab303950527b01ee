//! Writes that will become visible together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Change, Entry, Event, Key, Refused, Resource, change::Write, state::State};

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

    pub(super) fn stage(&mut self, work: Work) -> Result<Vec<Arc<Entry>>, Refused> {
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

    fn stage_changes(&mut self, changes: Vec<Change>) -> Result<Vec<Arc<Entry>>, Refused> {
        let mark = self.steps.len();
        let staged: Result<_, _> = changes.into_iter().map(|change| self.stage_change(change)).collect();
        if staged.is_err() {
            self.forget_after(mark);
        }
        staged
    }

    fn stage_change(&mut self, Change { key, write }: Change) -> Result<Arc<Entry>, Refused> {
        let before = self.current(&key);
        if write.expected() != before.as_ref().map(|entry| entry.revision) {
            return Err(Refused::Changed { key, current: before });
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
