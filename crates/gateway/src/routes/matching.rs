//! Which rule answers a request.
use std::{borrow::Cow, cmp::Reverse};

use http::{HeaderMap, HeaderName, Method, Uri};
use regex::{Regex, RegexBuilder};

use super::{hosts::Host, tls::Certificate};

/// What of a request decides its rule.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
}

impl<'a> Head<'a> {
    pub fn of<B>(request: &'a http::Request<B>) -> Self {
        Self { method: request.method(), uri: request.uri(), headers: request.headers() }
    }

    /// The host without its port, in lower case.
    pub fn host(&self) -> Cow<'a, str> {
        let named = self.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = self.uri.host().or(named).unwrap_or_default();
        let end = match host.rfind(']') {
            Some(bracket) => bracket + 1,
            None => host.find(':').unwrap_or(host.len()),
        };
        let host = &host[..end];
        if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(host.to_ascii_lowercase())
        } else {
            Cow::Borrowed(host)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathMatch {
    Exact(String),
    /// By elements, kept without a slash at the end: `/a` is the prefix of `/a/b`, not of `/ab`.
    Prefix(String),
    Regex(Pattern),
}

/// A regular expression for a whole value, in the syntax of RE2. Matching takes linear time.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// The largest program that a pattern may become, in bytes.
    const LARGEST: usize = 1 << 20;

    /// Compiles a pattern; `Err` with what is wrong with it.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let whole = RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(Self::LARGEST).build();
        whole.map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => {
                format!("{pattern:?} needs more than {limit} bytes when compiled")
            }
            _ => format!("{pattern:?} is not a regular expression"),
        })
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

/// What a header or query parameter must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueMatch {
    Exact(String),
    Regex(Pattern),
}

impl ValueMatch {
    fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact.as_bytes() == value,
            Self::Regex(pattern) => std::str::from_utf8(value).is_ok_and(|value| pattern.0.is_match(value)),
        }
    }
}

impl PathMatch {
    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == path,
            Self::Prefix(prefix) => path
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            Self::Regex(pattern) => pattern.0.is_match(path),
        }
    }
}

/// One match of a rule: everything in it must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    pub path: PathMatch,
    pub method: Option<Method>,
    pub headers: Vec<(HeaderName, ValueMatch)>,
    pub query: Vec<(String, ValueMatch)>,
}

impl Match {
    fn matches(&self, head: &Head<'_>) -> bool {
        self.path.matches(head.uri.path())
            && self.method.as_ref().is_none_or(|method| method == head.method)
            && self.headers.iter().all(|(name, value)| {
                // A header that came several times counts as its values joined, as RFC 9110 has it.
                let mut values = head.headers.get_all(name).iter();
                match (values.next(), values.next()) {
                    (Some(one), None) => value.matches(one.as_bytes()),
                    (Some(_), Some(_)) => {
                        let all: Vec<&[u8]> =
                            head.headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
                        value.matches(&all.join(&b","[..]))
                    }
                    _ => false,
                }
            })
            && self.query.iter().all(|(name, value)| {
                // The first of the name counts: the one that most servers take.
                form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes())
                    .find(|(key, _)| key == name)
                    .is_some_and(|(_, found)| value.matches(found.as_bytes()))
            })
    }

    /// Smaller comes first: the order of the Gateway API.
    fn rank(&self) -> impl Ord + use<> {
        let (kind, length) = match &self.path {
            PathMatch::Exact(path) => (0, path.len()),
            PathMatch::Regex(pattern) => (1, pattern.0.as_str().len()),
            PathMatch::Prefix(path) => (2, path.len()),
        };
        (kind, Reverse(length), self.method.is_none(), Reverse(self.headers.len()), Reverse(self.query.len()))
    }
}

/// A match, and the rule that it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub host: Host,
    pub matching: Match,
    /// Age, then name, of the route: what decides between equals. RFC 3339 sorts as text.
    pub age: (String, String),
    pub rule: usize,
}

/// The rules of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub host: Host,
    /// Those of HTTPS; none for HTTP.
    pub certificates: Vec<Certificate>,
    pub entries: Vec<Entry>,
}

/// The listeners at one address and port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frontend {
    pub listeners: Vec<Listener>,
}

impl Frontend {
    /// Brings listeners and entries into the order in which they are asked.
    pub fn sort(&mut self) {
        self.listeners.sort_by_key(|listener| listener.host.rank());
        for listener in &mut self.listeners {
            listener.entries.sort_by(|a, b| {
                (a.host.rank(), a.matching.rank(), &a.age, a.rule).cmp(&(
                    b.host.rank(),
                    b.matching.rank(),
                    &b.age,
                    b.rule,
                ))
            });
        }
    }

    fn listener(&self, host: &str) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.host.matches(host))
    }

    /// Whether a request is for another listener than the one whose certificate the client was shown: clients send
    /// requests for every host of a certificate over one connection.
    pub fn is_misdirected(&self, head: &Head<'_>, server_name: &str) -> bool {
        let same = |one: &Listener, two: &Listener| std::ptr::eq(one, two);
        match (self.listener(server_name), self.listener(&head.host())) {
            (Some(shown), Some(asked)) => !same(shown, asked),
            _ => false,
        }
    }

    /// The rule that answers. A listener is alone with its hosts: what the most specific one does not answer, no
    /// other does.
    pub fn find(&self, head: &Head<'_>) -> Option<usize> {
        let host = head.host();
        let listener = self.listener(&host)?;
        let mut entries = listener.entries.iter();
        entries
            .find(|entry| entry.host.matches(&host) && entry.matching.matches(head))
            .map(|entry| entry.rule)
    }
}
