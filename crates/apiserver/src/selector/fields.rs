//! Field selectors: `metadata.name=a,status.phase!=Running`.

/// The fields by which a resource can be selected. An unknown one is refused, in words that depend on the resource.
#[derive(Debug, Clone, Copy)]
pub enum Selectable<'a> {
    /// A built-in kind without fields of its own: name and namespace.
    Metadata,
    /// These fields and no others.
    Named(&'a [&'a str]),
}

impl Selectable<'_> {
    fn check(self, name: &str) -> Result<(), String> {
        let (known, error) = match self {
            Self::Metadata => (
                &["metadata.name", "metadata.namespace"][..],
                format!(
                    "{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
            ),
            Self::Named(names) => (names, format!("field label not supported: {name}")),
        };
        if known.contains(&name) { Ok(()) } else { Err(error) }
    }
}

/// A selector over fields: all terms hold. The empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    name: String,
    value: String,
    equal: bool,
}

impl Fields {
    /// Reads a selector; the error is the message of a 400.
    pub fn parse(text: &str, selectable: Selectable<'_>) -> Result<Self, String> {
        let mut parts = split(text);
        // As upstream: of several errors, the first in the order of the alphabet is told.
        parts.sort_unstable();
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let terms: Vec<Term> = parts.map(|part| term(text, part)).collect::<Result<_, _>>()?;
        terms.iter().try_for_each(|term| selectable.check(&term.name))?;
        Ok(Self { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The fields that the selector asks for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|term| term.name.as_str())
    }

    /// The one value that a field must have, if the selector says so: a watch of `metadata.name=x` is one of x.
    pub fn exact(&self, name: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.name == name).map(|term| term.value.as_str())
    }

    /// A field that an object does not have is empty.
    pub fn matches(&self, fields: &[(String, String)]) -> bool {
        let value =
            |name: &str| fields.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value.as_str());
        self.terms.iter().all(|term| (value(&term.name) == term.value) == term.equal)
    }
}

/// Splits at commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn term(text: &str, part: &str) -> Result<Term, String> {
    let not_understood = || format!("invalid selector: '{text}'; can't understand '{part}'");
    // The name has no escapes: the first operator ends it. An equals sign may follow a `!` or another `=`.
    let at = part.find('=').ok_or_else(not_understood)?;
    let (before, after) = (&part[..at], &part[at + 1..]);
    let (name, equal, value) = match before.strip_suffix('!') {
        Some(name) => (name, false, after),
        None => (before, true, after.strip_prefix('=').unwrap_or(after)),
    };
    Ok(Term { name: name.to_owned(), value: unescape(value)?, equal })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}
