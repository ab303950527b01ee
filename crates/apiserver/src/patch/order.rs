//! The order of a list that a strategic merge patch merged: what the patch names, in its order, and what only the
//! server had, in its own, woven together by the order that the server had.
use std::collections::HashMap;

use serde_json::Value;

use super::{PatchError, go};

/// How the elements of a list are told apart: by one of their fields, or by their value.
pub(super) type Key<'a> = Option<&'a str>;

/// What tells `item` apart.
pub(super) fn identity(item: &Value, key: Key<'_>) -> Result<String, PatchError> {
    let Some(key) = key else { return Ok(item.to_string()) };
    let Value::Object(fields) = item else { return Err(wrong_type("map[string]interface {}", item)) };
    fields.get(key).map(Value::to_string).ok_or_else(|| no_merge_key(item, key))
}

pub(super) fn identities(items: &[Value], key: Key<'_>) -> Result<Vec<String>, PatchError> {
    items.iter().map(|item| identity(item, key)).collect()
}

pub(super) fn no_merge_key(item: &Value, key: &str) -> PatchError {
    PatchError::Unmergeable(format!("map: {} does not contain declared merge key: {key}", go::text(item)))
}

pub(super) fn wrong_type(wanted: &str, found: &Value) -> PatchError {
    PatchError::Unmergeable(format!("expected a {wanted}, but received a {}", go::type_name(found)))
}

struct Placed {
    item: Value,
    /// Where the server had it.
    at: Option<usize>,
    /// Where it goes among its own.
    rank: Option<usize>,
}

/// Orders `merged`: `wanted` is the order of the patch, `had` that of the server.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[String],
    had: &[String],
    key: Key<'_>,
) -> Result<Vec<Value>, PatchError> {
    let (wanted, had) = (positions(wanted), positions(had));
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        let id = identity(&item, key)?;
        let at = had.get(id.as_str()).copied();
        match wanted.get(id.as_str()).copied() {
            Some(rank) => named.push(Placed { item, at, rank: Some(rank) }),
            None => others.push(Placed { item, at, rank: at }),
        }
    }
    named.sort_by_key(|placed| placed.rank);
    others.sort_by_key(|placed| placed.rank);
    Ok(weave(others, named))
}

/// The first place of each.
fn positions(ids: &[String]) -> HashMap<&str, usize> {
    let mut first = HashMap::with_capacity(ids.len());
    for (at, id) in ids.iter().enumerate() {
        first.entry(id.as_str()).or_insert(at);
    }
    first
}

/// An element of the server goes before one of the patch only if the server had both, in that order.
fn weave(others: Vec<Placed>, named: Vec<Placed>) -> Vec<Value> {
    let mut woven = Vec::with_capacity(others.len() + named.len());
    let mut others = others.into_iter().peekable();
    for next in named {
        while let Some(other) = others.next_if(|o| matches!((o.at, next.at), (Some(o), Some(n)) if o < n)) {
            woven.push(other.item);
        }
        woven.push(next.item);
    }
    woven.extend(others.map(|placed| placed.item));
    woven
}

/// Refuses a patch whose list names what its order does not, or in another order.
pub(super) fn check(patch: &[Value], order: &[Value], key: Key<'_>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let directive = |item: &Value| key.is_some() && item.get("$patch").is_some();
    let mut left = order.iter();
    for item in patch.iter().filter(|item| !directive(item)) {
        let id = identity(item, key)?;
        loop {
            let Some(next) = left.next() else { return Err(mismatch(patch, order)) };
            if identity(next, key)? == id {
                break;
            }
        }
    }
    Ok(())
}

fn mismatch(patch: &[Value], order: &[Value]) -> PatchError {
    let (patch, order) = (go::list(patch), go::list(order));
    PatchError::Unmergeable(format!(
        "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
    ))
}
