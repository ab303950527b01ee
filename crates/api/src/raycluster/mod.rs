//! `ray.io/v1` RayCluster: a head, and groups of workers.
//!
//! The API is a superset of the public one (KubeRay v1.7): `ray.io/ha-enabled` counts again as it did when the feature
//! was designed, and `status.message` is ours.

mod fault_tolerance;
mod groups;
pub(crate) mod review;
mod spec;
mod status;

use std::sync::LazyLock;

pub use self::{fault_tolerance::*, groups::*, spec::*, status::*};
use crate::{
    kind::{Column, Kind, object, status},
    tidy,
};

/// Turns GCS fault tolerance on, by its first name.
pub const HA_ENABLED: &str = "ray.io/ha-enabled";
/// Turns GCS fault tolerance on, by the name that KubeRay has given it since. Both mean the same.
pub const FT_ENABLED: &str = "ray.io/ft-enabled";
/// Where in its Redis a cluster keeps its state, for clusters that say so by annotation.
pub const EXTERNAL_STORAGE_NAMESPACE: &str = "ray.io/external-storage-namespace";

object! {
    /// A Ray cluster.
    RayCluster, RayClusterSpec, RayClusterStatus,
    "ray.io", "v1", "rayclusters"
}

status!(RayCluster, RayClusterStatus);

/// The kind.
pub static KIND: Kind = Kind {
    group: "ray.io",
    version: "v1",
    name: "RayCluster",
    plural: "rayclusters",
    singular: "raycluster",
    short_names: &[],
    categories: &["all", "segue"],
    scale: None,
    // The headings are KubeRay's: scripts read them.
    columns: &[
        Column { name: "desired workers", ty: "integer", path: ".status.desiredWorkerReplicas", wide: false },
        Column {
            name: "available workers",
            ty: "integer",
            path: ".status.availableWorkerReplicas",
            wide: false,
        },
        Column { name: "cpus", ty: "string", path: ".status.desiredCPU", wide: false },
        Column { name: "memory", ty: "string", path: ".status.desiredMemory", wide: false },
        Column { name: "gpus", ty: "string", path: ".status.desiredGPU", wide: false },
        Column { name: "tpus", ty: "string", path: ".status.desiredTPU", wide: true },
        Column { name: "status", ty: "string", path: ".status.state", wide: false },
        Column { name: "head pod IP", ty: "string", path: ".status.head.podIP", wide: true },
        Column { name: "head service IP", ty: "string", path: ".status.head.serviceIP", wide: true },
        Column { name: "doing", ty: "string", path: ".status.message", wide: false },
    ],
    // A Service NAME-serve-svc may be made for it, whose name has 63 characters at most.
    longest_name: 53,
    description: "A Ray cluster: a head, and groups of workers.",
    rules: &[],
    spec: tidy::schema_of::<RayClusterSpec>,
    status: tidy::status_of::<RayClusterStatus>,
    review: review::review,
    schema: LazyLock::new(|| KIND.read_schema()),
};
