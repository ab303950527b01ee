//! A served resource: its names, its rules, and how its objects are completed and validated.
use serde_json::{Value, json};

use crate::{
    builtin::{self, BuiltIn},
    object,
    status::{About, Cause, StatusError, cause},
    table::Columns,
    type_schema::{TypeRef, TypeSchema},
};

/// One kind in one version.
#[derive(Debug)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Objects are stored in this version; others differ in their `apiVersion` alone.
    pub stored_version: String,
    /// What field selectors may ask for, beside the name and the namespace.
    pub selectable: Vec<String>,
    pub columns: Columns,
    pub rules: Rules,
}

/// The rules of a kind's objects: those of a built-in kind, or those of a CRD.
#[derive(Debug)]
pub enum Rules {
    BuiltIn(&'static BuiltIn),
    Custom(Box<Custom>),
}

/// A kind that a CRD defines.
#[derive(Debug)]
pub struct Custom {
    /// The definition is being deleted: creates are refused.
    pub terminating: bool,
    pub schema: schema::Schema,
    pub type_schema: TypeSchema,
    pub has_status: bool,
    pub scale: Option<Scale>,
    /// What `/openapi/v3` says about it.
    pub openapi: Value,
}

/// Where a kind keeps its number of replicas.
#[derive(Debug, Clone)]
pub struct Scale {
    pub spec: Vec<String>,
    pub status: Vec<String>,
    pub selector: Option<Vec<String>>,
}

/// Which part of an object a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
    Scale,
    Finalize,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
        }
    }
}

impl Resource {
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The name under which the store keeps the objects: one for all versions, and one for both kinds of events.
    pub fn storage(&self) -> String {
        match self.group.as_str() {
            "" | "events.k8s.io" => self.plural.clone(),
            group => format!("{group}/{}", self.plural),
        }
    }

    pub fn about<'a>(&'a self, name: &'a str) -> About<'a> {
        About { group: &self.group, plural: &self.plural, name }
    }

    pub fn type_ref(&self) -> TypeRef<'_> {
        match &self.rules {
            Rules::BuiltIn(kind) => kind.type_schema().root(),
            Rules::Custom(custom) => custom.type_schema.root(),
        }
    }

    pub fn has_part(&self, part: Part) -> bool {
        match (&self.rules, part) {
            (_, Part::Main) => true,
            (Rules::BuiltIn(kind), part) => kind.subresources.iter().any(|sub| sub.name == part.name()),
            (Rules::Custom(custom), Part::Status) => custom.has_status,
            (Rules::Custom(custom), Part::Scale) => custom.scale.is_some(),
            (Rules::Custom(_), Part::Finalize) => false,
        }
    }

    pub fn is_built_in(&self, group: &str, kind: &str) -> bool {
        matches!(self.rules, Rules::BuiltIn(_)) && self.group == group && self.kind == kind
    }

    /// Decodes an object that a client sent: checks its kind, converts it to the storage version and drops unknown
    /// fields. Returns the dropped fields, in the words of strict decoding.
    pub fn decode(&self, object: &mut Value) -> Result<Vec<String>, StatusError> {
        self.check_type(object)?;
        match &self.rules {
            Rules::BuiltIn(kind) => {
                let unknown = builtin::decode(kind, object).map_err(StatusError::bad_request)?;
                builtin::default(kind, object);
                Ok(unknown)
            }
            Rules::Custom(custom) => {
                let mut unknown = builtin::decode_meta(&self.kind, &self.version, object)
                    .map_err(StatusError::bad_request)?;
                unknown.extend(
                    custom.schema.prune(object).iter().map(|field| format!("unknown field {field:?}")),
                );
                custom.schema.default(object);
                Ok(unknown)
            }
        }
    }

    /// Completes what server-side apply has merged.
    pub fn complete_applied(&self, object: &mut Value) -> Result<(), StatusError> {
        match &self.rules {
            Rules::BuiltIn(_) => self.decode(object).map(|_| ()),
            Rules::Custom(custom) => {
                builtin::decode_meta(&self.kind, &self.version, object).map_err(StatusError::bad_request)?;
                custom.schema.default_applied(object);
                Ok(())
            }
        }
    }

    /// An object that says what it is must say it right; a built-in one may leave it out.
    fn check_type(&self, object: &mut Value) -> Result<(), StatusError> {
        if !object.is_object() {
            return Err(StatusError::bad_request(format!("the body is not a {} object", self.kind)));
        }
        let built_in = matches!(self.rules, Rules::BuiltIn(_));
        for (field, expected, what) in
            [("kind", self.kind.clone(), "kind"), ("apiVersion", self.api_version(), "API version")]
        {
            match object[field].as_str().unwrap_or_default() {
                "" if built_in || field == "apiVersion" => object[field] = json!(expected),
                "" => {
                    let text = object.to_string();
                    let begin = &text[..text.floor_char_boundary(30)];
                    let begin = if begin == text { begin.to_owned() } else { format!("{begin} ...") };
                    let text = format!(
                        "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{text}' \
                         ({begin})",
                        self.kind
                    );
                    return Err(StatusError::bad_request(text));
                }
                found if found == expected => {}
                found if field == "kind" && !built_in => {
                    let text = format!(
                        "the kind in the data ({found}) does not match the expected kind ({expected})"
                    );
                    return Err(StatusError::bad_request(text));
                }
                found => {
                    let text = format!(
                        "the {what} in the data ({found}) does not match the expected {what} ({expected})"
                    );
                    return Err(StatusError::bad_request(text));
                }
            }
        }
        Ok(())
    }

    /// Resets the fields of a new object that clients may not set.
    pub fn prepare_create(&self, object: &mut Value, now: &str) {
        match &self.rules {
            Rules::BuiltIn(kind) => builtin::prepare_create(kind, object, now),
            Rules::Custom(custom) => {
                if custom.has_status {
                    object.as_object_mut().map(|object| object.remove("status"));
                }
                object::set_meta(object, "generation", 1);
            }
        }
    }

    /// What can only be known once the name has been generated.
    pub fn canonicalize(&self, object: &mut Value) {
        if let Rules::BuiltIn(kind) = &self.rules {
            builtin::canonicalize(kind, object);
        }
    }

    /// Restores the fields that an update of `part` may not change, and sets the generation.
    pub fn prepare_update(&self, old: &Value, new: &mut Value, part: Part) {
        match (&self.rules, part) {
            (Rules::BuiltIn(kind), Part::Status) => builtin::prepare_status(kind, old, new),
            (Rules::BuiltIn(_), Part::Finalize) => builtin::prepare_finalize(old, new),
            (Rules::BuiltIn(kind), _) => builtin::prepare_update(kind, old, new),
            (Rules::Custom(_), Part::Status) => {
                let status = new.get("status").cloned();
                let managed = new["metadata"].get("managedFields").cloned();
                *new = old.clone();
                object::remove_meta(new, "resourceVersion");
                match managed {
                    Some(managed) => object::set_meta(new, "managedFields", managed),
                    None => drop(object::remove_meta(new, "managedFields")),
                }
                match status {
                    Some(status) => new["status"] = status,
                    None => drop(new.as_object_mut().map(|new| new.remove("status"))),
                }
            }
            (Rules::Custom(custom), _) => {
                if custom.has_status {
                    object::copy(new, old, "status");
                }
                let ignored = ["metadata", "status"];
                let compared = if custom.has_status { &ignored[..] } else { &ignored[..1] };
                let content = |object: &Value| {
                    let mut object = object.as_object().cloned().unwrap_or_default();
                    object.retain(|key, _| !compared.contains(&key.as_str()));
                    object
                };
                if content(old) != content(new) {
                    object::set_meta(new, "generation", object::generation(old).unwrap_or_default() + 1);
                }
            }
        }
    }

    /// Validates an object that is about to be stored.
    pub fn validate(&self, old: Option<&Value>, new: &Value, part: Part) -> Result<(), StatusError> {
        if let Some(cause) = super::nesting::too_deep(old, new) {
            return Err(StatusError::invalid(&self.group, &self.kind, object::name(new), &[cause]));
        }
        let mut causes = match old {
            None => builtin::meta::validate_meta(self.name_rule(), new),
            Some(old) => validate_meta_update(old, new),
        };
        match &self.rules {
            Rules::BuiltIn(kind) => match old {
                None => causes.extend(builtin::validate_create(kind, new)),
                Some(old) if part == Part::Status => causes.extend(builtin::validate_status(kind, old, new)),
                Some(old) => causes.extend(builtin::validate_update(kind, old, new)),
            },
            Rules::Custom(custom) => {
                let verdict = custom.schema.validate(new, old);
                causes.extend(verdict.violations.iter().map(violated));
                if let Some(scale) = &custom.scale {
                    let spec = (part != Part::Status).then_some(&scale.spec);
                    let paths = spec.into_iter().chain([&scale.status]);
                    causes.extend(replicas_misfit(&scale.spec, new));
                    causes.extend(paths.filter_map(|path| replicas_out_of_range(path, new)));
                }
                if verdict.rules_were_skipped {
                    let why = "some validation rules were not checked because the object was invalid; correct the \
                               existing errors to complete validation";
                    causes.push(Cause::invalid("<nil>", &Value::Null, why));
                }
            }
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(StatusError::invalid(&self.group, &self.kind, object::name(new), &causes))
    }

    /// A few kinds can be created where they are put.
    pub fn creates_on_update(&self) -> bool {
        matches!(&self.rules, Rules::BuiltIn(kind) if kind.create_on_update)
    }

    /// Most built-in kinds take an update that does not say which object it is for; custom ones never do.
    pub fn allows_unconditional_update(&self) -> bool {
        matches!(&self.rules, Rules::BuiltIn(kind) if kind.unconditional_update)
    }

    /// Where a kube-apiserver keeps an object in etcd; one message prints it.
    pub fn registry_key(&self, namespace: &str, name: &str) -> String {
        let folder = match (self.group.as_str(), self.plural.as_str()) {
            ("", "services") => "services/specs".to_owned(),
            ("", plural) => plural.to_owned(),
            (group, plural) if matches!(self.rules, Rules::Custom(_)) => format!("{group}/{plural}"),
            (_, plural) => plural.to_owned(),
        };
        let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        format!("/registry/{folder}/{namespace}{name}")
    }

    fn name_rule(&self) -> builtin::NameRule {
        match &self.rules {
            Rules::BuiltIn(kind) => kind.name_rule,
            Rules::Custom(_) => builtin::NameRule::Subdomain,
        }
    }

    /// What field selectors can ask of an object, as it is stored.
    pub fn fields(&self, stored: &Value) -> Vec<(String, String)> {
        let mut fields = vec![("metadata.name".to_owned(), object::name(stored).to_owned())];
        if self.namespaced {
            fields.push(("metadata.namespace".to_owned(), object::namespace(stored).to_owned()));
        }
        for name in &self.selectable {
            // Events are stored in their older form, and can be asked for by the names of both.
            let path = name
                .replace("regarding.", "involvedObject.")
                .replace("reportingController", "reportingComponent");
            fields.push((name.clone(), selected(stored, &path)));
            if self.plural == "events" {
                let newer = path.replace("involvedObject.", "regarding.").replace("Component", "Controller");
                let other = if path == *name { newer } else { path.clone() };
                fields.push((other, selected(stored, &path)));
            }
        }
        if self.group == "events.k8s.io" {
            fields.push(("source".to_owned(), selected(stored, "source")));
        }
        fields
    }
}

/// The text at a path such as `spec.nodeName`.
fn selected(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |value, part| value.get(part));
    match (path, found) {
        ("source", Some(source)) => source["component"].as_str().unwrap_or_default().to_owned(),
        (_, Some(Value::String(text))) => text.clone(),
        ("spec.unschedulable" | "spec.hostNetwork", None) => "false".to_owned(),
        (_, Some(Value::Null) | None) => String::new(),
        (_, Some(other)) => other.to_string(),
    }
}

/// A number of replicas that no scale can say.
fn replicas_out_of_range(path: &[String], object: &Value) -> Option<Cause> {
    let number = path.iter().try_fold(object, |value, part| value.get(part))?.as_i64()?;
    let why = match number {
        ..0 => "should be a non-negative integer".to_owned(),
        number if number > i64::from(i32::MAX) => format!("should be less than or equal to {}", i32::MAX),
        _ => return None,
    };
    Some(Cause::invalid(format!(".{}", path.join(".")), &Value::from(number), &why))
}

/// The scale subresource could not read the number of replicas.
fn replicas_misfit(path: &[String], object: &Value) -> Option<Cause> {
    let found = path.iter().try_fold(object, |value, part| value.get(part))?;
    let (text, ty) = match found {
        Value::Number(number) if number.is_i64() => return None,
        Value::String(text) => (text.clone(), "string"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(number) => (number.to_string(), "float64"),
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        other => (
            crate::patch::go_text(other),
            if other.is_array() { "[]interface {}" } else { "map[string]interface {}" },
        ),
    };
    let field = format!(".{}", path.join("."));
    let why = format!("{field} accessor error: {text} is of the type {ty}, expected int64");
    Some(Cause::invalid_text(field, "0", &why))
}

/// What may not change in an object's metadata, whatever its kind.
fn validate_meta_update(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = builtin::meta::validate_meta_update(new);
    let known = object::finalizers(old);
    let added: Vec<&str> = object::finalizers(new).into_iter().filter(|name| !known.contains(name)).collect();
    if object::is_terminating(old) && !added.is_empty() {
        let quoted: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            quoted.join(", ")
        );
        causes.push(Cause::forbidden("metadata.finalizers", &why));
    }
    for field in ["uid", "creationTimestamp"] {
        let (before, after) = (&old["metadata"][field], &new["metadata"][field]);
        if before != after {
            causes.push(Cause::immutable(format!("metadata.{field}"), after));
        }
    }
    causes
}

pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn violated(violation: &schema::Violation) -> Cause {
    let reason = match violation.cause {
        schema::Cause::Required => "FieldValueRequired",
        schema::Cause::Invalid => "FieldValueInvalid",
        schema::Cause::Type => "FieldValueTypeInvalid",
        schema::Cause::TooLong => "FieldValueTooLong",
        schema::Cause::TooMany => "FieldValueTooMany",
        schema::Cause::Unsupported => "FieldValueNotSupported",
        schema::Cause::Duplicate => "FieldValueDuplicate",
        schema::Cause::Forbidden | schema::Cause::Unknown => "FieldValueForbidden",
    };
    let text = violation.to_string();
    let message = text.strip_prefix(&format!("{}: ", violation.field)).unwrap_or(&text).to_owned();
    cause(reason, violation.field.clone(), message)
}
