//! The machine that runs the controllers: one watch for each kind feeds one index, what changes is queued, and each
//! object is looked at by itself: observe, plan, act, say so.
//!
//! # Guarantees
//! - An object is never looked at twice at once, and always once more after its last change.
//! - A decision is never made on a view that is older than our own last write ([`Shelf`]).
//! - What fails is tried again, later each time, and holds nobody else back.

mod events;
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
use kube::Client;
use planner::Time;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
use tracing::Instrument;

use self::{
    events::Voice,
    queue::{Job, Looked, Queue},
    world::News,
};
pub use self::{
    queue::Next,
    shelf::{Key, Shelf},
    world::{Followed, Index, World},
    write::{Error, FIELD_MANAGER},
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

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Endpoints => "Endpoints",
            Self::LeaderWorkerSet => "LeaderWorkerSet",
            Self::ModelServing => "ModelServing",
            Self::ModelDeployment => "ModelDeployment",
        }
    }
}

/// How many objects are looked at at the same time.
const AT_ONCE: usize = 16;

/// What a controller works with.
#[derive(Clone)]
pub struct Context {
    pub(crate) client: Client,
    pub(crate) index: Index,
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) settings: Arc<Settings>,
    voice: Arc<Voice>,
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
        Self {
            voice: Arc::new(Voice::new(client.clone())),
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

    /// How a look ended that gave this.
    fn judge(&self, who: &'static str, result: Result<Next, Error>) -> Looked {
        let error = match result {
            Ok(next) => return Looked::Well(next),
            Err(error) => error,
        };
        self.settings.metrics.failed(who, error.category());
        if let Error::Stale { .. } = error {
            tracing::debug!("{error}; looked at again");
            return Looked::Stale;
        }
        tracing::warn!("{error}; it is tried again");
        Looked::Failed
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

#[cfg(test)]
impl Context {
    /// One that knows nothing yet, and that nobody runs.
    pub(crate) fn fresh(client: Client, settings: Settings) -> Self {
        Self::new(client, settings, Arc::new(crate::Nothing::default()))
    }

    /// Learns of an object as by a watch.
    pub(crate) fn hear<K: Followed>(&self, object: K, gone: bool) {
        self.learned(if gone { News::Gone(object) } else { News::Here(object) });
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
    let scopes = context.settings.scopes();
    let mut feeding = follow::all(&context);
    let mut outside = context.outside.changes();
    let mut looking = JoinSet::new();
    loop {
        while looking.try_join_next().is_some() {}
        let next = if context.index.is_listed(&scopes) { begin(&context, &mut looking) } else { None };
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
        let began = context.now();
        let Some((job, due)) = context.queue().take(began) else { break };
        let (context, who) = (context.clone(), job.who.name());
        context.settings.metrics.waited(who, began.saturating_sub(due));
        let span = tracing::info_span!("look", controller = who, object = %job.key);
        let look = async move {
            let result = context.look(&job).await;
            let now = context.now();
            let looked = context.judge(who, result);
            context.settings.metrics.ran(who, now.saturating_sub(began));
            context.queue().done(job, looked, now);
            context.bell.notify_one();
        };
        looking.spawn(look.instrument(span));
    }
    let full = looking.len() >= AT_ONCE;
    context.queue().next().filter(|_| !full)
}
