//! Requests to scale versions, one after the other.
//!
//! The replicas of all versions together have a limit, and each version is scaled by a write to a set of its own, which no
//! precondition connects with the others. So a decision is only right if it knows the outcome of every request before it.
//! The status names the last request, and the resourceVersion of the set that it is made for, before the request is made;
//! the status is a compare-and-set, so requests have an order. A set with a later resourceVersion shows the outcome. Until
//! then the request may be on its way: it may be made again, but before anything else is done it is withdrawn, by a write
//! to the set that takes its resourceVersion away.

use std::cmp::Ordering;

use api::{
    leaderworkerset::LeaderWorkerSet,
    modeldeployment::{LastScale, ModelDeployment},
};
use kube::{Resource, ResourceExt};
use planner::handover::{Action, VersionId};
use serde_json::json;

use super::{
    decide::Decision,
    observe::{Observed, Version},
    version::child_name,
};
use crate::{
    int, labels,
    pipeline::Executor,
    runtime::{ApiVerb, Cache, Error, Key, Watched},
};

/// The version whose last request may be on its way. An error if its set was observed as it was before the request was
/// decided.
pub(super) fn pending(
    cache: &Cache,
    deployment: &ModelDeployment,
    versions: &[Version],
) -> Result<Option<VersionId>, Error> {
    let Some(last) = deployment.status.as_ref().and_then(|status| status.last_scale.as_ref()) else {
        return Ok(None);
    };
    let decided: u64 = last.resource_version.parse().unwrap_or_default();
    // A status that was restored from a backup names versions of another cluster.
    if decided > version_of(deployment) {
        return Ok(None);
    }
    let key = Key::of(deployment).beside(child_name(deployment, &last.version));
    let observed = versions.iter().find(|version| version.hash == last.version);
    let Some((id, set)) = observed.and_then(|version| Some((version.id, version.set.as_ref()?))) else {
        let is_gone = cache.has_seen::<LeaderWorkerSet>(&key.namespace, decided);
        return if is_gone { Ok(None) } else { Err(stale(key)) };
    };
    match version_of(set.as_ref()).cmp(&decided) {
        Ordering::Less => Err(stale(key)),
        Ordering::Equal => Ok(Some(id)),
        Ordering::Greater => Ok(None),
    }
}

fn version_of(object: &impl Resource) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn stale(key: Key) -> Error {
    Error::Stale { verb: ApiVerb::Change, kind: "LeaderWorkerSet", key }
}

/// The request that a decision makes, as the status names it. A version that is to be made is not scaled yet.
pub(super) fn request(observed: &Observed, action: &Action) -> Option<LastScale> {
    let Action::Scale(id, replicas) = action else { return None };
    let version = observed.version(*id)?;
    let set = version.set.as_ref()?;
    Some(LastScale {
        version: version.hash.clone(),
        replicas: int(*replicas),
        resource_version: set.resource_version().unwrap_or_default(),
    })
}

/// Withdraws the request that may be on its way, unless the decision makes no other.
pub(super) async fn withdraw<K: Watched>(
    executor: &Executor<'_, K>,
    observed: &Observed,
    decision: &Decision,
) -> Result<(), Error> {
    let Some(id) = observed.pending else { return Ok(()) };
    match decision.action {
        Action::Wait | Action::Done => return Ok(()),
        // Made for the same resourceVersion: only one of both changes the set.
        Action::Scale(asked, _) if asked == id => return Ok(()),
        _ => {}
    }
    let Some(set) = observed.version(id).and_then(|version| version.set.as_ref()) else { return Ok(()) };
    let until = set.resource_version();
    executor.change(set.as_ref(), json!({"metadata": {"annotations": {labels::WITHDRAWN: until}}})).await?;
    Err(stale(Key::of(set.as_ref())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::{
        modeldeployment::{observe::observe, version},
        pipeline::{Found, Inputs},
    };

    /// A deployment whose status says that its version was scaled when its set had the version 10.
    fn deployment() -> Arc<ModelDeployment> {
        let deployment = |status: Value| -> ModelDeployment {
            serde_json::from_value(json!({
                "metadata": {"name": "chat", "namespace": "ns", "uid": "u", "resourceVersion": "20"},
                "spec": {
                    "workload": {"type": "Pod", "pod": {"spec": {"containers": [{"name": "a"}]}}},
                    "traffic": {"ports": [{"name": "http", "port": 8000}]},
                },
                "status": status,
            }))
            .unwrap()
        };
        let version = version::version_template(&deployment(Value::Null)).unwrap().hash;
        let last = json!({"version": version, "replicas": 2, "resourceVersion": "10"});
        Arc::new(deployment(json!({"lastScale": last})))
    }

    /// The set of its version at a version.
    fn set(deployment: &ModelDeployment, at: u64) -> LeaderWorkerSet {
        let (_, mut body) = version::version_template(deployment).unwrap().child(deployment, 1, 1, "r1");
        body["metadata"]["resourceVersion"] = at.to_string().into();
        serde_json::from_value(body).unwrap()
    }

    /// Whether the request may be on its way; nothing, where what is observed is older than the request.
    fn is_pending(deployment: &Arc<ModelDeployment>, sets: Vec<LeaderWorkerSet>) -> Option<bool> {
        let cache = Cache::with(sets);
        match Inputs::at(&cache, planner::Time::ZERO, |inputs| observe(inputs, deployment)) {
            Ok(Found::Observed(observed)) => Some(observed.pending.is_some()),
            Err(Error::Stale { .. }) => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_on_its_way_until_its_set_has_changed() {
        let chat = deployment();
        assert_eq!(is_pending(&chat, vec![set(&chat, 9)]), None);
        assert_eq!(is_pending(&chat, vec![set(&chat, 10)]), Some(true));
        assert_eq!(is_pending(&chat, vec![set(&chat, 11)]), Some(false));
    }

    #[test]
    fn a_version_that_is_not_observed_is_gone_only_if_the_watch_has_passed_its_request() {
        let chat = deployment();
        let other = |at| {
            let mut other = set(&chat, at);
            other.metadata.name = Some("other".to_owned());
            other.metadata.owner_references = None;
            other
        };
        assert_eq!(is_pending(&chat, vec![other(9)]), None);
        assert_eq!(is_pending(&chat, vec![other(12)]), Some(false));
    }

    #[test]
    fn a_status_of_another_cluster_holds_nothing_up() {
        let mut restored = deployment().as_ref().clone();
        restored.metadata.resource_version = Some("3".to_owned());
        assert_eq!(is_pending(&Arc::new(restored.clone()), vec![set(&restored, 2)]), Some(false));
    }
}
