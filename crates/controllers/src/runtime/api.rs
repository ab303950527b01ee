//! Every request to the API. Each write carries the condition that its object is still the observed one.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::{Method, Request};
use jiff::Timestamp;
use k8s_openapi::{List, api::core::v1::Pod};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{Status, request},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ApiVerb, Context, Error, Key, Watched, cache::CacheEvent};
use crate::{digest::digest, json::erase, labels};

/// The name under which our fields are known to the API.
pub const FIELD_MANAGER: &str = "segue";

/// Lists whose entries the API knows by a key: an apply leaves those alone that it does not name.
const KEYED: [&str; 2] = ["ports", "listeners"];

/// How long the API may take to answer a request.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// What a request was about, for its error.
struct Attempt<'a> {
    verb: ApiVerb,
    kind: &'static str,
    key: &'a Key,
}

impl Attempt<'_> {
    fn failed(&self, source: kube::Error) -> Error {
        let (verb, kind, key) = (self.verb, self.kind, self.key.clone());
        match &source {
            kube::Error::Api(status) if status.code == 409 || self.is_gone(status) => {
                Error::Stale { verb, kind, key }
            }
            _ => Error::Refused { verb, kind, key, source: Box::new(source) },
        }
    }

    /// Whether the API says that the object itself is gone. A 404 that does not name it means that the API has no such
    /// kind, or no such namespace: that does not pass by observing once more.
    fn is_gone(&self, status: &Status) -> bool {
        let about = status.details.as_ref().map(|details| details.name.as_str());
        status.code == 404 && about == Some(self.key.name.as_str())
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
    /// Makes an object, unless it is there already; an object of another owner is an error.
    pub async fn create<K: Watched>(&self, key: &Key, owner: &str, body: &Value) -> Result<(), Error> {
        let attempt = Attempt { verb: ApiVerb::Create, kind: kind_of::<K>(), key };
        let bytes = serde_json::to_vec(body).map_err(|error| attempt.malformed(&error))?;
        let request = requests::<K>(key).create(&ours(), bytes);
        match self.send::<K>(&attempt, request).await {
            Ok(object) => self.handle_event(CacheEvent::WriteResponse(object)),
            Err(Failed::Answered(error)) if is_there_already(&error) => {
                let attempt = Attempt { verb: ApiVerb::Get, ..attempt };
                let there: K = self
                    .send(&attempt, requests::<K>(key).get(&key.name, &kube::api::GetParams::default()))
                    .await
                    .map_err(|failed| failed.into_error(&attempt))?;
                let owners = there.meta().owner_references.as_deref().unwrap_or_default();
                // As the cache finds it: an owner that is not its controller would wait for an event that never comes.
                if !owners.iter().any(|it| it.uid == owner && it.controller == Some(true)) {
                    return Err(Error::NotOwned { kind: kind_of::<K>(), key: key.clone() });
                }
                self.label_again(&there, &body["metadata"]["labels"]).await?;
                // It was made, and its event has not come yet. It is not learnt here: it is newer than the objects
                // around it, which would then count as gone.
                let Attempt { verb, kind, .. } = attempt;
                return Err(Error::Stale { verb, kind, key: key.clone() });
            }
            Err(failed) => return Err(failed.into_error(&attempt)),
        }
        Ok(())
    }

    /// Gives an object of ours the labels back that it was made with. Objects are watched by their labels: no event
    /// would come of an object that has lost them.
    async fn label_again<K: Watched>(&self, there: &K, labels: &Value) -> Result<(), Error> {
        if labels.is_null() || covers(&json!(there.labels()), labels) {
            return Ok(());
        }
        let key = Key::of(there);
        let attempt = Attempt { verb: ApiVerb::Label, kind: kind_of::<K>(), key: &key };
        let mut patch = json!({"metadata": {"labels": labels}});
        add_preconditions(&mut patch, there);
        let request = requests::<K>(&key).patch(&key.name, &merging(), &Patch::Merge(patch));
        let labelled: Result<K, Failed> = self.send(&attempt, request).await;
        labelled.map(drop).map_err(|failed| failed.into_error(&attempt))
    }

    /// Makes an object what we want of it, and leaves alone what others want of it. Nothing is written when nothing
    /// differs.
    pub(crate) async fn apply<K: Watched + Serialize>(
        &self,
        owner: &str,
        wanted: Apply<'_, K>,
    ) -> Result<Applied, Error> {
        let Apply { key, mut body, live, exact, may_go } = wanted;
        let attempt = Attempt { verb: ApiVerb::Apply, kind: kind_of::<K>(), key: &key };
        let mark = digest(&body);
        body["metadata"]["annotations"][labels::APPLIED] = mark.clone().into();
        let Some(live) = live else {
            return self.create::<K>(&key, owner, &body).await.map(|()| Applied::Created);
        };
        let live_json = serde_json::to_value(live).map_err(|error| attempt.malformed(&error))?;
        if covers(&live_json, &body) && self.is_exact(live, &live_json, &body, exact) {
            return Ok(Applied::Unchanged);
        }
        if !live.owner_references().iter().any(|reference| reference.uid == owner) {
            return Err(Error::NotOwned { kind: kind_of::<K>(), key });
        }
        // An apply does not remove what another field manager has added: a whole field, or an entry of a list.
        let (live_spec, wanted_spec) = (&live_json["spec"], &body["spec"]);
        let is_added = |field: &&&str| {
            live_spec.get(**field).is_some_and(|live| {
                let wanted = wanted_spec.get(**field);
                wanted.is_none_or(|wanted| KEYED.contains(*field) && !covers(live, wanted))
            })
        };
        let goes: Vec<&&str> = may_go.iter().chain(exact.iter().filter(is_added)).collect();
        let request = if goes.is_empty() {
            body["metadata"]["uid"] = json!(live.uid());
            let parameters = PatchParams::apply(FIELD_MANAGER).force();
            requests::<K>(&key).patch(&key.name, &parameters, &Patch::Apply(body))
        } else {
            for field in goes {
                // Indexing makes it null where it is absent, and that is what a merge takes away.
                let _ = &mut body["spec"][field];
            }
            for field in exact {
                erase(&mut body["spec"][field], &live_spec[field]);
            }
            let mut patch =
                json!({"metadata": {"annotations": body["metadata"]["annotations"]}, "spec": body["spec"]});
            add_preconditions(&mut patch, live);
            requests::<K>(&key).patch(&key.name, &merging(), &Patch::Merge(patch))
        };
        let object: K = self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        let written = serde_json::to_value(&object).map_err(|error| attempt.malformed(&error))?;
        self.memory.remember_applied(&object.uid().unwrap_or_default(), digest(&parts(&written, exact)));
        let is_changed = written["spec"] != live_json["spec"] || written["metadata"] != live_json["metadata"];
        self.handle_event::<K>(CacheEvent::WriteResponse(object));
        let is_wanted_as_before = live.annotations().get(labels::APPLIED) == Some(&mark);
        Ok(match (is_changed, is_wanted_as_before) {
            // The API keeps the values of another field manager.
            (false, _) => Applied::Unchanged,
            (true, true) => Applied::Repaired,
            (true, false) => Applied::Changed,
        })
    }

    /// Whether values that are ours as a whole are what we want. What the API itself made of our last write is that,
    /// too.
    fn is_exact(&self, live: &impl ResourceExt, live_json: &Value, body: &Value, exact: &[&str]) -> bool {
        exact.iter().all(|field| live_json["spec"].get(field) == body["spec"].get(field))
            || self.memory.is_settled(&live.uid().unwrap_or_default(), &digest(&parts(live_json, exact)))
    }

    /// Changes fields of an observed object, on the condition that it has not changed since.
    pub async fn change<K: Watched>(&self, live: &K, mut patch: Value) -> Result<(), Error> {
        let key = Key::of(live);
        let attempt = Attempt { verb: ApiVerb::Change, kind: kind_of::<K>(), key: &key };
        add_preconditions(&mut patch, live);
        let request = requests::<K>(&key).patch(&key.name, &merging(), &Patch::Merge(patch));
        let object = self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        self.handle_event::<K>(CacheEvent::WriteResponse(object));
        Ok(())
    }

    /// Writes the status of an observed object, on the condition that it has not changed since: the compare-and-set
    /// that other writes follow.
    pub async fn write_status<K: Watched + Serialize>(&self, object: &K) -> Result<(), Error> {
        let key = Key::of(object);
        let attempt = Attempt { verb: ApiVerb::WriteStatus, kind: kind_of::<K>(), key: &key };
        let bytes = serde_json::to_vec(object).map_err(|error| attempt.malformed(&error))?;
        let request = requests::<K>(&key).replace_subresource("status", &key.name, &ours(), bytes);
        let object = self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        self.handle_event::<K>(CacheEvent::WriteResponse(object));
        Ok(())
    }

    /// Whether an object is still as it was observed, asked of the API itself: before anything is taken away.
    pub async fn ensure_current<K: Watched>(&self, live: &K) -> Result<(), Error> {
        let key = Key::of(live);
        let attempt = Attempt { verb: ApiVerb::Get, kind: kind_of::<K>(), key: &key };
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

    /// Whether the pods with these labels are still those that were observed, asked of the API itself: before a failure
    /// is answered that may only be something not heard of yet.
    /// Pods that an object does not control are not its pods, whatever their labels are.
    pub async fn ensure_pods_current<K: Watched>(
        &self,
        object: &K,
        labels: &str,
        pods: &[Arc<Pod>],
    ) -> Result<(), Error> {
        let owner = &Key::of(object);
        let attempt = Attempt { verb: ApiVerb::List, kind: "the pods of", key: owner };
        let request = requests::<Pod>(owner).list(&ListParams::default().labels(labels));
        let list: List<Pod> =
            self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        let versions = |pods: &mut dyn Iterator<Item = &Pod>| -> BTreeSet<Option<String>> {
            pods.map(ResourceExt::resource_version).collect()
        };
        let is_controlled = |pod: &&Pod| {
            let owners = pod.owner_references().iter();
            owners
                .into_iter()
                .any(|it| it.controller == Some(true) && Some(&it.uid) == object.meta().uid.as_ref())
        };
        let same = versions(&mut list.items.iter().filter(is_controlled))
            == versions(&mut pods.iter().map(AsRef::as_ref));
        let Attempt { verb, kind, .. } = attempt;
        if same { Ok(()) } else { Err(Error::Stale { verb, kind, key: owner.clone() }) }
    }

    /// Deletes the object that was observed. With `exactly`, only if it has not changed since.
    pub async fn delete<K: Watched>(&self, live: &K, exactly: bool) -> Result<(), Error> {
        self.delete_within(live, exactly, None).await
    }

    async fn delete_within<K: Watched>(
        &self,
        live: &K,
        exactly: bool,
        grace: Option<u32>,
    ) -> Result<(), Error> {
        let key = Key::of(live);
        let attempt = Attempt { verb: ApiVerb::Delete, kind: kind_of::<K>(), key: &key };
        let preconditions =
            Preconditions { uid: live.uid(), resource_version: live.resource_version().filter(|_| exactly) };
        let parameters = DeleteParams {
            preconditions: Some(preconditions),
            grace_period_seconds: grace,
            ..DeleteParams::background()
        };
        let request = requests::<K>(&key).delete(&key.name, &parameters);
        match self.send::<Value>(&attempt, request).await {
            // An object that stays for a while is in the answer; for an object that is gone the answer may be a status.
            Ok(answer) => {
                if let Ok(object) = serde_json::from_value::<K>(answer)
                    && object.meta().deletion_timestamp.is_some()
                {
                    self.handle_event(CacheEvent::WriteResponse(object));
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

    /// Sets a condition of a pod that was observed. The time is when it became so.
    pub async fn set_pod_condition(
        &self,
        pod: &Pod,
        ty: &str,
        (status, reason, message): (bool, &str, &str),
        since: Timestamp,
    ) -> Result<(), Error> {
        let key = Key::of(pod);
        let attempt = Attempt { verb: ApiVerb::SetCondition, kind: kind_of::<Pod>(), key: &key };
        let status = if status { "True" } else { "False" };
        let mut patch = json!({"status": {"conditions": [{
            "type": ty,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(since),
        }]}});
        add_preconditions(&mut patch, pod);
        let request = requests::<Pod>(&key).patch_subresource(
            "status",
            &key.name,
            &merging(),
            &Patch::Strategic(patch),
        );
        let pod = self.send(&attempt, request).await.map_err(|failed| failed.into_error(&attempt))?;
        self.handle_event::<Pod>(CacheEvent::WriteResponse(pod));
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

/// An object of ours as it should be.
pub(crate) struct Apply<'a, K> {
    pub(crate) key: Key,
    pub(crate) body: Value,
    /// What is known of it: the write is meant for that one.
    pub(crate) live: Option<&'a K>,
    /// Fields of its spec that Segue owns as a whole: additions of other managers are removed.
    pub(crate) exact: &'static [&'static str],
    /// Fields of its spec that go where they are not wanted. An apply takes away only what an apply has said, and
    /// objects are made by a create.
    pub(crate) may_go: &'static [&'static str],
}

impl<'a, K> Apply<'a, K> {
    pub(crate) fn new((key, body): (Key, Value), live: Option<&'a K>) -> Self {
        Self { key, body, live, exact: &[], may_go: &[] }
    }

    /// The same, with fields of the spec that are ours as a whole.
    pub(crate) fn exactly(self, exact: &'static [&'static str]) -> Self {
        Self { exact, ..self }
    }
}

/// What an apply came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Everything was as it should be.
    Unchanged,
    /// The object was not there.
    Created,
    /// We want something else of it than before.
    Changed,
    /// We want what we wanted before, and another field manager had changed it.
    Repaired,
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

pub(super) fn kind_of<K: Watched>() -> &'static str {
    // The names of kinds are constants; the trait hands them out as text that may be owned.
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "object",
    }
}

fn requests<K: Watched>(key: &Key) -> kube::core::Request {
    kube::core::Request::new(K::url_path(&(), Some(&key.namespace)))
}

/// As ourselves: what the API is told is ours by name.
fn ours() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn merging() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// These fields of the spec of an object.
fn parts(object: &Value, fields: &[&str]) -> Value {
    fields.iter().map(|field| object["spec"][field].clone()).collect()
}

/// Only if it is this one, and as it was observed.
fn add_preconditions(patch: &mut Value, live: &impl kube::Resource<DynamicType = ()>) {
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
