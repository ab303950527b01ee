//! How a write moves fields between owners.
use serde_json::Value;

use super::Operation;
use super::collect::{fields, fit, with_named};
use super::compare::{Comparison, equal};
use super::conflict::{Conflict, Conflicts};
use super::entries::{Owned, Owner, Owners};
use super::merge::merge;
use super::remove::remove;
use super::set::Set;
use super::typed::Typed;

/// A write of one owner.
pub(crate) struct Write<'a> {
    pub(crate) typed: Typed<'a>,
    pub(crate) owner: Owner,
    pub(crate) api_version: &'a str,
    /// Fields that this way of writing never changes, whatever it says.
    pub(crate) reset: Set,
    pub(crate) now: &'a str,
}

/// Fields that no manager owns: identity, and what the server fills in.
fn unowned() -> Set {
    Set::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

impl Write<'_> {
    /// The manager of an update becomes the only owner of the values that it changes.
    pub(crate) fn update(&self, old: &Value, new: &Value, owners: Owners) -> Owners {
        let mut owners = self.fitted(owners);
        let change = self.change(old, new);
        let written = change.written();
        for owned in owners.values_mut() {
            owned.fields = owned.fields.difference(&written).difference(&change.removed);
        }
        owners.retain(|_, owned| !owned.fields.is_empty());
        let written = written.difference(&unowned());
        if !written.is_empty() {
            let before = owners.remove(&self.owner).map(|owned| owned.fields).unwrap_or_default();
            owners.insert(self.owner.clone(), self.owned(before.union(written), Some(self.now.to_owned())));
        }
        owners
    }

    /// What the configuration says is so and owned by its manager, what it no longer says is gone unless another
    /// owns it.
    pub(crate) fn apply(
        &self,
        live: &Value,
        config: &Value,
        owners: Owners,
        force: bool,
    ) -> Result<(Value, Owners), Conflicts> {
        let mut owners = self.fitted(owners);
        let merged = merge(self.typed, Some(live), Some(config)).unwrap_or_else(|| config.clone());
        let applied = fields(self.typed, config).difference_with_below(&self.reset);
        let before = owners.remove(&self.owner);
        let time = before.as_ref().and_then(|owned| owned.time.clone());
        owners.insert(self.owner.clone(), self.owned(applied, time));
        let new = match before {
            Some(before) if !before.fields.is_empty() => self.prune(&merged, &owners, &before.fields),
            _ => merged,
        };
        let conflicts = self.yield_fields(&self.change(live, &new), &mut owners);
        if !force && !conflicts.is_empty() {
            return Err(Conflicts(conflicts));
        }
        if let Some(own) = owners.get_mut(&self.owner) {
            own.fields = own.fields.difference(&unowned());
            if !equal(live, &new) {
                own.time = Some(self.now.to_owned());
            }
        }
        owners.retain(|_, owned| !owned.fields.is_empty());
        Ok((new, owners))
    }

    fn owned(&self, fields: Set, time: Option<String>) -> Owned {
        Owned { fields, api_version: self.api_version.to_owned(), time }
    }

    fn fitted(&self, mut owners: Owners) -> Owners {
        for owned in owners.values_mut() {
            fit(self.typed, &mut owned.fields);
        }
        owners
    }

    fn change(&self, old: &Value, new: &Value) -> Comparison {
        Comparison::new(self.typed, old, new).without(&self.reset)
    }

    /// Everyone else lets go of what changed; what they had of it is a conflict.
    fn yield_fields(&self, change: &Comparison, owners: &mut Owners) -> Vec<Conflict> {
        let written = change.written();
        let mut conflicts = Vec::new();
        for (owner, owned) in owners.iter_mut().filter(|(owner, _)| **owner != self.owner) {
            let taken = owned.fields.intersection(&written);
            conflicts.extend(taken.paths().into_iter().map(|path| Conflict { owner: owner.clone(), path }));
            owned.fields = owned.fields.difference(&taken).difference(&change.removed);
        }
        conflicts
    }

    /// Removes the fields that were applied before and have no owner now.
    fn prune(&self, merged: &Value, owners: &Owners, before: &Set) -> Value {
        let named = |set: &Set| with_named(Some(self.typed), set);
        let all = named(&fields(self.typed, merged));
        let before = named(before);
        let without = remove(self.typed, merged, &before);
        let owned = owners.values().fold(Set::default(), |all, owned| all.union(owned.fields.clone()));
        let kept = named(&fields(self.typed, &without)).union(named(&owned));
        let with_owned = remove(self.typed, merged, &all.difference(&kept));
        // Removing an element of a list takes along what another put below it without owning the element; only what
        // was applied before goes.
        let kept = named(&fields(self.typed, &with_owned));
        remove(self.typed, merged, &all.difference(&kept).intersection(&before))
    }
}

/// The owner `before-first-apply` of all fields of an object that had no managed fields.
pub(crate) fn before_first_apply(write: &Write<'_>, nothing: &Value, live: &Value) -> Owners {
    let owner =
        Owner::new("before-first-apply", Operation::Update, write.api_version, &write.owner.subresource);
    let first = Write { owner, reset: write.reset.clone(), ..*write };
    first.update(nothing, live, Owners::new())
}
