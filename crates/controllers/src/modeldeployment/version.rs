//! A version: one immutable revision of the workload, named by what is in it.

use api::{
    leaderworkerset::LeaderWorkerSet,
    modeldeployment::{Env, ModelDeployment, WorkloadType},
};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{digest::digest, labels, leaderworkerset, owner, runtime::Key};

/// What a version is made from.
#[derive(Clone, Debug)]
pub(super) struct VersionTemplate {
    /// The digest of it, and the version's label.
    pub(super) hash: String,
    /// The spec of its child, but for the number of units.
    spec: Value,
}

/// The version that a deployment asks for; nothing for a workload that is not served yet.
pub(super) fn version_template(deployment: &ModelDeployment) -> Option<VersionTemplate> {
    version_template_as(deployment, None)
}

/// The version that a deployment asks for, under the hash of one of these sets where that set has the same in other words,
/// such as a quantity that is written otherwise.
pub(super) fn known_blueprint<'a>(
    deployment: &ModelDeployment,
    sets: impl Iterator<Item = (String, &'a LeaderWorkerSet)> + Clone,
) -> Option<VersionTemplate> {
    let version_template = version_template(deployment)?;
    if sets.clone().any(|(hash, _)| hash == version_template.hash) {
        return Some(version_template);
    }
    let same = sets.filter_map(|(hash, set)| {
        let version_template = version_template_as(deployment, Some(&hash))?;
        version_template.means(deployment, set).then_some(version_template)
    });
    Some(same.last().unwrap_or(version_template))
}

/// Whether two states of a deployment ask for one version, in whatever words.
pub(super) fn is_one(before: &ModelDeployment, after: &ModelDeployment) -> bool {
    let child = |version_template: VersionTemplate| {
        let set =
            serde_json::from_value::<LeaderWorkerSet>(version_template.child(before, 0, 0, "").1).ok()?;
        Some((version_template.hash, set))
    };
    version_template(before).and_then(child).is_some_and(|(hash, set)| {
        let sets = std::iter::once((hash.clone(), &set));
        known_blueprint(after, sets).is_some_and(|known| known.hash == hash)
    })
}

fn version_template_as(deployment: &ModelDeployment, hash: Option<&str>) -> Option<VersionTemplate> {
    let workload = &deployment.spec.workload;
    let mut template = match workload.ty {
        WorkloadType::Pod => json!({
            "size": 1,
            // A container of a single pod restarts in its place.
            "restartPolicy": "None",
            "workerTemplate": workload.pod.as_ref()?.json(),
        }),
        WorkloadType::LeaderWorker => {
            let unit = workload.leader_worker.as_ref()?;
            let mut template = json!({
                "size": unit.size,
                "restartPolicy": unit.restart_policy,
                "workerTemplate": unit.worker_template.json(),
            });
            if let Some(leader) = &unit.leader_template {
                template["leaderTemplate"] = leader.json().clone();
            }
            template
        }
        WorkloadType::Roles => return None,
    };
    let pods = ["leaderTemplate", "workerTemplate"];
    for pod in pods {
        if template.get(pod).is_some() {
            lay_env(&mut template[pod], &deployment.spec.env);
        }
    }
    let startup = workload.leader_worker.as_ref().map(|unit| unit.startup_policy).unwrap_or_default();
    let hash = hash.map_or_else(
        || digest(&json!({"leaderWorkerTemplate": template, "startupPolicy": startup})),
        ToOwned::to_owned,
    );
    for pod in pods {
        if template.get(pod).is_some() {
            let labels = &mut template[pod]["metadata"]["labels"];
            labels[labels::DEPLOYMENT] = deployment.name_any().into();
            labels[labels::VERSION] = hash.clone().into();
            keep_last_words(&mut template[pod]);
        }
    }
    // Units are never replaced inside a version, only added and let go: what serves stays until a replacement does.
    let rollout = json!({
        "type": "RollingUpdate",
        "rollingUpdateConfiguration": {"maxUnavailable": 0, "maxSurge": 1},
    });
    let spec =
        json!({"leaderWorkerTemplate": template, "startupPolicy": startup, "rolloutStrategy": rollout});
    Some(VersionTemplate { hash, spec })
}

impl VersionTemplate {
    /// Whether a set has what the version is made from, in whatever words.
    pub(super) fn means(&self, deployment: &ModelDeployment, set: &LeaderWorkerSet) -> bool {
        let (_, body) = self.child(deployment, 0, 0, "");
        let wanted = serde_json::from_value::<LeaderWorkerSet>(body).ok();
        wanted.is_some_and(|wanted| {
            leaderworkerset::is_same(set, &wanted).unwrap_or(false)
                && set.spec.startup_policy == wanted.spec.startup_policy
        })
    }

    /// The child that realises the version.
    pub(super) fn child(
        &self,
        deployment: &ModelDeployment,
        units: u32,
        number: i64,
        name: &str,
    ) -> (Key, Value) {
        let key = Key::of(deployment).beside(child_name(deployment, &self.hash));
        let mut annotations = annotations(deployment);
        annotations[labels::VERSION_NAME] = name.into();
        annotations[labels::VERSION_NUMBER] = number.to_string().into();
        let mut spec = self.spec.clone();
        spec["replicas"] = units.into();
        let body = json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": labels_of(deployment, Some(&self.hash)),
                "annotations": annotations,
                "ownerReferences": [owner(deployment)],
            },
            "spec": spec,
        });
        (key, body)
    }
}

/// The annotations that every version needs on its set: the time that its replicas have to finish, and that no object
/// refers to the ordinal of a replica.
pub(super) fn annotations(deployment: &ModelDeployment) -> Value {
    let traffic = &deployment.spec.traffic;
    json!({
        labels::GROUP_IDENTITY: labels::ANY_GROUP,
        labels::DRAIN_SECONDS: traffic.drain_seconds.to_string(),
        labels::SETTLE_SECONDS: traffic.settle_seconds.to_string(),
    })
}

pub(super) fn child_name(deployment: &ModelDeployment, hash: &str) -> String {
    format!("{}-{hash}", deployment.name_any())
}

/// The Service of a version: what a route refers to.
pub(super) fn service_name(child: &str) -> String {
    format!("{child}-serving")
}

/// What everything of a deployment, or of one of its versions, is found by.
pub(super) fn labels_of(deployment: &ModelDeployment, hash: Option<&str>) -> Value {
    let mut labels = json!({labels::DEPLOYMENT: deployment.name_any(), labels::MANAGED_BY: labels::SEGUE});
    if let Some(hash) = hash {
        labels[labels::VERSION] = hash.into();
    }
    labels
}

/// Lays variables over the containers of a pod: those of the same name are replaced, others are added.
fn lay_env(pod: &mut Value, env: &[Env]) {
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for variable in env.iter().filter(|it| it.containers.is_empty() || it.containers.contains(&name))
            {
                lay_variable(&mut container["env"], variable);
            }
        }
        // Looking for what is not there has put a null in its place.
        if pod["spec"][list].is_null()
            && let Some(spec) = pod["spec"].as_object_mut()
        {
            spec.remove(list);
        }
    }
}

/// Has the end of the log of a container that fails kept in its status, where the template says nothing of that: when the
/// pod is gone there is no other word of why.
fn keep_last_words(pod: &mut Value) {
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.entry("terminationMessagePolicy").or_insert_with(|| "FallbackToLogsOnError".into());
        }
    }
}

fn lay_variable(list: &mut Value, variable: &Env) {
    let mut entry = json!({"name": variable.name});
    if let Some(value) = &variable.value {
        entry["value"] = value.clone().into();
    }
    if let Some(source) = &variable.value_from {
        entry["valueFrom"] = source.json().clone();
    }
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    match list.iter_mut().find(|existing| existing["name"] == variable.name.as_str()) {
        Some(existing) => *existing = entry,
        None => list.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(env: &Value, version: Option<&str>) -> ModelDeployment {
        serde_json::from_value(json!({
            "metadata": {"name": "chat", "namespace": "ns", "uid": "u"},
            "spec": {
                "version": version,
                "workload": {"type": "Pod", "pod": {"spec": {"containers": [
                    {"name": "a", "env": [{"name": "X", "value": "0"}]}, {"name": "b"},
                ]}}},
                "env": env,
                "traffic": {"ports": [{"name": "http", "port": 8000}]},
            },
        }))
        .unwrap()
    }

    #[test]
    fn variables_are_laid_over_the_containers_that_they_name() {
        let env = json!([{"name": "X", "value": "1"}, {"name": "Y", "value": "2", "containers": ["b"]}]);
        let spec = version_template(&deployment(&env, None)).unwrap().spec;
        let pod = &spec["leaderWorkerTemplate"]["workerTemplate"]["spec"];
        assert_eq!(pod["containers"][0]["env"], json!([{"name": "X", "value": "1"}]));
        assert_eq!(
            pod["containers"][1]["env"],
            json!([{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}])
        );
        assert!(pod.get("initContainers").is_none());
        assert_eq!(pod["containers"][0]["terminationMessagePolicy"], "FallbackToLogsOnError");
    }

    #[test]
    fn a_group_has_the_size_and_the_templates_that_it_says() {
        let mut group = deployment(&json!([]), None);
        let pod = |image: &str| json!({"spec": {"containers": [{"name": "a", "image": image}]}});
        group.spec.workload = serde_json::from_value(json!({"type": "LeaderWorker", "leaderWorker": {
            "size": 3, "leaderTemplate": pod("leads"), "workerTemplate": pod("works"),
            "startupPolicy": "LeaderReady",
        }}))
        .unwrap();
        let spec = version_template(&group).unwrap().spec;
        let unit = &spec["leaderWorkerTemplate"];
        let image = |template: &str| unit[template]["spec"]["containers"][0]["image"].clone();
        assert_eq!((&unit["size"], &spec["startupPolicy"]), (&json!(3), &json!("LeaderReady")));
        assert_eq!((image("leaderTemplate"), image("workerTemplate")), (json!("leads"), json!("works")));
    }

    #[test]
    fn a_version_is_what_runs_and_nothing_else() {
        let hash = |env: Value, version| version_template(&deployment(&env, version)).unwrap().hash;
        assert_ne!(hash(json!([]), None), hash(json!([{"name": "X", "value": "1"}]), None));
        assert_eq!(hash(json!([]), None), hash(json!([]), Some("what-people-call-it")));
        // A variable that says what is said already changes nothing.
        let same = json!([{"name": "X", "value": "0", "containers": ["a"]}]);
        assert_eq!(hash(json!([]), None), hash(same, None));
    }
}
