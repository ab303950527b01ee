//! `metadata.managedFields`, read and written.
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Operation;
use super::set::Set;

/// Who: the writes of one manager to one endpoint. Updates through another version are another's, applies are not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    /// Empty for an apply.
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

/// What one owner has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) fields: Set,
    pub(crate) api_version: String,
    /// Absent where an apply only joined the owners of what was there.
    pub(crate) time: Option<String>,
}

pub(crate) type Owners = BTreeMap<Owner, Owned>;

impl Owner {
    pub(crate) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Self::named(manager, operation, api_version, subresource)
    }

    fn named(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

pub(crate) fn entries(object: &Value) -> Option<&Vec<Value>> {
    object.pointer("/metadata/managedFields").and_then(Value::as_array)
}

/// A client asks to forget all owners with a list that is empty or has one empty entry.
pub(crate) fn asks_to_forget(object: &Value) -> bool {
    let nothing = |v: &Value| v.is_null() || v.as_str() == Some("");
    match entries(object).map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(|entry| entry.values().all(nothing)),
        _ => false,
    }
}

/// Reads the entries of an object; an error if one of them is none.
pub(crate) fn read(object: &Value) -> Result<Owners, String> {
    entries(object).into_iter().flatten().enumerate().map(|(i, entry)| read_entry(i, entry)).collect()
}

fn read_entry(i: usize, entry: &Value) -> Result<(Owner, Owned), String> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {i}")),
        other => return Err(format!("invalid fieldsType \"{other}\" in managed fields entry {i}")),
    }
    let fields = match entry.get("fieldsV1") {
        None | Some(Value::Null) => Set::default(),
        Some(fields) => Set::parse(fields).ok_or_else(|| format!("error decoding set in entry {i}"))?,
    };
    let owner = Owner::named(text("manager"), operation, api_version, text("subresource"));
    // Times are to the second and in UTC from here on, so that they sort as text.
    let time = text("time").parse::<Timestamp>().ok().map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    Ok((owner, Owned { fields, api_version: api_version.to_owned(), time }))
}

/// Writes the owners into an object: applies first, each kind from the oldest.
pub(crate) fn write(mut object: Value, owners: Owners) -> Value {
    let mut entries: Vec<(Owner, Owned)> = owners.into_iter().collect();
    entries.sort_by(|(a, x), (b, y)| {
        (a.operation, &x.time, &a.manager, &x.api_version, &a.subresource).cmp(&(
            b.operation,
            &y.time,
            &b.manager,
            &y.api_version,
            &b.subresource,
        ))
    });
    let entries: Vec<Value> = entries.iter().map(write_entry).collect();
    let Some(object_fields) = object.as_object_mut() else { return object };
    let metadata = object_fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("managedFields");
        if !entries.is_empty() {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }
    object
}

fn write_entry((owner, has): &(Owner, Owned)) -> Value {
    let mut entry = json!({
        "operation": owner.operation.name(),
        "apiVersion": has.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": has.fields.print(),
    });
    let optional = [
        ("manager", Some(&owner.manager)),
        ("time", has.time.as_ref()),
        ("subresource", Some(&owner.subresource)),
    ];
    for (name, value) in optional {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            entry[name] = Value::String(value.clone());
        }
    }
    entry
}

/// The object without its entries: no set contains the entries themselves.
pub(crate) fn stripped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// How many owners by update an object may have before the oldest are made one.
const UPDATE_OWNERS: usize = 10;

/// Makes one of the oldest owners by update, so that an object that many write does not grow without end.
pub(crate) fn cap(owners: &mut Owners) {
    let mut updates: Vec<Owner> =
        owners.keys().filter(|owner| owner.operation == Operation::Update).cloned().collect();
    let Some(mut surplus) = updates.len().checked_sub(UPDATE_OWNERS).filter(|n| *n > 0) else { return };
    updates.sort_by(|a, b| (owners.get(a).map(|o| &o.time), a).cmp(&(owners.get(b).map(|o| &o.time), b)));
    let mut first_of_version: BTreeMap<String, Owner> = BTreeMap::new();
    for owner in updates {
        if surplus == 0 {
            return;
        }
        let version = owner.api_version.clone();
        match first_of_version.get(&version) {
            None => {
                first_of_version.insert(version, owner);
            }
            Some(first) => {
                join_ancient(owners, first, &owner);
                surplus -= 1;
            }
        }
    }
}

fn join_ancient(owners: &mut Owners, first: &Owner, owner: &Owner) {
    let ancient = Owner::new("ancient-changes", Operation::Update, &owner.api_version, "");
    if !owners.contains_key(&ancient)
        && let Some(owned) = owners.remove(first)
    {
        owners.insert(ancient.clone(), owned);
    }
    if *owner == ancient {
        return;
    }
    if let Some(owned) = owners.remove(owner) {
        let older = owners.remove(&ancient).map(|owned| owned.fields).unwrap_or_default();
        owners.insert(ancient, Owned { fields: owned.fields.union(older), ..owned });
    }
}

/// Keeps the old times where nothing but them has changed: a write without effect is none.
pub fn keep_times(old: &Value, mut new: Value) -> Value {
    let timeless = |object: &Value| {
        let mut entries = entries(object).cloned().unwrap_or_default();
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        entries
    };
    if entries(old).is_some() && timeless(old) == timeless(&new) && stripped(old) == stripped(&new) {
        new["metadata"]["managedFields"] = old["metadata"]["managedFields"].clone();
    }
    new
}
