//! The table of the built-in kinds, as discovery and the strategies of a kube-apiserver have them.
use super::{BuiltIn, Generation, NameRule, Subresource};

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Namespaces are not deleted by the dozen.
const SINGLY: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];
const EVENT: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
/// The same fields under the names that events.k8s.io gives them.
const REGARDING: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

const fn status(kind: &'static str) -> Subresource {
    Subresource { name: "status", group: "", version: "", kind, verbs: &["get", "patch", "update"] }
}

const fn sub(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, group: "", version: "", kind, verbs }
}

/// What most kinds have in common.
const PLAIN: BuiltIn = BuiltIn {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL,
    subresources: &[],
    selectable: &[],
    unconditional_update: true,
    create_on_update: false,
    generation: Generation::Unused,
    name_rule: NameRule::Subdomain,
    go: "",
    definition: "",
};

/// The kinds, in the order of discovery.
pub static KINDS: &[BuiltIn] = &[
    BuiltIn {
        group: "",
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: SINGLY,
        subresources: &[status("Namespace"), sub("finalize", "Namespace", &["update"])],
        selectable: &["status.phase"],
        name_rule: NameRule::Label,
        go: "core/v1.Namespace",
        definition: "io.k8s.api.core.v1.Namespace",
        ..PLAIN
    },
    BuiltIn {
        group: "",
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            status("Pod"),
            sub("log", "Pod", &["get"]),
            sub("binding", "Binding", CREATE),
            Subresource { name: "eviction", group: "policy", version: "v1", kind: "Eviction", verbs: CREATE },
        ],
        selectable: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        generation: Generation::Spec,
        go: "core/v1.Pod",
        definition: "io.k8s.api.core.v1.Pod",
        ..PLAIN
    },
    BuiltIn {
        group: "",
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[status("Service")],
        selectable: &["spec.clusterIP", "spec.type"],
        create_on_update: true,
        name_rule: NameRule::Label,
        go: "core/v1.Service",
        definition: "io.k8s.api.core.v1.Service",
        ..PLAIN
    },
    BuiltIn {
        group: "",
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        go: "core/v1.ConfigMap",
        definition: "io.k8s.api.core.v1.ConfigMap",
        ..PLAIN
    },
    BuiltIn {
        group: "",
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        selectable: &["type"],
        go: "core/v1.Secret",
        definition: "io.k8s.api.core.v1.Secret",
        ..PLAIN
    },
    BuiltIn {
        group: "",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        selectable: EVENT,
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        go: "core/v1.Event",
        definition: "io.k8s.api.core.v1.Event",
        ..PLAIN
    },
    BuiltIn {
        group: "",
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        subresources: &[status("Node")],
        selectable: &["spec.unschedulable"],
        go: "core/v1.Node",
        definition: "io.k8s.api.core.v1.Node",
        ..PLAIN
    },
    BuiltIn {
        group: "",
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        go: "core/v1.ServiceAccount",
        definition: "io.k8s.api.core.v1.ServiceAccount",
        ..PLAIN
    },
    BuiltIn {
        group: "",
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        create_on_update: true,
        go: "core/v1.Endpoints",
        definition: "io.k8s.api.core.v1.Endpoints",
        ..PLAIN
    },
    BuiltIn {
        group: "",
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        subresources: &[status("PersistentVolumeClaim")],
        go: "core/v1.PersistentVolumeClaim",
        definition: "io.k8s.api.core.v1.PersistentVolumeClaim",
        ..PLAIN
    },
    BuiltIn {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        go: "apps/v1.ControllerRevision",
        definition: "io.k8s.api.apps.v1.ControllerRevision",
        ..PLAIN
    },
    BuiltIn {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        generation: Generation::Content,
        go: "discovery/v1.EndpointSlice",
        definition: "io.k8s.api.discovery.v1.EndpointSlice",
        ..PLAIN
    },
    BuiltIn {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        unconditional_update: false,
        create_on_update: true,
        go: "coordination/v1.Lease",
        definition: "io.k8s.api.coordination.v1.Lease",
        ..PLAIN
    },
    BuiltIn {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        selectable: REGARDING,
        create_on_update: true,
        go: "events/v1.Event",
        definition: "io.k8s.api.events.v1.Event",
        ..PLAIN
    },
    BuiltIn {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        subresources: &[status("CustomResourceDefinition")],
        unconditional_update: false,
        generation: Generation::Spec,
        go: "apiextensions/v1.CustomResourceDefinition",
        definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        ..PLAIN
    },
    BuiltIn {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
        subresources: &[status("PodDisruptionBudget")],
        unconditional_update: false,
        generation: Generation::Spec,
        name_rule: NameRule::PathSegment,
        go: "policy/v1.PodDisruptionBudget",
        definition: "io.k8s.api.policy.v1.PodDisruptionBudget",
        ..PLAIN
    },
    BuiltIn {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        plural: "roles",
        singular: "role",
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        go: "rbac/v1.Role",
        definition: "io.k8s.api.rbac.v1.Role",
        ..PLAIN
    },
    BuiltIn {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        go: "rbac/v1.RoleBinding",
        definition: "io.k8s.api.rbac.v1.RoleBinding",
        ..PLAIN
    },
    BuiltIn {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        namespaced: false,
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        go: "rbac/v1.ClusterRole",
        definition: "io.k8s.api.rbac.v1.ClusterRole",
        ..PLAIN
    },
    BuiltIn {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        go: "rbac/v1.ClusterRoleBinding",
        definition: "io.k8s.api.rbac.v1.ClusterRoleBinding",
        ..PLAIN
    },
    BuiltIn {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        namespaced: false,
        verbs: CREATE,
        go: "authorization/v1.SelfSubjectAccessReview",
        definition: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        ..PLAIN
    },
];
