//! The kinds that an API serves, by whatever name a person calls them.

use futures_util::future;
use http::StatusCode;
use serde_json::Value;

use super::{
    client::{ApiRequest, Cluster, segment},
    failure::Failure,
};

/// A kind that the API serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    singular: String,
    short_names: Vec<String>,
    pub namespaced: bool,
}

impl Served {
    /// Pods, which every API has.
    pub fn pods() -> Self {
        Self {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            plural: "pods".to_owned(),
            singular: "pod".to_owned(),
            short_names: Vec::new(),
            namespaced: true,
        }
    }

    fn all(group: &str, version: &str, list: &Value) -> Vec<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resources = list["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
        let main = resources.iter().filter(|one| !text(&one["name"]).contains('/'));
        main.map(|one| {
            let kind = text(&one["kind"]);
            let singular = text(&one["singularName"]);
            Self {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: text(&one["name"]),
                // Left empty by older servers.
                singular: if singular.is_empty() { kind.to_lowercase() } else { singular },
                short_names: one["shortNames"].as_array().into_iter().flatten().map(text).collect(),
                namespaced: one["namespaced"] == true,
                kind,
            }
        })
        .collect()
    }

    /// Returns whether a word in lower case names the kind.
    pub fn answers_to(&self, word: &str) -> bool {
        let names = [&self.plural, &self.singular].into_iter().chain(&self.short_names);
        let called = |word: &str| names.clone().any(|name| name == word) || self.kind.to_lowercase() == word;
        // `leaderworkersets.leaderworkerset.x-k8s.io`: a name and its group.
        called(word) || word.split_once('.').is_some_and(|(word, group)| called(word) && group == self.group)
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns an object's name in a sentence.
    pub fn title(&self, name: &str) -> String {
        format!("{}/{name}", self.singular)
    }

    /// Returns an object's name with the group of its kind.
    pub fn full_title(&self, name: &str) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}/{name}", self.singular, self.group)
    }

    /// Returns the path of the objects of one namespace, or of all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = root(&self.group, &self.version);
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{root}/namespaces/{}/{}", segment(namespace), self.plural)
            }
            _ => format!("{root}/{}", self.plural),
        }
    }

    pub fn path_of(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(Some(namespace)), segment(name))
    }
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{}", segment(version))
    } else {
        format!("/apis/{}/{}", segment(group), segment(version))
    }
}

impl Cluster {
    /// Returns the kinds of one version of one group; none if the API does not serve it.
    pub async fn kinds_of(&self, group: &str, version: &str) -> Result<Vec<Served>, Failure> {
        let answered = self.ask(ApiRequest::get(root(group, version))).await?;
        if answered.code == StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        Ok(Served::all(group, version, &answered.into_body()?))
    }

    /// Returns the kind that a person has named. The core group comes first, then groups in the order of the API.
    pub async fn kind_called(&self, word: &str) -> Result<Served, Failure> {
        let word = word.to_lowercase();
        let core = self.kinds_of("", "v1").await?;
        if let Some(found) = core.iter().find(|kind| kind.answers_to(&word)) {
            return Ok(found.clone());
        }
        let groups = self.ask(ApiRequest::get("/apis")).await?.into_body()?;
        let groups = groups["groups"].as_array().cloned().unwrap_or_default();
        let versions = groups.iter().filter_map(|group| {
            let preferred = &group["preferredVersion"]["version"];
            Some((group["name"].as_str()?, preferred.as_str()?))
        });
        let asked = versions.map(|(group, version)| self.kinds_of(group, version));
        // A group whose server is away must not hide the others.
        let found = future::join_all(asked).await.into_iter().filter_map(Result::ok).flatten();
        let mut kinds = found.collect::<Vec<_>>();
        if let Some(at) = kinds.iter().position(|kind| kind.answers_to(&word)) {
            return Ok(kinds.swap_remove(at));
        }
        let mut known: Vec<String> = core.into_iter().chain(kinds).map(|kind| kind.plural).collect();
        known.sort();
        known.dedup();
        Err(Failure::Refused(format!("the server has no kind {word}; allowed are: {}", known.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_answers_to_all_its_names() {
        let list = json!({"resources": [
            {"name": "leaderworkersets", "singularName": "leaderworkerset", "kind": "LeaderWorkerSet",
             "shortNames": ["lws"], "namespaced": true},
            {"name": "leaderworkersets/status", "kind": "LeaderWorkerSet"},
            {"name": "nodes", "singularName": "", "kind": "Node", "namespaced": false},
        ]});
        let kinds = Served::all("g.io", "v1", &list);
        assert_eq!(kinds.len(), 2);
        for word in ["leaderworkersets", "leaderworkerset", "lws", "lws.g.io", "leaderworkersets.g.io"] {
            assert!(kinds[0].answers_to(word), "{word}");
        }
        assert!(!kinds[0].answers_to("lws.other.io") && kinds[1].answers_to("node"));
        assert_eq!(kinds[0].path_of("a", "b"), "/apis/g.io/v1/namespaces/a/leaderworkersets/b");
        assert_eq!(kinds[1].path_of("a", "b"), "/apis/g.io/v1/nodes/b");
        assert_eq!(kinds[0].path(None), "/apis/g.io/v1/leaderworkersets");
        assert_eq!(kinds[0].full_title("x"), "leaderworkerset.g.io/x");
    }
}
