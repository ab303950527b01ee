//! Reads a request: path, query, body and accepted representation.
pub(crate) mod body;
pub(crate) mod decode;
pub(crate) mod negotiation;
pub(crate) mod protobuf;

use std::collections::BTreeMap;

use crate::status::StatusError;

/// A path of the API, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path<'a> {
    /// `/api`, `/apis`, `/version`, `/healthz` and so on: no resource.
    Other(&'a str),
    /// `/apis/{group}`
    Group(&'a str),
    /// `/api/v1`, `/apis/{group}/{version}`
    Version {
        group: &'a str,
        version: &'a str,
    },
    Resource(Target<'a>),
}

/// The resource that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub namespace: &'a str,
    pub plural: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
}

impl<'a> Path<'a> {
    pub fn parse(path: &'a str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group] => return Self::Group(group),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Self::Other(path),
        };
        let target = |namespace, plural, name, subresource| {
            Self::Resource(Target { group, version, namespace, plural, name, subresource })
        };
        match *rest {
            [] => Self::Version { group, version },
            ["namespaces", name, sub @ ("status" | "finalize")] => target("", "namespaces", name, sub),
            ["namespaces", namespace, plural] => target(namespace, plural, "", ""),
            ["namespaces", namespace, plural, name] => target(namespace, plural, name, ""),
            ["namespaces", namespace, plural, name, sub] => target(namespace, plural, name, sub),
            [plural] => target("", plural, "", ""),
            [plural, name] => target("", plural, name, ""),
            [plural, name, sub] => target("", plural, name, sub),
            _ => Self::Other(path),
        }
    }
}

/// The parameters of a request. The first of two equal names counts, as in Go.
#[derive(Debug, Default, Clone)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    pub fn parse(query: &str) -> Self {
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            parameters.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
        Self(parameters)
    }

    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Go's reading of a flag: present and neither false nor 0.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !matches!(value.as_str(), "0" | "false"))
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, StatusError> {
        match self.get(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                StatusError::bad_request(format!(
                    "{name} is {text:?}; allowed is a number that is not negative"
                ))
            }),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn dry_run(&self) -> Result<bool, StatusError> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(StatusError::bad_request(format!("dryRun is {other:?}; allowed is \"All\""))),
        }
    }
}
