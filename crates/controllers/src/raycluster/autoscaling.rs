//! What Ray's autoscaler may do: a `ServiceAccount` for the pod of the head, and a Role with its rights.

use api::raycluster::RayCluster;
use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{observe::Observed, wanted};
use crate::{
    labels, owner,
    pipeline::Executor,
    runtime::{Apply, Error, Key},
};

/// What exists of it.
#[derive(Debug, Default)]
pub(super) struct Rights {
    pub(super) account: Option<std::sync::Arc<ServiceAccount>>,
    pub(super) role: Option<std::sync::Arc<Role>>,
    pub(super) binding: Option<std::sync::Arc<RoleBinding>>,
}

/// The `ServiceAccount` of the head: that of its template, or one of the cluster's own.
pub(super) fn account(cluster: &RayCluster) -> String {
    let named = &cluster.spec.head_group_spec.template.json()["spec"]["serviceAccountName"];
    let named = named.as_str().filter(|name| !name.is_empty());
    named.map_or_else(|| cluster.name_any(), str::to_owned)
}

/// Makes them before the head, which cannot start without its `ServiceAccount`. One that the template names is the user's, and
/// gets the rights.
pub(super) async fn keep(executor: &Executor<'_, RayCluster>, observed: &Observed) -> Result<(), Error> {
    let cluster = observed.cluster.as_ref();
    if !wanted::is_autoscaled(cluster) {
        return Ok(());
    }
    let (key, name) = (Key::of(cluster), cluster.name_any());
    let account = account(cluster);
    let Rights { account: live, role, binding } = &observed.rights;
    if account == name {
        let body = object(cluster, "v1", "ServiceAccount", json!({}));
        let wanted = Apply::<ServiceAccount>::new((key.beside(&name), body), live.as_deref());
        executor.defer(executor.apply(wanted).await.map(drop))?;
    }
    let rbac = "rbac.authorization.k8s.io/v1";
    let body = object(
        cluster,
        rbac,
        "Role",
        json!({"rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
            {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
        ]}),
    );
    let wanted = Apply::<Role>::new((key.beside(&name), body), role.as_deref());
    executor.defer(executor.apply(wanted).await.map(drop))?;
    let body = object(
        cluster,
        rbac,
        "RoleBinding",
        json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": key.namespace}],
        }),
    );
    let wanted = Apply::<RoleBinding>::new((key.beside(&name), body), binding.as_deref());
    executor.defer(executor.apply(wanted).await.map(drop))
}

fn object(cluster: &RayCluster, version: &str, kind: &str, mut body: Value) -> Value {
    body["apiVersion"] = version.into();
    body["kind"] = kind.into();
    body["metadata"] = json!({
        "name": cluster.name_any(),
        "namespace": cluster.namespace(),
        "labels": {labels::RAY_CLUSTER: cluster.name_any(), labels::MANAGED_BY: labels::SEGUE},
        "ownerReferences": [owner(cluster)],
    });
    body
}
