//! `GRPCRoute`s, read as the `HTTPRoute`s that they are on the wire: a call of a method is a POST to `/SERVICE/METHOD`.
use serde_json::{Value, json};

/// The spec of a `GRPCRoute` as that of an `HTTPRoute`.
pub fn as_http(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let rules = spec.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten();
    for matching in rules.filter_map(|rule| rule.get_mut("matches")?.as_array_mut()).flatten() {
        let Some(matching) = matching.as_object_mut() else { continue };
        if let Some(method) = matching.remove("method") {
            matching.insert("path".to_owned(), path(&method));
        }
    }
    spec
}

fn path(method: &Value) -> Value {
    let part = |name: &str| method[name].as_str().filter(|part| !part.is_empty());
    let (service, name) = (part("service"), part("method"));
    let regular = method["type"] == "RegularExpression";
    let (kind, value) = match (service, name) {
        (Some(service), Some(name)) if !regular => ("Exact", format!("/{service}/{name}")),
        (Some(service), None) if !regular => ("PathPrefix", format!("/{service}")),
        (None, None) => ("PathPrefix", "/".to_owned()),
        _ => {
            let pattern = |part: Option<&str>| match part {
                None => "[^/]+".to_owned(),
                Some(part) if regular => format!("(?:{part})"),
                Some(part) => regex::escape(part),
            };
            ("RegularExpression", format!("/{}/{}", pattern(service), pattern(name)))
        }
    };
    json!({"type": kind, "value": value})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_a_path() {
        let table = [
            (json!({"service": "a.B", "method": "C"}), "Exact", "/a.B/C"),
            (json!({"service": "a.B"}), "PathPrefix", "/a.B"),
            (json!({"method": "C.D"}), "RegularExpression", "/[^/]+/C\\.D"),
            (json!({"type": "RegularExpression", "service": "a|b"}), "RegularExpression", "/(?:a|b)/[^/]+"),
            (json!({}), "PathPrefix", "/"),
        ];
        for (method, kind, value) in table {
            let spec = json!({"rules": [{"matches": [{"method": method, "headers": []}]}]});
            let expected = json!({"path": {"type": kind, "value": value}, "headers": []});
            assert_eq!(as_http(&spec)["rules"][0]["matches"][0], expected);
        }
    }
}
