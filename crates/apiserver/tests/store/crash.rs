//! A process that is killed while eight threads write.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use apiserver::store::{Change, History, Key, Query, Settings, Store};

use crate::support::{Dice, PODS, block_on, draft, key, value};

const DIRECTORY: &str = "STORE_CRASH_DIRECTORY";
const SEED: &str = "STORE_CRASH_SEED";
const KILLS: u64 = 200;
const WRITERS: u64 = 8;
const NAMES: u64 = 12;
/// Compacts every few hundred writes: some kills hit a compaction.
const SETTINGS: Settings = Settings { history: History { events: 100, bytes: 1 << 20 }, least_log: 32 << 10 };

/// The other process: not a test of its own.
#[test]
fn victim() {
    let Ok(directory) = env::var(DIRECTORY) else { return };
    let seed: u64 = env::var(SEED).unwrap().parse().unwrap();
    let store = Store::open(Path::new(&directory), SETTINGS).unwrap().store;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || write_for_ever(store, writer, &mut Dice(seed * WRITERS + writer)));
        }
    });
}

/// Says what it tries before it does, and what revision it got.
fn write_for_ever(store: &Store, writer: u64, dice: &mut Dice) {
    let say = |line: String| std::io::stdout().write_all(line.as_bytes()).unwrap();
    // No two writes of any two processes are of the same value.
    let first = dice.0 << 24;
    for number in first.. {
        let name = format!("pod-{}", dice.roll(NAMES));
        let current = store.get(&key(&name)).map(|entry| entry.revision);
        let (change, deletes) = match current {
            None => (Change::create(key(&name), draft(&name, number)), false),
            Some(over) if dice.roll(4) == 0 => (Change::delete(key(&name), over, draft(&name, number)), true),
            Some(over) => (Change::update(key(&name), over, draft(&name, number)), false),
        };
        say(format!("\ntry {writer} {name} {deletes} {number}\n"));
        match block_on(store.commit(change)) {
            Ok(entry) => say(format!("\nack {writer} {}\n", entry.revision)),
            Err(_) => say(format!("\nlost {writer}\n")),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Write {
    name: String,
    deletes: bool,
    value: u64,
}

/// What is known from outside.
#[derive(Default)]
struct Witness {
    revision: u64,
    /// The last write to each name that was acknowledged.
    known: BTreeMap<String, (u64, Write)>,
    /// What was tried and not answered, by writer.
    open: BTreeMap<u64, Write>,
    acknowledged: u64,
}

impl Witness {
    fn hear(&mut self, line: &str) -> bool {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["try", writer, name, deletes, value] => {
                let write = Write {
                    name: name.into(),
                    deletes: deletes.parse().unwrap(),
                    value: value.parse().unwrap(),
                };
                self.open.insert(writer.parse().unwrap(), write);
            }
            ["lost", writer] => drop(self.open.remove(&writer.parse().unwrap())),
            ["ack", writer, revision] => {
                let write = self.open.remove(&writer.parse().unwrap()).unwrap();
                self.know(revision.parse().unwrap(), write);
                return true;
            }
            _ => {}
        }
        false
    }

    fn know(&mut self, revision: u64, write: Write) {
        self.acknowledged += 1;
        let known = self.known.entry(write.name.clone()).or_insert_with(|| (revision, write.clone()));
        assert!(revision > self.revision, "revision {revision} was there before the start");
        if revision > known.0 {
            *known = (revision, write);
        }
    }

    /// Each name is as its last acknowledged write left it, or as one left it that nobody was told of.
    fn inspect(&mut self, store: &Store) {
        let listing = store.list(PODS, &Query::default()).unwrap();
        let newest = self.known.values().map(|(revision, _)| *revision).max().unwrap_or(0);
        assert!(listing.revision >= newest);
        let open: Vec<Write> = std::mem::take(&mut self.open).into_values().collect();
        for name in (0..NAMES).map(|number| format!("pod-{number}")) {
            let known = self.known.get(&name).filter(|(_, write)| !write.deletes);
            let since = self.known.get(&name).map_or(0, |(revision, _)| *revision);
            let mut unanswered = open.iter().filter(|write| write.name == name);
            match store.get(&Key::new(PODS, "default", &name)) {
                Some(entry) if known.is_some_and(|(revision, _)| *revision == entry.revision) => {
                    assert_eq!(value(&entry), known.unwrap().1.value);
                }
                Some(entry) => {
                    assert!(
                        entry.revision > since,
                        "{name}: {since} was acknowledged, {} is there",
                        entry.revision
                    );
                    let write = unanswered.find(|write| !write.deletes && write.value == value(&entry));
                    self.known.insert(name, (entry.revision, write.expect("should have been tried").clone()));
                }
                None if known.is_none() => {}
                None => {
                    let write =
                        unanswered.find(|write| write.deletes).expect("should be there: it was acknowledged");
                    self.known.insert(name, (listing.revision, write.clone()));
                }
            }
        }
        self.revision = listing.revision;
    }
}

fn run_and_kill(directory: &Path, seed: u64, acknowledgements: u64, witness: &mut Witness) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "crash::victim", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut heard = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        heard += u64::from(witness.hear(&line.unwrap()));
        if heard == acknowledgements {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(heard >= acknowledgements, "the victim died by itself");
}

#[test]
fn a_kill_at_any_moment_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut dice = Dice(1);
    let mut witness = Witness::default();
    let mut cuts = 0;
    for seed in 0..KILLS {
        run_and_kill(directory.path(), seed, 1 + dice.roll(120), &mut witness);
        let opened = Store::open(directory.path(), SETTINGS).unwrap();
        cuts += u64::from(opened.cut.is_some());
        witness.inspect(&opened.store);
    }
    println!("{} acknowledged, {} written, {cuts} cut off", witness.acknowledged, witness.revision);
    let files: Vec<_> = directory.path().read_dir().unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(files.iter().any(|name| name.to_string_lossy().starts_with("snapshot")), "{files:?}");
}
