//! What there is to say of Ray clusters beside how they are reconciled.

use super::{Clusters, plan};
use crate::{
    kind::{OtherOperator, Progress, Renewed, Right, Served},
    labels,
    pipeline::{Controller, Pipeline},
};

/// The kind.
pub static SERVED: Served = Served {
    kind: &api::raycluster::KIND,
    label: labels::RAY_CLUSTER,
    needs: &[],
    rights: &[RIGHTS],
    other: Some(OtherOperator {
        lease: "ray-operator-leader",
        renewed: Renewed::Reconciles,
        webhooks: &["mraycluster.kb.io", "vraycluster.kb.io"],
        webhook_service: "kuberay-operator-webhook-service",
    }),
    progress: Progress::WAITS,
    revisions: None,
    requests: Clusters::REQUESTS,
    adoptable: None,
    adoptable_named: None,
    plan: plan::plan,
    // `api::validate` warns of each.
    fits: None,
    not_acted_on: |_| Vec::new(),
    reconciler: &Pipeline::<Clusters>::new(),
};

const RIGHTS: &[Right] = &[
    Right::new("", "nodes", "list, watch", "know which pods are lost with their node").cluster_wide(),
    Right::new(
        "",
        "pods",
        "create, delete, get, list, patch, watch",
        "make and replace the head and the workers; patch marks those that are unhealthy",
    ),
    Right::new(
        "",
        "serviceaccounts",
        "create, get, list, patch, watch",
        "what the autoscaler of a cluster is known as",
    ),
    Right::new(
        "rbac.authorization.k8s.io",
        "roles",
        "create, get, list, patch, watch",
        "what the autoscaler of a cluster may do",
    ),
    Right::new(
        "rbac.authorization.k8s.io",
        "rolebindings",
        "create, get, list, patch, watch",
        "let the autoscaler of a cluster do it",
    ),
    Right::new(
        "",
        "pods/resize",
        "patch",
        "granted to the autoscaler, and only rights that are held can be granted",
    ),
    Right::new("", "services", "create, delete, get, list, patch, watch", "the name of the head"),
];
