//! Label selectors: `a=b,c in (d,e),!f`.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::names::{key_errors, value_errors};

/// A selector over labels: all requirements hold. The empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Missing,
    In(BTreeSet<String>),
    /// Holds without the label too.
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

impl Labels {
    /// Reads a selector; the error is the message of a 400.
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser::new(text).selector()
    }

    /// Reads the selector of an object (`matchLabels`, `matchExpressions`); nothing when it is not one. An empty one
    /// selects everything, a missing one nothing.
    pub fn from_object(selector: &Value) -> Option<Self> {
        let selector = selector.as_object()?;
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let values = BTreeSet::from([value.as_str()?.to_owned()]);
            requirements.push(Requirement { key: key.clone(), test: Test::In(values) });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>()?;
            let test = match expression["operator"].as_str()? {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Missing,
                _ => return None,
            };
            requirements.push(Requirement { key: expression["key"].as_str()?.to_owned(), test });
        }
        Some(Self { requirements })
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.test.holds(labels.get(&requirement.key)))
    }
}

impl Test {
    fn holds(&self, value: Option<&String>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::Missing => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Above(bound) => number().is_some_and(|number| number > *bound),
            Self::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    End,
    Symbol(&'a str),
    /// A key, a value or a word operator: only the place tells which.
    Word(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::End => "",
            Self::Symbol(text) | Self::Word(text) => text,
        }
    }

    fn starts_requirement(self) -> bool {
        matches!(self, Self::Word(_) | Self::Symbol("!"))
    }

    fn ends_requirement(self) -> bool {
        matches!(self, Self::End | Self::Symbol(","))
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

/// Splits the first token off.
fn token(text: &str) -> (Token<'_>, &str) {
    let text = text.trim_start_matches(is_space);
    let length = match text.chars().next() {
        None => return (Token::End, text),
        Some(c) if is_symbol(c) => usize::from(text.starts_with("==") || text.starts_with("!=")) + 1,
        Some(_) => {
            let end = text.find(|c| is_space(c) || is_symbol(c)).unwrap_or(text.len());
            return (Token::Word(&text[..end]), &text[end..]);
        }
    };
    (Token::Symbol(&text[..length]), &text[length..])
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn peek(&self) -> Token<'a> {
        token(self.rest).0
    }

    fn next(&mut self) -> Token<'a> {
        let (token, rest) = token(self.rest);
        self.rest = rest;
        token
    }

    fn selector(&mut self) -> Result<Labels, String> {
        let mut requirements = Vec::new();
        match self.peek() {
            Token::End => return Ok(Labels { requirements }),
            first if first.starts_requirement() => {}
            other => {
                return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text()));
            }
        }
        loop {
            let requirement =
                self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            match self.next() {
                Token::End => return Ok(Labels { requirements }),
                Token::Symbol(",") if self.peek().starts_requirement() => {}
                Token::Symbol(",") => {
                    return Err(format!("found '{}', expected: identifier after ','", self.peek().text()));
                }
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut first = self.next();
        let negated = first == Token::Symbol("!");
        if negated {
            first = self.next();
        }
        let Token::Word(key) = first else {
            return Err(format!("found '{}', expected: identifier", first.text()));
        };
        let wrong = key_errors(key);
        if !wrong.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", wrong.join("; ")));
        }
        let test = match self.peek() {
            _ if negated => Test::Missing,
            next if next.ends_requirement() => Test::Exists,
            _ => self.comparison(key)?,
        };
        Ok(Requirement { key: key.to_owned(), test })
    }

    fn comparison(&mut self, key: &str) -> Result<Test, String> {
        let operator = self.next();
        let values = match operator.text() {
            "in" | "notin" => self.values()?,
            "=" | "==" | "!=" | ">" | "<" => BTreeSet::from([self.value()?.to_owned()]),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        match operator.text() {
            "notin" | "!=" => valid(key, &values, None).map(|()| Test::NotIn(values)),
            ">" => bound(key, &values).map(Test::Above),
            "<" => bound(key, &values).map(Test::Below),
            _ => valid(key, &values, None).map(|()| Test::In(values)),
        }
    }

    fn value(&mut self) -> Result<&'a str, String> {
        if self.peek().ends_requirement() {
            return Ok("");
        }
        match self.next() {
            Token::Word(value) => Ok(value),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// `(a,b)`; a place without a word, also in `()`, is the empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = BTreeSet::new();
        if !matches!(self.peek(), Token::Word(_) | Token::Symbol("," | ")")) {
            return Err(format!("found '{}', expected: ',', ')' or identifier", self.peek().text()));
        }
        loop {
            let next = self.next();
            match next {
                Token::Word(value) => {
                    values.insert(value.to_owned());
                    let after = self.peek();
                    if !matches!(after, Token::Symbol("," | ")")) {
                        return Err(format!("found '{}', expected: ',' or ')'", after.text()));
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() || matches!(self.peek(), Token::Symbol("," | ")")) {
                        values.insert(String::new());
                    }
                }
                Token::Symbol(")") => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    return Ok(values);
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
        }
    }
}

fn bound(key: &str, values: &BTreeSet<String>) -> Result<i64, String> {
    let value = values.first().map(String::as_str).unwrap_or_default();
    let number = value.parse::<i64>();
    let wrong = number.as_ref().err().map(|_| {
        format!("values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")
    });
    valid(key, values, wrong)?;
    number.map_err(|error| error.to_string())
}

/// All that is wrong with the values, after what is already known to be.
fn valid(key: &str, values: &BTreeSet<String>, known: Option<String>) -> Result<(), String> {
    let mut errors: Vec<String> = known.into_iter().collect();
    for (n, value) in values.iter().enumerate() {
        let wrong = value_errors(value);
        if !wrong.is_empty() {
            errors.push(format!("values[{n}][{key}]: Invalid value: {value:?}: {}", wrong.join("; ")));
        }
    }
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}
