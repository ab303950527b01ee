//! JSON patch, RFC 6902 as Kubernetes has it: a `test` for null holds where nothing is, `replace` creates, an index
//! may be negative.
use std::io;

use serde_json::{Map, Value};

use super::{PatchError, go};

const MOST_OPERATIONS: usize = 10_000;
/// What all `copy` operations of one patch may add, in bytes of JSON. As in Kubernetes.
const MOST_COPIED: usize = 3 * 1024 * 1024;
/// `copy` can double the depth of a document with every operation. What is stored must stay readable: the parsers on
/// both sides stop at 128, and lists and events wrap an object in a few levels more.
const DEEPEST: usize = 100;

/// Applies the operations of `patch` to a copy of `doc`, all or none.
pub fn json(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let mut target = Target { doc: doc.clone(), copied: 0 };
    for operation in operations(patch)? {
        target.apply(&operation)?;
    }
    Ok(target.doc)
}

/// The fields of operations that mean nothing, in the words of the warning (or, in strict validation, of the error).
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    let known = ["op", "path", "from", "value"];
    let mut found = Vec::new();
    for (n, operation) in patch.as_array().into_iter().flatten().enumerate() {
        let fields = operation.as_object().into_iter().flat_map(Map::keys);
        let unknown = fields.filter(|name| !known.contains(&name.as_str()));
        found.extend(unknown.map(|name| format!("json patch unknown field \"[{n}].{name}\"")));
    }
    found
}

struct Operation<'a> {
    op: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: Option<&'a Value>,
}

fn operations(patch: &Value) -> Result<Vec<Operation<'_>>, PatchError> {
    let list = match patch {
        Value::Null => &[],
        Value::Array(list) => list.as_slice(),
        other => return Err(undecodable(other, "value of type []handlers.jsonPatchOp")),
    };
    let read: Vec<_> = list.iter().map(operation).collect::<Result<_, _>>()?;
    if read.len() > MOST_OPERATIONS {
        return Err(PatchError::TooManyOperations { allowed: MOST_OPERATIONS, got: read.len() });
    }
    Ok(read)
}

fn operation(entry: &Value) -> Result<Operation<'_>, PatchError> {
    let text = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => Err(undecodable(other, &format!("struct field jsonPatchOp.{name} of type string"))),
    };
    match entry {
        Value::Null | Value::Object(_) => Ok(Operation {
            op: text("op")?.unwrap_or("unknown"),
            path: text("path")?,
            from: text("from")?,
            value: entry.get("value"),
        }),
        other => Err(undecodable(other, "value of type handlers.jsonPatchOp")),
    }
}

fn undecodable(found: &Value, wanted: &str) -> PatchError {
    let name = go::json_name(found);
    PatchError::Malformed(format!("error decoding patch: json: cannot unmarshal {name} into Go {wanted}"))
}

fn refused<T>(why: impl Into<String>) -> Result<T, PatchError> {
    Err(PatchError::DoesNotApply(why.into()))
}

struct Target {
    doc: Value,
    copied: usize,
}

impl Target {
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        let value = || operation.value.cloned().unwrap_or_default();
        match operation.op {
            "add" => self.add(path(operation)?, value()),
            "remove" => self.remove(path(operation)?).map(drop),
            "replace" => self.replace(path(operation)?, operation.value),
            "move" => {
                let from = from(operation)?;
                let value = self.remove(from)?;
                self.add(path(operation)?, value)
            }
            "copy" => self.copy(from(operation)?, path(operation)?),
            "test" => self.test(path(operation)?, operation.value),
            other => refused(format!("Unexpected kind: {other}")),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        let (parent, key) = self.parent(path)?;
        check_depth(path, &value)?;
        match parent {
            Parent::Object(fields) => {
                fields.insert(key, value);
            }
            Parent::List(items) if key == "-" => items.push(value),
            Parent::List(items) => {
                let at = index(&key, items.len() + 1)?;
                items.insert(at, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<Value, PatchError> {
        let (parent, key) = self.parent(path)?;
        match parent {
            Parent::Object(fields) => match fields.remove(&key) {
                Some(value) => Ok(value),
                None => refused(format!("nothing to remove at {path}")),
            },
            Parent::List(items) => {
                let at = index(&key, items.len())?;
                Ok(items.remove(at))
            }
        }
    }

    fn replace(&mut self, path: &str, value: Option<&Value>) -> Result<(), PatchError> {
        let new = value.cloned().unwrap_or_default();
        if path.is_empty() {
            if !new.is_object() && !new.is_array() {
                return refused("replace operation value must be object or array");
            }
            check_depth(path, &new)?;
            self.doc = new;
            return Ok(());
        }
        check_depth(path, &new)?;
        let (parent, key) = self.parent(path)?;
        match parent {
            Parent::Object(fields) => {
                fields.insert(key, new);
            }
            Parent::List(items) => {
                let at = index(&key, items.len())?;
                items[at] = new;
            }
        }
        Ok(())
    }

    /// A field that is not there is copied as null.
    fn copy(&mut self, from: &str, path: &str) -> Result<(), PatchError> {
        let source = self.get(from)?;
        self.copied = self.copied.saturating_add(source.map_or(0, size));
        if self.copied > MOST_COPIED {
            return refused(format!("copies add {} bytes, more than {MOST_COPIED}", self.copied));
        }
        let value = self.get(from)?.cloned().unwrap_or_default();
        self.add(path, value)
    }

    fn test(&self, path: &str, value: Option<&Value>) -> Result<(), PatchError> {
        let found = if path.is_empty() { Some(&self.doc) } else { self.get(path)? };
        let found = found.unwrap_or(&Value::Null);
        // Without a value the test holds only for null, and so does a test for null.
        if found == value.unwrap_or(&Value::Null) {
            return Ok(());
        }
        refused(format!("testing value {path} failed"))
    }

    /// The value at `path`; nothing if its parent is an object without it.
    fn get(&self, path: &str) -> Result<Option<&Value>, PatchError> {
        let (parents, key) = split(path)?;
        let mut at = &self.doc;
        for part in parents {
            at = match child(at, &unescape(part))? {
                Some(next) => next,
                None => return missing(path),
            };
        }
        match at {
            Value::Object(_) | Value::Array(_) => child(at, &unescape(key)),
            _ => missing(path),
        }
    }

    fn parent(&mut self, path: &str) -> Result<(Parent<'_>, String), PatchError> {
        let (parents, key) = split(path)?;
        let mut at = &mut self.doc;
        for part in parents {
            let part = unescape(part);
            let next = match at {
                Value::Object(fields) => fields.get_mut(&part),
                Value::Array(items) => {
                    let at = index(&part, items.len())?;
                    items.get_mut(at)
                }
                _ => None,
            };
            match next {
                Some(next) => at = next,
                None => return missing(path),
            }
        }
        match at {
            Value::Object(fields) => Ok((Parent::Object(fields), unescape(key))),
            Value::Array(items) => Ok((Parent::List(items), unescape(key))),
            _ => missing(path),
        }
    }
}

enum Parent<'a> {
    Object(&'a mut Map<String, Value>),
    List(&'a mut Vec<Value>),
}

fn path<'a>(operation: &Operation<'a>) -> Result<&'a str, PatchError> {
    operation.path.map_or_else(|| refused("operation missing path field"), Ok)
}

fn from<'a>(operation: &Operation<'a>) -> Result<&'a str, PatchError> {
    operation.from.map_or_else(|| refused("operation, missing from field"), Ok)
}

fn missing<T>(path: &str) -> Result<T, PatchError> {
    refused(format!("doc is missing path: {path}"))
}

/// The parts above the last, and the last. What stands before the first slash is ignored, as upstream does.
fn split(path: &str) -> Result<(impl Iterator<Item = &str>, &str), PatchError> {
    let Some((_, rest)) = path.split_once('/') else { return missing(path) };
    let (parents, key) = match rest.rsplit_once('/') {
        Some((parents, key)) => (Some(parents), key),
        None => (None, rest),
    };
    Ok((parents.into_iter().flat_map(|p| p.split('/')), key))
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn child<'a>(at: &'a Value, key: &str) -> Result<Option<&'a Value>, PatchError> {
    match at {
        Value::Object(fields) => Ok(fields.get(key)),
        Value::Array(items) => Ok(items.get(index(key, items.len())?)),
        _ => Ok(None),
    }
}

/// A place below `end`; -1 is the last.
fn index(key: &str, end: usize) -> Result<usize, PatchError> {
    let Ok(given) = key.parse::<i64>() else { return refused(format!("not an index: {key}")) };
    let length = i64::try_from(end).unwrap_or(i64::MAX);
    let at = if given < 0 { given.saturating_add(length) } else { given };
    match usize::try_from(at) {
        Ok(at) if at < end => Ok(at),
        _ => refused(format!("Unable to access invalid index: {given}")),
    }
}

fn check_depth(path: &str, value: &Value) -> Result<(), PatchError> {
    if path.matches('/').count() + depth(value) > DEEPEST {
        return refused(format!("the document would be deeper than {DEEPEST} levels"));
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// The length of a value as JSON.
fn size(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing to a counter does not fail.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}
