//! What serving groups are to Volcano, the scheduler.

use serde_json::Value;

use crate::kind::object;

object! {
    /// Pods that are placed together or not at all. Its fields are Volcano's, kept as they are.
    PodGroup, Value, Value, "scheduling.volcano.sh", "v1beta1", "podgroups"
}
