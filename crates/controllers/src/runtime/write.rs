//! Every write, each on the condition that its object is still the one that was looked at.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::{Method, Request};
use jiff::Timestamp;
use k8s_openapi::{List, api::core::v1::Pod};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::request,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Followed, Key, world::News};
use crate::{Context, digest::digest, labels};

/// The name under which our fields are known to the API.
pub const FIELD_MANAGER: &str = "segue";

/// How long the API may take to answer.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object changed since it was looked at: it is looked at again.
    #[error("failed to {verb} {kind} {key}: it changed meanwhile")]
    Stale {
        /// What was tried.
        verb: &'static str,
        /// On what kind.
        kind: &'static str,
        /// On which object.
        key: Key,
    },
    /// An object of this name belongs to somebody else: it is left alone.
    #[error("failed to create {kind} {key}: there is one already, and it is not ours; rename either")]
    Foreign {
        /// The kind.
        kind: &'static str,
        /// Which one.
        key: Key,
    },
    /// The API said no, or nothing.
    #[error("failed to {verb} {kind} {key}: {}", said(.source))]
    Refused {
        /// What was tried.
        verb: &'static str,
        /// On what kind.
        kind: &'static str,
        /// On which object.
        key: Key,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API did not say anything in time; it may have done it.
    #[error("failed to {verb} {kind} {key}: no answer within {LONGEST:?}")]
    Unanswered {
        /// What was tried.
        verb: &'static str,
        /// On what kind.
        kind: &'static str,
        /// On which object.
        key: Key,
    },
    /// Objects cannot be seen; nothing is done before they can.
    #[error("failed to {verb} {kind}s{}: {}", within(.namespace), said(.source))]
    Unseen {
        /// What was tried.
        verb: &'static str,
        /// On what kind.
        kind: &'static str,
        /// Where; empty for everywhere.
        namespace: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object that cannot be read as what it should be.
    #[error("failed to read {what}: {why}")]
    Malformed {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
}

impl Error {
    /// A word for metrics, and for what to do: what is stale is tried again at once.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::Foreign { .. } => "foreign",
            Self::Refused { .. } => "refused",
            Self::Unanswered { .. } => "unanswered",
            Self::Malformed { .. } => "malformed",
            Self::Unseen { .. } => "unseen",
        }
    }
}

/// What a request was about, for its error.
struct Attempt<'a> {
    verb: &'static str,
    kind: &'static str,
    key: &'a Key,
}

impl Attempt<'_> {
    fn failed(&self, source: kube::Error) -> Error {
        let (verb, kind, key) = (self.verb, self.kind, self.key.clone());
        match &source {
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Error::Stale { verb, kind, key },
            _ => Error::Refused { verb, kind, key, source: Box::new(source) },
        }
    }

    fn unanswered(&self) -> Error {
        Error::Unanswered { verb: self.verb, kind: self.kind, key: self.key.clone() }
    }

    fn malformed(&self, why: &dyn std::error::Error) -> Error {
        Error::Malformed { what: format!("{} {}", self.kind, self.key), why: why.to_string() }
    }
}

fn is_there_already(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

impl Context {
    /// Makes an object, unless it is there already; one of somebody else is an error.
    pub async fn create<K: Followed>(&self, key: &Key, owner: &str, body: &Value) -> Result<(), Error> {
        let attempt = Attempt { verb: "create", kind: kind::<K>(), key };
        let bytes = serde_json::to_vec(body).map_err(|error| attempt.malformed(&error))?;
        let request = requests::<K>(key).create(&PostParams::default(), bytes);
        match self.send::<K>(&attempt, request).await {
            Ok(object) => self.learned(News::Written(object)),
            Err(Failed::Answered(error)) if is_there_already(&error) => {
                let attempt = Attempt { verb: "get", ..attempt };
                let there: K = self
                    .send(&attempt, requests::<K>(key).get(&key.name, &kube::api::GetParams::default()))
                    .await
                    .map_err(|failed| failed.into_error(&attempt))?;
                let owners = there.meta().owner_references.as_deref().unwrap_or_default();
                if !owners.iter().any(|reference| reference.uid == owner) {
                    return Err(Error::Foreign { kind: kind::<K>(), key: key.clone() });
                }
                // Somebody made it whom we have not heard of yet. It is not learnt here: one object that is newer than
                // those around it would look as if they were gone.
                let Attempt { verb, kind, .. } = attempt;
                return Err(Error::Stale { verb, kind, key: key.clone() });
            }
            Err(failed) => return Err(failed.into_error(&attempt)),
        }
        Ok(())
    }

    /// Makes an object what we want of it, and leaves alone what others want of it. Nothing is written when nothing
    /// differs. `live` is what is known of it: the write is meant for that one.
    pub async fn apply<K: Followed + Serialize>(
        &self,
        key: &Key,
        owner: &str,
        mut body: Value,
        live: Option<&K>,
    ) -> Result<(), Error> {
        let attempt = Attempt { verb: "apply", kind: kind::<K>(), key };
        let Some(live) = self.differs(&attempt, owner, &mut body, live).await? else { return Ok(()) };
        body["metadata"]["uid"] = json!(live.uid());
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let request = requests::<K>(key).patch(&key.name, &parameters, &Patch::Apply(body));
        let object = self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        self.learned::<K>(News::Written(object));
        Ok(())
    }

    /// The same for an object with fields of its spec that may go again: what is not said of these is taken away. An
    /// apply takes away only what an apply has said, and objects are made by a create.
    pub async fn put<K: Followed + Serialize>(
        &self,
        key: &Key,
        owner: &str,
        mut body: Value,
        (live, may_go): (Option<&K>, &[&str]),
    ) -> Result<(), Error> {
        let attempt = Attempt { verb: "change", kind: kind::<K>(), key };
        let Some(live) = self.differs(&attempt, owner, &mut body, live).await? else { return Ok(()) };
        for field in may_go {
            // Indexing makes it null where it is absent, and that is what a merge takes away.
            let _ = &mut body["spec"][field];
        }
        self.change(
            live,
            json!({"metadata": {"annotations": body["metadata"]["annotations"]}, "spec": body["spec"]}),
        )
        .await
    }

    /// What is known of an object that is ours and not what we want. One that is not there is made.
    async fn differs<'a, K: Followed + Serialize>(
        &self,
        attempt: &Attempt<'_>,
        owner: &str,
        body: &mut Value,
        live: Option<&'a K>,
    ) -> Result<Option<&'a K>, Error> {
        let mark = digest(body);
        body["metadata"]["annotations"][labels::APPLIED] = mark.into();
        let Some(live) = live else { return self.create::<K>(attempt.key, owner, body).await.map(|()| None) };
        let live_json = serde_json::to_value(live).map_err(|error| attempt.malformed(&error))?;
        if covers(&live_json, body) {
            return Ok(None);
        }
        if !live.owner_references().iter().any(|reference| reference.uid == owner) {
            return Err(Error::Foreign { kind: kind::<K>(), key: attempt.key.clone() });
        }
        Ok(Some(live))
    }

    /// Changes fields of an object that was looked at, on the condition that nobody else has meanwhile.
    pub async fn change<K: Followed>(&self, live: &K, mut patch: Value) -> Result<(), Error> {
        let key = Key::of(live);
        let attempt = Attempt { verb: "change", kind: kind::<K>(), key: &key };
        condition(&mut patch, live);
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let request = requests::<K>(&key).patch(&key.name, &parameters, &Patch::Merge(patch));
        let object = self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        self.learned::<K>(News::Written(object));
        Ok(())
    }

    /// Writes the status of an object that was looked at, on the condition that nobody else has written to it since:
    /// the compare-and-set that other writes follow.
    pub async fn write_status<K: Followed + Serialize>(&self, object: &K) -> Result<(), Error> {
        let key = Key::of(object);
        let attempt = Attempt { verb: "write the status of", kind: kind::<K>(), key: &key };
        let bytes = serde_json::to_vec(object).map_err(|error| attempt.malformed(&error))?;
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let request = requests::<K>(&key).replace_subresource("status", &key.name, &parameters, bytes);
        let object = self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        self.learned::<K>(News::Written(object));
        Ok(())
    }

    /// Whether an object is still as it was looked at, asked of the API itself: before anything is taken away.
    pub async fn is_current<K: Followed>(&self, live: &K) -> Result<(), Error> {
        let key = Key::of(live);
        let attempt = Attempt { verb: "look at", kind: kind::<K>(), key: &key };
        let request = requests::<K>(&key).get(&key.name, &kube::api::GetParams::default());
        let object: K = self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        let same = object.uid() == live.uid() && object.meta().generation == live.meta().generation;
        let Attempt { verb, kind, .. } = attempt;
        if same { Ok(()) } else { Err(Error::Stale { verb, kind, key }) }
    }

    /// Takes a pod away without waiting for its node, which is lost.
    pub async fn release(&self, live: &Pod) -> Result<(), Error> {
        self.delete_within(live, false, Some(0)).await
    }

    /// Whether the pods with these labels are still those that were looked at, asked of the API itself: before a failure
    /// is answered that may only be something not heard of yet.
    pub async fn are_current(&self, owner: &Key, labels: &str, pods: &[Arc<Pod>]) -> Result<(), Error> {
        let attempt = Attempt { verb: "look at", kind: "the pods of", key: owner };
        let request = requests::<Pod>(owner).list(&ListParams::default().labels(labels));
        let list: List<Pod> =
            self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        let versions = |pods: &mut dyn Iterator<Item = &Pod>| -> BTreeSet<Option<String>> {
            pods.map(ResourceExt::resource_version).collect()
        };
        let same = versions(&mut list.items.iter()) == versions(&mut pods.iter().map(AsRef::as_ref));
        let Attempt { verb, kind, .. } = attempt;
        if same { Ok(()) } else { Err(Error::Stale { verb, kind, key: owner.clone() }) }
    }

    /// Deletes the object that was looked at. With `exactly`, only if it has not changed since.
    pub async fn delete<K: Followed>(&self, live: &K, exactly: bool) -> Result<(), Error> {
        self.delete_within(live, exactly, None).await
    }

    async fn delete_within<K: Followed>(
        &self,
        live: &K,
        exactly: bool,
        grace: Option<u32>,
    ) -> Result<(), Error> {
        let key = Key::of(live);
        let attempt = Attempt { verb: "delete", kind: kind::<K>(), key: &key };
        let preconditions =
            Preconditions { uid: live.uid(), resource_version: live.resource_version().filter(|_| exactly) };
        let parameters = DeleteParams {
            preconditions: Some(preconditions),
            grace_period_seconds: grace,
            ..DeleteParams::background()
        };
        let request = requests::<K>(&key).delete(&key.name, &parameters);
        match self.send::<Value>(&attempt, request).await {
            // An object that stays for a while is answered as it is now; one that is gone may be answered by a status.
            Ok(answer) => {
                if let Ok(object) = serde_json::from_value::<K>(answer)
                    && object.meta().deletion_timestamp.is_some()
                {
                    self.learned(News::Written(object));
                }
                Ok(())
            }
            Err(failed) => match failed.into_error(&attempt) {
                // Gone already, or another one by now: that is all that was wanted.
                Error::Stale { .. } if !exactly => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Sets a condition of a pod that was looked at. The time is when it became so.
    pub async fn set_pod_condition(
        &self,
        pod: &Pod,
        ty: &str,
        (status, reason, message): (bool, &str, &str),
        since: Timestamp,
    ) -> Result<(), Error> {
        let key = Key::of(pod);
        let attempt = Attempt { verb: "set a condition of", kind: kind::<Pod>(), key: &key };
        let status = if status { "True" } else { "False" };
        let mut patch = json!({"status": {"conditions": [{
            "type": ty,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(since),
        }]}});
        condition(&mut patch, pod);
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let request = requests::<Pod>(&key).patch_subresource(
            "status",
            &key.name,
            &parameters,
            &Patch::Strategic(patch),
        );
        let pod = self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        self.learned::<Pod>(News::Written(pod));
        Ok(())
    }

    async fn send<T: DeserializeOwned>(
        &self,
        attempt: &Attempt<'_>,
        request: Result<Request<Vec<u8>>, request::Error>,
    ) -> Result<T, Failed> {
        let request = request.map_err(|error| Failed::Ours(attempt.malformed(&error)))?;
        let client: &Client = &self.client;
        let write = verb_of(request.method());
        // An answer that never comes would hold its object back for ever.
        let answer = match timeout(LONGEST, client.request::<T>(request)).await {
            Ok(answer) => answer.map_err(Failed::Answered)?,
            Err(_) => return Err(Failed::Ours(attempt.unanswered())),
        };
        if let Some(verb) = write {
            self.settings.metrics.wrote(verb, attempt.kind);
            tracing::info!("{} {} {}", attempt.verb, attempt.kind, attempt.key);
        }
        Ok(answer)
    }
}

/// A request that brought nothing.
enum Failed {
    /// It could not be made.
    Ours(Error),
    /// The API refused it or could not be reached.
    Answered(kube::Error),
}

impl Failed {
    fn into_error(self, attempt: &Attempt<'_>) -> Error {
        match self {
            Self::Ours(error) => error,
            Self::Answered(error) => attempt.failed(error),
        }
    }
}

/// The verb of a write, as rights and audit logs call it.
fn verb_of(method: &Method) -> Option<&'static str> {
    match *method {
        Method::POST => Some("create"),
        Method::PUT => Some("update"),
        Method::PATCH => Some("patch"),
        Method::DELETE => Some("delete"),
        _ => None,
    }
}

/// What the API said, in its own words and nothing else.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn within(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!(" of namespace {namespace}") }
}

pub(super) fn kind<K: Followed>() -> &'static str {
    // The names of kinds are constants; the trait hands them out as text that may be owned.
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "object",
    }
}

fn requests<K: Followed>(key: &Key) -> kube::core::Request {
    kube::core::Request::new(K::url_path(&(), Some(&key.namespace)))
}

/// Only if it is this one, and as it was looked at.
fn condition(patch: &mut Value, live: &impl kube::Resource<DynamicType = ()>) {
    patch["metadata"]["uid"] = json!(live.meta().uid);
    patch["metadata"]["resourceVersion"] = json!(live.meta().resource_version);
}

/// Whether everything that is wanted is so: what the API added by itself is no difference.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| {
            live.get(name).map_or_else(|| wanted.is_null(), |live| covers(live, wanted))
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| covers(live, wanted))
        }
        _ => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_added_is_no_difference_and_what_it_lacks_is() {
        let live = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}], "clusterIP": "10.0.0.1"}});
        assert!(covers(&live, &json!({"spec": {"ports": [{"port": 80}]}})));
        assert!(!covers(&live, &json!({"spec": {"ports": [{"port": 81}]}})));
        assert!(!covers(&live, &json!({"spec": {"ports": [{"port": 80}, {"port": 81}]}})));
        assert!(!covers(&live, &json!({"spec": {"selector": {"a": "b"}}})));
        assert!(covers(&live, &json!({"spec": {"selector": null}})));
    }
}
