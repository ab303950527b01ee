//! The claims of a pod, made from their templates as a StatefulSet makes them.

use api::leaderworkerset::{ClaimRetention, LeaderWorkerSet};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Place, lay, push};
use crate::{labels, leaderworkerset::revision::GroupTemplate, owner, runtime::Key};

/// A claim of a pod.
pub(in crate::leaderworkerset) struct Claim {
    /// What the pod's containers call it.
    volume: String,
    pub(in crate::leaderworkerset) key: Key,
    pub(in crate::leaderworkerset) body: Value,
}

/// The claims of a pod. Everything that their templates say is kept.
pub(in crate::leaderworkerset) fn claims(
    set: &LeaderWorkerSet,
    template: &GroupTemplate,
    place: Place,
) -> Vec<Claim> {
    let claim = |template: &Value| {
        let volume = template["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = Key::of(set).beside(format!("{volume}-{}", place.name(set)));
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": template["metadata"],
            "spec": template["spec"],
        });
        let metadata = &mut body["metadata"];
        metadata["name"] = key.name.clone().into();
        metadata["namespace"] = key.namespace.clone().into();
        lay(
            &mut metadata["labels"],
            json!({
                labels::SET_NAME: set.name_any(),
                labels::GROUP_INDEX: place.group.to_string(),
                labels::WORKER_INDEX: place.index.to_string(),
                labels::MANAGED_BY: labels::SEGUE,
            }),
        );
        if goes_with(set) {
            metadata["ownerReferences"] = json!([owner(set)]);
        }
        Claim { volume, key, body }
    };
    template.pods.volume_claim_templates.iter().map(|template| claim(template.json())).collect()
}

/// Whether claims go when their set does.
pub(in crate::leaderworkerset) fn goes_with(set: &LeaderWorkerSet) -> bool {
    let policy = set.spec.leader_worker_template.persistent_volume_claim_retention_policy.as_ref();
    policy.and_then(|policy| policy.when_deleted) == Some(ClaimRetention::Delete)
}

/// Gives a pod its claims as volumes; a volume of the same name in its template gives way.
pub(super) fn mount(spec: &mut Value, claims: &[Claim]) {
    for claim in claims {
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            volumes.retain(|volume| volume["name"] != claim.volume.as_str());
        }
        let source = json!({"claimName": claim.key.name});
        push(&mut spec["volumes"], json!({"name": claim.volume, "persistentVolumeClaim": source}));
    }
}
