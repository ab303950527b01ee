//! `leaderworkerset.x-k8s.io/v1` LeaderWorkerSet: groups of a leader and its workers.
//!
//! The API is a superset of the public one (v0.10): `startupPolicy: LeaderHasAddress` and the status beyond the counters
//! are ours.

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
    /// A set of groups, each a leader and its workers, created, restarted and replaced as one.
    LeaderWorkerSet, LeaderWorkerSetSpec, LeaderWorkerSetStatus,
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets"
}

status!(LeaderWorkerSet, LeaderWorkerSetStatus);

/// The kind.
pub static KIND: Kind = Kind {
    group: "leaderworkerset.x-k8s.io",
    version: "v1",
    name: "LeaderWorkerSet",
    plural: "leaderworkersets",
    singular: "leaderworkerset",
    short_names: &["lws"],
    categories: &["segue"],
    scale: Some(Scale { selector: ".status.hpaPodSelector" }),
    columns: &[
        Column { name: "Ready", ty: "integer", path: ".status.readyReplicas", wide: false },
        Column { name: "Desired", ty: "integer", path: ".spec.replicas", wide: false },
        Column { name: "Up-to-date", ty: "integer", path: ".status.updatedReplicas", wide: false },
        Column {
            name: "Available",
            ty: "string",
            path: ".status.conditions[?(@.type==\"Available\")].status",
            wide: false,
        },
        Column { name: "Doing", ty: "string", path: ".status.message", wide: false },
    ],
    longest_name: 63,
    description: "Groups of pods, each a leader and its workers, created, restarted and replaced as one.",
    rules: &[
        // Pods are called NAME-GROUP-WORKER and the name is their host name: 63 characters in all. What an update adds
        // beyond the replicas is counted in the review, which can read a share.
        ObjectRule {
            rule: "!has(self.metadata.name) || size(self.metadata.name) + 1 + \
                   (self.spec.replicas > 10 ? size(string(self.spec.replicas - 1)) : 1) + \
                   (self.spec.leaderWorkerTemplate.size > 1 ? \
                    1 + size(string(self.spec.leaderWorkerTemplate.size - 1)) : 0) <= 63",
            message: "'metadata.name is \"%s\": too long for the names of its pods, NAME-GROUP-WORKER, which may have \
                      63 characters'.format([self.metadata.name])",
        },
    ],
    spec: tidy::schema_of::<LeaderWorkerSetSpec>,
    status: tidy::status_of::<LeaderWorkerSetStatus>,
    review: review::review,
    schema: LazyLock::new(|| KIND.read_schema()),
};
