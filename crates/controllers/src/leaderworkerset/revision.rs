//! Revisions: the templates that groups are made from.

use api::{
    Kind,
    leaderworkerset::{LeaderWorkerSet, LeaderWorkerTemplate, SubdomainPolicy},
};
use serde_json::{Value, json};

use super::{canonical, wanted::subdomains};
use crate::{
    labels,
    revisions::{NewRevision, Revisions, Stored, Template},
    runtime::{Error, Key},
};

/// How many templates that nothing is made from are kept, to go back to.
pub(super) const HISTORY: usize = 10;

/// What groups are made from.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub(super) pods: LeaderWorkerTemplate,
    pub(super) subdomains: SubdomainPolicy,
}

impl Template for Groups {
    const LABEL: &'static str = labels::REVISION;

    fn kind() -> &'static Kind {
        &api::leaderworkerset::KIND
    }

    fn read(data: &Value) -> Result<Self, String> {
        let spec = &data["spec"];
        let pods = serde_json::from_value(spec["leaderWorkerTemplate"].clone());
        let policy = serde_json::from_value(spec["networkConfig"]["subdomainPolicy"].clone());
        let subdomains = policy.unwrap_or(SubdomainPolicy::Shared);
        Ok(Self { pods: pods.map_err(|error| error.to_string())?, subdomains })
    }

    fn meaning(&self) -> Result<String, String> {
        data(&self.pods, self.subdomains).map(|data| data.to_string()).map_err(|error| error.to_string())
    }
}

/// The templates of a set.
pub(super) type Known = Revisions<Groups>;

/// One of them.
pub(super) type GroupTemplate = Stored<Groups>;

/// The revision that a set asks for.
pub(super) fn wanted(set: &LeaderWorkerSet) -> Result<NewRevision, Error> {
    let malformed = |why: String| Error::Malformed { what: format!("LeaderWorkerSet {}", Key::of(set)), why };
    let groups = Groups { pods: set.spec.leader_worker_template.clone(), subdomains: subdomains(set) };
    let data = data(&groups.pods, groups.subdomains).map_err(|error| malformed(error.to_string()))?;
    NewRevision::of(&groups, data, key, labels::SET_NAME).map_err(malformed)
}

/// Whether two specs ask for the same revision.
pub(crate) fn is_same(one: &LeaderWorkerSet, other: &LeaderWorkerSet) -> Result<bool, Error> {
    Ok(wanted(one)?.meaning == wanted(other)?.meaning)
}

/// What makes a revision: the template and the network, as the public operator stores them.
fn data(template: &LeaderWorkerTemplate, subdomains: SubdomainPolicy) -> Result<Value, serde_json::Error> {
    let mut template = canonical::canonical(template)?;
    template["$patch"] = "replace".into();
    let network = json!({"subdomainPolicy": subdomains, "$patch": "replace"});
    Ok(json!({"spec": {"leaderWorkerTemplate": template, "networkConfig": network}}))
}

/// The key of a revision: FNV-1 of 32 bits in the alphabet of Kubernetes, as the public operator makes it.
fn key(data: &Value, attempt: u32) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut text = canonical::text(data);
    if attempt > 0 {
        text.push_str(&attempt.to_string());
    }
    let hash =
        text.bytes().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % 27])).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use planner::{Time, units::Revision};

    use super::*;
    use crate::{pipeline::Inputs, runtime::Cache};

    /// The worked example of the contract; a change of the hash rolls every set that runs.
    #[test]
    fn keys_are_those_of_the_public_operator() {
        let container =
            |name: &str| json!({"image": "docker.io/nginxinc/nginx-unprivileged:1.27", "name": name});
        let mut worker = container("worker");
        worker["ports"] = json!([{"containerPort": 8080, "protocol": "TCP"}]);
        // As it is written by hand; nothing of what Go adds is in it.
        let template = json!({
            "leaderTemplate": {"spec": {"containers": [container("leader")]}},
            "size": 2,
            "workerTemplate": {"metadata": {"creationTimestamp": null}, "spec": {"containers": [worker]}},
        });
        let data = data(&serde_json::from_value(template).unwrap(), SubdomainPolicy::Shared).unwrap();
        assert_eq!(
            canonical::text(&data),
            concat!(
                r#"{"spec":{"leaderWorkerTemplate":{"$patch":"replace","leaderTemplate":{"metadata":{},"spec":"#,
                r#"{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","name":"leader","#,
                r#""resources":{}}]}},"restartPolicy":"RecreateGroupOnPodRestart","size":2,"workerTemplate":"#,
                r#"{"metadata":{},"spec":{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","#,
                r#""name":"worker","ports":[{"containerPort":8080,"protocol":"TCP"}],"resources":{}}]}}},"#,
                r#""networkConfig":{"$patch":"replace","subdomainPolicy":"Shared"}}}"#,
            )
        );
        assert_eq!(key(&data, 0), "7bdcf6cbd6");
        assert_ne!(key(&data, 1), key(&data, 0));
    }

    fn stored(name: &str, template: &Value, network: &Value) -> ControllerRevision {
        let data = json!({"spec": {"leaderWorkerTemplate": template, "networkConfig": network}});
        let object = json!({
            "metadata": {
                "name": name, "namespace": "ns", "resourceVersion": "1", "labels": {labels::REVISION: name},
                "ownerReferences": [{"apiVersion": "v1", "kind": "k", "name": "x", "uid": "u", "controller": true}],
            },
            "data": data,
            "revision": 1,
        });
        serde_json::from_value(object).unwrap()
    }

    /// The key of the target where what the set asks for is the newest of these.
    fn target(set: &LeaderWorkerSet, stored: Vec<ControllerRevision>) -> Option<(String, Known)> {
        let observe = |inputs: &Inputs<'_>| Known::observe(inputs, set, wanted).unwrap().ok();
        let known = Inputs::at(&Cache::with(stored), Time::ZERO, observe)?;
        Some((known.key(known.target()), known))
    }

    fn set(template: &Value) -> LeaderWorkerSet {
        serde_json::from_value(json!({
            "metadata": {"name": "x", "namespace": "ns", "uid": "u"},
            "spec": {"leaderWorkerTemplate": template},
        }))
        .unwrap()
    }

    /// Rows of 2.2 and decision 2: a revision that is stored in other words is the same one, and keeps its key.
    #[test]
    fn another_text_of_the_same_template_is_the_same_revision() {
        let container = json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": "0.5"}}});
        let set = set(&json!({
            "size": 2, "restartPolicy": "Default",
            "workerTemplate": {"spec": {"containers": [container], "hostNetwork": false}},
        }));
        // As client-go before 0.34 wrote it.
        let container = json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": "500m"}}});
        let spec = json!({"containers": [container]});
        let mut theirs = json!({
            "$patch": "replace", "size": 2, "restartPolicy": "None",
            "workerTemplate": {"metadata": {"creationTimestamp": null}, "spec": spec},
        });
        let shared = json!({"$patch": "replace", "subdomainPolicy": "Shared"});
        assert_eq!(target(&set, vec![stored("theirs", &theirs, &shared)]).unwrap().0, "theirs");
        let unique = stored("r", &theirs, &json!({"subdomainPolicy": "UniquePerReplica"}));
        assert!(target(&set, vec![unique]).is_none());
        theirs["size"] = json!(3);
        assert!(target(&set, vec![stored("r", &theirs, &shared)]).is_none());
    }

    /// Two leaders that both stored one at once gave both the same number; a template must never be taken for the
    /// other.
    #[test]
    fn two_revisions_of_one_number_stay_two() {
        let template = |image: &str| json!({"size": 1, "workerTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}}});
        let shared = json!({"subdomainPolicy": "Shared"});
        let known = |first: &str, last: &str| {
            let both = vec![stored("a", &template(first), &shared), stored("b", &template(last), &shared)];
            target(&set(&template("wanted")), both)
        };
        let (key, revisions) = known("other", "wanted").unwrap();
        assert_eq!((key.as_str(), revisions.find("a"), revisions.find("b")), ("b", Revision(1), Revision(2)));
        assert!(known("wanted", "other").is_none(), "it must become the newest first");
    }
}
