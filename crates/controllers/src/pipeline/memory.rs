//! What a process remembers of objects. None of it decides anything: a process that has forgotten it finds the same
//! again by trying, asking or reading once more.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::ResourceExt;

use super::Refusals;
use crate::{
    Call,
    revisions::NewRevision,
    runtime::{Error, Key, Watched},
};

/// Objects of ours of which it is known what the API made of our last write. Beyond them all are forgotten.
const MOST_SETTLED: usize = 16_384;

/// Which object of which controller.
type Id = (&'static str, Key);

/// Values read from stored objects, by name, each with the version that it was read from.
type Read = BTreeMap<String, (String, Arc<dyn Any + Send + Sync>)>;

/// What a process remembers.
#[derive(Default)]
pub(crate) struct Memory {
    refusals: Mutex<BTreeMap<Id, Refusals>>,
    sent: Mutex<BTreeMap<Id, Vec<String>>>,
    settled: Mutex<BTreeMap<String, String>>,
    read: Mutex<BTreeMap<Id, Read>>,
    wanted: Mutex<BTreeMap<Id, (SpecId, Arc<NewRevision>)>>,
}

/// Which spec of which object: its uid and its generation.
type SpecId = (Option<String>, Option<i64>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which calls these are.
fn ids(calls: &[Call]) -> Vec<String> {
    calls.iter().map(|call| format!("{} {}", call.target, call.id)).collect()
}

impl Memory {
    /// Forgets an object that is gone.
    pub(super) fn forget(&self, controller: &'static str, key: &Key) {
        let id = (controller, key.clone());
        lock(&self.refusals).remove(&id);
        lock(&self.sent).remove(&id);
        lock(&self.read).remove(&id);
        lock(&self.wanted).remove(&id);
    }

    /// The revision that an object asks for, worked out once per generation of its spec.
    pub(crate) fn wanted<K: Watched>(
        &self,
        controller: &'static str,
        object: &K,
        of: fn(&K) -> Result<NewRevision, Error>,
    ) -> Result<Arc<NewRevision>, Error> {
        let id = (controller, Key::of(object));
        let spec = (object.uid(), object.meta().generation);
        if let Some((known, wanted)) = lock(&self.wanted).get(&id)
            && *known == spec
        {
            return Ok(Arc::clone(wanted));
        }
        let wanted = Arc::new(of(object)?);
        lock(&self.wanted).insert(id, (spec, Arc::clone(&wanted)));
        Ok(wanted)
    }

    /// Whether these calls are what was told last for an object.
    pub(super) fn has_sent(&self, controller: &'static str, key: &Key, calls: &[Call]) -> bool {
        lock(&self.sent).get(&(controller, key.clone())).map_or(calls.is_empty(), |sent| *sent == ids(calls))
    }

    /// Remembers what was told for an object.
    pub(super) fn remember_sent(&self, controller: &'static str, key: &Key, calls: &[Call]) {
        let id = (controller, key.clone());
        if calls.is_empty() {
            lock(&self.sent).remove(&id);
        } else {
            lock(&self.sent).insert(id, ids(calls));
        }
    }

    /// What stood in the way of the last pass over an object; nothing is known before the first one of this process.
    pub(super) fn refusals(&self, controller: &'static str, key: &Key) -> Option<Refusals> {
        lock(&self.refusals).get(&(controller, key.clone())).cloned()
    }

    pub(super) fn remember(&self, controller: &'static str, key: &Key, refusals: Refusals) {
        lock(&self.refusals).insert((controller, key.clone()), refusals);
    }

    /// Remembers what the API made of our last write to an object, as a digest.
    pub(crate) fn remember_applied(&self, uid: &str, digest: String) {
        let mut settled = lock(&self.settled);
        if settled.len() >= MOST_SETTLED {
            settled.clear();
        }
        settled.insert(uid.to_owned(), digest);
    }

    /// Whether this is what the API made of our last write to an object.
    pub(crate) fn is_settled(&self, uid: &str, digest: &str) -> bool {
        lock(&self.settled).get(uid).is_some_and(|settled| settled == digest)
    }

    /// Returns the values read from the stored objects of an owner. An object is read again only when its version has
    /// changed, and a value is forgotten when its object is gone.
    pub(crate) fn read<T: Send + Sync + 'static, E>(
        &self,
        controller: &'static str,
        owner: &Key,
        stored: &[(String, String)],
        mut read: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Vec<Arc<T>>, E> {
        let mut all = lock(&self.read);
        let known = all.entry((controller, owner.clone())).or_default();
        let mut kept = Read::new();
        let mut values = Vec::with_capacity(stored.len());
        for (place, (name, version)) in stored.iter().enumerate() {
            let before = known.remove(name).filter(|(of, _)| of == version).map(|(_, value)| value);
            let value = match before.and_then(|value| value.downcast::<T>().ok()) {
                Some(value) => value,
                None => Arc::new(read(place)?),
            };
            let erased: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(&value);
            kept.insert(name.clone(), (version.clone(), erased));
            values.push(value);
        }
        *known = kept;
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_once_per_version_and_forgotten_when_it_is_gone() {
        let (memory, owner) = (Memory::default(), Key::new("ns", "x"));
        let mut reads = 0;
        let mut read = |stored: &[(&str, &str)]| {
            let stored: Vec<(String, String)> =
                stored.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect();
            let values = memory.read("Test", &owner, &stored, |place| {
                reads += 1;
                Ok::<_, ()>(format!("{} at {}", stored[place].0, stored[place].1))
            });
            let values: Vec<String> = values.unwrap().iter().map(|value| value.as_ref().clone()).collect();
            (values.join(", "), reads)
        };
        assert_eq!(read(&[("a", "1"), ("b", "1")]), ("a at 1, b at 1".to_owned(), 2));
        assert_eq!(read(&[("a", "1"), ("b", "2")]), ("a at 1, b at 2".to_owned(), 3));
        assert_eq!(read(&[("b", "2")]), ("b at 2".to_owned(), 3));
        assert_eq!(read(&[("a", "1"), ("b", "2")]), ("a at 1, b at 2".to_owned(), 4));
    }
}
