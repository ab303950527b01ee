//! Checks a value against its structural schema: types, formats, bounds, required fields.

use std::collections::BTreeSet;

use serde_json::{Number, Value};

use crate::{
    node::{Node, Type},
    violation::{Cause, Violation},
};

pub(crate) fn violations(root: &Node, object: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    check(root, object, "", &mut found);
    found
}

fn check(node: &Node, value: &Value, path: &str, found: &mut Vec<Violation>) {
    if value.is_null() && node.nullable {
        return;
    }
    if !has_type(node.ty, value) {
        let found_type = Value::from(type_of(value));
        let allowed = format!("{path} in body must be of type {}: {found_type}", type_name(node.ty));
        found.push(Violation::new(path, Cause::Type, Some(&found_type), allowed));
        return;
    }
    check_allowed(node, value, path, found);
    match value {
        Value::Object(_) => check_object(node, value, path, found),
        Value::Array(_) => check_array(node, value, path, found),
        Value::String(text) => check_string(node, text, path, found),
        Value::Number(number) => check_number(node, number, path, found),
        Value::Bool(_) | Value::Null => {}
    }
}

fn has_type(ty: Type, value: &Value) -> bool {
    match ty {
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => is_integer(value),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::IntOrString => value.is_string() || is_integer(value),
        Type::Any => true,
    }
}

/// 1.0 is an integer to an apiserver, which reads JSON numbers without a fraction as integers.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0)
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer or string",
        Type::Any => "anything",
    }
}

/// A value of the wrong type is named by its type.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
    }
}

fn check_allowed(node: &Node, value: &Value, path: &str, found: &mut Vec<Violation>) {
    if !node.allowed.is_empty() && !node.allowed.contains(value) {
        let list: Vec<String> = node.allowed.iter().map(Value::to_string).collect();
        let allowed = format!("supported values: {}", list.join(", "));
        found.push(Violation::new(path, Cause::Unsupported, Some(value), allowed));
    }
}

fn check_object(node: &Node, value: &Value, path: &str, found: &mut Vec<Violation>) {
    let Some(object) = value.as_object() else { return };
    for name in &node.required {
        if !object.contains_key(name) {
            found.push(Violation::new(join(path, name), Cause::Required, None, ""));
        }
    }
    bounds(object.len(), node.min_properties, node.max_properties, "properties", path, found);
    for (name, child) in object {
        if let Some(schema) = node.properties.get(name).or(node.additional.as_deref()) {
            check(schema, child, &join(path, name), found);
        }
    }
}

fn check_array(node: &Node, value: &Value, path: &str, found: &mut Vec<Violation>) {
    let Some(items) = value.as_array() else { return };
    bounds(items.len(), node.min_items, node.max_items, "items", path, found);
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Some(key) = identity(node, item)
            && !seen.insert(key.to_string())
        {
            found.push(duplicate(&path, key));
        }
        if let Some(schema) = node.items.as_deref() {
            check(schema, item, &path, found);
        }
    }
}

/// Go prints the keys of a list as the map that they are.
fn duplicate(path: &str, key: Value) -> Violation {
    match key {
        Value::Object(keys) => {
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key:?}:{value}")).collect();
            Violation::new(
                path,
                Cause::Duplicate,
                None,
                format!("map[string]interface {{}}{{{}}}", keys.join(", ")),
            )
        }
        key => Violation::new(path, Cause::Duplicate, Some(&key), ""),
    }
}

/// What identifies an entry of a set or a keyed list.
fn identity(node: &Node, item: &Value) -> Option<Value> {
    if node.list_set {
        return Some(item.clone());
    }
    if node.list_keys.is_empty() {
        return None;
    }
    let keys = node.list_keys.iter().map(|key| (key.clone(), item.get(key).cloned().unwrap_or_default()));
    Some(Value::Object(keys.collect()))
}

fn check_string(node: &Node, text: &str, path: &str, found: &mut Vec<Violation>) {
    let value = Value::from(text);
    let length = text.chars().count();
    if let Some(least) = node.min_length.filter(|least| length < *least) {
        let allowed = format!("{path} in body should be at least {least} chars long");
        found.push(Violation::new(path, Cause::Invalid, Some(&value), allowed));
    }
    if let Some(most) = node.max_length.filter(|most| length > *most) {
        let allowed = format!("may not be more than {most} bytes");
        found.push(Violation::new(path, Cause::TooLong, Some(&value), allowed));
    }
    if let Some(pattern) = &node.pattern
        && !pattern.is_match(text)
    {
        found.push(Violation::new(
            path,
            Cause::Invalid,
            Some(&value),
            format!("{path} in body should match '{pattern}'"),
        ));
    }
}

fn check_number(node: &Node, number: &Number, path: &str, found: &mut Vec<Violation>) {
    let value = Value::Number(number.clone());
    if let Some(minimum) = &node.minimum
        && less(number, minimum)
    {
        let allowed = format!("{path} in body should be greater than or equal to {minimum}");
        found.push(Violation::new(path, Cause::Invalid, Some(&value), allowed));
    }
    if let Some(maximum) = &node.maximum
        && less(maximum, number)
    {
        let allowed = format!("{path} in body should be less than or equal to {maximum}");
        found.push(Violation::new(path, Cause::Invalid, Some(&value), allowed));
    }
}

/// Exact for integers of any size; as floats where one side is one.
fn less(a: &Number, b: &Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a < b,
        _ => a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| a < b),
    }
}

fn bounds(
    count: usize,
    least: Option<usize>,
    most: Option<usize>,
    what: &str,
    path: &str,
    found: &mut Vec<Violation>,
) {
    let value = Value::from(count);
    if let Some(least) = least.filter(|least| count < *least) {
        let allowed = format!("{path} in body should have at least {least} {what}");
        found.push(Violation::new(path, Cause::Invalid, Some(&value), allowed));
    }
    if let Some(most) = most.filter(|most| count > *most) {
        let allowed = format!("must have at most {most} items");
        found.push(Violation::new(path, Cause::TooMany, Some(&value), allowed));
    }
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Schema;

    fn first(schema: &serde_json::Value, value: &serde_json::Value) -> Option<String> {
        Schema::new(schema).unwrap().violations(value, None).first().map(ToString::to_string)
    }

    #[test]
    fn each_bound_says_field_value_and_limit() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "integer", "minimum": 1, "maximum": 3},
            "s": {"type": "string", "pattern": "^x+$", "maxLength": 3},
            "e": {"type": "string", "enum": ["A", "B"]},
            "l": {"type": "array", "maxItems": 1, "items": {"type": "boolean"}},
            "p": {"x-kubernetes-int-or-string": true, "minimum": 0, "pattern": "^[0-9]+%$"},
        }});
        let cases = [
            (json!({}), "a: Required value"),
            (json!({"a": 0}), "a: Invalid value: 0: a in body should be greater than or equal to 1"),
            (json!({"a": 4}), "a: Invalid value: 4: a in body should be less than or equal to 3"),
            (
                json!({"a": "1"}),
                "a: Invalid value: \"string\": a in body must be of type integer: \"string\"",
            ),
            (
                json!({"a": 1.5}),
                "a: Invalid value: \"number\": a in body must be of type integer: \"number\"",
            ),
            (json!({"a": 1, "s": "y"}), "s: Invalid value: \"y\": s in body should match '^x+$'"),
            (json!({"a": 1, "s": "xxxx"}), "s: Too long: may not be more than 3 bytes"),
            (json!({"a": 1, "e": "C"}), "e: Unsupported value: \"C\": supported values: \"A\", \"B\""),
            (json!({"a": 1, "l": [true, true]}), "l: Too many: 2: must have at most 1 items"),
            (
                json!({"a": 1, "l": [1]}),
                "l[0]: Invalid value: \"integer\": l[0] in body must be of type boolean: \"integer\"",
            ),
            (
                json!({"a": 1, "p": -1}),
                "p: Invalid value: -1: p in body should be greater than or equal to 0",
            ),
            (json!({"a": 1, "p": "x"}), "p: Invalid value: \"x\": p in body should match '^[0-9]+%$'"),
            (json!([]), "Invalid value: \"array\":  in body must be of type object: \"array\""),
        ];
        for (value, expected) in cases {
            assert_eq!(first(&schema, &value).as_deref(), Some(expected), "{value}");
        }
        assert_eq!(first(&schema, &json!({"a": 1, "p": "5%", "e": "B", "l": [true], "s": "xx"})), None);
    }

    #[test]
    fn keyed_lists_and_sets_refuse_duplicates() {
        let schema = json!({"type": "object", "properties": {
            "roles": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "names": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        }});
        assert!(
            first(&schema, &json!({"roles": [{"name": "a"}, {"name": "b"}], "names": ["a", "b"]})).is_none()
        );
        let twice = first(&schema, &json!({"roles": [{"name": "a"}, {"name": "a"}]})).unwrap();
        assert!(twice.starts_with("roles[1]: Duplicate value"), "{twice}");
        assert!(
            first(&schema, &json!({"names": ["a", "a"]})).unwrap().starts_with("names[1]: Duplicate value")
        );
    }

    #[test]
    fn rules_run_on_values_of_the_right_shape_and_see_the_old_one() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self >= oldSelf", "messageExpression":
                "'may not fall from ' + string(oldSelf) + ' to ' + string(self)"}]}}});
        let schema = Schema::new(&schema).unwrap();
        assert!(schema.violations(&json!({"n": 1}), None).is_empty());
        assert!(schema.violations(&json!({"n": 2}), Some(&json!({"n": 1}))).is_empty());
        let fallen = schema.violations(&json!({"n": 1}), Some(&json!({"n": 2})));
        assert_eq!(fallen[0].to_string(), "n: Invalid value: 1: may not fall from 2 to 1");
    }

    #[test]
    fn a_rule_that_does_not_compile_is_an_error_of_the_schema() {
        let schema =
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "self ==", "message": "x"}]});
        assert!(Schema::new(&schema).unwrap_err().to_string().starts_with("failed to compile a rule"));
    }
}
