//! The end of a cluster with external storage: its pods go, and then what it keeps in Redis.

use std::{sync::Arc, time::Duration};

use api::raycluster::{EXTERNAL_STORAGE_NAMESPACE, RayCluster};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use planner::{Code, Reason, Time, agreed, counted};
use serde_json::{Value, json};

use super::{observe::Observed, render, wanted};
use crate::{
    labels,
    pipeline::{Executor, Inputs},
    runtime::{Error, Event, Key},
    units::labelled,
};

/// What keeps a cluster until Redis is cleaned up.
pub(super) const FINALIZER: &str = "ray.io/gcs-ft-redis-cleanup-finalizer";

/// Annotation of a cluster: after how many seconds it goes though Redis could not be cleaned up.
const TIMEOUT: &str = "ray.io/gcs-ft-deletion-timeout";

/// How long a cluster is kept at most, where nothing else is said.
const PATIENCE: Duration = Duration::from_mins(5);

/// What there is of the cleanup of a cluster that is being deleted.
#[derive(Debug)]
pub(super) struct Ending {
    /// When it goes whatever came of it.
    pub(super) until: Time,
    /// The pod that cleans up.
    pod: Option<Arc<Pod>>,
    /// Another cluster that has the same storage namespace, and lives.
    shared_with: Option<Key>,
}

/// The next step of the cleanup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something is waited for.
    Wait(Reason),
    /// The pod that cleans up is made.
    Make(Reason),
    /// The cluster is let go. With what was not done, if Redis was not cleaned up.
    LetGo(Option<String>),
}

/// Whether a cluster keeps something that outlives its pods.
pub(super) fn is_needed(cluster: &RayCluster) -> bool {
    wanted::storage(cluster).is_some()
}

/// Whether a cluster waits for its cleanup.
pub(super) fn is_pending(cluster: &RayCluster) -> bool {
    cluster.finalizers().iter().any(|name| name == FINALIZER)
}

pub(super) fn observe(inputs: &Inputs<'_>, cluster: &RayCluster) -> Option<Ending> {
    let deleted = cluster.metadata.deletion_timestamp.as_ref()?;
    let seconds = cluster.annotations().get(TIMEOUT).and_then(|text| text.parse().ok());
    let key = Key::of(cluster);
    let mut pods = inputs.cache.owned_by::<Pod>(&cluster.uid()?);
    let mut others = inputs.cache.all::<RayCluster>();
    let namespace = wanted::storage(cluster).map(|storage| storage.namespace);
    let shares = |other: &&Arc<RayCluster>| {
        other.uid() != cluster.uid()
            && other.metadata.deletion_timestamp.is_none()
            && wanted::storage(other).map(|storage| storage.namespace) == namespace
    };
    Some(Ending {
        until: inputs.times.moment(deleted.0) + seconds.map_or(PATIENCE, Duration::from_secs),
        pod: pods.find(|pod| pod.name_any() == name(&key.name)).cloned(),
        shared_with: others.find(shares).map(|other| Key::of(other.as_ref())),
    })
}

/// What is done next; `pods` says whether pods of the cluster are still there.
pub(super) fn decide(ending: &Ending, cluster: &RayCluster, pods: usize, now: Time) -> Step {
    if !is_needed(cluster) {
        return Step::LetGo(None);
    }
    if let Some(other) = &ending.shared_with {
        let what = format!("RayCluster {other} has the same storage namespace, and would lose its state");
        return Step::LetGo(Some(what));
    }
    let phase = ending.pod.as_ref().and_then(|pod| pod.status.as_ref()?.phase.as_deref());
    match phase {
        Some("Succeeded") => return Step::LetGo(None),
        Some("Failed") => return Step::LetGo(Some("the pod that cleans up has failed".to_owned())),
        _ => {}
    }
    if now >= ending.until {
        let what =
            if pods > 0 { "pods of the cluster did not end" } else { "the pod that cleans up did not end" };
        return Step::LetGo(Some(format!("{what} in time")));
    }
    let wait = |code, what: String| {
        let reason = Reason::new(code, what).until(ending.until);
        reason.then("the cluster is let go, and its state stays in Redis")
    };
    if pods > 0 {
        let what =
            format!("{} {} before Redis is cleaned up", counted(pods, "pod"), agreed(pods, "ends", "end"));
        return Step::Wait(wait(Code::WaitingForGone, what));
    }
    let reason = wait(Code::WaitingForTermination, "Redis is cleaned up".to_owned());
    if ending.pod.is_some() { Step::Wait(reason) } else { Step::Make(reason) }
}

/// Has a cluster wait for its cleanup when it is deleted. Returns whether it does already: no pod is made before.
pub(super) async fn prepare(
    executor: &Executor<'_, RayCluster>,
    cluster: &RayCluster,
) -> Result<bool, Error> {
    if !is_needed(cluster) || is_pending(cluster) {
        return Ok(true);
    }
    let mut finalizers = cluster.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    executor.change(cluster, json!({"metadata": {"finalizers": finalizers}})).await?;
    Ok(false)
}

pub(super) async fn act(
    executor: &Executor<'_, RayCluster>,
    observed: &Observed,
    step: &Step,
) -> Result<(), Error> {
    let cluster = observed.cluster.as_ref();
    match step {
        Step::Wait(_) => Ok(()),
        Step::Make(_) => {
            let Some(pod) = pod(cluster, observed, executor.now()) else { return Ok(()) };
            let key = Key::of(cluster).beside(name(&cluster.name_any()));
            executor.create::<Pod>(&key, &labelled::note(pod)).await.map(drop)
        }
        Step::LetGo(problem) => {
            if let Some(problem) = problem {
                let namespace = wanted::storage(cluster).map(|storage| storage.namespace).unwrap_or_default();
                let note = format!(
                    "Redis was not cleaned up: {problem}; its keys of storage namespace {namespace:?} stay"
                );
                executor.record(Event::warning("Delete", "RedisCleanupSkipped", note)).await;
            }
            // Read anew from the cache: the status has just been written.
            let live = executor.context().cache().get::<RayCluster>(&Key::of(cluster)).cloned();
            let Some(live) = live else { return Ok(()) };
            let mut finalizers = live.finalizers().to_vec();
            finalizers.retain(|name| name != FINALIZER);
            executor.change(live.as_ref(), json!({"metadata": {"finalizers": finalizers}})).await
        }
    }
}

/// The name of the pod that cleans up. It has room: names of clusters have 53 characters at most.
fn name(cluster: &str) -> String {
    let readable: String = cluster.chars().take(49).collect();
    format!("{}-redis-cleanup", readable.trim_end_matches('-'))
}

/// Deletes the keys of the storage namespace, as Ray itself does it, in the environment of the head.
const SCRIPT: &str = r#"import os, sys
from urllib.parse import urlparse
from ray._private.gcs_utils import cleanup_redis_storage
first = os.environ["RAY_REDIS_ADDRESS"].split(",")[0]
at = urlparse(first if "://" in first else "redis://" + first)
who = {"username": os.environ["REDIS_USERNAME"]} if os.environ.get("REDIS_USERNAME") else {}
done = cleanup_redis_storage(host=at.hostname, port=at.port or 6379, password=os.environ.get("REDIS_PASSWORD", ""),
    use_ssl=at.scheme == "rediss", storage_namespace=os.environ["RAY_external_storage_namespace"], **who)
sys.exit(0 if done else 1)
"#;

/// The pod that cleans up: the container of the head with another command. It tries again until its time is up.
fn pod(cluster: &RayCluster, observed: &Observed, now: Time) -> Option<Value> {
    let Key { name: own, .. } = Key::of(cluster);
    let mut pod = render::head(cluster)?;
    let metadata = &mut pod["metadata"];
    metadata["name"] = name(&own).into();
    metadata["labels"][labels::RAY_NODE_TYPE] = "redis-cleanup".into();
    metadata["labels"][labels::RAY_IDENTIFIER] = format!("{own}-redis-cleanup").into();
    let namespace = metadata["annotations"][EXTERNAL_STORAGE_NAMESPACE].clone();
    metadata["annotations"] = json!({EXTERNAL_STORAGE_NAMESPACE: namespace});
    let spec = &mut pod["spec"];
    let mut container = spec["containers"][0].take();
    for field in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "ports"] {
        container.as_object_mut()?.remove(field);
    }
    container["name"] = "redis-cleanup".into();
    container["command"] = json!(["python", "-c"]);
    container["args"] = json!([SCRIPT]);
    let size = json!({"cpu": "200m", "memory": "256Mi"});
    container["resources"] = json!({"requests": size, "limits": size});
    let patience =
        [("RAY_redis_db_connect_retries", "120"), ("RAY_redis_db_connect_wait_milliseconds", "500")];
    for (name, value) in patience {
        if let Some(env) = container["env"].as_array_mut() {
            env.push(json!({"name": name, "value": value}));
        }
    }
    spec["containers"] = json!([container]);
    spec["restartPolicy"] = "OnFailure".into();
    let ending = observed.ending.as_ref()?;
    let left = ending.until.saturating_sub(now);
    spec["activeDeadlineSeconds"] = left.as_secs().max(1).into();
    spec.as_object_mut()?.remove("initContainers");
    Some(pod)
}
