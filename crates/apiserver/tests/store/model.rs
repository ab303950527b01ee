//! The store against the plainest thing that could be one: a list of all that ever happened.

use std::collections::BTreeMap;

use apiserver::store::{Change, History, Key, Place, Query, RevisionError, Store};
use proptest::{prelude::*, test_runner::RngSeed};

use crate::support::{PODS, SECRETS, block_on, draft, value};

#[derive(Clone, Debug)]
struct Attempt {
    secret: bool,
    namespace: u8,
    name: u8,
    act: Act,
    /// With a precondition that does not hold.
    stale: bool,
}

#[derive(Clone, Debug)]
enum Act {
    Put,
    Delete,
    Drop,
}

fn attempt() -> impl Strategy<Value = Attempt> {
    let act = prop_oneof![12 => Just(Act::Put), 6 => Just(Act::Delete), 1 => Just(Act::Drop)];
    let parts = (any::<bool>(), 0u8..3, 0u8..3, act, prop::bool::weighted(0.1));
    parts.prop_map(|(secret, namespace, name, act, stale)| Attempt { secret, namespace, name, act, stale })
}

impl Attempt {
    fn resource(&self) -> &'static str {
        if self.secret { SECRETS } else { PODS }
    }

    fn key(&self) -> Key {
        // One namespace is the beginning of another: the order of places is not that of the pairs.
        let namespace = ["a", "a-b", "b"][usize::from(self.namespace)];
        Key::new(self.resource(), namespace, &self.name.to_string())
    }
}

/// What happened at one revision: the index is the revision less one.
#[derive(Clone)]
enum Past {
    Put(Key, u64),
    Delete(Key, u64),
    Drop(&'static str),
}

impl Past {
    fn resource(&self) -> &str {
        match self {
            Self::Put(key, _) | Self::Delete(key, _) => &key.resource,
            Self::Drop(resource) => resource,
        }
    }
}

/// The objects of a resource after a past: the revision and the value by place.
fn fold(past: &[Past], resource: &str) -> BTreeMap<Place, (u64, u64)> {
    let mut objects = BTreeMap::new();
    for (revision, event) in (1..).zip(past).filter(|(_, event)| event.resource() == resource) {
        match event {
            Past::Put(key, value) => drop(objects.insert(key.place.clone(), (revision, *value))),
            Past::Delete(key, _) => drop(objects.remove(&key.place)),
            Past::Drop(_) => objects.clear(),
        }
    }
    objects
}

fn play(store: &Store, attempts: &[Attempt]) -> Vec<Past> {
    let mut past = Vec::new();
    for (number, attempt) in (0..).zip(attempts) {
        let key = attempt.key();
        let current = fold(&past, attempt.resource()).get(&key.place).map(|(revision, _)| *revision);
        let over =
            if attempt.stale { Some(current.map_or(1_000_000, |revision| revision - 1)) } else { current };
        let draft = draft(&key.place.name, number);
        let (change, event) = match (&attempt.act, over) {
            (Act::Drop, _) => {
                block_on(store.drop_resource(attempt.resource())).unwrap();
                past.push(Past::Drop(attempt.resource()));
                continue;
            }
            (Act::Put, None) => (Change::create(key.clone(), draft), Past::Put(key, number)),
            (Act::Put, Some(over)) => (Change::update(key.clone(), over, draft), Past::Put(key, number)),
            (Act::Delete, None) => continue,
            (Act::Delete, Some(over)) => {
                (Change::delete(key.clone(), over, draft), Past::Delete(key, number))
            }
        };
        let done = block_on(store.commit(change));
        assert_eq!(done.is_ok(), !attempt.stale);
        if done.is_ok() {
            past.push(event);
        }
        assert_eq!(store.revision(), past.len() as u64);
    }
    past
}

/// The newest revision of which the store has forgotten an event of the resource.
fn floor(past: &[Past], resource: &str, remembered: usize) -> u64 {
    let last_drop = |events: &[Past], resource: &str| {
        (1..)
            .zip(events)
            .filter(|(_, event)| matches!(event, Past::Drop(of) if *of == resource))
            .map(|(at, _)| at)
            .last()
    };
    // Replays the forgetting: the oldest event of all goes first, and a drop forgets at once.
    let mut order: Vec<u64> = Vec::new();
    let mut floor = last_drop(past, resource).unwrap_or(0);
    for (revision, event) in (1..).zip(past) {
        if let Past::Drop(of) = event {
            order.retain(|at| past[usize::try_from(*at - 1).unwrap()].resource() != *of);
            continue;
        }
        order.push(revision);
        while order.len() > remembered {
            let gone = order.remove(0);
            if past[usize::try_from(gone - 1).unwrap()].resource() == resource {
                floor = floor.max(gone);
            }
        }
    }
    floor
}

fn check_lists(store: &Store, past: &[Past], resource: &str, floor: u64) {
    let newest = past.len() as u64;
    for at in 0..=newest {
        for namespace in [None, Some("a"), Some("a-b"), Some("c")] {
            let query = Query { namespace, at: Some(at), ..Query::default() };
            let listed = store.list(resource, &query);
            if at < floor && at != newest {
                assert_eq!(listed, Err(RevisionError::Expired { oldest: floor }));
                continue;
            }
            let mut expected = fold(&past[..usize::try_from(at).unwrap()], resource);
            expected.retain(|place, _| namespace.is_none_or(|namespace| *place.namespace == *namespace));
            let listed = listed.unwrap().items;
            assert!(listed.is_sorted_by_key(|(place, _)| format!("{}/{}", place.namespace, place.name)));
            let found: BTreeMap<_, _> =
                listed.iter().map(|(place, entry)| (place.clone(), (entry.revision, value(entry)))).collect();
            assert_eq!(found, expected);
            assert_eq!(pages(store, resource, query, found.len()), listed);
        }
    }
}

fn pages(
    store: &Store,
    resource: &str,
    query: Query,
    total: usize,
) -> Vec<(Place, std::sync::Arc<apiserver::store::Entry>)> {
    let mut all: Vec<(Place, _)> = Vec::new();
    loop {
        let after = all.last().map(|(place, _)| place.clone());
        let page = store.list(resource, &Query { after: after.as_ref(), limit: Some(2), ..query }).unwrap();
        all.extend(page.items);
        assert_eq!(all.len() + page.remaining, total);
        if page.remaining == 0 {
            return all;
        }
    }
}

fn check_watches(store: &Store, past: &[Past], resource: &str, floor: u64) {
    for from in 0..=past.len() as u64 {
        let watcher = store.watch(resource, from);
        if from < floor {
            assert_eq!(watcher.err(), Some(RevisionError::Expired { oldest: floor }));
            continue;
        }
        let mut watcher = watcher.unwrap();
        let mut objects = fold(&past[..usize::try_from(from).unwrap()], resource);
        let rest = (1..).zip(past).skip(usize::try_from(from).unwrap());
        for (revision, event) in rest.filter(|(_, event)| event.resource() == resource) {
            assert_eq!(watcher.progress(), Ok(revision - 1));
            let seen = watcher.try_next().unwrap().unwrap();
            assert_eq!(seen.revision(), revision);
            let before = objects.remove(&seen.key.place);
            assert_eq!(seen.before.as_ref().map(|entry| (entry.revision, value(entry))), before);
            match event {
                Past::Put(key, number) => {
                    assert_eq!((&seen.key, value(&seen.entry), seen.deleted), (key, *number, false));
                    objects.insert(key.place.clone(), (revision, *number));
                }
                Past::Delete(key, number) => {
                    assert_eq!((&seen.key, value(&seen.entry), seen.deleted), (key, *number, true));
                }
                Past::Drop(_) => unreachable!("a drop raises the floor"),
            }
        }
        assert_eq!(watcher.try_next(), Ok(None));
        assert_eq!(watcher.progress(), Ok(past.len() as u64));
        assert_eq!(objects, fold(past, resource));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lists_and_watches_are_what_happened(
        attempts in prop::collection::vec(attempt(), 0..40),
        remembered in prop_oneof![1usize..12, Just(1000)],
    ) {
        let store = Store::memory(History { events: remembered, bytes: 1 << 20 });
        let past = play(&store, &attempts);
        for resource in [PODS, SECRETS] {
            let floor = floor(&past, resource, remembered);
            check_lists(&store, &past, resource, floor);
            check_watches(&store, &past, resource, floor);
        }
        let future = Query { at: Some(store.revision() + 1), ..Query::default() };
        prop_assert_eq!(store.list(PODS, &future), Err(RevisionError::Future { newest: store.revision() }));
    }
}
