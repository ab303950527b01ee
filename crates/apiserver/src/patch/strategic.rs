//! Strategic merge patch: a merge patch that knows from the schema which lists merge by a key, with directives for
//! what a merge cannot say.
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::order::{self, Key, arrange, identities, identity, no_merge_key, wrong_type};
use super::{PatchError, go};
use crate::type_schema::TypeRef;

type Fields = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Merges `patch` into a copy of `doc`, an object of the kind that `type_ref` describes.
pub fn strategic(doc: &Value, patch: &Value, type_ref: TypeRef<'_>) -> Result<Value, PatchError> {
    let Value::Object(original) = doc else { return Err(wrong_type("map[string]interface {}", doc)) };
    match patch {
        Value::Null => Ok(doc.clone()),
        Value::Object(patch) => {
            Ok(Value::Object(merge_map(original.clone(), patch.clone(), Some(type_ref))?))
        }
        other => Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::json_name(other)
        ))),
    }
}

fn merge_map(
    mut original: Fields,
    mut patch: Fields,
    type_ref: Option<TypeRef<'_>>,
) -> Result<Fields, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Fields::new()),
            _ => Err(unknown_directive(&directive.clone(), patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    order_lists(&mut original, &mut patch, type_ref)?;
    for (name, value) in patch {
        merge_field(&mut original, &name, value, type_ref)?;
    }
    Ok(original)
}

/// `$retainKeys` names all fields that stay: the patch may set no other.
fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let malformed = || PatchError::Malformed("invalid patch format of retainKeys".into());
    let Some(names) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let names: HashSet<&str> =
        names.as_array().ok_or_else(malformed)?.iter().filter_map(Value::as_str).collect();
    let sets = |name: &str, value: &Value| {
        !value.is_null() && !name.starts_with(DELETE_FROM) && !name.starts_with(SET_ORDER)
    };
    if patch.iter().any(|(name, value)| sets(name, value) && !names.contains(name.as_str())) {
        return Err(malformed());
    }
    original.retain(|name, _| names.contains(name.as_str()));
    Ok(())
}

fn merge_field(
    original: &mut Fields,
    name: &str,
    value: Value,
    type_ref: Option<TypeRef<'_>>,
) -> Result<(), PatchError> {
    let deletes = name.starts_with(DELETE_FROM);
    let name = if deletes { list_name(name, DELETE_FROM, "primitive list")? } else { name };
    match (original.get_mut(name), value) {
        (_, Value::Null) => {
            original.remove(name);
        }
        (Some(Value::Object(old)), Value::Object(new)) => {
            let below = field(type_ref, name)?;
            *old = match below {
                Some(below) if below.patch_strategy("replace") => new,
                below => merge_map(std::mem::take(old), new, below)?,
            };
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            let rule = Rule::of(type_ref, name)?;
            *old = merge_list(std::mem::take(old), new, rule, deletes)?.list;
        }
        (_, new) if !deletes => match without_directives(without_nulls(new)) {
            Some(new) => {
                original.insert(name.to_owned(), new);
            }
            None => {
                original.remove(name);
            }
        },
        _ => {}
    }
    Ok(())
}

/// The type of a field that is an object or a list; `None` where the schema is open: there all lists are replaced.
fn field<'a>(type_ref: Option<TypeRef<'a>>, name: &str) -> Result<Option<TypeRef<'a>>, PatchError> {
    let Some(type_ref) = type_ref else { return Ok(None) };
    let named = type_ref.fields().next().is_some();
    if !named && type_ref.rest().is_some() {
        let why = "merging an object in json but data type is not struct, instead is: map";
        return Err(PatchError::Unmergeable(why.into()));
    }
    match type_ref.field(name) {
        None if named => {
            Err(PatchError::Unmergeable(format!("unable to find api field for the json field {name:?}")))
        }
        found => Ok(found),
    }
}

/// How a list merges.
#[derive(Clone, Copy)]
struct Rule<'a> {
    merges: bool,
    key: Key<'a>,
    item: Option<TypeRef<'a>>,
}

impl<'a> Rule<'a> {
    fn of(type_ref: Option<TypeRef<'a>>, name: &str) -> Result<Self, PatchError> {
        let Some(list) = field(type_ref, name)? else {
            return Ok(Self { merges: false, key: None, item: None });
        };
        Ok(Self { merges: list.patch_strategy("merge"), key: list.patch_key(), item: list.item() })
    }
}

struct Merged {
    list: Vec<Value>,
    /// The server's order as `$setElementOrder` sees it: Go merges in place, so what a patch adds takes the places
    /// that its deletions left free.
    had: Vec<String>,
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    rule: Rule<'_>,
    deletes: bool,
) -> Result<Merged, PatchError> {
    if !rule.merges && !deletes {
        return Ok(Merged { list: patch, had: identities(&original, rule.key)? });
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(Merged { list: original, had: Vec::new() });
    }
    if of_objects(&original, &patch)? {
        let why = || PatchError::Unmergeable("cannot merge lists without merge key for struct".into());
        return merge_objects(original, patch, rule.key.ok_or_else(why)?, rule.item);
    }
    let had = identities(&original, None)?;
    let given = identities(&patch, None)?;
    if deletes {
        let gone: HashSet<&String> = given.iter().collect();
        let kept = original.into_iter().zip(&had).filter(|(_, id)| !gone.contains(id)).map(|(item, _)| item);
        return Ok(Merged { list: kept.collect(), had });
    }
    let mut seen = HashSet::new();
    let all = original.into_iter().zip(&had).chain(patch.into_iter().zip(&given));
    let once = all.filter(|(_, id)| seen.insert(id.as_str())).map(|(item, _)| item).collect();
    Ok(Merged { list: arrange(once, &given, &had, rule.key)?, had })
}

/// Whether the elements are objects. All must be of one type.
fn of_objects(original: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut all = original.iter().chain(patch);
    let Some(first) = all.next() else {
        return Err(PatchError::Unmergeable("no elements in any of the given slices".into()));
    };
    if first.is_array() {
        return Err(PatchError::DoesNotApply("lists of lists are not supported".into()));
    }
    if all.any(|item| go::type_name(item) != go::type_name(first)) {
        let both = format!("[{} {}]", go::list(original), go::list(patch));
        return Err(PatchError::Unmergeable(format!("list element types are not identical: {both}")));
    }
    Ok(first.is_object())
}

fn merge_objects(
    original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    item: Option<TypeRef<'_>>,
) -> Result<Merged, PatchError> {
    let length = original.len();
    let Directed { original, patch, replaced } = directives(original, patch, key)?;
    let had = identities(&original, Some(key))?;
    if replaced {
        return Ok(Merged { list: patch, had });
    }
    let given = identities(&patch, Some(key))?;
    let merged = merge_each(original, patch, key, item)?;
    let mut places = identities(&merged, Some(key))?;
    places.truncate(length);
    Ok(Merged { list: arrange(merged, &given, &had, Some(key))?, had: places })
}

struct Directed {
    original: Vec<Value>,
    patch: Vec<Value>,
    replaced: bool,
}

/// Follows the elements of a patch that are directives.
fn directives(mut original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<Directed, PatchError> {
    let (mut rest, mut gone, mut replaced) = (Vec::new(), HashSet::new(), false);
    for element in patch {
        match element.get(DIRECTIVE) {
            None => rest.push(element),
            Some(Value::String(directive)) if directive == "delete" => {
                gone.insert(identity(&element, Some(key))?);
            }
            Some(Value::String(directive)) if directive == "replace" => replaced = true,
            Some(Value::String(directive)) if directive == "merge" => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Unmergeable(why.into()));
            }
            Some(other) => {
                let Value::Object(fields) = &element else {
                    return Err(wrong_type("map[string]interface {}", &element));
                };
                return Err(unknown_directive(other, fields.clone()));
            }
        }
    }
    original.retain(|item| !identity(item, Some(key)).is_ok_and(|id| gone.contains(&id)));
    Ok(Directed { original, patch: rest, replaced })
}

/// Merges each element into the one with its key, or appends it as it is.
fn merge_each(
    original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    item: Option<TypeRef<'_>>,
) -> Result<Vec<Value>, PatchError> {
    let mut merged = original;
    let mut places = HashMap::new();
    for (at, element) in merged.iter().enumerate() {
        places.entry(identity(element, Some(key))?).or_insert(at);
    }
    for element in patch {
        let Value::Object(new) = element else { return Err(no_merge_key(&element, key)) };
        let id = new.get(key).map(Value::to_string).unwrap_or_default();
        if let Some(Value::Object(old)) = places.get(&id).and_then(|at| merged.get_mut(*at)) {
            *old = merge_map(std::mem::take(old), new, item)?;
        } else {
            places.insert(id, merged.len());
            merged.push(Value::Object(new));
        }
    }
    Ok(merged)
}

/// Follows `$setElementOrder/x`, together with the patch of `x`.
fn order_lists(
    original: &mut Fields,
    patch: &mut Fields,
    type_ref: Option<TypeRef<'_>>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = list(patch.remove(&directive))?.unwrap_or_default();
        let name = list_name(&directive, SET_ORDER, "setElementOrder list")?;
        let old = list(original.get(name).cloned())?;
        let new = list(patch.get(name).cloned())?;
        let rule = Rule::of(type_ref, name)?;
        if old.is_none() && new.is_none() {
            continue;
        }
        order::check(new.as_deref().unwrap_or_default(), &order, rule.key)?;
        of_objects(old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default())?;
        let merged = match (old, new) {
            (Some(old), Some(new)) => merge_list(old, new, rule, false)?,
            (Some(old), None) => Merged { had: identities(&old, rule.key)?, list: old },
            (None, new) => {
                let kept = new.unwrap_or_default().into_iter().filter_map(without_directives).collect();
                Merged { list: kept, had: Vec::new() }
            }
        };
        let arranged = arrange(merged.list, &identities(&order, rule.key)?, &merged.had, rule.key)?;
        original.insert(name.to_owned(), Value::Array(arranged));
        patch.remove(name);
    }
    Ok(())
}

fn list(value: Option<Value>) -> Result<Option<Vec<Value>>, PatchError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(wrong_type("[]interface {}", &other)),
    }
}

/// The list that a directive in a field's name is about.
fn list_name<'a>(name: &'a str, prefix: &str, what: &str) -> Result<&'a str, PatchError> {
    let malformed = || PatchError::Malformed(format!("invalid patch format of {what}"));
    name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).ok_or_else(malformed)
}

fn unknown_directive(directive: &Value, patch: Fields) -> PatchError {
    let directive = match directive {
        Value::String(text) => text.clone(),
        other => format!("%!s({}={})", go::type_name(other), go::text(other)),
    };
    let patch = go::text(&Value::Object(patch));
    PatchError::Unmergeable(format!("unknown patch type: {directive} in map: {patch}"))
}

/// A field that is null asks for nothing where there is nothing to remove.
fn without_nulls(mut value: Value) -> Value {
    discard_nulls(&mut value);
    value
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// An object with a directive has nothing to direct where nothing was, and is left out.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept =
                fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}
