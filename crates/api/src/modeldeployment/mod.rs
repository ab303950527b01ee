//! `segue.dev/v1alpha1` ModelDeployment: a model service whose versions follow one another without a gap.

mod analysis;
mod review;
mod spec;
mod status;
mod strategy;
mod workload;

use std::sync::LazyLock;

pub use self::{analysis::*, spec::*, status::*, strategy::*, workload::*};
use crate::{
    kind::{Column, Kind, ObjectRule, Scale, object, status},
    tidy,
};

object! {
    /// A model service: what runs, how traffic reaches it, and how a new version takes over from the old one.
    ModelDeployment, ModelDeploymentSpec, ModelDeploymentStatus,
    "segue.dev", "v1alpha1", "modeldeployments"
}

status!(ModelDeployment, ModelDeploymentStatus);

/// The kind.
pub static KIND: Kind = Kind {
    group: "segue.dev",
    version: "v1alpha1",
    name: "ModelDeployment",
    plural: "modeldeployments",
    singular: "modeldeployment",
    short_names: &["mdep"],
    categories: &["all", "segue"],
    scale: Some(Scale { selector: ".status.selector" }),
    columns: &[
        Column { name: "Service", ty: "string", path: ".status.health", wide: false },
        Column { name: "Ready", ty: "integer", path: ".status.readyReplicas", wide: false },
        Column { name: "Desired", ty: "integer", path: ".spec.replicas", wide: false },
        Column { name: "Version", ty: "string", path: ".status.currentVersion", wide: false },
        Column { name: "Target", ty: "string", path: ".status.targetVersion", wide: false },
        Column { name: "Rollout", ty: "string", path: ".status.phase", wide: false },
        Column { name: "Doing", ty: "string", path: ".status.message", wide: false },
        Column { name: "Strategy", ty: "string", path: ".spec.strategy.type", wide: true },
    ],
    // A version is a child called NAME-HASH, with a hash of eight characters, and its pods are called after it.
    longest_name: 40,
    description: "A model service: what runs, how traffic reaches it, and how a new version takes over.",
    rules: &[
        ObjectRule {
            rule: "!has(self.metadata.name) || !has(self.spec.workload.leaderWorker) || \
                   size(self.metadata.name) + 11 + size(string(self.spec.replicas)) + \
                   size(string(self.spec.workload.leaderWorker.size)) <= 63",
            message: "'metadata.name is \"%s\": too long for the names of its pods, NAME-HASH-GROUP-WORKER, which may \
                      have 63 characters'.format([self.metadata.name])",
        },
        ObjectRule {
            rule: "!has(self.metadata.name) || !has(self.spec.workload.roles) || \
                   self.spec.workload.roles.roles.all(r, size(self.metadata.name) + 13 + \
                   size(string(self.spec.replicas)) + size(r.name) + size(string(r.replicas)) + \
                   size(string(r.workerReplicas)) <= 63)",
            message: "'metadata.name is \"%s\": too long for the names of its pods, \
                      NAME-HASH-GROUP-ROLE-REPLICA-WORKER, which may have 63 characters'.format([self.metadata.name])",
        },
    ],
    spec: tidy::schema_of::<ModelDeploymentSpec>,
    status: tidy::status_of::<ModelDeploymentStatus>,
    review: review::review,
    schema: LazyLock::new(|| KIND.read_schema()),
};
