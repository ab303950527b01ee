//! The part of a schema that carries rules.

use serde_json::{Map, Value};

const RULES: &str = "x-kubernetes-validations";

/// The schema without the branches in which there is no rule; nothing when there is none at all.
///
/// The rule engine visits every node that it is given, and nine tenths of a pod template have no rule. Defaults are
/// filled in before rules run, so they need not be kept either.
pub(crate) fn only(schema: &Value) -> Option<Value> {
    let schema = schema.as_object()?;
    let mut kept = Map::new();
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let inner: Map<String, Value> =
            properties.iter().filter_map(|(name, child)| Some((name.clone(), only(child)?))).collect();
        if !inner.is_empty() {
            kept.insert("properties".into(), Value::Object(inner));
        }
    }
    for place in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(place).and_then(only) {
            kept.insert(place.into(), inner);
        }
    }
    // A map stays a map, so that the engine takes its keys as they are and not for names of fields: a rule above asks for
    // 'num-cpus', and would be asked to look for 'num__dash__cpus'.
    if schema.get("additionalProperties").is_some_and(|values| *values != false) {
        kept.entry("additionalProperties").or_insert(true.into());
    }
    if let Some(rules) = schema.get(RULES) {
        kept.insert(RULES.into(), rules.clone());
    }
    if kept.is_empty() {
        return None;
    }
    for keyword in ["type", "format", "x-kubernetes-int-or-string"] {
        if let Some(value) = schema.get(keyword) {
            kept.insert(keyword.into(), value.clone());
        }
    }
    Some(Value::Object(kept))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn branches_without_rules_go_and_those_with_rules_stay() {
        let rule = json!([{"rule": "self > 0", "message": "m"}]);
        let schema = json!({"type": "object", "properties": {
            "pod": {"type": "object", "properties": {"image": {"type": "string"}}},
            "steps": {"type": "array", "items": {"type": "integer", RULES: rule}},
        }});
        let kept = json!({"type": "object", "properties": {
            "steps": {"type": "array", "items": {"type": "integer", RULES: rule}},
        }});
        assert_eq!(only(&schema), Some(kept));
        assert_eq!(only(&json!({"type": "object", "properties": {"a": {"type": "string"}}})), None);
    }

    #[test]
    fn keys_of_a_map_are_looked_up_as_they_are_written() {
        let schema = crate::Schema::new(&json!({"type": "object", "properties": {
            "flags": {"type": "object", "additionalProperties": {"type": "string"}}},
            RULES: [{"rule": "!('num-cpus' in self.flags)", "message": "no"}]}));
        assert_eq!(schema.unwrap().violations(&json!({"flags": {"num-cpus": "1"}}), None).len(), 1);
    }
}
