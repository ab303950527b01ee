//! The objects that arguments name, and a watch of one of them.

use http::StatusCode;
use serde_json::Value;

use super::{
    client::{ApiRequest, Cluster, with_query},
    discovery::Served,
    failure::Failure,
};

/// An argument: `pods`, `pod/web`, `pod web api`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub kind: String,
    pub name: Option<String>,
}

impl Named {
    pub fn read(words: &[String]) -> Result<Vec<Self>, Failure> {
        if words.iter().any(|word| word.contains('/')) {
            let named = words.iter().map(|word| match word.split_once('/') {
                Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
                    Ok(Self { kind: kind.to_owned(), name: Some(name.to_owned()) })
                }
                _ => Err(Failure::usage(format!("{word} is not of the form KIND/NAME"))),
            });
            return named.collect();
        }
        let Some((kind, names)) = words.split_first() else { return Ok(Vec::new()) };
        let one = |name: Option<&String>| Self { kind: kind.clone(), name: name.cloned() };
        Ok(if names.is_empty() {
            vec![one(None)]
        } else {
            names.iter().map(|name| one(Some(name))).collect()
        })
    }
}

/// An object, whether it is there or not.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub served: Served,
    pub namespace: String,
    pub name: String,
}

impl Target {
    pub fn title(&self) -> String {
        self.served.title(&self.name)
    }

    pub fn path(&self) -> String {
        self.served.path_of(&self.namespace, &self.name)
    }

    /// Returns the namespace as the end of a sentence; empty for an object without one.
    pub fn place(&self) -> String {
        if self.served.namespaced { format!(" in namespace {}", self.namespace) } else { String::new() }
    }
}

impl Cluster {
    /// Watches one object until `done` returns true for it, or for its absence.
    pub async fn watch_until(
        &self,
        target: &Target,
        mut done: impl FnMut(Option<&Value>) -> bool,
    ) -> Result<(), Failure> {
        let path = target.served.path(Some(&target.namespace));
        let only = format!("metadata.name={}", target.name);
        let list = || ApiRequest::get(with_query(&path, &[("fieldSelector", &only)]));
        loop {
            let listed = self.ask(list()).await?;
            // Its kind may be gone, and everything of the kind with it.
            let gone = listed.code == StatusCode::NOT_FOUND;
            if done(listed.body["items"].get(0).filter(|_| !gone)) {
                return Ok(());
            }
            let listed = listed.into_body()?;
            let revision = listed["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let watch = [("watch", "true"), ("fieldSelector", &only), ("resourceVersion", revision)];
            let mut events = match self.follow(ApiRequest::get(with_query(&path, &watch))).await {
                Ok(events) => events,
                // Gone since the list, or never to be watched: the list says which.
                Err(Failure::Refused(_)) if self.ask(list()).await?.code == StatusCode::NOT_FOUND => continue,
                Err(failure) => return Err(failure),
            };
            while let Some(event) = events.event().await? {
                if done(Some(&event.object).filter(|_| !event.deleted)) {
                    return Ok(());
                }
            }
            // A server ends watches from time to time: list again.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_in_either_way() {
        let read = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let named = Named::read(&words).ok()?;
            Some(named.into_iter().map(|one| (one.kind, one.name.unwrap_or_default())).collect::<Vec<_>>())
        };
        let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        assert_eq!(read("pods"), Some(vec![pair("pods", "")]));
        assert_eq!(read("pod a b"), Some(vec![pair("pod", "a"), pair("pod", "b")]));
        assert_eq!(read("pod/a svc/b"), Some(vec![pair("pod", "a"), pair("svc", "b")]));
        for wrong in ["pod/a b", "/a", "pod/", "a/b/c"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
