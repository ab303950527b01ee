//! What must outlive the pods, in the status of the cluster.

use api::raycluster::{PlaceStatus, RayCluster};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use planner::{
    Uid,
    ray::{Entry, Ledger, Slot, Why},
};

use crate::{
    count, int,
    runtime::{Times, timestamp},
};

/// Every reason, to be found by its word.
const REASONS: [Why; 11] = [
    Why::PodFailed,
    Why::NodeLost,
    Why::Unhealthy,
    Why::IncompleteReplica,
    Why::WorkersToDelete,
    Why::ScaledDown,
    Why::Suspended,
    Why::TemplateChanged,
    Why::HeadLost,
    Why::GroupRemoved,
    Why::Superseded,
];

/// What earlier decisions asked to be remembered.
pub(super) fn ledger(cluster: &RayCluster, times: &Times) -> Ledger {
    let places = cluster.status.iter().flat_map(|status| &status.places);
    Ledger(places.map(|place| (slot(place), entry(place, times))).collect())
}

fn slot(place: &PlaceStatus) -> Slot {
    match &place.group {
        None => Slot::Head,
        Some(group) => Slot::Replica { group: group.clone(), index: count(place.replica) },
    }
}

fn entry(place: &PlaceStatus, times: &Times) -> Entry {
    let named = |word: &String| REASONS.into_iter().find(|why| why.code().as_str() == word);
    Entry {
        floor: count(place.floor),
        seen: place.seen.map(count),
        condemned: place.condemned.clone().map(Uid),
        why: place.reason.as_ref().and_then(named),
        evicted: place.unhealthy,
        replaced: count(place.replaced),
        at: place.replaced_at.as_ref().map(|time| times.moment(time.0)),
    }
}

/// The same in the words of the status. What has not changed is told as before.
pub(super) fn places(ledger: &Ledger) -> Vec<PlaceStatus> {
    ledger.0.iter().map(|(slot, entry)| place(slot, entry)).collect()
}

fn place(slot: &Slot, entry: &Entry) -> PlaceStatus {
    let (group, replica) = match slot {
        Slot::Head => (None, 0),
        Slot::Replica { group, index } => (Some(group.clone()), int(*index)),
    };
    PlaceStatus {
        group,
        replica,
        floor: int(entry.floor),
        seen: entry.seen.map(int),
        condemned: entry.condemned.as_ref().map(|Uid(uid)| uid.clone()),
        reason: entry.why.map(|why| why.code().to_string()),
        unhealthy: entry.evicted,
        replaced: int(entry.replaced),
        replaced_at: entry.at.map(|at| ApiTime(timestamp(at))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::raycluster::RayClusterStatus;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_remembered_is_read_as_it_was_written() {
        for why in REASONS {
            let entry = Entry {
                floor: 2,
                seen: Some(1),
                condemned: Some(Uid("u".to_owned())),
                why: Some(why),
                evicted: true,
                replaced: 3,
                at: Some(Duration::from_secs(90)),
            };
            let replica = Slot::Replica { group: "g".to_owned(), index: 7 };
            let ledger = Ledger([(Slot::Head, entry.clone()), (replica, entry)].into());
            let status = RayClusterStatus { places: places(&ledger), ..RayClusterStatus::default() };
            let containers = json!({"spec": {"containers": [{"name": "h", "image": "i"}]}});
            let cluster = json!({
                "metadata": {"name": "c"},
                "spec": {"headGroupSpec": {"template": containers}},
                "status": status,
            });
            let cluster: RayCluster = serde_json::from_value(cluster).unwrap();
            assert_eq!(super::ledger(&cluster, &Times::default()), ledger, "{why:?}");
        }
    }
}
