//! How deep an object may be nested.

use serde_json::Value;

use crate::status::Cause;

/// The most levels of an object. Parsers end at 128, and what is stored is read inside of lists, events and the objects of
/// controllers: one object that they cannot read would keep all others from them.
const DEEPEST: usize = 64;

/// What the owners of fields need beside: their sets of fields are as deep as the object, in `metadata.managedFields`.
const OWNERS: usize = 8;

const OWNED: &str = "metadata.managedFields";

/// How many steps of the path are shown.
const SHOWN: usize = 8;

/// Why an object is nested too deep to be stored. One that is there already may become less deep in steps.
pub(super) fn too_deep(old: Option<&Value>, new: &Value) -> Option<Cause> {
    let owners = || beyond(&new["metadata"]["managedFields"], DEEPEST + OWNERS, OWNED);
    let path = beyond(new, DEEPEST, "").or_else(owners)?;
    if old.is_some_and(|old| depth(new) <= depth(old)) {
        return None;
    }
    // Its beginning tells where to look.
    let field: Vec<&str> = path.split('.').take(SHOWN).collect();
    let why = format!("must not be nested deeper than {DEEPEST} levels");
    Some(Cause::invalid(format!("{}...", field.join(".")), &Value::Null, &why))
}

/// The first field that is so many levels down and has fields or items of its own.
fn beyond(value: &Value, left: usize, path: &str) -> Option<String> {
    if left == 0 {
        return (value.is_object() || value.is_array()).then(|| path.to_owned());
    }
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if path == OWNED { None } else { beyond(value, left - 1, &path) }
        }),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(at, value)| beyond(value, left - 1, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!({"end": 1}), |inner, _| json!({"a": inner}))
    }

    #[test]
    fn an_object_may_have_64_levels_and_no_more_unless_it_had_them_before() {
        assert!(too_deep(None, &nested(DEEPEST)).is_none());
        let cause = too_deep(None, &nested(DEEPEST + 1)).unwrap();
        assert_eq!(cause.field, "a.a.a.a.a.a.a.a...");
        assert!(cause.message.contains("64 levels"), "{cause:?}");
        let owners = json!({"metadata": {"managedFields": [nested(DEEPEST)]}, "spec": nested(DEEPEST - 1)});
        assert!(too_deep(None, &owners).is_none());
        let hidden = json!({"metadata": {"managedFields": [nested(80)]}});
        assert!(too_deep(None, &hidden).is_some());
        assert!(too_deep(Some(&nested(80)), &nested(80)).is_none());
        assert!(too_deep(Some(&nested(80)), &nested(81)).is_some());
    }
}
