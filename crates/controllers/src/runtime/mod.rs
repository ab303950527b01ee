//! The machine that runs controllers: watches feed one cache, changes are queued as requests, and each object is
//! reconciled by itself.
//!
//! # Guarantees
//! - An object is never reconciled twice at once, and always once more after its last change.
//! - A decision is never made on an observation that is older than our own last write ([`Store`]).
//! - What fails is tried again, later each time, and holds no other object back.

mod api;
mod cache;
mod clock;
mod error;
mod installed;
mod lease;
mod metrics;
mod queue;
mod recorder;
mod store;
mod watch;

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use kube::Client;
use planner::Time;
use tokio::{
    sync::{Notify, broadcast, watch as watched},
    task::JoinSet,
};
use tracing::Instrument;

pub use self::{
    api::FIELD_MANAGER,
    cache::{Cache, Select, Watched},
    clock::{Clock, Times},
    error::{ApiVerb, Error},
    lease::{Claim, End},
    metrics::Metrics,
    queue::{Request, Requeue},
    recorder::Event,
    store::{Key, Store},
    watch::Watches,
};
pub(crate) use self::{
    api::{Applied, Apply},
    cache::controllers_of,
    clock::{moment, timestamp},
};
use self::{
    cache::{CacheEvent, Changes},
    queue::{Ended, Queue},
    recorder::Recorder,
    watch::Reflectors,
};
use crate::{ObjectId, Outside, Settings, pipeline::Memory};

/// What reconciles the objects of one kind.
pub trait Reconciler: Send + Sync {
    /// Its name, in requests, logs and metrics.
    fn name(&self) -> &'static str;

    /// Says what it watches.
    fn watches(&self, watches: &mut Watches<'_>);

    /// All objects that it reconciles.
    fn keys(&self, cache: &Cache) -> Vec<Key>;

    /// Observes one object and does the next thing for it.
    fn reconcile<'a>(&'a self, context: &'a Context, key: &'a Key) -> BoxFuture<'a, Result<Requeue, Error>>;
}

/// How many objects are reconciled at the same time.
const MAX_CONCURRENT_RECONCILES: usize = 16;

/// How many writes the reconcile of one object has under way.
const MAX_CONCURRENT_WRITES: usize = 16;

/// What controllers work with.
#[derive(Clone)]
pub struct Context {
    pub(crate) client: Client,
    cache: Arc<RwLock<Cache>>,
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) memory: Arc<Memory>,
    controllers: Arc<Vec<&'static dyn Reconciler>>,
    recorder: Arc<Recorder>,
    queue: Arc<Mutex<Queue>>,
    wake: Arc<Notify>,
    times: Arc<Mutex<Times>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Context {
    /// A context, and what is to be watched.
    fn new(client: Client, settings: Settings, outside: Arc<dyn Outside>) -> (Self, Reflectors) {
        let controllers = settings.controllers();
        let (mut cache, mut feeds) = (Cache::default(), Reflectors::default());
        for controller in &controllers {
            let watches = Watches { controller: controller.name(), cache: &mut cache, feeds: &mut feeds };
            controller.watches(&mut { watches });
        }
        let context = Self {
            recorder: Arc::new(Recorder::new(client.clone())),
            client,
            cache: Arc::new(RwLock::new(cache)),
            outside,
            settings: Arc::new(settings),
            memory: Arc::default(),
            controllers: Arc::new(controllers),
            queue: Arc::default(),
            wake: Arc::default(),
            times: Arc::default(),
        };
        (context, feeds)
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        (self.settings.clock.wall)()
    }

    /// The time, and how times are read. A clock that has stepped since is said so once.
    pub(crate) fn times(&self) -> Times {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.read(&self.settings.clock) {
            tracing::warn!("the clock has stepped; the time that it skipped or repeated counts as no time");
        }
        times.clone()
    }

    /// The cache, locked for reading. Its holder must not wait for anything else.
    pub fn cache(&self) -> RwLockReadGuard<'_, Cache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the queue, which never steps.
    fn elapsed(&self) -> Time {
        (self.settings.clock.monotonic)()
    }

    /// Takes news in, and queues every object that they concern.
    fn handle_event<K: Watched>(&self, event: CacheEvent<K>) {
        let Changes { mut requests, appeared } =
            self.cache.write().unwrap_or_else(PoisonError::into_inner).apply_event(event);
        if appeared {
            requests.extend(self.everything());
        }
        let now = self.elapsed();
        let mut queue = self.queue();
        for request in requests {
            queue.add(request, now);
        }
        drop(queue);
        self.wake.notify_one();
    }

    /// A request for every object of every controller.
    fn everything(&self) -> Vec<Request> {
        let cache = self.cache();
        let of = |controller: &&'static dyn Reconciler| {
            let name = controller.name();
            controller.keys(&cache).into_iter().map(move |key| Request { controller: name, key })
        };
        self.controllers.iter().flat_map(of).collect()
    }

    /// How a reconcile ended that gave this. The queue has a clock of its own: a wait counts from when the reconcile
    /// began, as both clocks showed it then.
    fn outcome(
        &self,
        controller: &'static str,
        result: Result<Requeue, Error>,
        (began, wall): (Time, Time),
    ) -> Ended {
        let error = match result {
            Ok(Requeue { at, outside }) => {
                let at = at.map(|at| began + at.saturating_sub(wall));
                return Ended::Well(Requeue { at, outside });
            }
            Err(error) => error,
        };
        self.settings.metrics.failed(controller, error.category());
        if let Error::Stale { .. } = error {
            tracing::debug!("{error}; observed again");
            return Ended::Stale;
        }
        tracing::warn!("{error}; it is tried again");
        Ended::Failed
    }

    async fn reconcile(&self, request: &Request) -> Result<Requeue, Error> {
        match self.controllers.iter().find(|it| it.name() == request.controller) {
            Some(controller) => controller.reconcile(self, &request.key).await,
            None => Ok(Requeue::default()),
        }
    }

    /// Queues those who wait for what is outside: all of them, or one.
    fn outside_changed(&self, only: Option<&Request>) {
        self.queue().outside_changed(only, self.elapsed());
    }
}

/// The object that something outside has answered about; nothing, where that was missed and may be any. Never returns
/// where nothing outside answers.
async fn answer(answers: &mut Option<broadcast::Receiver<ObjectId>>) -> Option<Request> {
    loop {
        let Some(receiver) = answers else { return std::future::pending().await };
        match receiver.recv().await {
            Ok(ObjectId { controller, key, .. }) => return Some(Request { controller, key }),
            Err(broadcast::error::RecvError::Lagged(_)) => return None,
            Err(broadcast::error::RecvError::Closed) => *answers = None,
        }
    }
}

#[cfg(test)]
impl Context {
    /// A context with an empty cache, whose watches and queue do not run.
    pub(crate) fn idle(client: Client, settings: Settings) -> Self {
        Self::new(client, settings, Arc::new(crate::Calls::default())).0
    }

    /// Learns of an object as by a watch.
    pub(crate) fn hear<K: Watched>(&self, object: K, gone: bool) {
        self.handle_event(if gone { CacheEvent::Deleted(object) } else { CacheEvent::Updated(object) });
    }
}

/// Does all of these, a few at a time, whatever becomes of the others. Returns the error of the first one in their
/// order: the same troubles are told in the same words, whichever ended first.
pub(crate) async fn together(doing: Vec<impl Future<Output = Result<(), Error>>>) -> Result<(), Error> {
    let numbered = doing.into_iter().enumerate().map(|(place, doing)| async move { (place, doing.await) });
    let mut done: Vec<_> = stream::iter(numbered).buffer_unordered(MAX_CONCURRENT_WRITES).collect().await;
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().try_for_each(|(_, result)| result)
}

/// Runs the controllers until `stop`, then lets those finish that have begun.
pub async fn run(
    client: Client,
    settings: Settings,
    outside: Arc<dyn Outside>,
    mut stop: watched::Receiver<bool>,
) {
    let (context, feeds) = Context::new(client, settings, outside);
    let scopes = context.settings.scopes();
    let mut feeding = feeds.begin(&context, &scopes);
    let (mut outside, mut answers) = (context.outside.changes(), context.outside.answers());
    let mut running = JoinSet::new();
    loop {
        while running.try_join_next().is_some() {}
        let is_listed = context.cache().is_listed(&scopes);
        let next = if is_listed { begin(&context, &mut running) } else { None };
        let wait = next.map(|at| at.saturating_sub(context.elapsed()));
        tokio::select! {
            // In this order: the same events give the same run.
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            () = context.wake.notified() => {}
            Ok(()) = outside.changed() => context.outside_changed(None),
            about = answer(&mut answers) => context.outside_changed(about.as_ref()),
            Some(_) = running.join_next() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
    feeding.shutdown().await;
    while running.join_next().await.is_some() {}
}

/// Begins with every request that is due, as far as there is room. Returns when the next is due.
fn begin(context: &Context, running: &mut JoinSet<()>) -> Option<Time> {
    while running.len() < MAX_CONCURRENT_RECONCILES {
        let began = context.elapsed();
        let Some((request, due)) = context.queue().take(began) else { break };
        let (context, controller) = (context.clone(), request.controller);
        context.settings.metrics.waited(controller, began.saturating_sub(due));
        let span = tracing::info_span!("reconcile", controller, object = %request.key);
        let reconcile = async move {
            let wall = context.now();
            // A panic is a fault of ours in one pass over one object: it holds no other object back, and not this one
            // for ever.
            let ended = if let Ok(result) = AssertUnwindSafe(context.reconcile(&request)).catch_unwind().await
            {
                context.outcome(controller, result, (began, wall))
            } else {
                context.settings.metrics.failed(controller, "panic");
                tracing::error!("the pass panicked; it is tried again. Please report this");
                Ended::Failed
            };
            let now = context.elapsed();
            context.settings.metrics.ran(controller, now.saturating_sub(began));
            context.queue().done(request, ended, now);
            context.wake.notify_one();
        };
        running.spawn(reconcile.instrument(span));
    }
    let full = running.len() >= MAX_CONCURRENT_RECONCILES;
    context.queue().next().filter(|_| !full)
}
