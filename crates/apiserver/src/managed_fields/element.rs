//! One step of a path to a field.
use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use super::text::{self, Quoted};

/// Ordered as upstream orders them, which is the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// A field of an object.
    Field(String),
    /// An element of a list, by the fields it is known by, sorted by name.
    Key(Vec<(String, Scalar)>),
    /// An element of a set.
    Value(Scalar),
    /// An element of a list without keys.
    Index(i64),
}

/// A JSON value with an order: numbers by size whichever way they are written, then text, then truth.
#[derive(Debug, Clone)]
pub(crate) struct Scalar(pub Value);

impl Scalar {
    fn rank(&self) -> u8 {
        match self.0 {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    // -0.0 is 0.
    let size = |n: &Number| n.as_f64().unwrap_or_default() + 0.0;
    size(a).total_cmp(&size(b))
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
                self.to_string().cmp(&other.to_string())
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scalar {}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(text) => write!(f, "{}", Quoted(text)),
            Value::Number(n) => f.write_str(&text::number(n)),
            other => write!(f, "{other}"),
        }
    }
}

/// As in `.spec.containers[name="x"].image`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> = fields.iter().map(|(name, v)| format!("{name}={v}")).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(i) => write!(f, "[{i}]"),
        }
    }
}

/// Writes a path.
pub(crate) fn path(elements: &[Element]) -> String {
    elements.iter().map(Element::to_string).collect()
}

/// Why a key of `fieldsV1` is not an element.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Of a later version of the format: it is passed over.
    Unknown,
    Malformed,
}

impl Element {
    /// The key of this element in `fieldsV1`.
    pub(crate) fn print(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let mut out = "k:{".to_owned();
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    text::json_string(name, &mut out);
                    out.push(':');
                    text::json(&value.0, &mut out);
                }
                out.push('}');
                out
            }
            Self::Value(value) => {
                let mut out = "v:".to_owned();
                text::json(&value.0, &mut out);
                out
            }
            Self::Index(i) => format!("i:{i}"),
        }
    }

    pub(crate) fn parse(key: &str) -> Result<Self, Unreadable> {
        let json = |text: &str| serde_json::from_str::<Value>(text).map_err(|_| Unreadable::Malformed);
        match key.split_at_checked(2) {
            Some(("f:", name)) => Ok(Self::Field(name.to_owned())),
            Some(("v:", text)) => Ok(Self::Value(Scalar(json(text)?))),
            Some(("k:", text)) => match json(text)? {
                Value::Object(fields) => Ok(Self::key(fields)),
                _ => Err(Unreadable::Malformed),
            },
            Some(("i:", text)) => text.parse().map(Self::Index).map_err(|_| Unreadable::Malformed),
            Some((kind, _)) if kind.ends_with(':') => Err(Unreadable::Unknown),
            _ => Err(Unreadable::Malformed),
        }
    }

    pub(crate) fn key(fields: impl IntoIterator<Item = (String, Value)>) -> Self {
        let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, Scalar(value))).collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields)
    }

    pub(crate) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }
}
