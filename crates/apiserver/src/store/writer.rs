//! The thread that makes commits durable, many at a time.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, RwLock,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use tokio::sync::oneshot;

use super::{
    Entry, Refused,
    batch::{Batch, Step, Work},
    log::{Log, Uncompacted},
    read,
    state::State,
    write,
};

/// A batch ends here, so that no frame grows beyond what one sync should carry.
const BATCH_BYTES: usize = 8 << 20;

struct Request {
    work: Work,
    /// Who asked may have gone away before it is answered.
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Vec<Arc<Entry>>, Refused>;

/// How a durable store is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Why nothing can be written any more.
    pub read_only: Option<Arc<str>>,
    /// Why the log could not be compacted the last time. Commits go on; the log grows.
    pub uncompacted: Option<Arc<str>>,
}

pub(super) struct Writer {
    queue: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    health: Arc<Mutex<Health>>,
}

impl Writer {
    pub(super) fn start(state: Arc<RwLock<State>>, log: Log, least_log: u64) -> io::Result<Self> {
        let (queue, requests) = channel();
        let health = Arc::default();
        let desk = Desk { state, log, least_log, health: Arc::clone(&health) };
        let thread = Builder::new().name("store".into()).spawn(move || desk.run(&requests))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), health })
    }

    pub(super) fn health(&self) -> Health {
        lock(&self.health).clone()
    }

    pub(super) async fn commit(&self, work: Work) -> Answer {
        let (answer, answered) = oneshot::channel();
        if let Some(queue) = &self.queue {
            // A request that nobody takes is dropped, and so is its answer.
            drop(queue.send(Request { work, answer }));
        }
        answered.await.unwrap_or_else(|_| Err(self.stopped()))
    }

    fn stopped(&self) -> Refused {
        let why = self.health().read_only.unwrap_or_else(|| "its writer has stopped".into());
        Refused::ReadOnly { why }
    }
}

/// Waits for what is queued, so that who opens the directory next finds it unlocked and complete.
impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// What the thread owns.
struct Desk {
    state: Arc<RwLock<State>>,
    log: Log,
    least_log: u64,
    health: Arc<Mutex<Health>>,
}

impl Desk {
    fn run(mut self, requests: &Receiver<Request>) {
        while let Ok(first) = requests.recv() {
            let mut size = first.work.len();
            let mut batch = vec![first];
            while size < BATCH_BYTES
                && let Ok(request) = requests.try_recv()
            {
                size += request.work.len();
                batch.push(request);
            }
            self.serve(batch);
            self.compact();
        }
    }

    /// One frame, one sync, and only then does anyone see or hear of it; also who is refused, because the reason may
    /// be in the same batch.
    fn serve(&mut self, requests: Vec<Request>) {
        if let Some(why) = self.read_only() {
            return refuse(requests.into_iter().map(|request| request.answer), &why);
        }
        let (steps, answers) = self.stage(requests);
        if let Err(error) = self.log.append(&steps) {
            let why = self.break_off("the log could not be written", &error);
            return refuse(answers.into_iter().map(|(_, answer)| answer), &why);
        }
        let news = write(&self.state).apply(steps);
        news.tell();
        for (staged, answer) in answers {
            drop(answer.send(staged));
        }
    }

    fn stage(&self, requests: Vec<Request>) -> (Vec<Step>, Vec<(Answer, oneshot::Sender<Answer>)>) {
        let state = read(&self.state);
        let mut batch = Batch::over(&state);
        let answers =
            requests.into_iter().map(|request| (batch.stage(request.work), request.answer)).collect();
        (batch.into_steps(), answers)
    }

    fn compact(&mut self) {
        let (revision, objects) = {
            let state = read(&self.state);
            if self.read_only().is_some() || !self.log.is_long(state.live_bytes(), self.least_log) {
                return;
            }
            (state.revision(), state.objects())
        };
        let uncompacted = match self.log.compact(revision, &objects) {
            Ok(()) => None,
            Err(Uncompacted::Postponed(error)) => Some(error.to_string().into()),
            Err(Uncompacted::Broken(error)) => {
                Some(self.break_off("the log could not be replaced by a snapshot", &error))
            }
        };
        lock(&self.health).uncompacted = uncompacted;
    }

    fn read_only(&self) -> Option<Arc<str>> {
        lock(&self.health).read_only.clone()
    }

    /// For good: after a failed sync the kernel may drop what it could not write and report the next one as a success.
    fn break_off(&self, what: &str, error: &io::Error) -> Arc<str> {
        let why: Arc<str> = format!("{what}: {error}").into();
        lock(&self.health).read_only = Some(Arc::clone(&why));
        why
    }
}

fn refuse(answers: impl Iterator<Item = oneshot::Sender<Answer>>, why: &Arc<str>) {
    answers.for_each(|answer| drop(answer.send(Err(Refused::ReadOnly { why: Arc::clone(why) }))));
}

fn lock(health: &Mutex<Health>) -> MutexGuard<'_, Health> {
    health.lock().expect("should not be poisoned: nothing panics under it")
}
