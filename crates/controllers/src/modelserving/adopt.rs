//! `ModelServing`s that another operator made. Their pods belong to them already; that they are ours from now on is
//! a mark on each.
//!
//! Only that operator can compute its hashes, so Segue uses them as names and nothing more: what a pod is made from is what
//! the revision of that name has in it.

use api::modelserving::{ModelServing, Role};
use k8s_openapi::api::{apps::v1::ControllerRevision, core::v1::Pod};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{
    observe::{has_other_owner, index},
    revision,
};
use crate::{
    adopt::{Adoptable, Step, controller, list},
    labels, units,
};

/// A ModelServing, and what bears its label.
#[derive(Debug)]
struct Labelled {
    /// The ModelServing.
    serving: ModelServing,
    /// Its pods.
    pods: Vec<Pod>,
    /// What it was made from.
    revisions: Vec<ControllerRevision>,
}

/// The `ModelServing`s of a namespace, and what is left to do for each.
pub(super) async fn adoptable(client: Client, namespace: String) -> Result<Vec<Adoptable>, kube::Error> {
    let servings: Vec<ModelServing> = list(&client, &namespace, None).await?;
    let mut found = Vec::new();
    for serving in servings.into_iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
        found.push(of(&client, &namespace, serving).await?);
    }
    Ok(found)
}

/// The `ModelServing` of a name, and what is left to do for it.
pub(super) async fn named(
    client: Client,
    namespace: String,
    name: String,
) -> Result<Option<Adoptable>, kube::Error> {
    let serving = Api::<ModelServing>::namespaced(client.clone(), &namespace).get_opt(&name).await?;
    match serving.filter(|it| it.metadata.deletion_timestamp.is_none()) {
        Some(serving) => of(&client, &namespace, serving).await.map(Some),
        None => Ok(None),
    }
}

async fn of(client: &Client, namespace: &str, serving: ModelServing) -> Result<Adoptable, kube::Error> {
    let label = format!("{}={}", labels::SERVING_NAME, serving.name_any());
    let it = Labelled {
        pods: list(client, namespace, Some(&label)).await?,
        revisions: list(client, namespace, Some(&label)).await?,
        serving,
    };
    let (kind, name) = (&api::modelserving::KIND, it.serving.name_any());
    Ok(Adoptable { kind, name, steps: it.steps(), outdated: it.outdated() })
}

impl Labelled {
    /// What is left to write; nothing if all of it is ours. An error names objects that have an unknown owner or cannot
    /// be read.
    fn steps(&self) -> Result<Vec<Step>, String> {
        for stored in &self.revisions {
            revision::readable(stored).map_err(|error| {
                format!("{error}; delete that revision if no pod has its label {}", labels::SERVING_REVISION)
            })?;
        }
        let mut writes: Vec<Step> = Vec::new();
        let anothers: Vec<&Pod> = self.pods.iter().filter(|pod| has_other_owner(pod)).collect();
        for pod in &anothers {
            self.must_be_known(pod)?;
        }
        // Before the pods: an adopted pod of an unknown revision would be replaced.
        if let Some(key) = self.unstored(&anothers) {
            writes.push(self.store(key)?);
        }
        writes.extend(anothers.iter().map(|pod| Step::Own { name: pod.name_any(), patch: own(pod) }));
        Ok(writes)
    }

    /// The pods that are replaced when they are ours, because their revision is unknown or because the spec asks
    /// for something else.
    fn outdated(&self) -> Vec<String> {
        let unstored = self.unstored(&self.pods.iter().collect::<Vec<_>>()).map(ToOwned::to_owned);
        let is_wanted = |pod: &Pod| {
            let key = pod.labels().get(labels::SERVING_REVISION);
            let stored = self.revisions.iter().find(|it| it.labels().get(labels::SERVING_REVISION) == key);
            let role = pod.labels().get(labels::ROLE).map(String::as_str).unwrap_or_default();
            let same = stored.is_some_and(|stored| revision::is_same_role(stored, &self.serving, role));
            same || unstored.is_some() && key == unstored.as_ref()
        };
        self.pods.iter().filter(|pod| !is_wanted(pod)).map(ResourceExt::name_any).collect()
    }

    fn must_be_known(&self, pod: &Pod) -> Result<(), String> {
        let owner = controller(pod);
        if owner.is_some_and(|owner| Some(&owner.uid) == self.serving.metadata.uid.as_ref()) {
            return Ok(());
        }
        let (name, serving) = (pod.name_any(), self.serving.name_any());
        let whose = owner.map_or_else(|| "no object".to_owned(), |it| format!("{} {}", it.kind, it.name));
        Err(format!("{name} has the label of {serving}, but belongs to {whose}; remove the label or the pod"))
    }

    /// The name of the wanted revision, if pods bear it and it is not stored: the other operator forgets to where roles
    /// are updated by themselves. It says what it computed from this spec, and the pods must run what the spec says.
    fn unstored(&self, pods: &[&Pod]) -> Option<&str> {
        let status = self.serving.status.as_ref()?;
        let is_current = Some(status.observed_generation) == self.serving.metadata.generation;
        let key = status.update_revision.as_deref().filter(|_| is_current)?;
        let bears = |labels: &std::collections::BTreeMap<String, String>| {
            labels.get(labels::SERVING_REVISION).map(String::as_str) == Some(key)
        };
        let is_stored = self.revisions.iter().any(|stored| bears(stored.labels()));
        let mut bearing = pods.iter().filter(|pod| bears(pod.labels())).peekable();
        let some = bearing.peek().is_some();
        (some && !is_stored && bearing.all(|pod| self.runs_the_spec(pod))).then_some(key)
    }

    fn runs_the_spec(&self, pod: &Pod) -> bool {
        let role = pod.labels().get(labels::ROLE);
        let mut roles = self.serving.spec.template.roles.iter();
        let Some(role) = roles.find(|it| Some(&it.name) == role) else { return false };
        let spec = pod.spec.as_ref().map(|spec| json!(spec)).unwrap_or_default();
        images(&spec) == images(&template(role, index(pod))["spec"])
    }

    fn store(&self, key: &str) -> Result<Step, String> {
        let new = revision::wanted(&self.serving).map_err(|error| error.to_string())?;
        let numbers = self.revisions.iter().map(|stored| stored.revision);
        let newest = numbers.max().unwrap_or_default();
        let body = new.body(&self.serving, key, newest + 1);
        Ok(Step::Store { name: body["metadata"]["name"].as_str().unwrap_or_default().to_owned(), body })
    }
}

fn template(role: &Role, index: u32) -> &Value {
    let worker = role.worker_template.as_ref().filter(|_| index > 0);
    worker.unwrap_or(&role.entry_template).json()
}

/// What each container runs, by its name.
fn images(spec: &Value) -> Vec<(&Value, &Value)> {
    let lists = ["initContainers", "containers"].map(|list| spec[list].as_array());
    lists.into_iter().flatten().flatten().map(|container| (&container["name"], &container["image"])).collect()
}

/// What restarted under the other operator is no failure under us.
fn own(pod: &Pod) -> Value {
    json!({"metadata": {
        "uid": pod.uid(),
        "annotations": {labels::RESTARTS_AT_START: units::restarts(pod).to_string(), labels::INCARNATION: "0"},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(image: &str) -> Value {
        let template = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        json!({"name": "decode", "replicas": 2, "workerReplicas": 0, "entryTemplate": template})
    }

    fn pod(name: &str, image: &str, owner: &str) -> Pod {
        let pod = json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {
                labels::SERVING_NAME: "pd", labels::ROLE: "decode", labels::SERVING_REVISION: "theirs",
            }, "ownerReferences": [
                {"apiVersion": "v1", "kind": "ModelServing", "name": "pd", "uid": owner, "controller": true}
            ]},
            "spec": {"containers": [{"name": "c", "image": image}]},
            "status": {"containerStatuses": [
                {"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 2},
            ]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn left(stored: Option<&str>, wanted: &str) -> Labelled {
        let serving = json!({
            "metadata": {"name": "pd", "namespace": "ns", "uid": "u", "generation": 3},
            "spec": {"template": {"roles": [role(wanted)]}},
            "status": {"observedGeneration": 3, "updateRevision": "theirs"},
        });
        let revision = |image: &str| {
            json!({
                "metadata": {"name": "pd-theirs", "labels": {labels::SERVING_REVISION: "theirs"}},
                "data": {"data": [role(image)]}, "revision": 4,
            })
        };
        Labelled {
            serving: serde_json::from_value(serving).unwrap(),
            pods: vec![pod("pd-0-decode-0-0", "one", "u"), pod("pd-0-decode-1-0", "one", "u")],
            revisions: stored.map(|it| serde_json::from_value(revision(it)).unwrap()).into_iter().collect(),
        }
    }

    #[test]
    fn pods_are_marked_once_and_keep_what_they_have() {
        let mut left = left(Some("one"), "one");
        let writes = left.steps().unwrap();
        let [Step::Own { patch, .. }, Step::Own { name, .. }] = &writes[..] else { panic!("{writes:?}") };
        assert_eq!(name, "pd-0-decode-1-0");
        assert_eq!(patch["metadata"]["uid"], "uid-pd-0-decode-0-0");
        assert_eq!(patch["metadata"]["annotations"][labels::RESTARTS_AT_START], "2");
        assert!(patch["spec"].is_null() && patch["metadata"]["labels"].is_null(), "{patch}");
        assert_eq!(left.outdated(), Vec::<String>::new());
        for pod in &mut left.pods {
            pod.annotations_mut().insert(labels::INCARNATION.to_owned(), "0".to_owned());
        }
        assert_eq!(left.steps(), Ok(Vec::new()));
    }

    #[test]
    fn a_missing_revision_is_stored_first_if_the_pods_run_the_spec() {
        let missing = left(None, "one");
        let writes = missing.steps().unwrap();
        let Step::Store { name, body } = &writes[0] else { panic!("{writes:?}") };
        assert_eq!(
            (name.as_str(), &body["metadata"]["labels"][labels::SERVING_REVISION]),
            ("pd-theirs", &json!("theirs"))
        );
        assert_eq!((writes.len(), missing.outdated()), (3, Vec::new()));
        // The spec went on after the other operator was stopped, and it says that it has seen it.
        let changed = left(None, "two");
        assert!(matches!(&changed.steps().unwrap()[..], [Step::Own { .. }, Step::Own { .. }]));
        assert_eq!(changed.outdated().len(), 2);
    }

    #[test]
    fn an_update_that_begins_is_announced_and_foreign_objects_are_named() {
        assert_eq!(left(Some("one"), "two").outdated(), ["pd-0-decode-0-0", "pd-0-decode-1-0"]);
        let mut left = left(Some("one"), "one");
        left.pods.push(pod("pd-0-decode-2-0", "one", "other"));
        let why = left.steps().unwrap_err();
        assert!(why.contains("pd-0-decode-2-0") && why.contains("ModelServing pd"), "{why}");
        left.pods.pop();
        left.revisions[0].data = None;
        assert!(left.steps().unwrap_err().contains("pd-theirs"));
    }
}
