//! The write-ahead log and its snapshots.
//!
//! `log-N` holds the batches from revision N on, `snapshot-N` all objects as of revision N; a snapshot makes every log
//! that begins before its end superfluous, and its own log, `log-N+1`, is there before it is. Files get their name
//! when their content is durable.

use std::{io, sync::Arc};

use super::{
    Disk, DiskFile, Entry, Key,
    batch::Step,
    frame::{FILE_HEAD, Frame, Kind, file_head},
    record::{write_complete, write_drop, write_entry, write_event},
};

const TEMPORARY: &str = ".tmp";
/// How much of a snapshot goes into one frame.
const CHUNK: usize = 1 << 20;

pub(super) struct Log {
    disk: Box<dyn Disk>,
    file: Box<dyn DiskFile>,
    /// The bytes of all logs since the snapshot.
    written: u64,
    /// A compaction that failed is not tried again before the log is this large.
    postponed_to: u64,
}

/// What an append that failed means.
#[derive(Debug)]
pub(super) enum NotAppended {
    /// There was no room, and the log is as it was before.
    Full(io::Error),
    /// Whether the batch is durable is unknown, and asking the disk again would not tell: after a failed sync the kernel
    /// forgets what it failed to write.
    Broken(io::Error),
}

/// What a compaction that failed means.
#[derive(Debug)]
pub(super) enum Uncompacted {
    /// The log is as good as before.
    Postponed(io::Error),
    /// What is appended from now on might not be found again.
    Broken(io::Error),
}

impl Log {
    /// Goes on in a log of which `written` bytes are already there.
    pub(super) fn resume(disk: Box<dyn Disk>, file: Box<dyn DiskFile>, written: u64) -> Self {
        Self { disk, file, written, postponed_to: 0 }
    }

    /// Starts the first log of a directory.
    pub(super) fn create(disk: Box<dyn Disk>) -> io::Result<Self> {
        let file = prepare_log(&*disk, 1)?;
        publish(&*disk, &log_name(1))?;
        Ok(Self::resume(disk, file, FILE_HEAD as u64))
    }

    /// Returns when the batch is durable.
    pub(super) fn append(&mut self, steps: &[Step]) -> Result<(), NotAppended> {
        if steps.is_empty() {
            return Ok(());
        }
        let mut frame = Frame::new();
        for step in steps {
            match step {
                Step::Event(event) => write_event(frame.payload(), event),
                Step::Drop { resource, revision } => write_drop(frame.payload(), resource, *revision),
            }
        }
        let bytes = frame.finish();
        self.append_whole(&bytes)?;
        self.file.sync().map_err(NotAppended::Broken)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Appends all of it, or nothing where there is no room for all of it.
    fn append_whole(&mut self, bytes: &[u8]) -> Result<(), NotAppended> {
        let before = self.file.length().map_err(NotAppended::Broken)?;
        let Err(error) = self.file.append(bytes) else { return Ok(()) };
        match self.file.cut(before) {
            Ok(()) if is_full(&error) => Err(NotAppended::Full(error)),
            _ => Err(NotAppended::Broken(error)),
        }
    }

    /// Whether the log is so much larger than what is alive that a snapshot pays.
    pub(super) fn is_long(&self, live: usize, least: u64) -> bool {
        self.written > least.max(2 * live as u64).max(self.postponed_to)
    }

    /// Replaces the log by a snapshot of all objects.
    pub(super) fn compact(
        &mut self,
        revision: u64,
        objects: &[(Key, Arc<Entry>)],
    ) -> Result<(), Uncompacted> {
        self.postponed_to = 2 * self.written;
        let file = self.prepare(revision, objects).map_err(Uncompacted::Postponed)?;
        self.replace(revision, file).map_err(Uncompacted::Broken)?;
        remove_superfluous(&*self.disk, revision);
        (self.written, self.postponed_to) = (FILE_HEAD as u64, 0);
        Ok(())
    }

    fn prepare(&self, revision: u64, objects: &[(Key, Arc<Entry>)]) -> io::Result<Box<dyn DiskFile>> {
        write_snapshot(&*self.disk, revision, objects)
            .and_then(|()| prepare_log(&*self.disk, revision + 1))
            .inspect_err(|_| remove_temporary(&*self.disk))
    }

    /// The new log first: a crash in between leaves two logs, one after the other.
    fn replace(&mut self, revision: u64, file: Box<dyn DiskFile>) -> io::Result<()> {
        publish(&*self.disk, &log_name(revision + 1))?;
        self.file = file;
        publish(&*self.disk, &snapshot_name(revision))
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

pub(super) fn log_name(first: u64) -> String {
    format!("log-{first:020}")
}

pub(super) fn snapshot_name(revision: u64) -> String {
    format!("snapshot-{revision:020}")
}

/// The revision in a file's name.
pub(super) fn revision_of(name: &str, kind: Kind) -> Option<u64> {
    let prefix = match kind {
        Kind::Log => "log-",
        Kind::Snapshot => "snapshot-",
    };
    name.strip_prefix(prefix)?.parse().ok()
}

/// A log under its temporary name.
fn prepare_log(disk: &dyn Disk, first: u64) -> io::Result<Box<dyn DiskFile>> {
    let mut file = disk.create(&(log_name(first) + TEMPORARY))?;
    file.append(&file_head(Kind::Log, first))?;
    file.sync()?;
    Ok(file)
}

/// A snapshot under its temporary name.
fn write_snapshot(disk: &dyn Disk, revision: u64, objects: &[(Key, Arc<Entry>)]) -> io::Result<()> {
    let mut file = disk.create(&(snapshot_name(revision) + TEMPORARY))?;
    file.append(&file_head(Kind::Snapshot, revision))?;
    let mut frame = Frame::new();
    for (key, entry) in objects {
        write_entry(frame.payload(), key, entry);
        if frame.len() >= CHUNK {
            file.append(&std::mem::replace(&mut frame, Frame::new()).finish())?;
        }
    }
    write_complete(frame.payload(), objects.len());
    file.append(&frame.finish())?;
    file.sync()
}

/// Gives a durable file its name.
fn publish(disk: &dyn Disk, name: &str) -> io::Result<()> {
    disk.rename(&format!("{name}{TEMPORARY}"), name)?;
    disk.sync()
}

/// What a snapshot replaces. A file that cannot be removed now is removed at the next start.
pub(super) fn remove_superfluous(disk: &dyn Disk, snapshot: u64) {
    remove(disk, |name| {
        revision_of(name, Kind::Log).is_some_and(|first| first <= snapshot)
            || revision_of(name, Kind::Snapshot).is_some_and(|revision| revision < snapshot)
    });
}

pub(super) fn remove_temporary(disk: &dyn Disk) {
    remove(disk, |name| name.ends_with(TEMPORARY));
}

fn remove(disk: &dyn Disk, which: impl Fn(&str) -> bool) {
    for name in disk.names().unwrap_or_default().into_iter().filter(|name| which(name)) {
        drop(disk.remove(&name));
    }
}
