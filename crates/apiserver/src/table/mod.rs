//! Tables: what `kubectl get` prints. The server chooses the columns and fills the cells.
mod built_in;
mod duration;
mod network;
mod path;
mod pod;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use duration::human_duration;
use path::Path;

/// The head of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: String,
    pub format: String,
    /// What the author of a CRD says about the column.
    pub description: String,
    /// 0 is always shown, 1 only in the wide output.
    pub priority: i64,
}

/// The columns of a kind, and where their cells come from.
#[derive(Debug, Clone)]
pub struct Columns {
    heads: Vec<Column>,
    cells: Cells,
}

type Print = fn(&Value, Timestamp) -> Vec<Value>;

#[derive(Debug, Clone)]
enum Cells {
    Printed(Print),
    /// The name and then one cell per path; nothing for a path that cannot be read.
    Found(Vec<Option<Path>>),
}

/// How much of the object a row carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    #[default]
    Metadata,
    Object,
    None,
}

impl Include {
    /// The query parameter `includeObject`; the error is the message of a 400.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            )),
        }
    }
}

/// The version of `meta.k8s.io` that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    #[default]
    V1,
    V1Beta1,
}

impl Version {
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// How a table was asked for, and when.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub include: Include,
    pub version: Version,
    pub now: Timestamp,
}

impl Columns {
    /// The columns of a built-in resource; name and creation time for those that have none of their own.
    pub fn built_in(group: &str, resource: &str) -> Self {
        let (heads, print) = built_in::columns(group, resource);
        Self { heads, cells: Cells::Printed(print) }
    }

    /// The columns that a version of a CRD names in `additionalPrinterColumns`, after the name; the age if it names
    /// none.
    pub fn for_crd(columns: &[Value]) -> Self {
        let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})];
        let columns = if columns.is_empty() { &age[..] } else { columns };
        let text = |column: &Value, key: &str| column[key].as_str().unwrap_or_default().to_owned();
        let head = |column: &Value| Column {
            name: text(column, "name"),
            ty: text(column, "type"),
            format: text(column, "format"),
            description: text(column, "description"),
            priority: column["priority"].as_i64().unwrap_or_default(),
        };
        let name = built_in::head(&("Name", false));
        let heads = std::iter::once(name).chain(columns.iter().map(head)).collect();
        let paths = columns.iter().map(|column| Path::parse(column["jsonPath"].as_str().unwrap_or_default()));
        Self { heads, cells: Cells::Found(paths.collect()) }
    }

    pub fn heads(&self) -> &[Column] {
        &self.heads
    }

    /// The cells of one object.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.cells {
            Cells::Printed(print) => print(object, now),
            Cells::Found(paths) => {
                let name = object.pointer("/metadata/name").cloned().unwrap_or_else(|| "".into());
                let found = paths.iter().zip(self.heads.iter().skip(1)).map(|(path, head)| {
                    let value = path.as_ref().and_then(|path| path.find(object));
                    value.map_or(Value::Null, |value| path::cell(value, &head.ty, now))
                });
                std::iter::once(name).chain(found).collect()
            }
        }
    }

    fn definitions(&self) -> Value {
        let definition = |head: &Column| {
            json!({
                "name": head.name,
                "type": head.ty,
                "format": head.format,
                "description": head.description,
                "priority": head.priority,
            })
        };
        self.heads.iter().map(definition).collect()
    }
}

/// The table of a list; `list_meta` is the metadata of the list.
pub fn table(columns: &Columns, objects: &[Value], list_meta: &Value, request: Request) -> Value {
    let rows = objects.iter().map(|object| row(columns, object, request)).collect();
    document(columns.definitions(), rows, list_meta.clone(), request.version)
}

/// The table of one object: the answer to a get, or an event of a watch, where only the first has the heads.
pub fn single(columns: &Columns, object: &Value, heads: bool, request: Request) -> Value {
    let definitions = if heads { columns.definitions() } else { Value::Null };
    let meta = json!({"resourceVersion": object.pointer("/metadata/resourceVersion")});
    document(definitions, json!([row(columns, object, request)]), meta, request.version)
}

fn document(definitions: Value, rows: Value, meta: Value, version: Version) -> Value {
    let mut table = json!({"kind": "Table", "apiVersion": version.api_version()});
    table["metadata"] = meta;
    table["columnDefinitions"] = definitions;
    table["rows"] = rows;
    table
}

fn row(columns: &Columns, object: &Value, request: Request) -> Value {
    let mut row = json!({"cells": columns.cells(object, request.now)});
    if let Some(completed) = pod::completed(object).filter(|_| matches!(columns.cells, Cells::Printed(_))) {
        row["conditions"] = json!([completed]);
    }
    row["object"] = match request.include {
        Include::Object => object.clone(),
        Include::None => Value::Null,
        Include::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": request.version.api_version(),
            "metadata": object.get("metadata"),
        }),
    };
    row
}
