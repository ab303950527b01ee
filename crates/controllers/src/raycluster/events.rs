//! What people are told of a cluster. The reasons are contract.

use api::raycluster::RayClusterStatus;
use kube::ResourceExt;
use planner::{
    agreed,
    ray::{Op, Role},
};

use super::{decide::Decision, observe::Observed};
use crate::{conditions::raycluster as contract, runtime::Event};

/// Pods that are named in one event. Those beyond are counted.
const MOST_NAMED: usize = 8;

/// A new status: what has become true.
pub(super) fn of_status(
    _: &Observed,
    _: &Decision,
    before: &RayClusterStatus,
    after: &RayClusterStatus,
) -> Vec<Event> {
    let is = |status: &RayClusterStatus, name: &str| {
        status.conditions.iter().any(|it| it.type_ == name && it.status == "True")
    };
    let told =
        [(contract::PROVISIONED.name, "every pod is ready"), (contract::SUSPENDED.name, "every pod is gone")];
    let new = told.into_iter().filter(|(name, _)| !is(before, name) && is(after, name));
    new.map(|(name, note)| Event::normal("Reconcile", name, note)).collect()
}

/// The operations that were carried out.
pub(super) fn of_ops(observed: &Observed, decision: &Decision, done: &[&Op]) -> Vec<Event> {
    let name = |op: &Op| op.pod_name(&decision.spec).unwrap_or_default();
    let is_head = |uid: &str| {
        let mut members = observed.members.iter();
        members.any(|member| member.role == Role::Head && member.pod.uid().as_deref() == Some(uid))
    };
    let mut lists: [(&'static str, &'static str, String, Vec<String>); 2] = [
        ("Create", "CreatedHeadPod", "made".to_owned(), Vec::new()),
        ("Create", "CreatedWorkerPod", "made".to_owned(), Vec::new()),
    ];
    let mut events = Vec::new();
    let mut deleted: Vec<(&'static str, &'static str, bool, Vec<String>)> = Vec::new();
    for op in done {
        match op {
            Op::CreateHead => lists[0].3.push(name(op)),
            Op::CreateWorker { .. } => lists[1].3.push(name(op)),
            Op::DeletePod { uid, why, .. } => {
                let reason = if is_head(&uid.0) { "DeletedHeadPod" } else { "DeletedWorkerPod" };
                let because = why.code().as_str();
                match deleted.iter_mut().find(|it| it.0 == reason && it.1 == because) {
                    Some(list) => list.3.push(name(op)),
                    None => deleted.push((reason, because, why.backs_off(), vec![name(op)])),
                }
            }
            Op::MarkUnhealthy { uid } => {
                let pod = observed.pod(uid).map(|pod| pod.name_any()).unwrap_or_default();
                let note = format!("pod {pod} is marked unhealthy: the check of its raylet or of GCS fails");
                events.push(Event::warning("Update", "UnhealthyPod", note));
            }
            Op::ReleasePod { name, .. } => {
                let note = format!("pod {name} is removed without its node, which is lost");
                events.push(Event::warning("Delete", "ReleasedPod", note));
            }
        }
    }
    for (action, reason, verb, names) in lists.into_iter().filter(|(.., names)| !names.is_empty()) {
        events.push(Event::normal(action, reason, format!("{verb}: {}", named(names))));
    }
    for (reason, because, trouble, names) in deleted {
        let note = format!("deleted because of {because}: {}", named(names));
        let event = if trouble { Event::warning } else { Event::normal };
        events.push(event("Delete", reason, note));
    }
    events
}

/// `pod a`, `pods a, b and 5 more`.
fn named(mut names: Vec<String>) -> String {
    names.sort_unstable();
    let noun = agreed(names.len(), "pod", "pods");
    let more = names.len().saturating_sub(MOST_NAMED);
    names.truncate(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{noun} {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pods_are_counted_and_few_are_named() {
        assert_eq!(named(vec!["b".to_owned()]), "pod b");
        assert_eq!(named(vec!["b".to_owned(), "a".to_owned()]), "pods a, b");
        let many = (0..10).map(|number| number.to_string()).collect();
        assert_eq!(named(many), "pods 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
    }
}
