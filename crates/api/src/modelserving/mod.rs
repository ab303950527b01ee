//! `workload.serving.volcano.sh/v1alpha1` ModelServing: serving groups of roles, such as prefill and decode.
//!
//! The API is a superset of the public one (v1.0, and `maxSurge`, `evictionStrategy` and `revisionHistoryLimit` of what
//! came after it): `roleUpgrade` and the status beyond the counters are ours.

mod review;
mod spec;
mod status;

use std::sync::LazyLock;

pub use self::{spec::*, status::*};
use crate::{
    kind::{Column, Kind, ObjectRule, Scale, object, status},
    tidy,
};

object! {
    /// A set of serving groups, each a few roles that only serve together.
    ModelServing, ModelServingSpec, ModelServingStatus,
    "workload.serving.volcano.sh", "v1alpha1", "modelservings"
}

status!(ModelServing, ModelServingStatus);

/// The kind.
pub static KIND: Kind = Kind {
    group: "workload.serving.volcano.sh",
    version: "v1alpha1",
    name: "ModelServing",
    plural: "modelservings",
    singular: "modelserving",
    short_names: &[],
    categories: &["segue"],
    scale: Some(Scale { selector: ".status.labelSelector" }),
    columns: &[
        Column { name: "Replicas", ty: "integer", path: ".status.replicas", wide: false },
        Column { name: "Available", ty: "integer", path: ".status.availableReplicas", wide: false },
        Column { name: "Updated", ty: "integer", path: ".status.updatedReplicas", wide: false },
        Column { name: "Doing", ty: "string", path: ".status.message", wide: false },
    ],
    // What the shortest pod name, NAME-0-r-0-0, leaves of 63 characters.
    longest_name: 55,
    description: "Groups of pods in roles, such as prefill and decode, that serve a model together and are \
                  upgraded in an order of roles.",
    rules: &[
        // Pods are called NAME-GROUP-ROLE-REPLICA-WORKER and the name is their host name: 63 characters in all.
        ObjectRule {
            rule: "!has(self.metadata.name) || self.spec.template.roles.all(role, size(self.metadata.name) + 1 + \
                   size(string(self.spec.replicas)) + 1 + size(role.name) + 1 + size(string(role.replicas)) + 1 + \
                   size(string(role.workerReplicas)) <= 63)",
            message: "'metadata.name is \"%s\": too long for the names of its pods, \
                      NAME-GROUP-ROLE-REPLICA-WORKER, which may have 63 characters'.format([self.metadata.name])",
        },
    ],
    spec: tidy::schema_of::<ModelServingSpec>,
    status: tidy::status_of::<ModelServingStatus>,
    review: review::review,
    schema: LazyLock::new(|| KIND.read_schema()),
};
