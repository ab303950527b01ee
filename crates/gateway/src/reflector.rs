//! The cache, fed by one watch for each kind.
use std::{
    collections::{BTreeSet, VecDeque},
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, watcher},
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::cache::{Cache, Kind, Name, Objects};

/// The cache as far as it is filled. Any number of changes before the next [`changed`](Self::changed) are one wake-up.
#[derive(Debug, Default)]
pub struct Reflector {
    known: Mutex<(Cache, BTreeSet<Kind>)>,
    changed: Notify,
}

impl Reflector {
    /// Returns once something changed since the last return.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The cache, once every kind was listed: a cache that lacks a kind would be a table that lacks routes.
    pub fn cache(&self) -> Option<Cache> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (known.1.len() == Kind::ALL.len()).then(|| known.0.clone())
    }

    fn change(&self, change: impl FnOnce(&mut Cache, &mut BTreeSet<Kind>)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (cache, listed) = &mut *known;
        change(cache, listed);
        self.changed.notify_one();
    }

    /// Watches one kind for ever.
    pub async fn run(&self, kind: Kind, client: Client) {
        let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind.gvk()));
        let mut events = pin!(watcher(api, Config::default()).default_backoff());
        let mut listed = Objects::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => drop(listed.insert(Name::of(&object), object.into())),
                Ok(Event::InitDone) => {
                    let all = std::mem::take(&mut listed);
                    self.change(|cache, done| {
                        cache.replace(kind, all);
                        done.insert(kind);
                    });
                }
                Ok(Event::Apply(object)) => self.change(|cache, _| cache.put(kind, object)),
                Ok(Event::Delete(object)) => self.change(|cache, _| cache.remove(kind, &Name::of(&object))),
                // A kind that is not installed has no objects. The watch goes on and finds them when it is.
                Err(error) if is_unknown(&error) => self.change(|_, done| {
                    done.insert(kind);
                }),
                // What is known stays; the watch tries again.
                Err(_) => {}
            }
        }
    }
}

/// The cache with its routes taken up a fixed time after they were seen, and its endpoints at once.
#[derive(Debug)]
pub struct Delayed<'a> {
    reflector: &'a Reflector,
    lag: Duration,
    /// Caches whose routes are not taken up yet.
    coming: VecDeque<(Instant, Cache)>,
    /// The cache whose routes were taken up last.
    taken: Option<Cache>,
}

impl<'a> Delayed<'a> {
    pub fn new(reflector: &'a Reflector, lag: Duration) -> Self {
        Self { reflector, lag, coming: VecDeque::new(), taken: None }
    }

    /// Returns the last cache that is due, with the endpoints of now. Cancel safe.
    pub async fn next(&mut self) -> Cache {
        let mut changed = false;
        loop {
            let now = Instant::now();
            let due = self.coming.iter().take_while(|(due, _)| *due <= now).count();
            if let Some((_, cache)) = self.coming.drain(..due).next_back() {
                self.taken = Some(cache);
                changed = true;
            }
            if let Some(taken) = self.taken.as_ref().filter(|_| changed) {
                let latest = self.reflector.cache();
                return latest.map_or_else(|| taken.clone(), |latest| taken.with_endpoints_of(&latest));
            }
            let next = self.coming.front().map_or(now, |(due, _)| *due);
            tokio::select! {
                // A change that is read late is taken up late, never early.
                () = self.reflector.changed() => {
                    let due = Instant::now() + self.lag;
                    self.coming.extend(self.reflector.cache().map(|cache| (due, cache)));
                    changed = true;
                }
                () = sleep_until(next), if !self.coming.is_empty() => {}
            }
        }
    }
}

fn is_unknown(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}
