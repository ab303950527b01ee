//! What the API has, followed by one watch for each kind.
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

use crate::world::{Kind, Name, Objects, World};

/// The world as far as it is known, and a bell for when it changes. Many changes before anybody looks are one ring.
#[derive(Debug, Default)]
pub struct Index {
    known: Mutex<(World, BTreeSet<Kind>)>,
    changed: Notify,
}

impl Index {
    /// Returns once something changed since the last return.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The world, once every kind was listed: half a world would be a table with half the routes.
    pub fn world(&self) -> Option<World> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (known.1.len() == Kind::ALL.len()).then(|| known.0.clone())
    }

    fn change(&self, change: impl FnOnce(&mut World, &mut BTreeSet<Kind>)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (world, listed) = &mut *known;
        change(world, listed);
        self.changed.notify_one();
    }

    /// Follows one kind for ever.
    pub async fn follow(&self, kind: Kind, client: Client) {
        let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind.gvk()));
        let mut events = pin!(watcher(api, Config::default()).default_backoff());
        let mut listed = Objects::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => drop(listed.insert(Name::of(&object), object.into())),
                Ok(Event::InitDone) => {
                    let all = std::mem::take(&mut listed);
                    self.change(|world, done| {
                        world.replace(kind, all);
                        done.insert(kind);
                    });
                }
                Ok(Event::Apply(object)) => self.change(|world, _| world.put(kind, object)),
                Ok(Event::Delete(object)) => self.change(|world, _| world.remove(kind, &Name::of(&object))),
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

/// The worlds that the index had, with its routes seen a fixed time later and its endpoints at once.
#[derive(Debug)]
pub struct Lagging<'a> {
    index: &'a Index,
    lag: Duration,
    /// Worlds whose routes are not taken up yet.
    coming: VecDeque<(Instant, World)>,
    /// The world whose routes were taken up last.
    taken: Option<World>,
}

impl<'a> Lagging<'a> {
    pub fn new(index: &'a Index, lag: Duration) -> Self {
        Self { index, lag, coming: VecDeque::new(), taken: None }
    }

    /// The next world: of those whose time has come, the last, with the endpoints of now. May be dropped and called
    /// again.
    pub async fn next(&mut self) -> World {
        let mut changed = false;
        loop {
            let now = Instant::now();
            let due = self.coming.iter().take_while(|(due, _)| *due <= now).count();
            if let Some((_, world)) = self.coming.drain(..due).next_back() {
                self.taken = Some(world);
                changed = true;
            }
            if let Some(taken) = self.taken.as_ref().filter(|_| changed) {
                let latest = self.index.world();
                return latest.map_or_else(|| taken.clone(), |latest| taken.with_endpoints_of(&latest));
            }
            let next = self.coming.front().map_or(now, |(due, _)| *due);
            tokio::select! {
                // One that is looked at late is taken up late, never early.
                () = self.index.changed() => {
                    let due = Instant::now() + self.lag;
                    self.coming.extend(self.index.world().map(|world| (due, world)));
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
