//! Revisions: what the pods of an object are made from, each stored once as a `ControllerRevision`.
//!
//! A revision is known by what it means, never by its name or by how it is written: another operator may have named it,
//! and two texts of one template are one revision. The wanted revision is always the newest; a revision that is wanted
//! again becomes the newest again, so that going back from it leads to the revision before.

use std::{fmt::Debug, ops::Deref, sync::Arc};

use api::Kind;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use planner::units::Revision;
use serde_json::{Value, json};

use crate::{
    owner,
    pipeline::{History, Inputs},
    runtime::{Context, Error, Event, Key, Watched},
};

/// Keys that are tried for a revision, where others have the first.
const KEYS: u32 = 16;

/// What nothing is known of: whatever is made from it is outdated.
pub(crate) const UNKNOWN: Revision = Revision(0);

/// What a kind keeps in a revision.
pub(crate) trait Template: Sized + Debug + Send + Sync + 'static {
    /// The label that has the key of a revision, on it and on pods.
    const LABEL: &'static str;

    /// The kind whose revisions these are.
    fn kind() -> &'static Kind;

    /// Reads it from what is stored.
    fn read(data: &Value) -> Result<Self, String>;

    /// What it means: the same for every way to write it.
    fn meaning(&self) -> Result<String, String>;
}

/// A revision that is stored.
#[derive(Debug)]
pub(crate) struct Stored<T> {
    /// What pods that are made from it are labelled with.
    pub(crate) key: String,
    template: T,
    meaning: String,
}

#[cfg(test)]
impl<T> Stored<T> {
    /// A revision with a key.
    pub(crate) fn test(key: &str, template: T) -> Self {
        Self { key: key.to_owned(), template, meaning: String::new() }
    }
}

impl<T> Deref for Stored<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.template
    }
}

/// The revisions of an object, of which the wanted one is the newest. Each has a number, by its place: two leaders may
/// have stored the same number twice.
#[derive(Debug)]
pub(crate) struct Revisions<T> {
    stored: Vec<Arc<Stored<T>>>,
    newest: Arc<Stored<T>>,
}

impl<T> Clone for Revisions<T> {
    fn clone(&self) -> Self {
        Self { stored: self.stored.clone(), newest: Arc::clone(&self.newest) }
    }
}

impl<T: Template> Revisions<T> {
    /// The revisions of an object that asks for this one; that one, where it must be stored first.
    pub(crate) fn observe<K: Watched>(
        inputs: &Inputs<'_>,
        object: &K,
        wanted: fn(&K) -> Result<NewRevision, Error>,
    ) -> Result<Result<Self, Arc<NewRevision>>, Error> {
        let wanted = inputs.memory.wanted(T::kind().name, object, wanted)?;
        let found = in_order(inputs.cache.owned_by::<ControllerRevision>(&object.uid().unwrap_or_default()));
        let version = |it: &ControllerRevision| it.resource_version().unwrap_or_default();
        let versions: Vec<(String, String)> = found.iter().map(|it| (it.name_any(), version(it))).collect();
        let read = |place: usize| read::<T>(found[place]);
        let stored = inputs.memory.read(T::kind().name, &Key::of(object), &versions, read)?;
        let newest = stored.last().filter(|newest| newest.meaning == wanted.meaning).cloned();
        Ok(newest.map(|newest| Self { stored, newest }).ok_or(wanted))
    }

    pub(crate) fn get(&self, revision: Revision) -> Option<&Stored<T>> {
        let place = usize::try_from(revision.0).ok()?.checked_sub(1)?;
        self.stored.get(place).map(AsRef::as_ref)
    }

    /// The revision that is wanted.
    pub(crate) fn target(&self) -> Revision {
        Revision(self.stored.len() as u64)
    }

    /// The same, as it is stored.
    pub(crate) fn newest(&self) -> &Stored<T> {
        &self.newest
    }

    /// The revision with a key: the newest with that meaning, because several may have been stored, by another
    /// operator too.
    pub(crate) fn find(&self, key: &str) -> Revision {
        let named = self.stored.iter().rfind(|stored| stored.key == key);
        let newest = named.and_then(|named| self.stored.iter().rposition(|it| it.meaning == named.meaning));
        newest.map_or(UNKNOWN, |place| Revision(place as u64 + 1))
    }

    /// The key of a revision; empty if it is not stored.
    pub(crate) fn key(&self, revision: Revision) -> String {
        self.get(revision).map(|stored| stored.key.clone()).unwrap_or_default()
    }

    /// Every revision with its number, the oldest first.
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = (Revision, &Stored<T>)> {
        let numbered = self.stored.iter().enumerate();
        numbered.map(|(place, stored)| (Revision(place as u64 + 1), stored.as_ref()))
    }
}

/// Reads a stored revision.
pub(crate) fn read<T: Template>(stored: &ControllerRevision) -> Result<Stored<T>, Error> {
    let malformed =
        |why: String| Error::Malformed { what: format!("ControllerRevision {}", Key::of(stored)), why };
    let data = stored.data.as_ref().map_or(&Value::Null, |data| &data.0);
    let key = stored.labels().get(T::LABEL).cloned();
    let key = key.ok_or_else(|| malformed(format!("it has no label {}", T::LABEL)))?;
    let template = T::read(data).map_err(malformed)?;
    let meaning = template.meaning().map_err(malformed)?;
    Ok(Stored { key, template, meaning })
}

/// A revision that is to be stored.
#[derive(Debug)]
pub struct NewRevision {
    /// What it means.
    pub(crate) meaning: String,
    /// What is stored.
    pub(crate) data: Value,
    /// Its key, by what is stored and the number of the attempt: another revision may have the same key.
    pub(crate) key: fn(&Value, u32) -> String,
    /// The labels of the name of its object, and of its key.
    pub(crate) labels: [&'static str; 2],
    /// What a stored revision means.
    pub(crate) means: fn(&ControllerRevision) -> Option<String>,
}

impl NewRevision {
    pub(crate) fn of<T: Template>(
        template: &T,
        data: Value,
        key: fn(&Value, u32) -> String,
        name_label: &'static str,
    ) -> Result<Self, String> {
        let means = |stored: &ControllerRevision| read::<T>(stored).ok().map(|stored| stored.meaning);
        Ok(Self { meaning: template.meaning()?, data, key, labels: [name_label, T::LABEL], means })
    }

    /// The revision as an object, with a key and a number.
    pub(crate) fn body(&self, object: &impl Watched, key: &str, number: i64) -> Value {
        let [name_label, key_label] = self.labels;
        json!({
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": format!("{}-{key}", object.name_any()),
                "namespace": object.namespace(),
                "labels": {name_label: object.name_any(), key_label: key},
                "ownerReferences": [owner(object)],
            },
            "data": self.data,
            "revision": number,
        })
    }
}

/// Stores a revision as the newest one. Its name follows from what is in it, so doing it twice does it once.
pub(crate) async fn store(context: &Context, object: &impl Watched, new: &NewRevision) -> Result<(), Error> {
    let uid = object.uid().unwrap_or_default();
    let stored: Vec<Arc<ControllerRevision>> = context.cache().owned_by(&uid).cloned().collect();
    let newest = stored.iter().map(|stored| stored.revision).max().unwrap_or_default();
    let known = stored.iter().find(|stored| (new.means)(stored).as_ref() == Some(&new.meaning));
    if let Some(known) = known {
        return context.change(known.as_ref(), json!({"revision": newest + 1})).await;
    }
    let is_free = |key: &String| {
        let name = format!("{}-{key}", object.name_any());
        stored.iter().all(|stored| stored.name_any() != name)
    };
    let key = (0..KEYS).map(|attempt| (new.key)(&new.data, attempt)).find(is_free).unwrap_or_default();
    let name = Key::of(object).beside(format!("{}-{key}", object.name_any()));
    context.create::<ControllerRevision>(&name, &uid, &new.body(object, &key, newest + 1)).await?;
    let note = format!("stored revision {key}");
    context.record(object, Event::normal("Create", "CreatingRevision", note)).await;
    Ok(())
}

/// Deletes revisions that nothing is made from, the oldest first, beyond those that are kept.
pub(crate) async fn prune(context: &Context, object: &impl Watched, history: &History) -> Result<(), Error> {
    let is_used = |stored: &ControllerRevision| {
        stored.labels().get(history.label).is_some_and(|key| history.used.contains(key))
    };
    let unused: Vec<Arc<ControllerRevision>> = {
        let cache = context.cache();
        let stored = in_order(cache.owned_by::<ControllerRevision>(&object.uid().unwrap_or_default()));
        stored.into_iter().filter(|stored| !is_used(stored)).cloned().collect()
    };
    let surplus = unused.len().saturating_sub(history.limit);
    for stored in unused.iter().take(surplus) {
        context.delete(stored.as_ref(), true).await?;
    }
    Ok(())
}

/// The oldest first.
fn in_order<'a>(
    stored: impl Iterator<Item = &'a Arc<ControllerRevision>>,
) -> Vec<&'a Arc<ControllerRevision>> {
    let mut stored: Vec<_> = stored.collect();
    stored.sort_by_key(|stored| (stored.revision, stored.name_any()));
    stored
}
