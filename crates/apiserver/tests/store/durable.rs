//! What is acknowledged is there after any crash and any failure of the disk.

use std::{
    collections::BTreeMap,
    io,
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
};

use apiserver::store::{CommitError, Disk, DiskFile, Health, OpenError, RevisionError, Settings, Store};

use crate::{
    disk::{Platter, SimulatedDisk, UNSYNCED, Unsynced},
    support::{EAGER, PODS, block_on, create, everything, live, pods},
};

fn open(disk: &SimulatedDisk) -> Store {
    Store::open_on(Box::new(disk.clone()), EAGER).unwrap().store
}

#[test]
fn a_store_reopens_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    for settings in [Settings::default(), EAGER, EAGER] {
        let store = Store::open(directory.path(), settings).unwrap().store;
        let revision = store.revision();
        block_on(live(&store, 100, |_, _| {}));
        assert!(store.revision() >= revision + 100);
        let (before, revision) = (everything(&store), store.revision());
        drop(store);
        let opened = Store::open(directory.path(), settings).unwrap();
        assert_eq!(opened.cut, None);
        assert_eq!((everything(&opened.store), opened.store.revision()), (before, revision));
    }
}

#[test]
fn history_ends_at_a_restart() {
    let disk = SimulatedDisk::default();
    block_on(live(&open(&disk), 10, |_, _| {}));
    let store = open(&disk);
    let newest = store.revision();
    assert_eq!(store.watch(PODS, newest - 1).err(), Some(RevisionError::Expired { oldest: newest }));
    let mut watcher = store.watch(PODS, newest).unwrap();
    block_on(store.commit(create("new", 1))).unwrap();
    assert_eq!(watcher.try_next().unwrap().unwrap().revision(), newest + 1);
}

#[test]
fn a_directory_belongs_to_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    let store = Store::open(&path, EAGER).unwrap().store;
    let second = Store::open(&path, EAGER).err().unwrap();
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    drop(store);
    assert!(Store::open(&path, EAGER).is_ok());
}

#[test]
fn nobody_else_can_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    block_on(live(&Store::open(&path, EAGER).unwrap().store, 50, |_, _| {}));
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let files: Vec<_> = path.read_dir().unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 3 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
}

/// The pods at every revision that was acknowledged, and the newest of these.
#[derive(Clone, Default)]
struct Acknowledged(Arc<Mutex<BTreeMap<u64, BTreeMap<String, u64>>>>);

impl Acknowledged {
    fn note(&self, revision: u64, pods: BTreeMap<String, u64>) {
        self.0.lock().unwrap().insert(revision, pods);
    }

    fn newest(&self) -> u64 {
        self.0.lock().unwrap().last_key_value().map_or(0, |(revision, _)| *revision)
    }

    /// Nothing that was acknowledged is lost, and what is there beyond is one of the states that were on their way.
    fn check(&self, store: &Store, newest: u64) {
        let revision = store.revision();
        assert!(
            revision >= newest,
            "revision {newest} was acknowledged, and {revision} is the newest that is there"
        );
        let expected = self.0.lock().unwrap().get(&revision).cloned();
        assert!(expected.is_none_or(|expected| expected == pods(store)));
    }
}

#[test]
fn a_crash_at_any_moment_loses_nothing_acknowledged() {
    let disk = SimulatedDisk::default();
    let acknowledged = Acknowledged::default();
    acknowledged.note(0, BTreeMap::new());
    let moments: Arc<Mutex<Vec<(u64, Platter)>>> = Arc::default();
    let (noted, seen) = (Arc::clone(&moments), acknowledged.clone());
    disk.observe(move |platter| noted.lock().unwrap().push((seen.newest(), platter.clone())));
    let store = open(&disk);
    assert!(block_on(live(&store, 60, |revision, pods| acknowledged.note(revision, pods))));
    drop(store);
    let moments = std::mem::take(&mut *moments.lock().unwrap());
    let snapshots = disk.files().keys().filter(|name| name.starts_with("snapshot")).count();
    assert!(moments.len() > 150 && snapshots == 1, "{} moments, {snapshots} snapshots", moments.len());
    for (newest, platter) in &moments {
        for unsynced in UNSYNCED {
            let survivor = platter.after_crash(unsynced);
            acknowledged.check(&open(&survivor), *newest);
            // The first start may itself have been interrupted: the second finds the same.
            let again = survivor.platter().after_crash(unsynced);
            acknowledged.check(&open(&again), *newest);
        }
        // What the process after a kill shows survives the loss of power too.
        let killed = platter.after_kill();
        let shown = open(&killed).revision();
        acknowledged.check(&open(&killed.platter().after_crash(Unsynced::Lost)), shown);
    }
}

#[test]
fn a_disk_that_fails_makes_the_store_read_only_and_loses_nothing() {
    let probe = SimulatedDisk::default();
    block_on(live(&open(&probe), 60, |_, _| {}));
    let mut read_only = 0;
    for operation in 5..probe.operations() {
        let disk = SimulatedDisk::default();
        disk.fail_at(operation);
        let acknowledged = Acknowledged::default();
        let store = open(&disk);
        block_on(live(&store, 200, |revision, pods| acknowledged.note(revision, pods)));
        read_only += 1;
        let why = store
            .health()
            .borrow()
            .read_only
            .clone()
            .expect("should be read-only: every operation fails by now");
        assert!(why.contains("the simulated disk failed"), "{why}");
        let (revision, operations) = (store.revision(), disk.operations());
        let refused = block_on(store.commit(create("late", 1))).unwrap_err();
        assert_eq!(refused, CommitError::ReadOnly { why });
        assert_eq!(disk.operations(), operations, "a disk that failed is not asked again");
        // What is not known to be durable is not shown.
        assert_eq!(revision, acknowledged.newest());
        drop(store);
        for unsynced in UNSYNCED {
            acknowledged.check(&open(&disk.platter().after_crash(unsynced)), acknowledged.newest());
        }
    }
    assert!(read_only > 100);
}

#[test]
fn a_full_disk_refuses_commits_until_there_is_room_and_loses_nothing() {
    let disk = SimulatedDisk::default();
    let store = open(&disk);
    let acknowledged = Acknowledged::default();
    block_on(live(&store, 20, |revision, pods| acknowledged.note(revision, pods)));
    let mut refused = 0;
    for (at, room) in [0, 1, 20, 40, 0].into_iter().enumerate() {
        disk.set_room(Some(room));
        let (revision, before) = (store.revision(), everything(&store));
        let error = block_on(store.commit(create(&format!("none{at}"), 400))).unwrap_err();
        assert!(matches!(&error, CommitError::Full { .. }), "{error}");
        assert!(store.health().borrow().full.is_some());
        assert_eq!((store.revision(), everything(&store)), (revision, before), "it was not stored");
        for unsynced in UNSYNCED {
            acknowledged.check(&open(&disk.platter().after_crash(unsynced)), acknowledged.newest());
        }
        refused += 1;
        disk.set_room(None);
        block_on(store.commit(create(&format!("one{at}"), 400))).unwrap();
        acknowledged.note(store.revision(), pods(&store));
        assert_eq!(*store.health().borrow(), Health::default(), "it has recovered");
        for unsynced in UNSYNCED {
            acknowledged.check(&open(&disk.platter().after_crash(unsynced)), acknowledged.newest());
        }
    }
    assert_eq!(refused, 5);
}

#[test]
fn a_snapshot_that_finds_no_room_is_postponed() {
    let disk = SimulatedDisk::default();
    let full = NoNewFiles(disk.clone());
    block_on(live(&open(&disk), 5, |_, _| {}));
    let store = Store::open_on(Box::new(full), EAGER).unwrap().store;
    assert!(block_on(live(&store, 60, |_, _| {})));
    let before = everything(&store);
    drop(store);
    assert_eq!(disk.files().len(), 1);
    let store = open(&disk);
    assert_eq!(everything(&store), before);
    block_on(live(&store, 1, |_, _| {}));
    drop(store);
    assert!(disk.files().keys().any(|name| name.starts_with("snapshot")));
}

struct NoNewFiles(SimulatedDisk);

impl Disk for NoNewFiles {
    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.0.read(name)
    }
    fn create(&self, _: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::StorageFull.into())
    }
    fn append_at(&self, name: &str, length: u64) -> io::Result<Box<dyn DiskFile>> {
        self.0.append_at(name, length)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}
