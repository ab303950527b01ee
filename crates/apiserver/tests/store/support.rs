//! What the tests of the store share.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use apiserver::store::{Change, Draft, Entry, History, Key, Query, Settings, Store};
use serde_json::{Value, json};

pub const PODS: &str = "/pods";
pub const SECRETS: &str = "/secrets";

/// Compacts after every few writes.
pub const EAGER: Settings = Settings { history: History { events: 1000, bytes: 1 << 20 }, least_log: 600 };

pub fn key(name: &str) -> Key {
    Key::new(PODS, "default", name)
}

pub fn draft(name: &str, value: u64) -> Draft {
    let object = json!({"metadata": {"name": name, "labels": {"app": name}}, "value": value});
    Draft::new(&object).unwrap().with_fields(vec![("metadata.name".into(), name.into())])
}

pub fn create(name: &str, value: u64) -> Change {
    Change::create(key(name), draft(name, value))
}

/// The `value` of an object, once it is clear that the object is whole.
pub fn value(entry: &Entry) -> u64 {
    let object: Value = serde_json::from_slice(&entry.bytes).unwrap();
    assert_eq!(object["metadata"]["resourceVersion"], json!(entry.revision.to_string()));
    object["value"].as_u64().unwrap()
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// What is there of the pods: the value by name.
pub fn pods(store: &Store) -> BTreeMap<String, u64> {
    let listing = store.list(PODS, &Query::default()).unwrap();
    listing.items.iter().map(|(place, entry)| (place.name.to_string(), value(entry))).collect()
}

/// Everything that is there of two resources, byte by byte.
pub fn everything(store: &Store) -> Vec<(Key, Arc<Entry>)> {
    let of = |resource: &str| {
        let items = store.list(resource, &Query::default()).unwrap().items;
        items
            .into_iter()
            .map(|(place, entry)| (Key { resource: resource.into(), place }, entry))
            .collect::<Vec<_>>()
    };
    [PODS, SECRETS].iter().flat_map(|resource| of(resource)).collect()
}

/// Numbers that are the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A mixed history on a few names: creates, updates, deletes and now and then a dropped resource. Hands each revision
/// to `acknowledged` with the pods after it, and stops when the store refuses.
pub async fn live(
    store: &Store,
    writes: u64,
    mut acknowledged: impl FnMut(u64, BTreeMap<String, u64>),
) -> bool {
    let mut dice = Dice(7);
    for number in 0..writes {
        let name = format!("pod-{}", dice.roll(5));
        let current = store.get(&key(&name)).map(|entry| entry.revision);
        let done = match (current, dice.roll(12)) {
            (_, 0) => store.drop_resource(SECRETS).await,
            (None, 1) => {
                let secret =
                    Change::create(Key::new(SECRETS, "", &number.to_string()), draft("secret", number));
                store.commit_all(vec![create(&name, number), secret]).await.map(drop)
            }
            (None, _) => store.commit(create(&name, number)).await.map(drop),
            (Some(over), 1..4) => {
                store.commit(Change::delete(key(&name), over, draft(&name, number))).await.map(drop)
            }
            (Some(over), _) => {
                store.commit(Change::update(key(&name), over, draft(&name, number))).await.map(drop)
            }
        };
        if done.is_err() {
            return false;
        }
        acknowledged(store.revision(), pods(store));
    }
    true
}
