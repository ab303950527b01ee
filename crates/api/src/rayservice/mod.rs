//! `ray.io/v1` RayService: Ray Serve applications on a RayCluster, and how one cluster takes over from another.
//!
//! The API is a superset of the public one (KubeRay v1.7). The incremental upgrade goes by both of its names, the one
//! that it was designed with and the one that it shipped with; `gateway` in its options and `status.message` are ours.

mod applications;
mod review;
mod spec;
mod status;
mod timeout;

use std::sync::LazyLock;

pub use self::{applications::applications, spec::*, status::*, timeout::initializing_timeout};
use crate::{
    kind::{Column, Kind, object, status},
    tidy,
};

/// Lets us turn the autoscaler on where an incremental upgrade needs it and the spec does not ask for it.
pub const ENABLE_AUTOSCALING: &str = "segue.dev/enable-autoscaling";
/// After how many seconds without progress an upgrade goes back by itself.
pub const ROLLBACK_AFTER: &str = "segue.dev/rollback-after-seconds";
/// The path that a cluster must answer with success before more capacity or traffic goes to it.
pub const READINESS_PATH: &str = "segue.dev/readiness-path";
/// How long a new service may take to serve; see [`initializing_timeout`].
pub const INITIALIZING_TIMEOUT: &str = "ray.io/initializing-timeout";

object! {
    /// Ray Serve applications on a RayCluster.
    RayService, RayServiceSpec, RayServiceStatus,
    "ray.io", "v1", "rayservices"
}

status!(RayService, RayServiceStatus);

/// The kind.
pub static KIND: Kind = Kind {
    group: "ray.io",
    version: "v1",
    name: "RayService",
    plural: "rayservices",
    singular: "rayservice",
    short_names: &[],
    categories: &["all", "segue"],
    scale: None,
    // The first two headings are KubeRay's: scripts read them.
    columns: &[
        Column { name: "service status", ty: "string", path: ".status.serviceStatus", wide: false },
        Column { name: "num serve endpoints", ty: "integer", path: ".status.numServeEndpoints", wide: false },
        Column {
            name: "old capacity",
            ty: "integer",
            path: ".status.activeServiceStatus.targetCapacity",
            wide: false,
        },
        Column {
            name: "new capacity",
            ty: "integer",
            path: ".status.pendingServiceStatus.targetCapacity",
            wide: false,
        },
        Column {
            name: "old traffic",
            ty: "integer",
            path: ".status.activeServiceStatus.trafficRoutedPercent",
            wide: false,
        },
        Column {
            name: "new traffic",
            ty: "integer",
            path: ".status.pendingServiceStatus.trafficRoutedPercent",
            wide: false,
        },
        Column { name: "doing", ty: "string", path: ".status.message", wide: false },
    ],
    // Its clusters are called NAME-SUFFIX, with a suffix of five, and may have 53 characters.
    longest_name: 47,
    description: "Ray Serve applications on a RayCluster, and how one cluster takes over from another.",
    rules: &[],
    spec: tidy::schema_of::<RayServiceSpec>,
    status: tidy::status_of::<RayServiceStatus>,
    review: review::review,
    schema: LazyLock::new(|| KIND.read_schema()),
};
