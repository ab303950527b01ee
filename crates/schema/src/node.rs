//! The schema as a tree of plain values.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Number, Value};
use thiserror::Error;

/// Why a schema could not be read.
#[derive(Debug, Error)]
pub enum SchemaError {
    /// A keyword holds something that it cannot.
    #[error("failed to read the schema at {path:?}: {keyword} is {found}")]
    Keyword {
        /// The property that the schema describes.
        path: String,
        /// The keyword in question.
        keyword: &'static str,
        /// What it holds.
        found: String,
    },
    /// A pattern is not a regular expression.
    #[error("failed to read the pattern of {path:?}")]
    Pattern {
        /// The property that the schema describes.
        path: String,
        /// What the regular expression engine says.
        #[source]
        source: Box<regex::Error>,
    },
    /// A CEL rule does not compile.
    #[error("failed to compile a rule: {0}")]
    Rule(String),
}

/// The JSON type that a schema asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
    /// No type: anything goes.
    Any,
}

/// One schema: what a value at this place may be.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) ty: Type,
    pub(crate) nullable: bool,
    pub(crate) properties: BTreeMap<String, Self>,
    pub(crate) additional: Option<Box<Self>>,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) required: Vec<String>,
    pub(crate) preserve_unknown: bool,
    pub(crate) list_keys: Vec<String>,
    pub(crate) list_set: bool,
    pub(crate) default: Option<Value>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) minimum: Option<Number>,
    pub(crate) maximum: Option<Number>,
    pub(crate) min_length: Option<usize>,
    pub(crate) max_length: Option<usize>,
    pub(crate) min_items: Option<usize>,
    pub(crate) max_items: Option<usize>,
    pub(crate) min_properties: Option<usize>,
    pub(crate) max_properties: Option<usize>,
    pub(crate) pattern: Option<Regex>,
}

impl Node {
    pub(crate) fn parse(schema: &Value, path: &str) -> Result<Self, SchemaError> {
        let empty = Map::new();
        let schema = schema.as_object().unwrap_or(&empty);
        Ok(Self {
            ty: type_of(schema, path)?,
            nullable: flag(schema, "nullable"),
            properties: children(schema, path)?,
            additional: additional(schema, path)?,
            items: schema
                .get("items")
                .map(|s| Self::parse(s, &format!("{path}[]")).map(Box::new))
                .transpose()?,
            required: strings(schema, "required"),
            preserve_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            list_keys: strings(schema, "x-kubernetes-list-map-keys"),
            list_set: schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("set"),
            default: schema.get("default").cloned(),
            allowed: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            minimum: number(schema, "minimum"),
            maximum: number(schema, "maximum"),
            min_length: length(schema, "minLength"),
            max_length: length(schema, "maxLength"),
            min_items: length(schema, "minItems"),
            max_items: length(schema, "maxItems"),
            min_properties: length(schema, "minProperties"),
            max_properties: length(schema, "maxProperties"),
            pattern: pattern(schema, path)?,
        })
    }
}

fn type_of(schema: &Map<String, Value>, path: &str) -> Result<Type, SchemaError> {
    if flag(schema, "x-kubernetes-int-or-string") {
        return Ok(Type::IntOrString);
    }
    Ok(match schema.get("type").and_then(Value::as_str) {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        None if !schema.contains_key("type") => Type::Any,
        _ => {
            return Err(SchemaError::Keyword {
                path: path.to_owned(),
                keyword: "type",
                found: schema.get("type").map(Value::to_string).unwrap_or_default(),
            });
        }
    })
}

fn children(schema: &Map<String, Value>, path: &str) -> Result<BTreeMap<String, Node>, SchemaError> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(BTreeMap::new());
    };
    properties
        .iter()
        .map(|(name, schema)| Ok((name.clone(), Node::parse(schema, &format!("{path}.{name}"))?)))
        .collect()
}

fn additional(schema: &Map<String, Value>, path: &str) -> Result<Option<Box<Node>>, SchemaError> {
    match schema.get("additionalProperties") {
        None | Some(Value::Bool(false)) => Ok(None),
        Some(values) => Ok(Some(Box::new(Node::parse(values, &format!("{path}.*"))?))),
    }
}

fn pattern(schema: &Map<String, Value>, path: &str) -> Result<Option<Regex>, SchemaError> {
    let Some(pattern) = schema.get("pattern").and_then(Value::as_str) else { return Ok(None) };
    Regex::new(pattern)
        .map(Some)
        .map_err(|source| SchemaError::Pattern { path: path.to_owned(), source: Box::new(source) })
}

fn flag(schema: &Map<String, Value>, keyword: &str) -> bool {
    schema.get(keyword).and_then(Value::as_bool).unwrap_or(false)
}

fn number(schema: &Map<String, Value>, keyword: &str) -> Option<Number> {
    schema.get(keyword).and_then(Value::as_number).cloned()
}

fn length(schema: &Map<String, Value>, keyword: &str) -> Option<usize> {
    schema.get(keyword).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok())
}

fn strings(schema: &Map<String, Value>, keyword: &str) -> Vec<String> {
    let list = schema.get(keyword).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
