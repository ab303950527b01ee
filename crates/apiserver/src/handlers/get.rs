//! Get and list.
use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    handlers::scale,
    registry::resource::{Part, Resource, Rules},
    response::{self, Body},
    selector::{Fields, Labels, Selectable},
    server::{Call, Server},
    status::{StatusError, cause},
    store::{Entry, Place, Query, RevisionError},
};

/// What of a kind a request is about.
#[derive(Debug, Clone)]
pub struct Filter {
    labels: Labels,
    fields: Fields,
    /// One namespace, or all.
    namespace: Option<String>,
}

impl Filter {
    pub fn of(call: &Call<'_>) -> Result<Self, StatusError> {
        let resource = &call.resource;
        let labels = Labels::parse(call.query.get("labelSelector")).map_err(StatusError::bad_request)?;
        let mut named = vec!["metadata.name"];
        if resource.namespaced {
            named.push("metadata.namespace");
        }
        named.extend(resource.selectable.iter().map(String::as_str));
        let plain = resource.selectable.is_empty() && matches!(resource.rules, Rules::BuiltIn(_));
        let selectable = if plain { Selectable::Metadata } else { Selectable::Named(&named) };
        let fields =
            Fields::parse(call.query.get("fieldSelector"), selectable).map_err(StatusError::bad_request)?;
        let namespace = (!call.namespace.is_empty()).then(|| call.namespace.to_owned());
        Ok(Self { labels, fields, namespace })
    }

    pub fn matches(&self, namespace: &str, entry: &Entry) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
            && self.labels.matches(&entry.labels)
            && self.fields.matches(&entry.fields)
    }

    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Everything in the namespace.
    fn is_open(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// The page of a list that a request wants.
#[derive(Debug)]
struct Page {
    at: Option<u64>,
    after: Option<Place>,
    limit: Option<usize>,
}

impl Server {
    pub(crate) fn read(&self, call: &Call<'_>) -> Result<Response<Body>, StatusError> {
        self.check_reached(call)?;
        let entry = self.get(&call.key()).ok_or_else(|| call.not_found())?;
        self.present(call, StatusCode::OK, &entry.bytes)
    }

    /// A stored object as an answer.
    pub(crate) fn present(
        &self,
        call: &Call<'_>,
        code: StatusCode,
        bytes: &bytes::Bytes,
    ) -> Result<Response<Body>, StatusError> {
        if call.part == Part::Scale {
            let scale = scale::of(&call.resource, &response::value(&call.resource, bytes))?;
            return Ok(response::json(code, scale.to_string()));
        }
        Ok(response::json(
            code,
            response::object(&call.resource, bytes, call.representation, self.environment().now()),
        ))
    }

    /// A client that has seen a revision must not be given an older one.
    fn check_reached(&self, call: &Call<'_>) -> Result<u64, StatusError> {
        let wanted = revision(call.query.get("resourceVersion"))?.unwrap_or_default();
        let current = self.store().revision();
        if wanted > current {
            return Err(StatusError::future(wanted, current));
        }
        Ok(current)
    }

    pub(crate) fn list(&self, call: &Call<'_>) -> Result<Response<Body>, StatusError> {
        let filter = Filter::of(call)?;
        self.check_reached(call)?;
        let page = Page::of(call)?;
        let (entries, meta) = self.page(&call.resource, &filter, &page)?;
        let body =
            response::list(&call.resource, &entries, &meta, call.representation, self.environment().now());
        Ok(response::json(StatusCode::OK, body))
    }

    fn page(
        &self,
        resource: &Resource,
        filter: &Filter,
        page: &Page,
    ) -> Result<(Vec<Arc<Entry>>, Value), StatusError> {
        let storage = resource.storage();
        let store_limit = page.limit.filter(|_| filter.is_open());
        let query = Query {
            namespace: filter.namespace(),
            at: page.at,
            after: page.after.as_ref(),
            limit: store_limit,
        };
        let listing = self.store().list(&storage, &query).map_err(|out| match out {
            RevisionError::Expired { .. } if page.after.is_some() => StatusError::expired(CONTINUE_EXPIRED),
            RevisionError::Expired { .. } => StatusError::expired(RESOURCE_EXPIRED),
            RevisionError::Future { newest } => StatusError::future(page.at.unwrap_or_default(), newest),
        })?;
        let mut matching =
            listing.items.iter().filter(|(place, entry)| filter.matches(&place.namespace, entry));
        let limit = page.limit.unwrap_or(usize::MAX);
        let taken: Vec<_> = matching.by_ref().take(limit).collect();
        let more = listing.remaining > 0 || matching.next().is_some();
        let mut meta = json!({"resourceVersion": listing.revision.to_string()});
        if matches!(resource.rules, Rules::Custom(_)) {
            meta["continue"] = json!("");
        }
        if let (true, Some((last, _))) = (more, taken.last()) {
            meta["continue"] = json!(format!("{}:{}/{}", listing.revision, last.namespace, last.name));
            if filter.is_open() {
                meta["remainingItemCount"] = json!(listing.remaining);
            }
        }
        Ok((taken.into_iter().map(|(_, entry)| Arc::clone(entry)).collect(), meta))
    }
}

const RESOURCE_EXPIRED: &str = "The resourceVersion for the provided list is too old.";
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can \
    start a new list without the continue parameter.";

impl Page {
    fn of(call: &Call<'_>) -> Result<Self, StatusError> {
        let query = &call.query;
        let limit = query.number("limit")?.filter(|limit| *limit > 0);
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let (version, matching) = (query.get("resourceVersion"), query.get("resourceVersionMatch"));
        let token = query.get("continue");
        check_match(version, matching, token)?;
        if !token.is_empty() {
            let (at, after) = parse_token(token)
                .ok_or_else(|| StatusError::bad_request(format!("continue key is not valid: {token:?}")))?;
            return Ok(Self { at: Some(at), after: Some(after), limit });
        }
        let wanted = revision(version)?.filter(|wanted| *wanted > 0);
        // An exact revision is what continuing a list needs; without a match, only a limit asks for it.
        let exact = matching == "Exact" || (matching.is_empty() && limit.is_some());
        Ok(Self { at: wanted.filter(|_| exact), after: None, limit })
    }
}

fn check_match(version: &str, matching: &str, token: &str) -> Result<(), StatusError> {
    let forbid = |field: &str, why: &str| {
        let cause = cause("FieldValueForbidden", field, format!("Forbidden: {why}"));
        Err(StatusError::invalid("meta.k8s.io", "ListOptions", "", &[cause]))
    };
    if matching.is_empty() {
        return Ok(());
    }
    if version.is_empty() {
        return forbid(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
    }
    if !token.is_empty() {
        return forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
    }
    match matching {
        "Exact" if version == "0" => forbid(
            "resourceVersionMatch",
            "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"",
        ),
        "Exact" | "NotOlderThan" => Ok(()),
        other => {
            let cause = cause(
                "FieldValueNotSupported",
                "resourceVersionMatch",
                format!("Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\""),
            );
            Err(StatusError::invalid("meta.k8s.io", "ListOptions", "", &[cause]))
        }
    }
}

fn parse_token(token: &str) -> Option<(u64, Place)> {
    let (revision, key) = token.split_once(':')?;
    let (namespace, name) = key.split_once('/')?;
    Some((revision.parse().ok()?, Place::new(namespace, name)))
}

/// A revision that a client sent; nothing for the empty text.
pub fn revision(text: &str) -> Result<Option<u64>, StatusError> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            let cause =
                crate::status::Cause::invalid("resourceVersion", &json!(text), "strconv.ParseUint: parsing");
            StatusError::invalid("meta.k8s.io", "ListOptions", "", &[cause])
        }),
    }
}
