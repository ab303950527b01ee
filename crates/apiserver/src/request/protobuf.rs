//! Protobuf bodies of the few kinds that kubectl makes without a file: it sends them in no other form.
//!
//! An object is `k8s\0` and a message with its type and its bytes. Fields are read by number from tables; one that no
//! table knows is refused, because leaving it out would store something else than was sent.
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{builtin::base64, environment};

pub const MEDIA: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";

/// Messages in messages; what we read has five levels.
const DEEPEST: usize = 16;

/// A field of a message: its number, its name in JSON, and how it is written.
type Field = (u64, &'static str, Type);

#[derive(Debug, Clone, Copy)]
enum Type {
    Text,
    Texts,
    Bytes,
    Bool,
    Number,
    Time,
    Message(&'static [Field]),
    Messages(&'static [Field]),
    TextMap,
    BytesMap,
    /// Read and left out: the server sets it.
    Ignored,
}

const OWNER: &[Field] = &[
    (1, "kind", Type::Text),
    (3, "name", Type::Text),
    (4, "uid", Type::Text),
    (5, "apiVersion", Type::Text),
    (6, "controller", Type::Bool),
    (7, "blockOwnerDeletion", Type::Bool),
];

const META: &[Field] = &[
    (1, "name", Type::Text),
    (2, "generateName", Type::Text),
    (3, "namespace", Type::Text),
    (4, "selfLink", Type::Text),
    (5, "uid", Type::Text),
    (6, "resourceVersion", Type::Text),
    (7, "generation", Type::Number),
    (8, "creationTimestamp", Type::Time),
    (9, "deletionTimestamp", Type::Time),
    (10, "deletionGracePeriodSeconds", Type::Number),
    (11, "labels", Type::TextMap),
    (12, "annotations", Type::TextMap),
    (13, "ownerReferences", Type::Messages(OWNER)),
    (14, "finalizers", Type::Texts),
];

const NAMESPACE: &[Field] = &[
    (1, "metadata", Type::Message(META)),
    (2, "spec", Type::Message(&[(1, "finalizers", Type::Texts)])),
    (3, "status", Type::Ignored),
];

const CONFIG_MAP: &[Field] = &[
    (1, "metadata", Type::Message(META)),
    (2, "data", Type::TextMap),
    (3, "binaryData", Type::BytesMap),
    (4, "immutable", Type::Bool),
];

const SECRET: &[Field] = &[
    (1, "metadata", Type::Message(META)),
    (2, "data", Type::BytesMap),
    (3, "type", Type::Text),
    (4, "stringData", Type::TextMap),
    (5, "immutable", Type::Bool),
];

const ACCESS: &[Field] = &[
    (1, "namespace", Type::Text),
    (2, "verb", Type::Text),
    (3, "group", Type::Text),
    (4, "version", Type::Text),
    (5, "resource", Type::Text),
    (6, "subresource", Type::Text),
    (7, "name", Type::Text),
];

const ACCESS_REVIEW: &[Field] = &[
    (1, "metadata", Type::Message(META)),
    (
        2,
        "spec",
        Type::Message(&[
            (1, "resourceAttributes", Type::Message(ACCESS)),
            (2, "nonResourceAttributes", Type::Message(&[(1, "path", Type::Text), (2, "verb", Type::Text)])),
        ]),
    ),
    (3, "status", Type::Ignored),
];

const ENVELOPE: &[Field] = &[
    (1, "type", Type::Message(&[(1, "apiVersion", Type::Text), (2, "kind", Type::Text)])),
    (2, "raw", Type::Bytes),
    (3, "encoding", Type::Text),
    (4, "media", Type::Text),
];

/// Why a body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A kind that we read only as JSON.
    UnsupportedKind(String),
    /// Broken, or with a field that no table knows.
    Malformed(String),
}

/// Reads an object.
pub fn read(bytes: &[u8]) -> Result<Value, DecodeError> {
    let broken = DecodeError::Malformed;
    let envelope =
        bytes.strip_prefix(MAGIC).ok_or_else(|| broken("it does not begin with k8s".to_owned()))?;
    let mut raw: &[u8] = &[];
    let envelope = message(envelope, ENVELOPE, DEEPEST, &mut |number, bytes| {
        if number == 2 {
            raw = bytes;
        }
    });
    let envelope = envelope.map_err(broken)?;
    let text = |name: &str| envelope["type"][name].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let table = match (api_version.as_str(), kind.as_str()) {
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => ACCESS_REVIEW,
        _ => return Err(DecodeError::UnsupportedKind(format!("{api_version} {kind}"))),
    };
    let mut object = message(raw, table, DEEPEST, &mut |_, _| {}).map_err(broken)?;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    Ok(object)
}

/// Reads a message; `seen` is shown the bytes of every field that has some.
fn message<'a>(
    mut bytes: &'a [u8],
    fields: &[Field],
    depth: usize,
    seen: &mut dyn FnMut(u64, &'a [u8]),
) -> Result<Value, String> {
    let depth = depth.checked_sub(1).ok_or("it is nested too deep")?;
    let mut object = Map::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let (number, wire) = (tag >> 3, tag & 7);
        let Some((_, name, ty)) = fields.iter().find(|(known, ..)| *known == number) else {
            return Err(format!("field {number} can only be read as JSON"));
        };
        match (wire, ty) {
            (0, Type::Bool) => drop(object.insert((*name).to_owned(), json!(varint(&mut bytes)? != 0))),
            (0, Type::Number) => {
                let number = varint(&mut bytes)?.cast_signed();
                if number != 0 {
                    object.insert((*name).to_owned(), json!(number));
                }
            }
            (0, Type::Ignored) => drop(varint(&mut bytes)?),
            (2, ty) => {
                let part = delimited(&mut bytes)?;
                seen(number, part);
                put(&mut object, name, *ty, part, depth)?;
            }
            _ => return Err(format!("field {name} is written in a way that we do not know")),
        }
    }
    Ok(Value::Object(object))
}

/// Puts the value of a field that comes as bytes. Go writes empty texts and messages too; they mean nothing.
fn put(
    object: &mut Map<String, Value>,
    name: &str,
    ty: Type,
    part: &[u8],
    depth: usize,
) -> Result<(), String> {
    let plain = |fields| message(part, fields, depth, &mut |_, _| {});
    let value = match ty {
        Type::Text if part.is_empty() => return Ok(()),
        Type::Text => json!(text(part)?),
        Type::Bytes => json!(base64::encode(part)),
        Type::Time => match time(&plain(&[(1, "s", Type::Number), (2, "n", Type::Number)])?) {
            Some(time) => time,
            None => return Ok(()),
        },
        Type::Message(fields) => match plain(fields)? {
            Value::Object(found) if found.is_empty() => return Ok(()),
            found => found,
        },
        Type::Texts => return push(object, name, json!(text(part)?)),
        Type::Messages(fields) => return push(object, name, plain(fields)?),
        Type::TextMap => return entry(object, name, &plain(&[(1, "k", Type::Text), (2, "v", Type::Text)])?),
        Type::BytesMap => {
            return entry(object, name, &plain(&[(1, "k", Type::Text), (2, "v", Type::Bytes)])?);
        }
        Type::Ignored => return Ok(()),
        Type::Bool | Type::Number => return Err(format!("field {name} is not a number")),
    };
    object.insert(name.to_owned(), value);
    Ok(())
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), String> {
    let list = object.entry(name).or_insert_with(|| json!([])).as_array_mut();
    list.ok_or_else(|| format!("field {name} is not a list"))?.push(value);
    Ok(())
}

fn entry(object: &mut Map<String, Value>, name: &str, pair: &Value) -> Result<(), String> {
    let map = object.entry(name).or_insert_with(|| json!({})).as_object_mut();
    let text = |field: &str| pair[field].as_str().unwrap_or_default().to_owned();
    map.ok_or_else(|| format!("field {name} is not a map"))?.insert(text("k"), json!(text("v")));
    Ok(())
}

fn time(value: &Value) -> Option<Value> {
    let seconds = value["s"].as_i64().filter(|seconds| *seconds != 0)?;
    Timestamp::from_second(seconds).ok().map(|time| json!(environment::seconds(time)))
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| error.to_string())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("it ends too early")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number is too long".to_owned())
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = usize::try_from(varint(bytes)?).map_err(|error| error.to_string())?;
    let (part, rest) = bytes.split_at_checked(length).ok_or("it ends too early")?;
    *bytes = rest;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A field that comes as bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        assert!(bytes.len() < 128, "one byte of length is enough here");
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let ty = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &ty), field(2, raw), field(3, b""), field(4, b"")].concat()
    }

    fn pair(key: &str, value: &[u8]) -> Vec<u8> {
        [field(1, key.as_bytes()), field(2, value)].concat()
    }

    #[test]
    fn a_config_map_is_read_as_kubectl_writes_it() {
        let meta = [field(1, b"x"), field(2, b""), field(8, b""), field(11, &pair("a", b"b"))].concat();
        let raw =
            [field(1, &meta), field(2, &pair("k", b"v")), field(3, &pair("b", &[255])), vec![4 << 3, 1]];
        let object = read(&envelope("v1", "ConfigMap", &raw.concat())).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": {"a": "b"}},
            "data": {"k": "v"}, "binaryData": {"b": "/w=="}, "immutable": true,
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn another_kind_is_named() {
        let refused = read(&envelope("apps/v1", "Deployment", b"")).unwrap_err();
        assert_eq!(refused, DecodeError::UnsupportedKind("apps/v1 Deployment".to_owned()));
    }

    #[test]
    fn a_field_that_would_be_lost_is_refused() {
        let refused = read(&envelope("v1", "Namespace", &field(9, b"x"))).unwrap_err();
        assert_eq!(refused, DecodeError::Malformed("field 9 can only be read as JSON".to_owned()));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, kind in 0_usize..3) {
            let kind = ["Namespace", "ConfigMap", "Secret"][kind];
            let bytes = &bytes[..bytes.len().min(100)];
            drop(read(bytes));
            drop(read(&[MAGIC, bytes].concat()));
            drop(read(&envelope("v1", kind, bytes)));
        }
    }
}
