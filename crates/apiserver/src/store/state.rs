//! The committed state: the current objects and the newest events.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    iter::Peekable,
    mem,
    ops::Bound,
    sync::Arc,
};

use tokio::sync::Notify;

use super::{Entry, Event, History, Key, Place, Resource, RevisionError, batch::Step};

pub(super) struct State {
    revision: u64,
    /// The revision at which this process began to remember events.
    began: u64,
    collections: BTreeMap<Resource, Collection>,
    /// The events of all resources, oldest first: which to forget next.
    order: VecDeque<Arc<Event>>,
    order_weight: usize,
    history: History,
    live: usize,
}

/// The objects of one resource.
struct Collection {
    objects: BTreeMap<Place, Arc<Entry>>,
    events: VecDeque<Arc<Event>>,
    /// Events up to and including this revision may have been forgotten.
    floor: u64,
    /// One per resource: a write to pods does not wake the watchers of secrets. Not a `watch` channel, which wakes its
    /// receivers in a random order: the watchers are woken in the order in which they began to wait, so that a run on
    /// one thread repeats exactly.
    wakeups: Arc<Notify>,
}

/// Wakes the watchers of a batch, after the lock is released.
pub(super) struct Wakeups(Vec<Arc<Notify>>);

impl Wakeups {
    pub(super) fn send(self) {
        for wakeups in self.0 {
            wakeups.notify_waiters();
        }
    }
}

impl State {
    pub(super) fn new(revision: u64, objects: BTreeMap<Key, Arc<Entry>>, history: History) -> Self {
        let mut state = Self {
            revision,
            began: revision,
            collections: BTreeMap::new(),
            order: VecDeque::new(),
            order_weight: 0,
            history,
            live: 0,
        };
        for (key, entry) in objects {
            state.live += entry.weight();
            state.collection(&key.resource).objects.insert(key.place, entry);
        }
        state
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Roughly how large a snapshot would be.
    pub(super) fn live_bytes(&self) -> usize {
        self.live
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.collections.get(&key.resource)?.objects.get(&key.place).cloned()
    }

    /// The objects of a resource that exists.
    pub(super) fn entries(&self, resource: &str) -> Option<&BTreeMap<Place, Arc<Entry>>> {
        self.collections.get(resource).map(|collection| &collection.objects)
    }

    pub(super) fn objects(&self) -> Vec<(Key, Arc<Entry>)> {
        let of = |(resource, collection): (&Resource, &Collection)| {
            let key = |place: &Place| Key { resource: Arc::clone(resource), place: place.clone() };
            collection
                .objects
                .iter()
                .map(|(place, entry)| (key(place), Arc::clone(entry)))
                .collect::<Vec<_>>()
        };
        self.collections.iter().flat_map(of).collect()
    }

    /// Makes a batch visible. Its revisions follow on this state's.
    pub(super) fn apply(&mut self, steps: Vec<Step>) -> Wakeups {
        let mut touched = BTreeSet::new();
        for step in steps {
            match step {
                Step::Event(event) => {
                    touched.insert(Arc::clone(&event.key.resource));
                    self.revision = event.revision();
                    self.put(&event);
                    self.remember(event);
                }
                Step::Drop { resource, revision } => {
                    self.revision = revision;
                    self.drop_resource(&resource);
                    touched.insert(resource);
                }
            }
        }
        Wakeups(touched.iter().map(|resource| self.collection(resource).wakeups.clone()).collect())
    }

    fn put(&mut self, event: &Event) {
        let collection = self.collection(&event.key.resource);
        if event.deleted {
            collection.objects.remove(&event.key.place);
        } else {
            collection.objects.insert(event.key.place.clone(), Arc::clone(&event.entry));
        }
        let weight = |entry: Option<&Arc<Entry>>| entry.map_or(0, |entry| entry.weight());
        self.live = self.live + weight(event.now()) - weight(event.before.as_ref());
    }

    fn remember(&mut self, event: Arc<Event>) {
        self.order_weight += event.weight();
        self.collection(&event.key.resource).events.push_back(Arc::clone(&event));
        self.order.push_back(event);
        while self.order.len() > 1 && self.remembers_too_much() {
            self.forget_oldest();
        }
    }

    fn remembers_too_much(&self) -> bool {
        self.order.len() > self.history.events || self.order_weight > self.history.bytes
    }

    fn forget_oldest(&mut self) {
        let Some(event) = self.order.pop_front() else { return };
        self.order_weight -= event.weight();
        let collection = self.collection(&event.key.resource);
        collection.events.pop_front();
        collection.floor = event.revision();
    }

    /// The watchers of the resource must list again, and will find that it is no more.
    fn drop_resource(&mut self, resource: &Resource) {
        let floor = self.revision;
        let collection = self.collection(resource);
        collection.floor = floor;
        collection.events.clear();
        let gone = mem::take(&mut collection.objects);
        self.live -= gone.values().map(|entry| entry.weight()).sum::<usize>();
        self.order.retain(|event| event.key.resource != *resource);
        self.order_weight = self.order.iter().map(|event| event.weight()).sum();
    }

    fn collection(&mut self, resource: &Resource) -> &mut Collection {
        let floor = self.began;
        self.collections.entry(Arc::clone(resource)).or_insert_with(|| Collection::empty(floor))
    }

    pub(super) fn subscribe(&mut self, resource: &Resource, from: u64) -> Result<Arc<Notify>, RevisionError> {
        self.reachable(resource, from)?;
        Ok(Arc::clone(&self.collection(resource).wakeups))
    }

    pub(super) fn reachable(&self, resource: &str, revision: u64) -> Result<(), RevisionError> {
        let floor = self.collections.get(resource).map_or(self.began, |collection| collection.floor);
        if revision < floor {
            return Err(RevisionError::Expired { oldest: floor });
        }
        if revision > self.revision {
            return Err(RevisionError::Future { newest: self.revision });
        }
        Ok(())
    }

    /// The first event of a resource after a revision.
    pub(super) fn event_after(&self, resource: &str, seen: u64) -> Result<Option<Arc<Event>>, RevisionError> {
        self.reachable(resource, seen)?;
        Ok(self
            .collections
            .get(resource)
            .and_then(|collection| collection.events_after(seen).next())
            .cloned())
    }

    /// The newest revision such that no event of the resource up to it is still to come for who saw up to `seen`.
    pub(super) fn progress(&self, resource: &str, seen: u64) -> Result<u64, RevisionError> {
        let next = self.event_after(resource, seen)?;
        Ok(next.map_or(self.revision, |event| event.revision() - 1))
    }

    /// The objects of a resource as of a revision that is in reach.
    pub(super) fn page(&self, resource: &str, revision: u64, scope: &Scope) -> Page {
        self.collections.get(resource).map(|collection| collection.page(revision, scope)).unwrap_or_default()
    }
}

/// Objects in order, and how many more there are.
#[derive(Default)]
pub(super) struct Page {
    pub(super) items: Vec<(Place, Arc<Entry>)>,
    pub(super) remaining: usize,
}

impl Page {
    fn of<'a>(mut all: impl Iterator<Item = (&'a Place, &'a Arc<Entry>)>, limit: usize) -> Self {
        let own = |(place, entry): (&Place, &Arc<Entry>)| (place.clone(), Arc::clone(entry));
        let items = all.by_ref().take(limit).map(own).collect();
        Self { items, remaining: all.count() }
    }
}

/// The part of a collection that a reader wants.
pub(super) struct Scope<'a> {
    pub(super) namespace: Option<&'a str>,
    pub(super) after: Option<&'a Place>,
    pub(super) limit: usize,
}

impl Scope<'_> {
    fn start(&self) -> Bound<Place> {
        let first = self.namespace.map(|namespace| Place::new(namespace, ""));
        match (self.after, first) {
            (Some(after), Some(first)) if *after < first => Bound::Included(first),
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        }
    }

    fn holds(&self, place: &Place) -> bool {
        self.namespace.is_none_or(|namespace| *place.namespace == *namespace)
    }
}

impl Collection {
    fn empty(floor: u64) -> Self {
        Self { objects: BTreeMap::new(), events: VecDeque::new(), floor, wakeups: Arc::default() }
    }

    fn events_after(&self, revision: u64) -> impl Iterator<Item = &Arc<Event>> {
        let first = self.events.partition_point(|event| event.revision() <= revision);
        self.events.range(first..)
    }

    fn page(&self, revision: u64, scope: &Scope) -> Page {
        let start = scope.start();
        let now = self.objects.range((start.clone(), Bound::Unbounded));
        let now = now.take_while(|(place, _)| scope.holds(place));
        let undone = self.undone(revision);
        if undone.is_empty() {
            return Page::of(now, scope.limit);
        }
        let then = undone.range::<Place, _>((start, Bound::Unbounded));
        let then = then.take_while(|(place, _)| scope.holds(place)).map(|(place, before)| (*place, *before));
        Page::of(Overlaid { below: now.peekable(), above: then.peekable() }, scope.limit)
    }

    /// What was there at a revision, of everything that was written since: what the first write since then replaced.
    fn undone(&self, revision: u64) -> BTreeMap<&Place, Option<&Arc<Entry>>> {
        let mut undone = BTreeMap::new();
        for event in self.events_after(revision) {
            undone.entry(&event.key.place).or_insert(event.before.as_ref());
        }
        undone
    }
}

/// Two sorted runs as one. Where both have a place, the one above counts; there, none means that nothing was there.
struct Overlaid<Below: Iterator, Above: Iterator> {
    below: Peekable<Below>,
    above: Peekable<Above>,
}

impl<'a, Below, Above> Iterator for Overlaid<Below, Above>
where
    Below: Iterator<Item = (&'a Place, &'a Arc<Entry>)>,
    Above: Iterator<Item = (&'a Place, Option<&'a Arc<Entry>>)>,
{
    type Item = (&'a Place, &'a Arc<Entry>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((place, _)) = self.above.peek() else { return self.below.next() };
            if let Some(untouched) = self.below.next_if(|(below, _)| below < place) {
                return Some(untouched);
            }
            self.below.next_if(|(below, _)| below == place);
            let (place, before) = self.above.next()?;
            if let Some(entry) = before {
                return Some((place, entry));
            }
        }
    }
}
