//! The JSON paths of printer columns: `.a.b`, `['a']`, `[0]`, `[*]`, `[?(@.type=="Ready")]`, and `\.` for a dot in a
//! name.
use jiff::Timestamp;
use serde_json::Value;

use super::duration::since;
use crate::patch::go_text;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Path {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// Below zero, from the end.
    Index(i64),
    All,
    Where(Filter),
}

/// The elements in which a field has a value, or has another, or is there at all.
#[derive(Debug, Clone, PartialEq)]
struct Filter {
    path: Path,
    test: Option<(bool, Value)>,
}

impl Path {
    /// Nothing if this is not a path that we know.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = match rest.strip_prefix('[') {
                Some(inner) => bracket(inner)?,
                None => name(rest.strip_prefix('.').unwrap_or(rest))?,
            };
            steps.push(step);
            rest = after;
        }
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// The first value at the path.
    pub(super) fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        first(value, &self.steps)
    }
}

fn first<'a>(value: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        Step::Field(name) => first(value.get(name)?, rest),
        Step::Index(index) => {
            let items = value.as_array()?;
            let length = i64::try_from(items.len()).ok()?;
            let at = if *index < 0 { index + length } else { *index };
            first(items.get(usize::try_from(at).ok()?)?, rest)
        }
        Step::All => items(value).find_map(|item| first(item, rest)),
        Step::Where(filter) => {
            value.as_array()?.iter().filter(|item| filter.holds(item)).find_map(|item| first(item, rest))
        }
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    let list = value.as_array().into_iter().flatten();
    list.chain(value.as_object().into_iter().flat_map(|fields| fields.values()))
}

impl Filter {
    fn holds(&self, item: &Value) -> bool {
        match (self.path.find(item), &self.test) {
            (Some(found), Some((equal, wanted))) => (found == wanted) == *equal,
            (found, None) => found.is_some(),
            (None, Some(_)) => false,
        }
    }
}

/// A name up to the next dot or bracket that is not escaped.
fn name(text: &str) -> Option<(Step, &str)> {
    let mut escaped = false;
    let end = text.find(|c| {
        let ends = !escaped && matches!(c, '.' | '[');
        escaped = !escaped && c == '\\';
        ends
    });
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let step = match name {
        "" => return None,
        "*" => Step::All,
        name => Step::Field(unescape(name)),
    };
    Some((step, rest))
}

fn unescape(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut escaped = false;
    for c in name.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            plain.push(c);
            escaped = false;
        }
    }
    plain
}

/// What stands in brackets, the first already taken off.
fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(filter) = text.strip_prefix("?(") {
        let (inner, rest) = filter.split_once(")]")?;
        return Some((Step::Where(parse_filter(inner)?), rest));
    }
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let (name, rest) = text[1..].split_once(&format!("{quote}]"))?;
        return Some((Step::Field(unescape(name)), rest));
    }
    let (inner, rest) = text.split_once(']')?;
    let step = if inner == "*" { Step::All } else { Step::Index(inner.parse().ok()?) };
    Some((step, rest))
}

fn parse_filter(text: &str) -> Option<Filter> {
    let side = |text: &str| Path::parse(text.trim().strip_prefix('@')?);
    for (operator, equal) in [("==", true), ("!=", false)] {
        if let Some((path, value)) = text.split_once(operator) {
            return Some(Filter { path: side(path)?, test: Some((equal, literal(value.trim())?)) });
        }
    }
    Some(Filter { path: side(text)?, test: None })
}

fn literal(text: &str) -> Option<Value> {
    match text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        Some(text) => Some(Value::from(text)),
        None => serde_json::from_str(text).ok(),
    }
}

/// What a column of a type shows of a value: nothing if it is of another type.
pub(super) fn cell(value: &Value, ty: &str, now: Timestamp) -> Value {
    match (ty, value) {
        ("string", Value::Null) => "<no value>".into(),
        ("string", Value::Array(_) | Value::Object(_)) => value.to_string().into(),
        ("string", scalar) => go_text(scalar).into(),
        ("date", Value::String(text)) => since(text, now).into(),
        ("boolean", Value::Bool(_)) | ("number", Value::Number(_)) => value.clone(),
        ("integer", Value::Number(number)) => whole(number),
        _ => Value::Null,
    }
}

fn whole(number: &serde_json::Number) -> Value {
    if !number.is_f64() {
        return number.clone().into();
    }
    let text = format!("{:.0}", number.as_f64().unwrap_or_default().trunc());
    text.parse::<i64>().map_or(Value::Null, Value::from)
}
