//! What runs, and how it is reached.

use serde_json::{Value, json};

use super::{Install, cluster_wide, labels};
use crate::operator::webhook;

/// Where the probes of a pod ask.
const HEALTH_PORT: u16 = 8081;

/// Where the API asks.
const WEBHOOK_PORT: u16 = 9443;

/// What a webhook may take; then the object is let through.
const PATIENCE_SECONDS: u32 = 5;

impl Install<'_> {
    /// Two of them: one leads, the other waits and answers webhooks too.
    pub(super) fn deployment(&self) -> Value {
        let selector = json!({"app.kubernetes.io/name": "segue"});
        let spread = json!({"weight": 100, "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": selector},
        }});
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata("segue"),
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": selector},
                "template": {
                    "metadata": {"labels": labels()},
                    "spec": {
                        "serviceAccountName": "segue",
                        "securityContext": {
                            "runAsNonRoot": true,
                            "runAsUser": 65532,
                            "runAsGroup": 65532,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "affinity": {"podAntiAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [spread],
                        }},
                        "containers": [self.container()],
                    },
                },
            },
        })
    }

    fn container(&self) -> Value {
        let mut arguments = vec!["operator".to_owned()];
        arguments.extend(self.selection.flags(self.kinds));
        arguments.push(format!("--health-port={HEALTH_PORT}"));
        let mut ports = vec![json!({"name": "health", "containerPort": HEALTH_PORT})];
        if self.webhooks {
            arguments.push(format!("--webhook-port={WEBHOOK_PORT}"));
            ports.push(json!({"name": "webhook", "containerPort": WEBHOOK_PORT}));
        }
        let probe = |path: &str| json!({"httpGet": {"path": path, "port": "health"}, "periodSeconds": 5});
        json!({
            "name": "operator",
            "image": self.image,
            "args": arguments,
            "ports": ports,
            "livenessProbe": probe("/healthz"),
            "readinessProbe": probe("/readyz"),
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        })
    }

    pub(super) fn disruption_budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": self.metadata("segue"),
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": {"app.kubernetes.io/name": "segue"}},
            },
        })
    }

    pub(super) fn service(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata(webhook::SERVICE),
            "spec": {
                "selector": {"app.kubernetes.io/name": "segue"},
                "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook"}],
            },
        })
    }

    /// It lets through what it cannot judge: schema and CEL rules of the CRDs hold without it, and an operator that is
    /// away must not keep people from changing their objects.
    pub(super) fn webhook(&self) -> Value {
        let namespaces = &self.selection.namespaces;
        let hooks = self.kinds.iter().map(|served| {
            let kind = served.kind;
            let mut hook = json!({
                "name": format!("{}.validate.segue.dev", kind.singular),
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "matchPolicy": "Equivalent",
                "timeoutSeconds": PATIENCE_SECONDS,
                "rules": [{
                    "apiGroups": [kind.group],
                    "apiVersions": [kind.version],
                    "resources": [kind.plural],
                    "operations": ["CREATE", "UPDATE"],
                    "scope": "Namespaced",
                }],
                "clientConfig": {"service": {
                    "name": webhook::SERVICE,
                    "namespace": self.namespace,
                    "path": webhook::PATH,
                    "port": 443,
                }},
            });
            if !namespaces.is_empty() {
                hook["namespaceSelector"] = json!({"matchExpressions": [{
                    "key": "kubernetes.io/metadata.name",
                    "operator": "In",
                    "values": namespaces,
                }]});
            }
            hook
        });
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": cluster_wide(self.namespace), "labels": labels()},
            "webhooks": hooks.collect::<Vec<_>>(),
        })
    }
}
