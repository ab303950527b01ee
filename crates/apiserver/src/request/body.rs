//! Reads the body of a request, JSON or YAML, and finds duplicate fields.
use std::{cell::RefCell, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::status::StatusError;

/// The most that a request may carry, as for a kube-apiserver.
pub const LIMIT: usize = 3 * 1024 * 1024;

/// A decoded body.
#[derive(Debug)]
pub struct Decoded {
    pub value: Value,
    /// Fields that stand there twice; the last counts.
    pub duplicates: Vec<String>,
}

/// Reads JSON, or YAML when it does not begin like JSON and the client says so.
///
/// Nesting is limited by the parsers (128 levels), so nothing after this need fear for its stack.
pub fn read(bytes: &[u8], yaml: bool) -> Result<Decoded, StatusError> {
    if yaml && !bytes.trim_ascii_start().starts_with(b"{") {
        return from_yaml(bytes);
    }
    let duplicates = RefCell::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value =
        Place { above: None, step: Step::Field(""), duplicates: &duplicates }.deserialize(&mut reader);
    let value = value.and_then(|value| reader.end().map(|()| value));
    let value = value.map_err(|error| StatusError::bad_request(format!("the body is not JSON: {error}")))?;
    Ok(Decoded { value, duplicates: duplicates.into_inner() })
}

fn from_yaml(bytes: &[u8]) -> Result<Decoded, StatusError> {
    let refuse = |why: String| StatusError::bad_request(format!("the body is not YAML: {why}"));
    let text = std::str::from_utf8(bytes).map_err(|error| refuse(error.to_string()))?;
    let value = serde_saphyr::from_str(text).map_err(|error| refuse(error.to_string()))?;
    Ok(Decoded { value, duplicates: Vec::new() })
}

/// Reads a value as `serde_json` does, and takes note of fields that come twice.
#[derive(Clone, Copy)]
struct Place<'a> {
    above: Option<&'a Self>,
    step: Step<'a>,
    duplicates: &'a RefCell<Vec<String>>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

impl<'a> Place<'a> {
    fn below(&'a self, step: Step<'a>) -> Self {
        Self { above: Some(self), step, duplicates: self.duplicates }
    }

    /// Only spelled out for what is reported.
    fn path(&self) -> String {
        let above = self.above.map(Self::path).unwrap_or_default();
        match self.step {
            Step::Field(name) if above.is_empty() => name.to_owned(),
            Step::Field(name) => format!("{above}.{name}"),
            Step::Item(index) => format!("{above}[{index}]"),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            match items.next_element_seed(self.below(Step::Item(list.len())))? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let place = self.below(Step::Field(&name));
            if object.contains_key(&name) {
                self.duplicates.borrow_mut().push(place.path());
            }
            let value = fields.next_value_seed(place)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_read_as_it_is() {
        let text = r#"{"a":[1,-2,3.5,"x",null,true,{"b":{}}],"n":18446744073709551615}"#;
        let sent = read(text.as_bytes(), false).unwrap();
        assert_eq!(sent.value, serde_json::from_str::<Value>(text).unwrap());
        assert!(sent.duplicates.is_empty());
    }

    #[test]
    fn a_field_that_comes_twice_is_named_and_the_last_counts() {
        let sent = read(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}],"a2":1}"#, false).unwrap();
        assert_eq!(sent.duplicates, ["a.b", "c[0].d"]);
        assert_eq!(sent.value["a"]["b"], 2);
    }

    #[test]
    fn yaml_is_read_when_the_client_says_so() {
        assert_eq!(read(b"a: 1\nb: [x]\n", true).unwrap().value, json!({"a": 1, "b": ["x"]}));
        assert!(read(b"a: 1", false).is_err());
    }

    #[test]
    fn what_would_exhaust_the_stack_or_the_memory_is_refused() {
        let deep = "[".repeat(10_000);
        assert!(read(deep.as_bytes(), false).unwrap_err().message().contains("recursion"));
        assert!(read(deep.as_bytes(), true).is_err());
        let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (this, last) in ('b'..='z').zip('a'..='y') {
            bomb += &format!("{this}: &{this} [{}]\n", vec![format!("*{last}"); 9].join(","));
        }
        assert!(read(bomb.as_bytes(), true).is_err());
        assert!(read(b"{\"a\":1} {", false).is_err());
    }
}
