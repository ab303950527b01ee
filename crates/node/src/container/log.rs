//! Container logs: bounded files, and readers that follow them.
use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures_util::{
    future::BoxFuture,
    stream::{self, BoxStream, StreamExt},
};
use tokio::sync::watch;

/// A request for the log of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogRequest {
    pub namespace: String,
    pub pod: String,
    /// May be left out if the pod has one, init containers not counted.
    pub container: Option<String>,
    /// The answer goes on until the container ends.
    pub follow: bool,
    /// The last lines only.
    pub tail: Option<usize>,
    /// The run before this one.
    pub previous: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("pod {0:?} has no output here")]
    NoPod(String),
    #[error("a container name must be specified for pod {pod}, choose one of: [{}]", containers.join(" "))]
    WhichContainer { pod: String, containers: Vec<String> },
    #[error("container {container} is not valid for pod {pod}")]
    NoContainer { pod: String, container: String },
    #[error("container {0:?} is waiting to start")]
    Waiting(String),
    #[error("previous terminated container {0:?} not found")]
    NoPrevious(String),
    #[error("failed to read the output of a container: {0}")]
    Io(#[from] io::Error),
}

/// Access to container logs: what an API server asks for `pods/log`.
pub trait Logs: std::fmt::Debug + Send + Sync + 'static {
    fn read(&self, request: LogRequest) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, LogError>>;
}

/// How far a log has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// Counts the files that were begun.
    file: u64,
    written: u64,
    closed: bool,
}

/// The log of one container over all its runs. At most two files of `limit` bytes per run, for this run and the last.
#[derive(Debug)]
pub(crate) struct ContainerLog {
    path: PathBuf,
    limit: u64,
    progress: watch::Sender<Progress>,
}

impl ContainerLog {
    fn new(path: PathBuf, limit: u64) -> Self {
        Self { path, limit, progress: watch::Sender::new(Progress { closed: true, ..Progress::default() }) }
    }

    fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn with(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    /// Begins the log of a new run. The current log becomes the previous one.
    pub fn begin(self: &Arc<Self>) -> io::Result<LogWriter> {
        drop(fs::remove_file(self.with(".1")));
        if self.path.exists() {
            fs::rename(&self.path, self.with(".previous"))?;
        }
        let pen = LogWriter { file: self.open()?, size: 0, output: Arc::clone(self) };
        self.progress.send_modify(|progress| {
            *progress = Progress { file: progress.file + 1, written: progress.written, closed: false };
        });
        Ok(pen)
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(&self.path)
    }

    /// The end of the log of the current run: at most 80 lines and 2048 bytes, as a kubelet keeps it of a container that
    /// failed.
    pub fn end(&self) -> String {
        const LINES: usize = 80;
        const BYTES: usize = 2_048;
        let mut bytes = fs::read(self.with(".1")).unwrap_or_default();
        bytes.extend(fs::read(&self.path).unwrap_or_default());
        let lines = last_lines(bytes, Some(LINES));
        let text = String::from_utf8_lossy(&lines[lines.len().saturating_sub(BYTES)..]).into_owned();
        text.trim().to_owned()
    }

    fn read(self: &Arc<Self>, request: &LogRequest) -> Result<BoxStream<'static, Bytes>, LogError> {
        if request.previous {
            let bytes = fs::read(self.with(".previous"));
            let bytes = bytes.map_err(|_| LogError::NoPrevious(self.name()))?;
            return Ok(stream::iter([last_lines(bytes, request.tail)]).boxed());
        }
        let mut progress = self.progress.subscribe();
        let seen = *progress.borrow_and_update();
        let mut bytes = fs::read(self.with(".1")).unwrap_or_default();
        let mut file = File::open(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LogError::Waiting(self.name()),
            _ => error.into(),
        })?;
        file.read_to_end(&mut bytes)?;
        let first = stream::iter([last_lines(bytes, request.tail)]);
        if !request.follow {
            return Ok(first.boxed());
        }
        let follower = Follower { output: Arc::clone(self), progress, file, seen };
        Ok(first.chain(stream::unfold(follower, Follower::next)).boxed())
    }
}

/// Writes the log of one run.
#[derive(Debug)]
pub(crate) struct LogWriter {
    file: File,
    size: u64,
    output: Arc<ContainerLog>,
}

impl LogWriter {
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        let mut begun = 0;
        if self.size > 0 && self.size + length > self.output.limit {
            fs::rename(&self.output.path, self.output.with(".1"))?;
            self.file = self.output.open()?;
            self.size = 0;
            begun = 1;
        }
        self.file.write_all(bytes)?;
        self.size += length;
        self.output.progress.send_modify(|progress| {
            progress.file += begun;
            progress.written += length;
        });
        Ok(())
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.output.progress.send_modify(|progress| progress.closed = true);
    }
}

#[derive(Debug)]
struct Follower {
    output: Arc<ContainerLog>,
    progress: watch::Receiver<Progress>,
    file: File,
    seen: Progress,
}

impl Follower {
    /// The next bytes; nothing when the run is over and read to its end.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            let now = *self.progress.borrow_and_update();
            let mut bytes = Vec::new();
            self.file.read_to_end(&mut bytes).ok()?;
            if bytes.is_empty() && now.file != self.seen.file {
                self.file = File::open(&self.output.path).ok()?;
                self.seen = now;
                continue;
            }
            if !bytes.is_empty() {
                return Some((Bytes::from(bytes), self));
            }
            if now.closed {
                return None;
            }
            self.progress.changed().await.ok()?;
        }
    }
}

fn last_lines(mut bytes: Vec<u8>, lines: Option<usize>) -> Bytes {
    let Some(lines) = lines else { return bytes.into() };
    let end = bytes.strip_suffix(b"\n").map_or(bytes.len(), <[u8]>::len);
    let breaks = bytes[..end].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let start = match lines.checked_sub(1) {
        None => bytes.len(),
        Some(skip) => breaks.map(|(at, _)| at + 1).nth(skip).unwrap_or(0),
    };
    bytes.drain(..start);
    bytes.into()
}

/// The logs of all pods of this node, by namespace and name.
#[derive(Debug, Clone)]
pub struct LogStore {
    directory: PathBuf,
    limit: u64,
    pods: Arc<Mutex<HashMap<(String, String), Pod>>>,
}

#[derive(Debug)]
struct Pod {
    uid: String,
    /// How many of the first containers are not init containers.
    main: usize,
    containers: Vec<(String, Arc<ContainerLog>)>,
}

impl LogStore {
    pub(crate) fn new(directory: &Path, limit: u64) -> Self {
        Self { directory: directory.join("logs"), limit, pods: Arc::default() }
    }

    fn directory_of(&self, uid: &str) -> PathBuf {
        self.directory.join(uid)
    }

    /// Opens the logs of a pod, also those that an earlier agent wrote.
    pub(crate) fn open(
        &self,
        (namespace, name): (&str, &str),
        uid: &str,
        (main, init): (&[String], &[String]),
    ) -> io::Result<HashMap<String, Arc<ContainerLog>>> {
        let directory = self.directory_of(uid);
        fs::create_dir_all(&directory)?;
        let output = |name: &String| {
            (name.clone(), Arc::new(ContainerLog::new(directory.join(format!("{name}.log")), self.limit)))
        };
        let containers: Vec<_> = main.iter().chain(init).map(output).collect();
        let opened = containers.iter().cloned().collect();
        let pod = Pod { uid: uid.to_owned(), main: main.len(), containers };
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.insert((namespace.to_owned(), name.to_owned()), pod);
        Ok(opened)
    }

    /// Removes the logs of a pod that is gone.
    pub(crate) fn remove(&self, key: (&str, &str), uid: &str) {
        let key = (key.0.to_owned(), key.1.to_owned());
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        // A pod of the same name may be here already.
        if pods.get(&key).is_some_and(|pod| pod.uid == uid) {
            pods.remove(&key);
        }
        drop(fs::remove_dir_all(self.directory_of(uid)));
    }

    fn find(&self, request: &LogRequest) -> Result<Arc<ContainerLog>, LogError> {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (request.namespace.clone(), request.pod.clone());
        let pod = pods.get(&key).ok_or_else(|| LogError::NoPod(request.pod.clone()))?;
        let names = || pod.containers.iter().map(|(name, _)| name.clone()).collect();
        let only = if pod.main == 1 { pod.containers.first().map(|(name, _)| name) } else { None };
        let Some(wanted) = request.container.as_ref().or(only) else {
            return Err(LogError::WhichContainer { pod: request.pod.clone(), containers: names() });
        };
        let found = pod.containers.iter().find(|(name, _)| name == wanted);
        let missing = || LogError::NoContainer { pod: request.pod.clone(), container: wanted.clone() };
        found.map(|(_, output)| Arc::clone(output)).ok_or_else(missing)
    }
}

impl Logs for LogStore {
    fn read(&self, request: LogRequest) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, LogError>> {
        Box::pin(async move { self.find(&request)?.read(&request) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> LogRequest {
        LogRequest { namespace: "n".to_owned(), pod: "p".to_owned(), ..LogRequest::default() }
    }

    async fn text(logs: &LogStore, request: LogRequest) -> String {
        let parts: Vec<Bytes> = logs.read(request).await.unwrap().collect().await;
        String::from_utf8(parts.concat()).unwrap()
    }

    fn logs(directory: &Path, limit: u64) -> (LogStore, Arc<ContainerLog>) {
        let logs = LogStore::new(directory, limit);
        let opened = logs.open(("n", "p"), "u", (&["c".to_owned()], &["i".to_owned()])).unwrap();
        (logs, Arc::clone(&opened["c"]))
    }

    #[tokio::test]
    async fn an_output_is_bounded_and_has_a_tail_and_a_past() {
        let directory = tempfile::tempdir().unwrap();
        let (logs, output) = logs(directory.path(), 8);
        assert!(matches!(logs.read(request()).await.err(), Some(LogError::Waiting(name)) if name == "c"));
        output.begin().unwrap().write(b"before\n").unwrap();
        let mut pen = output.begin().unwrap();
        for line in [b"one--\n", b"two--\n", b"three\n"] {
            pen.write(line).unwrap();
        }
        assert_eq!(text(&logs, request()).await, "two--\nthree\n");
        assert_eq!(text(&logs, LogRequest { tail: Some(1), ..request() }).await, "three\n");
        assert_eq!(text(&logs, LogRequest { tail: Some(0), ..request() }).await, "");
        assert_eq!(output.end(), "two--\nthree");
        assert_eq!(text(&logs, LogRequest { previous: true, ..request() }).await, "before\n");
        let unknown = LogRequest { container: Some("x".to_owned()), ..request() };
        assert!(matches!(logs.read(unknown).await, Err(LogError::NoContainer { .. })));
    }

    #[tokio::test]
    async fn a_follower_sees_everything_across_files_and_ends_with_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let (logs, output) = logs(directory.path(), 8);
        let mut pen = output.begin().unwrap();
        pen.write(b"one--\n").unwrap();
        let following = logs.read(LogRequest { follow: true, ..request() }).await.unwrap();
        let read = tokio::spawn(following.collect::<Vec<Bytes>>());
        for line in [b"two--\n", b"three\n"] {
            pen.write(line).unwrap();
            tokio::task::yield_now().await;
        }
        drop(pen);
        assert_eq!(String::from_utf8(read.await.unwrap().concat()).unwrap(), "one--\ntwo--\nthree\n");
    }
}
