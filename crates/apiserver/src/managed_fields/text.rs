//! Text as Go prints it: it ends up in messages and in keys that clients compare.
use std::fmt::{self, Write};

use serde_json::{Number, Value};

/// A JSON string; `<`, `>` and `&` are escaped, as Go's encoder does unless told not to.
pub(super) fn json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escape(c, out),
            c if (c as u32) < 0x20 => escape(c, out),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn escape(c: char, out: &mut String) {
    out.push_str(&format!("\\u{:04x}", c as u32));
}

/// JSON with sorted names, as Go writes a map.
pub(super) fn json(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => json_string(text, out),
        Value::Number(n) => out.push_str(&number(n)),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                json(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            let mut names: Vec<&String> = map.keys().collect();
            names.sort();
            for (i, name) in names.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                json_string(name, out);
                out.push(':');
                json(&map[name], out);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
}

/// A whole number has no point, whichever way it was written.
pub(super) fn number(n: &Number) -> String {
    match n.as_f64() {
        Some(f) if n.is_f64() && f.fract() == 0.0 && f.abs() < 1e21 => format!("{f:.0}"),
        _ => n.to_string(),
    }
}

/// `%q`.
pub(super) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if (c as u32) < 0x20 || c == '\u{7f}' => write!(f, "\\x{:02x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// `%v` of a decoded JSON value.
pub(super) struct Plain<'a>(pub &'a Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Number(n) => f.write_str(&number(n)),
            Value::String(s) => f.write_str(s),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|v| Plain(v).to_string()).collect();
                write!(f, "[{}]", items.join(" "))
            }
            Value::Object(map) => {
                let mut fields: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", Plain(v))).collect();
                fields.sort();
                write!(f, "map[{}]", fields.join(" "))
            }
        }
    }
}

/// `%#v` of a decoded JSON value.
pub(super) struct Source<'a>(pub &'a Value);

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Number(n) => f.write_str(&number(n)),
            Value::String(s) => write!(f, "{}", Quoted(s)),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|v| Source(v).to_string()).collect();
                write!(f, "[]interface {{}}{{{}}}", items.join(", "))
            }
            Value::Object(map) => {
                let mut fields: Vec<String> =
                    map.iter().map(|(k, v)| format!("{}:{}", Quoted(k), Source(v))).collect();
                fields.sort();
                write!(f, "map[string]interface {{}}{{{}}}", fields.join(", "))
            }
        }
    }
}

/// `%T` of a decoded JSON value.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
