//! The thread that makes commits durable, many at a time.

use std::{
    io,
    sync::{
        Arc, RwLock,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use tokio::sync::{oneshot, watch};

use super::{
    CommitError, Entry,
    batch::{Batch, Step, Work},
    read,
    state::State,
    wal::{Log, NotAppended, Uncompacted},
    write,
};

/// A batch ends here, so that no frame grows beyond what one sync should carry.
const BATCH_BYTES: usize = 8 << 20;

struct Request {
    work: Work,
    /// The receiver may be gone before the answer is sent.
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Vec<Arc<Entry>>, CommitError>;

/// How a durable store is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Why the store is read-only.
    pub read_only: Option<Arc<str>>,
    /// Why the last commit found no room. The next one is tried again.
    pub full: Option<Arc<str>>,
    /// Why the log could not be compacted the last time. Commits go on; the log grows.
    pub uncompacted: Option<Arc<str>>,
}

pub(super) struct Writer {
    queue: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    health: watch::Receiver<Health>,
}

impl Writer {
    pub(super) fn start(state: Arc<RwLock<State>>, log: Log, least_log: u64) -> io::Result<Self> {
        let (queue, requests) = channel();
        let (health, seen) = watch::channel(Health::default());
        let writer = WriterThread { state, log, least_log, health };
        let thread = Builder::new().name("store".into()).spawn(move || writer.run(&requests))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), health: seen })
    }

    pub(super) fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    pub(super) async fn commit(&self, work: Work) -> Answer {
        let (answer, answered) = oneshot::channel();
        if let Some(queue) = &self.queue {
            // If the thread has ended, the request is dropped, and with it its answer.
            drop(queue.send(Request { work, answer }));
        }
        answered.await.unwrap_or_else(|_| Err(self.stopped()))
    }

    fn stopped(&self) -> CommitError {
        let why = self.health.borrow().read_only.clone().unwrap_or_else(|| "its writer has stopped".into());
        CommitError::ReadOnly { why }
    }
}

/// Waits until the queue is written, so that the next process finds the directory unlocked and complete.
impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The state of the writer thread.
struct WriterThread {
    state: Arc<RwLock<State>>,
    log: Log,
    least_log: u64,
    health: watch::Sender<Health>,
}

impl WriterThread {
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

    /// Writes and syncs one frame; only then is the batch visible and answered. Refusals wait too, because their cause
    /// may be in the same batch.
    fn serve(&mut self, requests: Vec<Request>) {
        if let Some(why) = self.read_only() {
            return refuse(
                requests.into_iter().map(|request| request.answer),
                &CommitError::ReadOnly { why },
            );
        }
        let (steps, answers) = self.stage(requests);
        if let Err(error) = self.append(&steps) {
            return refuse(answers.into_iter().map(|(_, answer)| answer), &error);
        }
        let wakeups = write(&self.state).apply(steps);
        wakeups.send();
        for (staged, answer) in answers {
            drop(answer.send(staged));
        }
    }

    fn append(&mut self, steps: &[Step]) -> Result<(), CommitError> {
        let full = match self.log.append(steps) {
            Ok(()) => None,
            Err(NotAppended::Full(error)) => Some(error.to_string().into()),
            Err(NotAppended::Broken(error)) => {
                return Err(CommitError::ReadOnly {
                    why: self.break_off("the log could not be written", &error),
                });
            }
        };
        self.note(|health| &mut health.full, full.clone());
        full.map_or(Ok(()), |why| Err(CommitError::Full { why }))
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
        self.note(|health| &mut health.uncompacted, uncompacted);
    }

    fn read_only(&self) -> Option<Arc<str>> {
        self.health.borrow().read_only.clone()
    }

    /// Tells those who watch, where there is something new to tell.
    fn note(&self, field: fn(&mut Health) -> &mut Option<Arc<str>>, value: Option<Arc<str>>) {
        self.health.send_if_modified(|health| {
            let field = field(health);
            let is_new = *field != value;
            *field = value;
            is_new
        });
    }

    /// For good: after a failed sync the kernel may drop what it could not write and report the next one as a success.
    fn break_off(&self, what: &str, error: &io::Error) -> Arc<str> {
        let why: Arc<str> = format!("{what}: {error}").into();
        self.note(|health| &mut health.read_only, Some(Arc::clone(&why)));
        why
    }
}

fn refuse(answers: impl Iterator<Item = oneshot::Sender<Answer>>, error: &CommitError) {
    answers.for_each(|answer| drop(answer.send(Err(error.clone()))));
}
