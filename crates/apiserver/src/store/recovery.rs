//! Recovery: reads snapshot and log into objects.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

use thiserror::Error;

use super::{
    Disk, Entry, Key,
    frame::{BadHead, FILE_HEAD, Kind, Next, check_file_head, next},
    record::{Record, Records, Replay},
    wal::{Log, log_name, remove_superfluous, remove_temporary, revision_of, snapshot_name},
};

/// Why a directory cannot be opened. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{} is in use by another process", directory.display())]
    InUse { directory: PathBuf },
    #[error("{file}: {source}")]
    Io { file: String, source: io::Error },
    #[error("{file} is damaged at byte {offset}: {why}")]
    Damaged { file: String, offset: usize, why: &'static str },
    #[error("{file} has the format version {found}, which this version does not know")]
    Version { file: String, found: u32 },
}

/// A torn write at the end of the log, which was cut off: a crash interrupted it before it was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornWrite {
    pub file: String,
    pub offset: usize,
    pub bytes: usize,
}

pub(super) struct Recovered {
    pub(super) revision: u64,
    pub(super) objects: BTreeMap<Key, Arc<Entry>>,
    pub(super) cut: Option<TornWrite>,
    pub(super) log: Log,
}

pub(super) fn recover(disk: Box<dyn Disk>) -> Result<Recovered, OpenError> {
    let names = disk.names().map_err(io("the directory"))?;
    let snapshot = names.iter().filter_map(|name| revision_of(name, Kind::Snapshot)).max();
    let from = snapshot.unwrap_or(0);
    let mut logs: Vec<u64> = names.iter().filter_map(|name| revision_of(name, Kind::Log)).collect();
    logs.retain(|first| *first > from);
    logs.sort_unstable();
    if logs.is_empty() && snapshot.is_none() {
        return fresh(disk);
    }
    let mut reader = Reader { disk: &*disk, replay: Replay::default(), revision: from, cut: None, length: 0 };
    if let Some(revision) = snapshot {
        reader.snapshot(revision)?;
    }
    let mut written = 0;
    for (at, first) in logs.iter().enumerate() {
        reader.log(*first, at + 1 == logs.len())?;
        written += reader.length;
    }
    let last = logs.last().copied().ok_or_else(|| missing(&log_name(from + 1)))?;
    let Reader { replay, revision, cut, length, .. } = reader;
    let log = resume(disk, last, length as u64, written as u64, from)?;
    Ok(Recovered { revision, objects: replay.objects, cut, log })
}

fn fresh(disk: Box<dyn Disk>) -> Result<Recovered, OpenError> {
    remove_temporary(&*disk);
    let log = Log::create(disk).map_err(io(&log_name(1)))?;
    Ok(Recovered { revision: 0, objects: BTreeMap::new(), cut: None, log })
}

/// Opens the last log to append behind its last whole frame. It is synced before its content is served: the process
/// that wrote the last frame may have died before it was durable.
fn resume(disk: Box<dyn Disk>, last: u64, length: u64, written: u64, from: u64) -> Result<Log, OpenError> {
    let name = log_name(last);
    let mut file = disk.append_at(&name, length).map_err(io(&name))?;
    file.sync().map_err(io(&name))?;
    disk.sync().map_err(io("the directory"))?;
    remove_temporary(&*disk);
    remove_superfluous(&*disk, from);
    Ok(Log::resume(disk, file, written))
}

struct Reader<'disk> {
    disk: &'disk dyn Disk,
    replay: Replay,
    revision: u64,
    cut: Option<TornWrite>,
    /// Of the last file that was read, without what was cut off.
    length: usize,
}

impl Reader<'_> {
    fn snapshot(&mut self, revision: u64) -> Result<(), OpenError> {
        let name = snapshot_name(revision);
        let file = self.open(&name, Kind::Snapshot, revision)?;
        let mut offset = FILE_HEAD;
        let mut complete = false;
        while let Some((payload, end)) = whole(&name, &file, offset, false)? {
            if complete {
                return Err(damaged(&name, offset, "something follows the end of the snapshot"));
            }
            for record in Records::of(payload) {
                let record = record.map_err(|_| damaged(&name, offset, UNREADABLE))?;
                complete = self.ends(&record);
                self.replay.apply(record);
            }
            offset = end;
        }
        if complete { Ok(()) } else { Err(damaged(&name, offset, "the end of the snapshot is missing")) }
    }

    fn ends(&self, record: &Record) -> bool {
        matches!(record, Record::Complete { objects } if *objects == self.replay.objects.len() as u64)
    }

    fn log(&mut self, first: u64, last: bool) -> Result<(), OpenError> {
        if first != self.revision + 1 {
            return Err(missing(&log_name(self.revision + 1)));
        }
        let name = log_name(first);
        let file = self.open(&name, Kind::Log, first)?;
        let mut offset = FILE_HEAD;
        while let Some((payload, end)) = whole(&name, &file, offset, last)? {
            for record in Records::of(payload) {
                let record = record.map_err(|_| damaged(&name, offset, UNREADABLE))?;
                self.follow(&record).map_err(|why| damaged(&name, offset, why))?;
                self.replay.apply(record);
            }
            offset = end;
        }
        self.length = offset;
        if offset < file.len() {
            self.cut = Some(TornWrite { file: name, offset, bytes: file.len() - offset });
        }
        Ok(())
    }

    /// Revisions follow one on the other: a frame that is missing, or there twice, shows.
    fn follow(&mut self, record: &Record) -> Result<(), &'static str> {
        if record.revision() != Some(self.revision + 1) {
            return Err("a revision does not follow on the one before it");
        }
        self.revision += 1;
        Ok(())
    }

    fn open(&self, name: &str, kind: Kind, revision: u64) -> Result<Vec<u8>, OpenError> {
        let file = self.disk.read(name).map_err(io(name))?;
        match check_file_head(&file, kind, revision) {
            Ok(()) => Ok(file),
            Err(BadHead::Damaged(why)) => Err(damaged(name, 0, why)),
            Err(BadHead::Version(found)) => Err(OpenError::Version { file: name.to_owned(), found }),
        }
    }
}

const UNREADABLE: &str = "a record cannot be read";

/// The next whole frame and its end. Only where a crash may have interrupted a write can there be a torn one.
fn whole<'file>(
    name: &str,
    file: &'file [u8],
    offset: usize,
    may_be_torn: bool,
) -> Result<Option<(&'file [u8], usize)>, OpenError> {
    match next(file, offset) {
        Next::Frame(payload, end) => Ok(Some((payload, end))),
        Next::End => Ok(None),
        Next::Torn if may_be_torn => Ok(None),
        Next::Torn => Err(damaged(name, offset, "a frame is cut short")),
        Next::Damaged(why) => Err(damaged(name, offset, why)),
    }
}

fn io(file: &str) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::Io { file: file.to_owned(), source }
}

fn damaged(file: &str, offset: usize, why: &'static str) -> OpenError {
    OpenError::Damaged { file: file.to_owned(), offset, why }
}

fn missing(file: &str) -> OpenError {
    damaged(file, 0, "the file is missing")
}
