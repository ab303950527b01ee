//! What the operator does for Ray, as far as it needs a right for it.

use serde_json::{Value, json};
use testbed::eventually;

use crate::{
    rights::{LONG, a_request_is_answered, exists, is_asked, names_the_taken, refuse_for_a_while},
    site::{Operator, Site},
};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn cluster(workers: u32, autoscaled: bool) -> Value {
    let pods =
        |name: &str| json!({"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.52.0"}]}});
    json!({
        "rayVersion": "2.52.0",
        "enableInTreeAutoscaling": autoscaled,
        "headGroupSpec": {"rayStartParams": {}, "template": pods("ray-head")},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 5,
            "rayStartParams": {}, "template": pods("ray-worker"),
        }],
    })
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// Clusters with an autoscaler, and a service with a cluster of its own.
pub async fn clusters_and_services_live(site: &Site, operator: &Operator) {
    autoscalers_have_rights(site, operator).await;
    // What is refused for a while is read again before it is tried again.
    site.apply(&object("RayCluster", "plain", &cluster(2, false)));
    is_ready(site, "plain", operator).await;
    let fewer = object("RayCluster", "plain", &cluster(1, false));
    refuse_for_a_while(site, "rayclusters", async || site.apply(&fewer)).await;
    a_request_is_answered(site, "raycluster/ray").await;
    let mut service = object("RayService", "svc", &json!({"rayClusterConfig": cluster(1, false)}));
    service["spec"]["serveConfigV2"] = "applications: []".into();
    site.apply(&service);
    is_asked(site, "rayclusters", "create").await;
    a_request_is_answered(site, "rayservice/svc").await;
    service["spec"]["suspend"] = true.into();
    refuse_for_a_while(site, "rayservices", async || site.apply(&service)).await;
    is_asked(site, "rayclusters", "delete").await;
}

/// The rights of an autoscaler are made, set back, and never taken from another owner.
async fn autoscalers_have_rights(site: &Site, operator: &Operator) {
    let theirs = |version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "taken", "namespace": "default"}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    site.apply(&theirs("v1", "ServiceAccount", json!({})));
    site.apply(&theirs(RBAC, "Role", json!({"rules": []})));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "taken"});
    site.apply(&theirs(RBAC, "RoleBinding", json!({"roleRef": role})));
    site.apply(&object("RayCluster", "taken", &cluster(0, true)));
    names_the_taken(site, "raycluster/taken", "Role default/taken", operator).await;
    for kind in ["serviceaccounts", "roles", "rolebindings"] {
        is_asked(site, kind, "get").await;
    }
    site.apply(&object("RayCluster", "ray", &cluster(2, true)));
    for object in ["serviceaccount/ray", "role/ray", "rolebinding/ray"] {
        exists(site, object).await;
    }
    is_ready(site, "ray", operator).await;
    site.kubectl(&["-n", "default", "label", "serviceaccount", "ray", "app.kubernetes.io/managed-by-"]);
    for (kind, field) in [("role", "/rules"), ("rolebinding", "/subjects")] {
        let edit = json!([{"op": "remove", "path": field}]).to_string();
        site.kubectl(&["-n", "default", "patch", kind, "ray", "--type=json", "-p", &edit]);
    }
    for kind in ["serviceaccounts", "roles", "rolebindings"] {
        is_asked(site, kind, "patch").await;
    }
}

async fn is_ready(site: &Site, name: &str, operator: &Operator) {
    eventually(&format!("{name} is ready"), LONG, async || {
        let cluster = site.get(&["-n", "default", &format!("raycluster/{name}")]);
        (cluster["status"]["state"] == "ready").then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {}", operator.said()));
}
