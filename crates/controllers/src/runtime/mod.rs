//! The machine that runs the controllers: one watch for each kind feeds one index, what changes is queued, and each
//! object is looked at by itself: observe, plan, act, say so.
//!
//! # Guarantees
//! - An object is never looked at twice at once, and always once more after its last change.
//! - A decision is never made on a view that is older than our own last write ([`Shelf`]).
//! - What fails is tried again, later each time, and holds nobody else back.

mod follow;
mod queue;
mod shelf;
mod world;
mod write;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use planner::Time;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::timeout,
};

pub use self::{
    queue::Next,
    shelf::{Key, Shelf},
    world::{Followed, Index, World},
    write::{Error, FIELD_MANAGER},
};
use self::{
    queue::{Job, Queue},
    world::News,
    write::LONGEST,
};
use crate::{Outside, Settings, endpoints, leaderworkerset, modeldeployment, modelserving};

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// Services to their endpoints, where nobody else does that.
    Endpoints,
    /// Sets to pods.
    LeaderWorkerSet,
    /// Serving groups to pods.
    ModelServing,
    /// Deployments to versions.
    ModelDeployment,
}

/// How many objects are looked at at the same time.
const AT_ONCE: usize = 16;

/// How long a view may be stale before it is looked at again without news.
const STALE: Duration = Duration::from_millis(100);

/// What a controller works with.
#[derive(Clone)]
pub struct Context {
    pub(crate) client: Client,
    pub(crate) index: Index,
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) settings: Arc<Settings>,
    recorder: Recorder,
    queue: Arc<Mutex<Queue>>,
    bell: Arc<Notify>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Context {
    fn new(client: Client, settings: Settings, outside: Arc<dyn Outside>) -> Self {
        let reporter = Reporter { controller: "segue".to_owned(), instance: None };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            index: Index::default(),
            outside,
            settings: Arc::new(settings),
            queue: Arc::default(),
            bell: Arc::default(),
        }
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        (self.settings.clock)()
    }

    /// Tells people what happens to an object. An event that cannot be written is no reason to stop.
    pub async fn tell(
        &self,
        object: &impl kube::Resource<DynamicType = ()>,
        warning: bool,
        reason: &str,
        note: String,
    ) {
        let event = Event {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            // Events that differ in nothing else are counted as one: what is said makes it another one.
            action: note.chars().take(128).collect(),
            note: Some(note),
            secondary: None,
        };
        drop(timeout(LONGEST, self.recorder.publish(&event, &object.object_ref(&()))).await);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes news in, and has everybody look whom they concern.
    fn learned<K: Followed>(&self, news: News<K>) {
        let concerned = self.index.learn(news);
        let now = self.now();
        let mut queue = self.queue();
        for (who, key) in concerned {
            if who != Who::Endpoints || self.settings.embedded {
                queue.add(Job { who, key }, now);
            }
        }
        drop(queue);
        self.bell.notify_one();
    }

    async fn look(&self, job: &Job) -> Result<Next, Error> {
        match job.who {
            Who::Endpoints => endpoints::reconcile(self, &job.key).await,
            Who::LeaderWorkerSet => leaderworkerset::reconcile(self, &job.key).await,
            Who::ModelServing => modelserving::reconcile(self, &job.key).await,
            Who::ModelDeployment => modeldeployment::reconcile(self, &job.key).await,
        }
    }
}

/// A moment as the API writes it.
pub(crate) fn timestamp(time: Time) -> Timestamp {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::new(seconds, i32::try_from(time.subsec_nanos()).unwrap_or(0)).unwrap_or(Timestamp::MAX)
}

/// A moment as planners count it.
pub(crate) fn moment(timestamp: Timestamp) -> Time {
    Duration::try_from(timestamp.as_duration()).unwrap_or_default()
}

/// Does all of these, a few at a time, whatever becomes of the others. Says what went wrong first.
pub(crate) async fn together(doing: Vec<impl Future<Output = Result<(), Error>>>) -> Result<(), Error> {
    let done: Vec<Result<(), Error>> = stream::iter(doing).buffer_unordered(AT_ONCE).collect().await;
    done.into_iter().collect()
}

/// Runs the controllers until `stop`, then lets those finish that have begun.
pub async fn run(
    client: Client,
    settings: Settings,
    outside: Arc<dyn Outside>,
    mut stop: watch::Receiver<bool>,
) {
    let context = Context::new(client, settings, outside);
    let mut feeding = follow::all(&context);
    let mut outside = context.outside.changes();
    let mut looking = JoinSet::new();
    loop {
        while looking.try_join_next().is_some() {}
        let next = if context.index.is_listed() { begin(&context, &mut looking) } else { None };
        let wait = next.map(|at| at.saturating_sub(context.now()));
        tokio::select! {
            // In this order: the same events give the same run.
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            () = context.bell.notified() => {}
            Ok(()) = outside.changed() => context.queue().outside_changed(context.now()),
            Some(_) = looking.join_next() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
    feeding.shutdown().await;
    while looking.join_next().await.is_some() {}
}

/// Begins with everything that is due, as far as there is room, and says when more is.
fn begin(context: &Context, looking: &mut JoinSet<()>) -> Option<Time> {
    while looking.len() < AT_ONCE {
        let Some(job) = context.queue().take(context.now()) else { break };
        let context = context.clone();
        looking.spawn(async move {
            let result = context.look(&job).await;
            let now = context.now();
            let next = match result {
                Ok(next) => Some(next),
                Err(Error::Stale { .. }) => Some(Next { at: Some(now + STALE), outside: false }),
                Err(error) => {
                    (context.settings.on_error)(&error);
                    None
                }
            };
            context.queue().done(job, next, now);
            context.bell.notify_one();
        });
    }
    let full = looking.len() >= AT_ONCE;
    context.queue().next().filter(|_| !full)
}
