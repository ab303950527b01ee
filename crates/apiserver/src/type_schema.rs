//! The types of a kind's fields, read from its OpenAPI schema: which fields exist, how lists merge, what defaults are.
//!
//! One representation for the kinds that are built in (whose schemas refer to each other by name) and for those of a
//! CRD (one tree). Nodes live in one arena, because a CRD's own schema is recursive.
use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

/// How a list is merged by server-side apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// One value: replaced as a whole.
    Atomic,
    /// Every element is its own key.
    Set,
    /// Elements are known by the fields of [`TypeRef::list_keys`].
    Map,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Object,
    List,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
    /// A string or a number, kept in its canonical form.
    Quantity,
    /// A time to the second or the microsecond.
    Time,
    /// Bytes, as base64.
    Bytes,
    /// Anything, a CRD's `x-kubernetes-preserve-unknown-fields` without a type among it.
    Any,
}

#[derive(Debug)]
struct Node {
    /// The node that this one refers to; what stands beside the reference (a default) is in this node.
    link: Option<usize>,
    ty: Type,
    fields: BTreeMap<String, usize>,
    rest: Option<usize>,
    item: Option<usize>,
    required: Vec<String>,
    default: Option<Value>,
    atomic: bool,
    preserves_unknown: bool,
    embedded: bool,
    list_type: ListType,
    list_keys: Vec<String>,
    patch_key: Option<String>,
    patch_strategy: String,
}

/// The types of one kind, as a tree.
#[derive(Debug)]
pub struct TypeSchema {
    nodes: Vec<Node>,
}

/// A reference to one type of a [`TypeSchema`].
#[derive(Debug, Clone, Copy)]
pub struct TypeRef<'a> {
    nodes: &'a [Node],
    at: usize,
}

/// How a schema refers to another.
pub const REFERENCE: &str = "#/components/schemas/";

/// The metadata that every object has.
pub const OBJECT_META: &str = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl TypeSchema {
    /// Reads a schema; `definitions` are the schemas that it may refer to.
    pub fn new(schema: &Value, definitions: &Map<String, Value>) -> Self {
        let mut reader = Reader { definitions, nodes: Vec::new(), named: HashMap::new() };
        reader.read(schema);
        Self { nodes: reader.nodes }
    }

    /// The type of a whole object.
    pub fn root(&self) -> TypeRef<'_> {
        TypeRef { nodes: &self.nodes, at: 0 }
    }
}

impl<'a> TypeRef<'a> {
    /// The node itself, before a reference is followed.
    fn here(self) -> &'a Node {
        &self.nodes[self.at]
    }

    /// The node after a reference was followed.
    fn node(self) -> &'a Node {
        let here = self.here();
        here.link.map_or(here, |at| &self.nodes[at])
    }

    fn to(self, at: usize) -> Self {
        Self { nodes: self.nodes, at }
    }

    pub fn ty(self) -> Type {
        self.node().ty
    }

    /// The type of a field of this name, or of the values of a map.
    pub fn field(self, name: &str) -> Option<Self> {
        let node = self.node();
        node.fields.get(name).copied().or(node.rest).map(|at| self.to(at))
    }

    /// The type of a field that the schema names.
    pub fn named(self, name: &str) -> Option<Self> {
        self.node().fields.get(name).map(|at| self.to(*at))
    }

    /// The fields that the schema names.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, Self)> {
        self.node().fields.iter().map(move |(name, at)| (name.as_str(), self.to(*at)))
    }

    /// The type of a map's values; `None` for a struct.
    pub fn rest(self) -> Option<Self> {
        self.node().rest.map(|at| self.to(at))
    }

    pub fn item(self) -> Option<Self> {
        self.node().item.map(|at| self.to(at))
    }

    pub fn required(self) -> &'a [String] {
        &self.node().required
    }

    pub fn default(self) -> Option<&'a Value> {
        self.here().default.as_ref().or_else(|| self.node().default.as_ref())
    }

    /// An object that is replaced as a whole.
    pub fn atomic(self) -> bool {
        self.node().atomic
    }

    /// Fields that the schema does not name are kept.
    pub fn preserves_unknown(self) -> bool {
        self.node().preserves_unknown
    }

    /// An object of another kind stands here, with an apiVersion, a kind and metadata.
    pub fn embedded(self) -> bool {
        self.node().embedded
    }

    pub fn list_type(self) -> ListType {
        self.node().list_type
    }

    pub fn list_keys(self) -> &'a [String] {
        &self.node().list_keys
    }

    /// The field by which a strategic merge patch knows an element of this list.
    pub fn patch_key(self) -> Option<&'a str> {
        self.here().patch_key.as_deref().or_else(|| self.node().patch_key.as_deref())
    }

    /// Whether a strategic merge patch merges this list or map (`merge`), and whether it drops what it does not name
    /// (`retainKeys`).
    pub fn patch_strategy(self, strategy: &str) -> bool {
        let (here, node) = (self.here(), self.node());
        let said = if here.patch_strategy.is_empty() { &node.patch_strategy } else { &here.patch_strategy };
        said.split(',').any(|s| s == strategy)
    }
}

struct Reader<'a> {
    definitions: &'a Map<String, Value>,
    nodes: Vec<Node>,
    named: HashMap<&'a str, usize>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, schema: &'a Value) -> usize {
        let reference = |s: &'a Value| s.get("$ref").and_then(Value::as_str);
        // A reference that says nothing else is the node itself; one with a default or a strategy beside it links to
        // it.
        let only =
            schema.get("allOf").and_then(Value::as_array).filter(|all| all.len() == 1).map(|all| &all[0]);
        if let Some(name) = reference(schema).or_else(|| only.and_then(reference)) {
            let at = self.named(name.trim_start_matches(REFERENCE));
            let beside = ["default", "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"];
            if !beside.iter().any(|key| schema.get(key).is_some()) {
                return at;
            }
            self.nodes.push(Node { link: Some(at), ..leaf(schema) });
            return self.nodes.len() - 1;
        }
        let at = self.nodes.len();
        self.nodes.push(leaf(schema));
        let children = |key: &str| schema.get(key).filter(|v| v.is_object());
        if let Some(fields) = children("properties").and_then(Value::as_object) {
            for (name, field) in fields {
                let child = self.read(field);
                self.nodes[at].fields.insert(name.clone(), child);
            }
        }
        if let Some(rest) = children("additionalProperties") {
            self.nodes[at].rest = Some(self.read(rest));
        }
        if let Some(item) = children("items") {
            self.nodes[at].item = Some(self.read(item));
        }
        at
    }

    fn named(&mut self, name: &'a str) -> usize {
        if let Some(at) = self.named.get(name) {
            return *at;
        }
        // Known before it is read: it may refer to itself.
        let at = self.nodes.len();
        self.named.insert(name, at);
        let definitions = self.definitions;
        match definitions.get(name) {
            Some(schema) => {
                let read = self.read(schema);
                debug_assert_eq!(read, at, "a definition is read where it was announced");
            }
            None => self.nodes.push(leaf(&Value::Null)),
        }
        if name.ends_with(".resource.Quantity") {
            self.nodes[at].ty = Type::Quantity;
        }
        if name.ends_with(".runtime.RawExtension") {
            self.nodes[at].atomic = true;
        }
        at
    }
}

/// A node without its children.
fn leaf(schema: &Value) -> Node {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or_default();
    let texts = |key: &str| {
        let list = schema.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let list_keys: Vec<String> = texts("x-kubernetes-list-map-keys");
    Node {
        link: None,
        ty: type_of(schema),
        fields: BTreeMap::new(),
        rest: None,
        item: None,
        required: texts("required"),
        default: schema.get("default").cloned(),
        atomic: text("x-kubernetes-map-type") == Some("atomic"),
        preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        list_type: match text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map,
            _ => ListType::Atomic,
        },
        list_keys,
        patch_key: text("x-kubernetes-patch-merge-key").map(str::to_owned),
        patch_strategy: text("x-kubernetes-patch-strategy").unwrap_or_default().to_owned(),
    }
}

fn type_of(schema: &Value) -> Type {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let int_or_string = schema.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true);
    match (text("type"), text("format")) {
        (_, Some("int-or-string")) => Type::IntOrString,
        _ if int_or_string => Type::IntOrString,
        (Some("string"), Some("date-time")) => Type::Time,
        (Some("string"), Some("byte")) => Type::Bytes,
        (Some("string"), _) => Type::String,
        (Some("object"), _) => Type::Object,
        (Some("array"), _) => Type::List,
        (Some("integer"), _) => Type::Integer,
        (Some("number"), _) => Type::Number,
        (Some("boolean"), _) => Type::Boolean,
        _ => Type::Any,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_may_hold_itself() {
        let definitions = json!({"Tree": {"type": "object", "properties": {
            "name": {"type": "string"},
            "children": {"type": "object", "additionalProperties": {
                "default": {}, "allOf": [{"$ref": "#/components/schemas/Tree"}]}},
        }}});
        let type_schema =
            TypeSchema::new(&json!({"$ref": "#/components/schemas/Tree"}), definitions.as_object().unwrap());
        let mut type_ref = type_schema.root();
        for _ in 0..3 {
            assert_eq!(type_ref.field("name").unwrap().ty(), Type::String);
            type_ref = type_ref.field("children").unwrap().rest().unwrap();
            assert_eq!(type_ref.default(), Some(&json!({})));
        }
    }
}
