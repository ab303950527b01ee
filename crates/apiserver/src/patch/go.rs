//! How Go prints a JSON value: the texts that clients see quote patches this way.
use serde_json::{Number, Value};

/// `%v` of a decoded JSON value.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// `%v` of a list.
pub(super) fn list(items: &[Value]) -> String {
    let mut out = String::new();
    write_list(items, &mut out);
    out
}

/// The Go type that a JSON value is decoded to.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// What the JSON decoder of Go calls a value that it cannot use.
pub(super) fn json_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => write_list(items, out),
        Value::Object(fields) => {
            // Go prints a map in the order of its keys, whatever the order of the document.
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_str());
            out.push_str("map[");
            for (n, (name, value)) in sorted.into_iter().enumerate() {
                if n > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                write(value, out);
            }
            out.push(']');
        }
    }
}

fn write_list(items: &[Value], out: &mut String) {
    out.push('[');
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            out.push(' ');
        }
        write(item, out);
    }
    out.push(']');
}

/// Go writes a float with an exponent from a million on and below a ten-thousandth.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{float}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let value = json!({"e": 1e30, "f": 1.5, "g": 10_000_000, "b": 2e6, "l": ["a", null, true, {"z": "y"}], "m": {}});
        assert_eq!(
            super::text(&value),
            "map[b:2e+06 e:1e+30 f:1.5 g:10000000 l:[a <nil> true map[z:y]] m:map[]]"
        );
    }
}
