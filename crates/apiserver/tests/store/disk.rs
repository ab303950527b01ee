//! A disk that forgets what was not synced, and that can fail.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use apiserver::store::{Disk, DiskFile};

/// How much of what was not synced is there after the crash.
#[derive(Clone, Copy, Debug)]
pub enum Unsynced {
    Lost,
    /// A file system may write names before content.
    LostButNames,
    Half,
    /// The length is there, the content of every other sector is not.
    Holes,
    Kept,
}

pub const UNSYNCED: [Unsynced; 5] =
    [Unsynced::Lost, Unsynced::LostButNames, Unsynced::Half, Unsynced::Holes, Unsynced::Kept];

#[derive(Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Clone, Default)]
pub struct Platter {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
}

impl Platter {
    /// What the next process finds when only the process died: all of it, durable or not.
    pub fn after_kill(&self) -> SimulatedDisk {
        SimulatedDisk::of(self.clone())
    }

    /// The disk that the next process finds.
    pub fn after_crash(&self, unsynced: Unsynced) -> SimulatedDisk {
        let kept = matches!(unsynced, Unsynced::Kept | Unsynced::LostButNames);
        let names = if kept { &self.names } else { &self.synced_names }.clone();
        let survive = |inode: &Inode| {
            let bytes = inode.surviving(unsynced);
            Inode { synced: bytes.clone(), bytes }
        };
        let inodes = self.inodes.iter().map(survive).collect();
        SimulatedDisk::of(Self { inodes, synced_names: names.clone(), names })
    }
}

impl Inode {
    fn surviving(&self, unsynced: Unsynced) -> Vec<u8> {
        let from = self.synced.len().min(self.bytes.len());
        let mut bytes = self.bytes.clone();
        match unsynced {
            Unsynced::Lost | Unsynced::LostButNames => return self.synced.clone(),
            Unsynced::Half => bytes.truncate(from + (self.bytes.len() - from) / 2),
            Unsynced::Holes => {
                let hole = |(at, byte): (usize, &mut u8)| {
                    if at >= from && (at / 512).is_multiple_of(2) == (from / 512).is_multiple_of(2) {
                        *byte = 0;
                    }
                };
                bytes.iter_mut().enumerate().for_each(hole);
            }
            Unsynced::Kept => {}
        }
        bytes
    }
}

type Observer = Box<dyn FnMut(&Platter) + Send>;

#[derive(Default)]
struct Simulation {
    platter: Platter,
    operations: usize,
    fails_at: Option<usize>,
    /// How many bytes more there is room for.
    room: Option<usize>,
    /// Sees the platter before every operation: any of these moments may be the last.
    observer: Option<Observer>,
}

#[derive(Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<Simulation>>);

impl SimulatedDisk {
    fn of(platter: Platter) -> Self {
        Self(Arc::new(Mutex::new(Simulation { platter, ..Simulation::default() })))
    }

    pub fn with_files(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let inode = |bytes: &Vec<u8>| Inode { bytes: bytes.clone(), synced: bytes.clone() };
        let inodes = files.values().map(inode).collect();
        let names: BTreeMap<_, _> = files.keys().cloned().zip(0..).collect();
        Self::of(Platter { inodes, synced_names: names.clone(), names })
    }

    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let platter = &self.lock().platter;
        platter
            .names
            .iter()
            .map(|(name, inode)| (name.clone(), platter.inodes[*inode].bytes.clone()))
            .collect()
    }

    pub fn platter(&self) -> Platter {
        self.lock().platter.clone()
    }

    pub fn operations(&self) -> usize {
        self.lock().operations
    }

    /// The operation with this number and all after it fail.
    pub fn fail_at(&self, operation: usize) {
        self.lock().fails_at = Some(operation);
    }

    /// Limits the bytes that can be appended from now on.
    pub fn set_room(&self, room: Option<usize>) {
        self.lock().room = room;
    }

    /// Takes the room for so many bytes. Returns how many fit.
    fn take_room(&self, bytes: usize) -> usize {
        let room = &mut self.lock().room;
        let fits = room.map_or(bytes, |room| room.min(bytes));
        *room = room.map(|room| room - fits);
        fits
    }

    pub fn observe(&self, observer: impl FnMut(&Platter) + Send + 'static) {
        self.lock().observer = Some(Box::new(observer));
    }

    fn lock(&self) -> MutexGuard<'_, Simulation> {
        self.0.lock().unwrap()
    }

    fn operate<T>(&self, operation: impl FnOnce(&mut Platter) -> io::Result<T>) -> io::Result<T> {
        let mut simulation = self.lock();
        let Simulation { platter, operations, fails_at, observer, .. } = &mut *simulation;
        if let Some(observer) = observer {
            observer(platter);
        }
        *operations += 1;
        if fails_at.is_some_and(|at| *operations > at) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the simulated disk failed"));
        }
        operation(platter)
    }
}

fn find(platter: &Platter, name: &str) -> io::Result<usize> {
    platter.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl Disk for SimulatedDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().platter.names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let platter = &self.lock().platter;
        Ok(platter.inodes[find(platter, name)?].bytes.clone())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.operate(|platter| {
            platter.inodes.push(Inode::default());
            let inode = platter.inodes.len() - 1;
            platter.names.insert(name.to_owned(), inode);
            Ok(Box::new(SimulatedFile { disk: self.clone(), inode }) as Box<dyn DiskFile>)
        })
    }

    fn append_at(&self, name: &str, length: u64) -> io::Result<Box<dyn DiskFile>> {
        self.operate(|platter| {
            let inode = find(platter, name)?;
            platter.inodes[inode].bytes.truncate(usize::try_from(length).unwrap());
            Ok(Box::new(SimulatedFile { disk: self.clone(), inode }) as Box<dyn DiskFile>)
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.operate(|platter| {
            let inode = find(platter, from)?;
            platter.names.remove(from);
            platter.names.insert(to.to_owned(), inode);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.operate(|platter| {
            platter.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.operate(|platter| {
            platter.synced_names = platter.names.clone();
            Ok(())
        })
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    inode: usize,
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.lock().platter.inodes[self.inode].bytes.len() as u64)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fits = self.disk.take_room(bytes.len());
        if fits < bytes.len() {
            self.disk.lock().platter.inodes[self.inode].bytes.extend_from_slice(&bytes[..fits]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let done = self.disk.operate(|platter| {
            platter.inodes[self.inode].bytes.extend_from_slice(bytes);
            Ok(())
        });
        if done.is_err() {
            // As on a full disk: a part of it is there.
            let half = &bytes[..bytes.len() / 2];
            self.disk.lock().platter.inodes[self.inode].bytes.extend_from_slice(half);
        }
        done
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.disk.operate(|platter| {
            platter.inodes[self.inode].bytes.truncate(usize::try_from(length).unwrap());
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.operate(|platter| {
            let inode = &mut platter.inodes[self.inode];
            inode.synced = inode.bytes.clone();
            Ok(())
        })
    }
}
