//! Files that were cut or damaged: a write that a crash interrupted is cut off, anything else is refused.

use std::collections::BTreeMap;

use apiserver::store::{OpenError, Settings, Store, TornWrite};

use crate::{
    disk::SimulatedDisk,
    support::{EAGER, block_on, create, live, pods},
};

type Files = BTreeMap<String, Vec<u8>>;

const FILE_HEAD: usize = 24;

fn open(files: &Files) -> Result<(Store, Option<TornWrite>), OpenError> {
    let disk = SimulatedDisk::with_files(files);
    Store::open_on(Box::new(disk), Settings::default()).map(|opened| (opened.store, opened.cut))
}

/// One log, with the length of it after each batch and the pods then.
fn small_log() -> (String, Vec<u8>, BTreeMap<usize, BTreeMap<String, u64>>) {
    let disk = SimulatedDisk::default();
    let store = Store::open_on(Box::new(disk.clone()), Settings::default()).unwrap().store;
    let length = || disk.files().values().next().unwrap().len();
    let mut states = BTreeMap::from([(length(), BTreeMap::new())]);
    block_on(live(&store, 12, |_, pods| drop(states.insert(length(), pods))));
    drop(store);
    let (name, log) = disk.files().pop_first().unwrap();
    (name, log, states)
}

#[test]
fn every_beginning_of_a_log_opens_to_a_beginning_of_what_was_acknowledged() {
    let (name, log, states) = small_log();
    for length in 0..=log.len() {
        let opened = open(&Files::from([(name.clone(), log[..length].to_vec())]));
        if length < FILE_HEAD {
            // Its name was given when the head was durable: no crash leaves this.
            assert!(matches!(opened, Err(OpenError::Damaged { offset: 0, .. })));
            continue;
        }
        let (store, cut) = opened.unwrap();
        let (end, expected) = states.range(..=length).next_back().unwrap();
        assert_eq!(pods(&store), *expected);
        let bytes = length - end;
        assert_eq!(cut, (bytes > 0).then(|| TornWrite { file: name.clone(), offset: *end, bytes }));
    }
}

#[test]
fn what_follows_a_cut_is_found_again() {
    let (name, log, _) = small_log();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(name), &log[..log.len() - 1]).unwrap();
    let opened = Store::open(directory.path(), Settings::default()).unwrap();
    assert!(opened.cut.is_some());
    block_on(opened.store.commit(create("after", 99))).unwrap();
    let expected = pods(&opened.store);
    drop(opened);
    let opened = Store::open(directory.path(), Settings::default()).unwrap();
    assert_eq!((opened.cut, pods(&opened.store)), (None, expected));
}

/// A snapshot and a log with something in it.
fn small_snapshot() -> Files {
    let disk = SimulatedDisk::default();
    let store = Store::open_on(Box::new(disk.clone()), EAGER).unwrap().store;
    block_on(live(&store, 40, |_, _| {}));
    drop(store);
    let files = disk.files();
    let kinds: Vec<_> = files.iter().map(|(name, bytes)| (&name[..3], bytes.len() > FILE_HEAD)).collect();
    assert_eq!(kinds, [("log", true), ("sna", true)]);
    files
}

fn every_flip_is_refused(files: &Files) {
    for (name, bytes) in files {
        for bit in 0..bytes.len() * 8 {
            let mut damaged = files.clone();
            damaged.get_mut(name).unwrap()[bit / 8] ^= 1 << (bit % 8);
            match open(&damaged).err() {
                Some(OpenError::Damaged { file, offset, .. }) => {
                    assert!(file == *name && offset <= bit / 8, "{file} {offset} for bit {bit} of {name}");
                }
                other => panic!("bit {bit} of {name}: {other:?}"),
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_a_log_is_refused() {
    let (name, log, _) = small_log();
    every_flip_is_refused(&Files::from([(name, log)]));
}

#[test]
fn every_flipped_bit_of_a_snapshot_and_its_log_is_refused() {
    every_flip_is_refused(&small_snapshot());
}

#[test]
fn every_flipped_bit_at_the_edge_of_a_sector_is_refused() {
    // The frame begins one to four bytes before a sector, or ends so behind one: the piece in that sector is small.
    for padding in 0..560 {
        let disk = SimulatedDisk::default();
        let store = Store::open_on(Box::new(disk.clone()), Settings::default()).unwrap().store;
        block_on(
            store.commit(create(
                &"p".repeat(1 + padding / 3),
                10_u64.pow(u32::try_from(padding % 3).unwrap()),
            )),
        )
        .unwrap();
        let begins = disk.files().values().next().unwrap().len();
        block_on(store.commit(create("b", 1))).unwrap();
        drop(store);
        let (name, log) = disk.files().pop_first().unwrap();
        let near = |at: usize| (at % 512 > 508 || at % 512 < 4) && at > FILE_HEAD;
        if !near(begins) && !near(log.len()) {
            continue;
        }
        for at in (begins..begins + 16).chain(log.len() - 5..log.len()) {
            for bit in 0..8 {
                let mut damaged = log.clone();
                damaged[at] ^= 1 << bit;
                let opened = open(&Files::from([(name.clone(), damaged)]));
                assert!(matches!(opened, Err(OpenError::Damaged { .. })), "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn a_sector_that_was_never_written_is_cut_off_only_at_the_end() {
    let (name, log, states) = small_log();
    let ends: Vec<usize> = states.keys().copied().collect();
    let frames: Vec<(usize, usize)> = ends.windows(2).map(|ends| (ends[0], ends[1])).collect();
    for (begin, end) in &frames {
        let edge = (begin / 512 + 1) * 512;
        let mut damaged = log.clone();
        damaged[*begin..edge.min(*end)].fill(0);
        let opened = open(&Files::from([(name.clone(), damaged)]));
        if *end < log.len() {
            assert!(matches!(opened, Err(OpenError::Damaged { offset, .. }) if offset == *begin));
            continue;
        }
        let (store, cut) = opened.unwrap();
        assert_eq!(pods(&store), states[begin]);
        assert_eq!(cut, Some(TornWrite { file: name.clone(), offset: *begin, bytes: end - begin }));
    }
}

#[test]
fn a_missing_file_is_refused() {
    for name in small_snapshot().into_keys() {
        let mut files = small_snapshot();
        files.remove(&name);
        assert!(matches!(open(&files), Err(OpenError::Damaged { .. })), "without {name}");
    }
}

#[test]
fn another_format_is_refused_by_its_number() {
    let (name, mut log, _) = small_log();
    log[8] = 9;
    let sum = crc(&log[..20]);
    log[20..24].copy_from_slice(&sum.to_le_bytes());
    let refused = open(&Files::from([(name, log)])).err().unwrap();
    assert!(matches!(refused, OpenError::Version { found: 9, .. }), "{refused}");
}

/// CRC-32 as in gzip, bit by bit: the format stays readable by anything.
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}
