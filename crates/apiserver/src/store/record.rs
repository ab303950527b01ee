//! Records: what a frame holds.

use std::{collections::BTreeMap, str, sync::Arc};

use bytes::Bytes;

use super::{Entry, Event, Key, Resource};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DROP: u8 = 3;
const COMPLETE: u8 = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    Put(Key, Entry),
    Delete {
        key: Key,
        revision: u64,
    },
    Drop {
        resource: Resource,
        revision: u64,
    },
    /// The end of a snapshot: a snapshot without it is not whole.
    Complete {
        objects: u64,
    },
}

impl Record {
    pub(super) fn revision(&self) -> Option<u64> {
        match self {
            Self::Put(_, Entry { revision, .. })
            | Self::Delete { revision, .. }
            | Self::Drop { revision, .. } => Some(*revision),
            Self::Complete { .. } => None,
        }
    }
}

pub(super) fn write_event(out: &mut Vec<u8>, event: &Event) {
    match event.now() {
        Some(entry) => write_entry(out, &event.key, entry),
        None => write_delete(out, &event.key, event.revision()),
    }
}

pub(super) fn write_entry(out: &mut Vec<u8>, key: &Key, entry: &Entry) {
    out.push(PUT);
    write_key(out, key);
    write_number(out, entry.revision);
    write_pairs(out, entry.labels.len(), entry.labels.iter());
    write_pairs(out, entry.fields.len(), entry.fields.iter().map(|(field, value)| (field, value)));
    write_bytes(out, &entry.bytes);
}

fn write_delete(out: &mut Vec<u8>, key: &Key, revision: u64) {
    out.push(DELETE);
    write_key(out, key);
    write_number(out, revision);
}

pub(super) fn write_drop(out: &mut Vec<u8>, resource: &str, revision: u64) {
    out.push(DROP);
    write_bytes(out, resource.as_bytes());
    write_number(out, revision);
}

pub(super) fn write_complete(out: &mut Vec<u8>, objects: usize) {
    out.push(COMPLETE);
    write_number(out, objects as u64);
}

fn write_key(out: &mut Vec<u8>, key: &Key) {
    for part in [&key.resource, &key.place.namespace, &key.place.name] {
        write_bytes(out, part.as_bytes());
    }
}

fn write_pairs<'a>(out: &mut Vec<u8>, count: usize, pairs: impl Iterator<Item = (&'a String, &'a String)>) {
    write_number(out, count as u64);
    for (name, value) in pairs {
        write_bytes(out, name.as_bytes());
        write_bytes(out, value.as_bytes());
    }
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Seven bits per byte, the lowest first: most numbers are small.
fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Reads the records of one frame. A frame whose checksum matches and that cannot be read was written by a bug, or by
/// a newer version that forgot to say so.
pub(super) struct Records<'frame> {
    rest: &'frame [u8],
}

impl<'frame> Records<'frame> {
    pub(super) fn of(payload: &'frame [u8]) -> Self {
        Self { rest: payload }
    }

    fn record(&mut self) -> Option<Record> {
        Some(match self.take(1)?[0] {
            PUT => {
                let key = self.key()?;
                let entry = self.entry()?;
                Record::Put(key, entry)
            }
            DELETE => Record::Delete { key: self.key()?, revision: self.number()? },
            DROP => Record::Drop { resource: self.text()?.into(), revision: self.number()? },
            COMPLETE => Record::Complete { objects: self.number()? },
            _ => return None,
        })
    }

    fn key(&mut self) -> Option<Key> {
        let (resource, namespace, name) = (self.text()?, self.text()?, self.text()?);
        Some(Key::new(resource, namespace, name))
    }

    fn entry(&mut self) -> Option<Entry> {
        let revision = self.number()?;
        let labels: BTreeMap<_, _> = self.pairs()?.into_iter().collect();
        let fields = self.pairs()?;
        Some(Entry { revision, labels, fields, bytes: Bytes::copy_from_slice(self.bytes()?) })
    }

    fn pairs(&mut self) -> Option<Vec<(String, String)>> {
        (0..self.number()?).map(|_| Some((self.text()?.to_owned(), self.text()?.to_owned()))).collect()
    }

    fn text(&mut self) -> Option<&'frame str> {
        str::from_utf8(self.bytes()?).ok()
    }

    fn bytes(&mut self) -> Option<&'frame [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'frame [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}

/// A record that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

impl Iterator for Records<'_> {
    type Item = Result<Record, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.record().ok_or(Unreadable))
    }
}

/// The objects that a list of records leaves.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) objects: BTreeMap<Key, Arc<Entry>>,
}

impl Replay {
    pub(super) fn apply(&mut self, record: Record) {
        match record {
            Record::Put(key, entry) => drop(self.objects.insert(key, Arc::new(entry))),
            Record::Delete { key, .. } => drop(self.objects.remove(&key)),
            Record::Drop { resource, .. } => self.objects.retain(|key, _| key.resource != resource),
            Record::Complete { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read(
            revision: u64,
            words in prop::collection::vec(".{0,9}", 7),
            labels: BTreeMap<String, String>,
            bytes: Vec<u8>,
        ) {
            let key = Key::new(&words[0], &words[1], &words[2]);
            let fields = vec![(words[3].clone(), words[4].clone())];
            let entry = Entry { revision, bytes: bytes.into(), labels, fields };
            let mut out = Vec::new();
            write_entry(&mut out, &key, &entry);
            write_delete(&mut out, &key, revision);
            write_drop(&mut out, &words[5], revision);
            write_complete(&mut out, 300);
            let read: Vec<_> = Records::of(&out).collect();
            prop_assert_eq!(read, vec![
                Ok(Record::Put(key.clone(), entry)),
                Ok(Record::Delete { key, revision }),
                Ok(Record::Drop { resource: words[5].as_str().into(), revision }),
                Ok(Record::Complete { objects: 300 }),
            ]);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            for record in Records::of(&bytes).take(100) {
                drop(record);
            }
        }
    }
}
