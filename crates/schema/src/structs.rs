//! The Go structs behind the built-in kinds: what an object is read into, and so how it is printed again.
//!
//! A schema does not say what Go does with a zero value: `hostNetwork: false` disappears and
//! `automountServiceAccountToken: false` stays, because one is a `bool` and the other a `*bool`. The table is printed
//! from the types themselves, by reflection on k8s.io/api v0.36; a test holds its fields against those of
//! `schemas.json`.
use std::{collections::HashMap, sync::LazyLock};

use serde_json::{Map, Value, json};

/// What a Go type is to its reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Is {
    Pointer(Box<Type>),
    List(Box<Type>),
    Map(Box<Type>),
    Struct,
    String,
    Bool,
    Int32,
    Int64,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// Kept as it came.
    Raw,
    /// One of several types, of which a JSON schema is one.
    SchemaOr,
}

/// A type by its full name (`core/v1.PodSpec`).
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    name: String,
    pub is: Is,
}

/// When a field is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Omit {
    Never,
    Empty,
    Zero,
}

/// A field under its JSON name.
#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub ty: Type,
    pub omit: Omit,
    /// The embedded struct it comes from, which errors name.
    pub via: Option<&'static str>,
}

static STRUCTS: LazyLock<HashMap<&'static str, Vec<Field>>> =
    LazyLock::new(|| read(include_str!("structs.txt")));

/// The fields of a struct; none if there is no such struct.
pub fn fields(name: &str) -> &'static [Field] {
    STRUCTS.get(name).map_or(&[], Vec::as_slice)
}

/// A field of a struct.
pub fn field(of: &str, name: &str) -> Option<&'static Field> {
    fields(of).iter().find(|field| field.name == name)
}

fn read(text: &'static str) -> HashMap<&'static str, Vec<Field>> {
    let mut structs: HashMap<&'static str, Vec<Field>> = HashMap::new();
    let mut at = "";
    for line in text.lines() {
        match line.strip_prefix("  ") {
            None => {
                at = line;
                structs.insert(at, Vec::new());
            }
            Some(field) => structs.entry(at).or_default().extend(Field::read(field)),
        }
    }
    structs
}

impl Field {
    fn read(line: &'static str) -> Option<Self> {
        let mut words = line.split(' ');
        let (name, ty) = (words.next()?, Type::read(words.next()?));
        let mut field = Self { name, ty, omit: Omit::Never, via: None };
        for flag in words {
            match flag {
                "omitzero" => field.omit = Omit::Zero,
                "omitempty" if field.omit == Omit::Never => field.omit = Omit::Empty,
                _ => field.via = flag.strip_prefix("via="),
            }
        }
        Some(field)
    }

    /// Whether Go leaves this value out.
    pub fn omits(&self, value: &Value) -> bool {
        let empty = || match self.ty.is {
            // A struct is never empty to Go, and so neither is a zero time or quantity.
            Is::Struct
            | Is::Time
            | Is::MicroTime
            | Is::Quantity
            | Is::IntOrString
            | Is::Raw
            | Is::SchemaOr => false,
            Is::Pointer(_) => value.is_null(),
            _ => is_zero(value),
        };
        match self.omit {
            Omit::Never => false,
            Omit::Empty => empty(),
            Omit::Zero => is_zero(value),
        }
    }
}

impl Type {
    fn read(text: &str) -> Self {
        if let Some(of) = text.strip_prefix('*') {
            return Self { name: text.to_owned(), is: Is::Pointer(Box::new(Self::read(of))) };
        }
        if let Some(of) = text.strip_prefix("[]") {
            let of = Self::read(of);
            let is = if of.name == "uint8" { Is::Bytes } else { Is::List(Box::new(of)) };
            return Self { name: text.to_owned(), is };
        }
        if let Some((_, of)) = text.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Self { name: text.to_owned(), is: Is::Map(Box::new(Self::read(of))) };
        }
        match text.split_once('=') {
            Some((name, base)) => Self { name: name.to_owned(), is: Self::read(base).is },
            None => Self { name: text.to_owned(), is: basic(text) },
        }
    }

    /// The name of a struct, as [`fields`] knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name as Go prints it: the last part of each package's path.
    pub fn printed(&self) -> String {
        match &self.is {
            Is::Pointer(of) => of.printed(),
            Is::List(of) if self.name.starts_with("[]") => format!("[]{}", of.printed()),
            Is::Map(of) => match self.name.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
                Some((key, _)) => format!("map[{}]{}", last(key), of.printed()),
                None => last(&self.name).to_owned(),
            },
            _ => last(&self.name).to_owned(),
        }
    }

    /// What Go prints for a value that is not set.
    pub fn zero(&self) -> Value {
        match &self.is {
            Is::Struct => Value::Object(zero_fields(&self.name)),
            Is::String => json!(""),
            Is::Bool => json!(false),
            Is::Int32 | Is::Int64 | Is::IntOrString => json!(0),
            Is::Quantity => json!("0"),
            _ => Value::Null,
        }
    }
}

fn zero_fields(name: &str) -> Map<String, Value> {
    let zeros = fields(name).iter().map(|field| (field, field.ty.zero()));
    zeros
        .filter(|(field, zero)| !field.omits(zero))
        .map(|(field, zero)| (field.name.to_owned(), zero))
        .collect()
}

fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn basic(name: &str) -> Is {
    match name {
        "string" => Is::String,
        "bool" => Is::Bool,
        "int32" => Is::Int32,
        "int" | "int64" | "float64" => Is::Int64,
        "time" => Is::Time,
        "microtime" => Is::MicroTime,
        "quantity" => Is::Quantity,
        "intorstring" => Is::IntOrString,
        "raw" => Is::Raw,
        "schemaorbool" | "schemaorarray" | "schemaorstrings" => Is::SchemaOr,
        _ => Is::Struct,
    }
}

/// A value that Go does not distinguish from an absent one.
pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}
