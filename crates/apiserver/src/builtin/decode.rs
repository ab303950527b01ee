//! Decodes an object as its Go struct would: unknown fields are dropped, values of the wrong type are refused.
use schema::quantity::canonical;
use serde_json::{Map, Value};

use super::{
    BuiltIn, base64,
    structs::{self, Field, Is, Type},
    time,
};

const SCHEMA: &str = "apiextensions/v1.JSONSchemaProps";

/// Puts an object into the form that a server prints. Answers with what strict decoding objects to (`unknown field
/// "spec.foo"`), or with the sentence of the refusal.
pub fn decode(kind: &BuiltIn, object: &mut Value) -> Result<Vec<String>, String> {
    let unknown = decode_struct(kind.go, kind.version, object)?;
    match kind.go {
        "core/v1.Secret" => merge_string_data(object),
        "core/v1.Pod" => mirror_service_account(object),
        _ => {}
    }
    Ok(unknown)
}

/// The same for what is sent without being stored: `meta/v1.DeleteOptions`, `policy/v1.Eviction`, `core/v1.Binding`,
/// `autoscaling/v1.Scale`.
pub fn decode_struct(go: &str, version: &str, object: &mut Value) -> Result<Vec<String>, String> {
    let mut decoder = Decoder { unknown: Vec::new(), error: None };
    decoder.fields(go, object, &Place::root());
    let kind = go.rsplit('.').next().unwrap_or(go);
    match decoder.error {
        None => Ok(decoder.unknown),
        Some(error) => {
            Err(format!(r#"{kind} in version "{version}" cannot be handled as a {kind}: {error}"#))
        }
    }
}

/// The metadata of an object of any kind, in the form that a server prints; the rest of the object is left as it is.
pub fn decode_meta(kind: &str, version: &str, object: &mut Value) -> Result<Vec<String>, String> {
    let mut decoder = Decoder { unknown: Vec::new(), error: None };
    let place = Place { path: "metadata".to_owned(), go: "metadata".to_owned(), owner: String::new() };
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    decoder.fields("meta/v1.ObjectMeta", &mut metadata, &place);
    object["metadata"] = metadata;
    match decoder.error {
        None => Ok(decoder.unknown),
        Some(error) => {
            Err(format!(r#"{kind} in version "{version}" cannot be handled as a {kind}: {error}"#))
        }
    }
}

/// The position of the decoder, in two notations: strict decoding has the indexes of elements, Go's errors do not.
struct Place {
    path: String,
    go: String,
    owner: String,
}

impl Place {
    fn root() -> Self {
        Self { path: String::new(), go: String::new(), owner: String::new() }
    }

    fn field(&self, owner: &str, field: &Field) -> Self {
        let via = field.via.map(|via| format!("{via}.")).unwrap_or_default();
        let owner = owner.rsplit('.').next().unwrap_or(owner).to_owned();
        Self {
            path: join(&self.path, field.name),
            go: join(&self.go, &format!("{via}{}", field.name)),
            owner,
        }
    }

    fn within(&self, path: String) -> Self {
        Self { path, go: self.go.clone(), owner: self.owner.clone() }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

struct Decoder {
    unknown: Vec<String>,
    /// The first; Go reads on after it, too.
    error: Option<String>,
}

impl Decoder {
    fn fail(&mut self, error: impl Into<String>) {
        self.error.get_or_insert_with(|| error.into());
    }

    fn misfit(&mut self, value: &Value, ty: &str, place: &Place) {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if ty.starts_with("int") => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let Place { go, owner, .. } = place;
        let target = match owner.as_str() {
            "" => format!("value of type {ty}"),
            owner => format!("struct field {owner}.{go} of type {ty}"),
        };
        self.fail(format!("json: cannot unmarshal {found} into Go {target}"));
    }

    fn value(&mut self, ty: &Type, value: &mut Value, place: &Place) {
        if value.is_null() {
            *value = ty.zero();
            return;
        }
        match (&ty.is, &mut *value) {
            (Is::Pointer(of), value) => self.value(of, value, place),
            (Is::Struct, Value::Object(_)) => self.fields(ty.name(), value, place),
            (Is::List(of), Value::Array(list)) => {
                for (i, item) in list.iter_mut().enumerate() {
                    self.value(of, item, &place.within(format!("{}[{i}]", place.path)));
                }
                nothing_if(list.is_empty(), value);
            }
            (Is::Map(of), Value::Object(map)) => {
                for (key, item) in map.iter_mut() {
                    self.value(of, item, &place.within(join(&place.path, key)));
                    // What is stored is protobuf, which has no null: bytes that are not there come back as none.
                    if item.is_null() && of.is == Is::Bytes {
                        *item = Value::from("");
                    }
                }
                nothing_if(map.is_empty(), value);
            }
            (Is::SchemaOr, value) => self.schema_or(value, place),
            (Is::Raw, _) => {}
            (_, value) => self.leaf(ty, value, place),
        }
    }

    fn fields(&mut self, of: &str, value: &mut Value, place: &Place) {
        let Value::Object(map) = value else {
            return self.misfit(value, of.rsplit('/').next().unwrap_or(of), place);
        };
        let fields = structs::fields(of);
        let strangers = map.keys().filter(|key| !fields.iter().any(|field| field.name == **key));
        let strangers: Vec<String> = strangers.cloned().collect();
        for name in strangers {
            map.remove(&name);
            self.unknown.push(format!(r#"unknown field "{}""#, join(&place.path, &name)));
        }
        for field in fields {
            self.field(of, field, map, place);
        }
    }

    fn field(&mut self, of: &str, field: &Field, map: &mut Map<String, Value>, place: &Place) {
        let value = match map.remove(field.name) {
            None | Some(Value::Null) => field.ty.zero(),
            Some(mut value) => {
                self.value(&field.ty, &mut value, &place.field(of, field));
                value
            }
        };
        if !field.omits(&value) {
            map.insert(field.name.to_owned(), value);
        }
    }

    fn leaf(&mut self, ty: &Type, value: &mut Value, place: &Place) {
        let fits = match (&ty.is, &*value) {
            (Is::Bool, Value::Bool(_)) | (Is::String, Value::String(_)) => true,
            (Is::Int32, Value::Number(number)) => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            (Is::Int64, Value::Number(number)) => number.is_i64() || ty.name() == "float64",
            (Is::IntOrString, value) => return self.int_or_string(value, place),
            (Is::Quantity, _) => return self.convert(quantity, value),
            (Is::Bytes, Value::String(_)) => return self.convert(base64::canonical, value),
            (Is::Time, Value::String(_)) => return self.convert(time::seconds, value),
            (Is::MicroTime, Value::String(_)) => return self.convert(time::micros, value),
            (Is::Time | Is::MicroTime, value) => return self.misfit(value, "string", place),
            _ => false,
        };
        if !fits {
            self.misfit(value, &ty.printed(), place);
        }
    }

    fn int_or_string(&mut self, value: &Value, place: &Place) {
        let int = |number: &serde_json::Number| number.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
        match value {
            Value::String(_) => {}
            Value::Number(number) if int(number) => {}
            value => self.misfit(value, "int32", place),
        }
    }

    fn convert(&mut self, to: fn(&Value) -> Result<Value, String>, value: &mut Value) {
        match to(value) {
            Ok(converted) => *value = converted,
            Err(error) => self.fail(error),
        }
    }

    /// A schema where something simpler may stand: a boolean, or names.
    fn schema_or(&mut self, value: &mut Value, place: &Place) {
        match value {
            Value::Object(_) => self.fields(SCHEMA, value, place),
            Value::Array(list) => {
                let schemas = list.iter_mut().filter(|item| item.is_object());
                schemas.for_each(|item| self.fields(SCHEMA, item, place));
            }
            _ => {}
        }
    }
}

/// Protobuf does not distinguish an empty list or map from an absent one.
fn nothing_if(empty: bool, value: &mut Value) {
    if empty {
        *value = Value::Null;
    }
}

fn quantity(value: &Value) -> Result<Value, String> {
    canonical(value).map(Value::from).map_err(|error| error.to_string())
}

/// `stringData` is for writing only: what it says replaces what `data` says.
fn merge_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.as_object_mut().and_then(|secret| secret.remove("stringData"))
    else {
        return;
    };
    for (key, text) in texts {
        secret["data"][key] = Value::from(base64::encode(text.as_str().unwrap_or_default().as_bytes()));
    }
}

/// The name of the service account stands under its old field, too.
fn mirror_service_account(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let name = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned();
    if let Some(name) = name {
        spec.insert("serviceAccountName".to_owned(), name.clone());
        spec.insert("serviceAccount".to_owned(), name);
    }
}
