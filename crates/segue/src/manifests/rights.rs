//! What the operator may do: what its kinds need, each with the reason, and nothing else.

use std::collections::BTreeSet;

use api::Kind;
use serde_json::{Value, json};

use crate::{others, webhook};

/// Where a right holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the whole cluster.
    Cluster,
    /// Where the kinds are looked after.
    Namespaces,
    /// In the namespace of the operator.
    Home,
}

/// A right to do something to objects of one resource.
#[derive(Clone, Debug)]
pub(super) struct Right {
    pub(super) place: Place,
    pub(super) group: &'static str,
    /// With its subresource.
    pub(super) resource: &'static str,
    /// Only these objects; none means any.
    pub(super) names: Vec<String>,
    pub(super) verbs: &'static str,
    /// For a person who is asked to grant it.
    #[cfg_attr(not(test), expect(dead_code, reason = "docs/operations.md has them; a test compares"))]
    pub(super) why: &'static str,
}

const LWS: &str = "leaderworkerset.x-k8s.io";
const GATEWAY: &str = "gateway.networking.k8s.io";

type Row = (Place, &'static str, &'static str, &'static str, &'static str);

/// What every kind needs.
const ANY: &[Row] = &[
    (
        Place::Namespaces,
        "events.k8s.io",
        "events",
        "create, patch",
        "say what happened; count what happens again",
    ),
    (Place::Home, "coordination.k8s.io", "leases", "create", "make the Lease by which one of several leads"),
];

const LEADER_WORKER_SET: &[Row] = &[
    (Place::Cluster, "", "nodes", "list, watch", "know which pods are lost with their node"),
    (Place::Namespaces, LWS, "leaderworkersets", "get, list, watch", "see what is wanted"),
    (Place::Namespaces, LWS, "leaderworkersets", "patch", "answer a request"),
    (Place::Namespaces, LWS, "leaderworkersets/status", "update", "say what is"),
    (
        Place::Namespaces,
        "",
        "pods",
        "create, delete, get, list, patch, watch",
        "make and retire groups; patch notes how often containers had restarted",
    ),
    (Place::Namespaces, "", "pods/status", "patch", "the readiness gate that takes a group out of service"),
    (
        Place::Namespaces,
        "apps",
        "controllerrevisions",
        "create, delete, get, list, watch",
        "keep the template of every revision that runs",
    ),
    (Place::Namespaces, "", "services", "create, delete, get, list, patch, watch", "the names of pods"),
    (
        Place::Namespaces,
        "",
        "persistentvolumeclaims",
        "create, delete, get, list, patch, watch",
        "the volumes of groups, and their end where that is asked for",
    ),
    (
        Place::Namespaces,
        "policy",
        "poddisruptionbudgets",
        "list, watch",
        "name budgets that Kubernetes cannot count for these pods",
    ),
];

const MODEL_DEPLOYMENT: &[Row] = &[
    (Place::Namespaces, "segue.dev", "modeldeployments", "get, list, watch", "see what is wanted"),
    (Place::Namespaces, "segue.dev", "modeldeployments/status", "update", "say what is"),
    (Place::Namespaces, LWS, "leaderworkersets", "create, delete, patch", "a version is a set"),
    (Place::Namespaces, "discovery.k8s.io", "endpointslices", "list, watch", "know who gets requests"),
    (Place::Namespaces, GATEWAY, "gateways", "create, get, list, patch, watch", "the door of a service"),
    (Place::Namespaces, GATEWAY, "httproutes", "create, get, list, patch, watch", "the weights of versions"),
    (Place::Namespaces, GATEWAY, "grpcroutes", "create, get, list, patch, watch", "the weights of versions"),
];

const SERVING: &str = "workload.serving.volcano.sh";

/// And what a LeaderWorkerSet needs for its pods, which [`PODS`] names.
const MODEL_SERVING: &[Row] = &[
    (Place::Namespaces, SERVING, "modelservings", "get, list, watch", "see what is wanted"),
    (Place::Namespaces, SERVING, "modelservings/status", "update", "say what is"),
    (
        Place::Namespaces,
        "scheduling.volcano.sh",
        "podgroups",
        "create, delete, get, list, patch, watch",
        "groups that are placed together, where Volcano is",
    ),
    (
        Place::Namespaces,
        "policy",
        "poddisruptionbudgets",
        "create, delete, get, list, patch, watch",
        "what stays while nodes are drained, where that is asked for",
    ),
];

/// What is needed to make and retire pods.
const PODS: [&str; 5] = ["nodes", "pods", "pods/status", "controllerrevisions", "services"];

/// The name of the Lease of the operator.
pub(crate) const LEASE: &str = "segue-operator";

/// Everything that these kinds need. `home` is the namespace of the operator.
pub(super) fn of(kinds: &[&Kind], webhooks: bool, home: &str) -> Vec<Right> {
    let has = |kind: &Kind| kinds.iter().any(|it| it.name == kind.name);
    let mut rights: Vec<Right> = ANY.iter().map(right).collect();
    if has(&api::leaderworkerset::KIND) {
        rights.extend(LEADER_WORKER_SET.iter().map(right));
    }
    if has(&api::modeldeployment::KIND) {
        rights.extend(MODEL_DEPLOYMENT.iter().map(right));
    }
    if has(&api::modelserving::KIND) {
        rights.extend(MODEL_SERVING.iter().map(right));
        rights.extend(LEADER_WORKER_SET.iter().filter(|row| PODS.contains(&row.2)).map(right));
    }
    rights.push(Right {
        names: vec![LEASE.to_owned()],
        ..right(&(
            Place::Home,
            "coordination.k8s.io",
            "leases",
            "get, update",
            "lead, and say so every 2 seconds",
        ))
    });
    rights.extend(others_are_seen(kinds));
    if webhooks {
        rights.extend(webhooks_are_kept(home));
    }
    rights
}

fn right(&(place, group, resource, verbs, why): &Row) -> Right {
    Right { place, group, resource, names: Vec::new(), verbs, why }
}

/// Never two operators on one object: the others are looked for, by name.
fn others_are_seen(kinds: &[&Kind]) -> Vec<Right> {
    let others: Vec<_> = others::of(kinds).collect();
    // No names would mean all of them.
    if others.is_empty() {
        return Vec::new();
    }
    let leases = others.iter().map(|other| other.lease.to_owned()).collect();
    let services = others.iter().map(|other| other.webhook_service.to_owned()).collect();
    let registered = "admissionregistration.k8s.io";
    let why = "name webhooks that another operator left behind";
    vec![
        Right {
            names: leases,
            ..right(&(
                Place::Cluster,
                "coordination.k8s.io",
                "leases",
                "list",
                "see whether another operator of the same kinds is alive",
            ))
        },
        right(&(Place::Cluster, registered, "mutatingwebhookconfigurations", "list", why)),
        right(&(Place::Cluster, registered, "validatingwebhookconfigurations", "list", why)),
        Right {
            names: services,
            ..right(&(Place::Cluster, "", "services", "get", "see whether their server is gone"))
        },
    ]
}

fn webhooks_are_kept(home: &str) -> Vec<Right> {
    let registered = "admissionregistration.k8s.io";
    let may_read = "answer /metrics to those who may read it";
    vec![
        right(&(Place::Cluster, "authentication.k8s.io", "tokenreviews", "create", may_read)),
        right(&(Place::Cluster, "authorization.k8s.io", "subjectaccessreviews", "create", may_read)),
        right(&(Place::Home, "", "secrets", "create", "make the Secret of the webhook's certificate")),
        Right {
            names: vec![webhook::SECRET.to_owned()],
            ..right(&(
                Place::Home,
                "",
                "secrets",
                "get, update",
                "share the certificate, and renew it in time",
            ))
        },
        Right {
            names: vec![super::cluster_wide(home)],
            ..right(&(
                Place::Cluster,
                registered,
                "validatingwebhookconfigurations",
                "get, patch",
                "tell the API which certificate to trust",
            ))
        },
    ]
}

/// The rules of a Role: what holds in these places, once for each resource.
pub(super) fn rules(rights: &[Right], places: &[Place]) -> Vec<Value> {
    let mut rules: Vec<(&Right, BTreeSet<&str>)> = Vec::new();
    for right in rights.iter().filter(|right| places.contains(&right.place)) {
        let same = |(other, _): &&mut (&Right, _)| {
            (other.group, other.resource, &other.names) == (right.group, right.resource, &right.names)
        };
        let verbs = right.verbs.split(", ");
        match rules.iter_mut().find(same) {
            Some((_, known)) => known.extend(verbs),
            None => rules.push((right, verbs.collect())),
        }
    }
    let rule = |(right, verbs): &(&Right, BTreeSet<&str>)| {
        let mut rule = json!({"apiGroups": [right.group], "resources": [right.resource], "verbs": verbs});
        if !right.names.is_empty() {
            rule["resourceNames"] = json!(right.names);
        }
        rule
    };
    rules.iter().map(rule).collect()
}
