//! The objects of a kind, in a cache that kube's watcher feeds.
use std::{fmt::Debug, future::ready};

use futures_util::{Stream, StreamExt};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        reflector::store::Writer,
        watcher::{Config, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

/// The most events in one batch.
const BATCH: usize = 256;

/// Watches all objects of a kind for ever. Each item holds the events since the last one. When the API fails,
/// kube's watcher tries again with its own back-off, and the cache keeps its content.
pub(crate) fn follow<K>(objects: Api<K>) -> impl Stream<Item = Vec<Event<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(objects, Config::default()).default_backoff();
    events.filter_map(|event| ready(event.ok())).ready_chunks(BATCH)
}

/// Applies events to the cache. Returns whether the cache is complete: not while a list is under way, which
/// replaces the cache at its end.
pub(crate) fn apply<K>(cache: &mut Writer<K>, events: &[Event<K>]) -> bool
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    for event in events {
        cache.apply_watcher_event(event);
    }
    !matches!(events.last(), Some(Event::Init | Event::InitApply(_)))
}
