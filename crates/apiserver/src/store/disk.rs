//! The files of a durable store.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use super::OpenError;

/// One directory. A seam: tests put a disk here that fails, or that forgets what was not synced.
pub trait Disk: Send {
    fn names(&self) -> io::Result<Vec<String>>;
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// An empty file, in place of one that may be there.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// A file that is there, cut to a length, to append to.
    fn append_at(&self, name: &str, length: u64) -> io::Result<Box<dyn DiskFile>>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes names durable. A file's content is made durable by its own sync.
    fn sync(&self) -> io::Result<()>;
}

pub trait DiskFile: Send {
    fn length(&self) -> io::Result<u64>;
    /// After an error a part of the bytes may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Drops what is behind a length. The next append follows there.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory of this process alone: as long as this lives, another process cannot open it.
pub struct Directory {
    path: PathBuf,
    _lock: File,
}

const LOCK: &str = "lock";

impl Directory {
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { file: path.display().to_string(), source };
        make_private(path).map_err(io)?;
        let lock = private().create(true).truncate(false).write(true).open(path.join(LOCK)).map_err(io)?;
        match take(&lock) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { directory: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }
}

/// A process that was just started by the last holder has the lock too, until it has become another program: a moment is
/// worth waiting for.
fn take(lock: &File) -> Result<(), TryLockError> {
    for _ in 0..20 {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(50)),
            other => return other,
        }
    }
    lock.try_lock()
}

/// Secrets are in there.
fn make_private(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        path.parent().filter(|parent| parent.is_dir()).map_or(Ok(()), sync_directory)?;
    }
    let mode = path.metadata()?.permissions().mode();
    let others = mode & 0o077;
    if others == 0 { Ok(()) } else { std::fs::set_permissions(path, Permissions::from_mode(0o700)) }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl Disk for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.path)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.path.join(name))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = private().create(true).truncate(true).write(true).open(self.path.join(name))?;
        Ok(Box::new(file))
    }

    fn append_at(&self, name: &str, length: u64) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().append(true).open(self.path.join(name))?;
        file.set_len(length)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        sync_directory(&self.path)
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.seek(SeekFrom::Start(length)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
