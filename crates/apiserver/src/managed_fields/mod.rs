//! The field manager: server-side apply and `metadata.managedFields`, as in kube-apiserver 1.36.
//!
//! Every write goes through [`update`] or [`apply`]. Both are pure. The order is upstream's: an update is owned after
//! defaults and before admission, so that what admission adds has no owner; an apply is owned before defaults are
//! filled in. The caller restores the fields of [`Reset`] afterwards and ends with [`keep_times`], on what will be
//! stored.
mod collect;
mod compare;
mod conflict;
mod element;
mod entries;
mod last_applied;
mod merge;
mod ownership;
mod remove;
mod set;
mod text;
mod typed;
mod validate;

use serde_json::{Map, Value};
use thiserror::Error;

pub use conflict::{Conflict, Conflicts};
pub use entries::keep_times;
use entries::{Owner, Owners};
use ownership::{Write, before_first_apply};
use set::Set;
use typed::Typed;

use crate::type_schema::TypeRef;

/// How a manager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// A field manager, and the endpoint that it writes to.
#[derive(Debug, Clone, Copy)]
pub struct Manager<'a> {
    /// See [`manager_name`]; `unknown` without a name.
    pub name: &'a str,
    /// `group/version` of the request.
    pub api_version: &'a str,
    /// `status`, `scale`; empty for the object itself.
    pub subresource: &'a str,
}

/// The longest name of a manager.
const NAME_BYTES: usize = 128;

/// The name under which a request writes: `fieldManager`, or else the program in its user agent.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let program = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for c in program.chars().filter(|c| *c == ' ' || !(c.is_control() || c.is_whitespace())) {
        if name.len() + c.len_utf8() > NAME_BYTES {
            break;
        }
        name.push(c);
    }
    name
}

/// The fields that a way of writing never changes, and so never owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    Nothing,
    /// The object of a kind that has a status endpoint.
    Status,
    /// `/status` of a custom resource.
    MetadataAndSpec,
    /// `/status` of a built-in kind: labels and the like may be written through it.
    Spec,
    /// `/status` of a pod.
    SpecAndOwners,
}

impl Reset {
    fn fields(self) -> Set {
        match self {
            Self::Nothing => Set::default(),
            Self::Status => Set::of(&[&["status"]]),
            Self::MetadataAndSpec => Set::of(&[&["metadata"], &["spec"]]),
            Self::Spec => Set::of(&[&["spec"]]),
            Self::SpecAndOwners => {
                Set::of(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
        }
    }
}

/// Why an apply came to nothing.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// 409, reason Conflict.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// 400.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit its type: 500, as upstream answers it.
    #[error("failed to create typed patch object ({object}): {problem}")]
    Untyped { object: String, problem: String },
    /// The stored entries cannot be read: 500.
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(String),
}

/// Server-side apply. `live` is the stored object, nothing if there is none yet; `config` what was sent. Returns the
/// merged object with its owners.
pub fn apply(
    type_ref: TypeRef<'_>,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    reset: Reset,
    force: bool,
    now: &str,
) -> Result<Value, ApplyError> {
    if entries::entries(config).is_some() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let empty = Value::Object(Map::new());
    let stored = live.unwrap_or(&empty);
    let owners = entries::read(stored).map_err(ApplyError::ManagedFields)?;
    let typed = Typed::object(type_ref);
    validate::validate(typed, config)
        .map_err(|problem| ApplyError::Untyped { object: describe(config), problem })?;
    let write = write(typed, manager, Operation::Apply, reset, now);
    let object = entries::stripped(stored);
    let owners = if owners.is_empty() {
        before_first_apply(&write, &typed::nothing(type_ref), &object)
    } else {
        owners
    };
    let (new, owners) = apply_or_take_over(&write, &object, config, owners, force)?;
    let new =
        if write.owner.manager == last_applied::MANAGER { last_applied::refresh(new, config) } else { new };
    Ok(keep_times(stored, entries::write(new, owners)))
}

fn apply_or_take_over(
    write: &Write<'_>,
    live: &Value,
    config: &Value,
    owners: Owners,
    force: bool,
) -> Result<(Value, Owners), ApplyError> {
    let conflicts = match write.apply(live, config, owners.clone(), force) {
        Ok(applied) => return Ok(applied),
        Err(conflicts) if write.owner.manager == last_applied::MANAGER => conflicts,
        Err(conflicts) => return Err(ApplyError::Conflicts(conflicts)),
    };
    let remaining = last_applied::remaining(write, live, &conflicts).unwrap_or(conflicts);
    if remaining.iter().next().is_some() {
        return Err(ApplyError::Conflicts(remaining));
    }
    write.apply(live, config, owners, true).map_err(ApplyError::Conflicts)
}

/// Every other write: `old` is the stored object, nothing on create, `new` what will be stored. Returns `new` with its
/// owners.
pub fn update(
    type_ref: TypeRef<'_>,
    old: Option<&Value>,
    new: Value,
    manager: &Manager<'_>,
    reset: Reset,
    now: &str,
) -> Value {
    let owners = known_owners(old, &new, manager);
    // An object whose owners were forgotten has none until it is applied.
    if old.is_some() && owners.is_empty() {
        return entries::write(new, owners);
    }
    let typed = Typed::object(type_ref);
    // A value that does not fit its schema cannot be compared: it loses its owners.
    let after = entries::stripped(&new);
    if !validate::fits(typed, &after) {
        return entries::write(new, Owners::new());
    }
    let write = write(typed, manager, Operation::Update, reset, now);
    let before = old.map_or_else(|| typed::nothing(type_ref), entries::stripped);
    let mut owners = write.update(&before, &after, owners);
    entries::cap(&mut owners);
    let new = entries::write(new, owners);
    match old {
        Some(old) => keep_times(old, new),
        None => new,
    }
}

/// The owners before an update: the client may have changed them, but one that knows nothing of them may leave them
/// out.
fn known_owners(old: Option<&Value>, new: &Value, manager: &Manager<'_>) -> Owners {
    let stored = || old.and_then(|old| entries::read(old).ok()).unwrap_or_default();
    if !manager.subresource.is_empty() {
        return stored();
    }
    if entries::asks_to_forget(new) {
        return Owners::new();
    }
    entries::read(new).ok().filter(|owners| !owners.is_empty()).unwrap_or_else(stored)
}

fn write<'a>(
    typed: Typed<'a>,
    manager: &Manager<'a>,
    operation: Operation,
    reset: Reset,
    now: &'a str,
) -> Write<'a> {
    let owner = Owner::new(manager.name, operation, manager.api_version, manager.subresource);
    Write { typed, owner, api_version: manager.api_version, reset: reset.fields(), now }
}

/// `namespace/name; group/version, Kind=kind`.
fn describe(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    format!(
        "{}/{}; {slash}{version}, Kind={}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/kind")
    )
}

#[cfg(test)]
mod tests {
    use super::manager_name;

    #[test]
    fn a_request_writes_under_the_name_it_gives_or_that_of_its_program() {
        assert_eq!(manager_name("one", "kubectl/v1.36"), "one");
        assert_eq!(manager_name("", "kubectl/v1.36 (linux/amd64)"), "kubectl");
        assert_eq!(manager_name("", "a\tb\u{7f}c"), "abc");
        assert_eq!(manager_name("", &"\u{e9}".repeat(100)).len(), 128);
        assert_eq!(manager_name("", ""), "");
    }
}
