//! What a change of a cluster does to its pods.

use api::raycluster::RayCluster;
use planner::{
    Time, Uid, counted,
    ray::{self, Op, Phase, Pod, RayContainer, Role, Spec, Template, Why},
};
use serde_json::Value;

use super::wanted;
use crate::rehearsal::{Assumptions, NoPlan, Rehearsal, typed};

/// Nothing is rolled out, so there are no steps to show: what happens is said in a sentence.
pub(super) fn plan(manifest: &Value, old: Option<&Value>, _: &Assumptions) -> Result<Rehearsal, NoPlan> {
    let new: RayCluster = typed(manifest)?;
    let old: Option<RayCluster> = old.map(typed).transpose()?;
    if let Some(why) = wanted::left_to_another(&new).or_else(|| wanted::not_served(&new)) {
        return Err(NoPlan::NotServed(why));
    }
    let new = wanted::spec(&new);
    // Without an old manifest the change is one of the templates.
    let another = || Spec { template: Template(!new.template.0), suspended: false, ..new.clone() };
    let old = old.as_ref().map_or_else(another, wanted::spec);
    Err(what_happens(&old, &new))
}

/// What becomes of the pods of a cluster that is as its spec wants it, when the spec changes.
fn what_happens(old: &Spec, new: &Spec) -> NoPlan {
    let pods = counted(pods(old).len(), "pod");
    if old.suspended {
        return NoPlan::nothing(if new.suspended {
            "spec.suspend is true: the cluster has no pods, and none are created"
        } else {
            "the cluster was suspended: no running pod is replaced, and all pods are created from the templates"
        });
    }
    let goes = |why: Why| deleted(old, new).contains(&why);
    if goes(Why::Suspended) && new.suspended {
        return NoPlan::AtOnce(format!(
            "spec.suspend is true: all pods of the cluster ({pods}) are deleted at once"
        ));
    }
    if goes(Why::TemplateChanged) {
        return NoPlan::AtOnce(format!(
            "upgradeStrategy.type is Recreate: {pods} are deleted at once, then created anew: the cluster is out of service"
        ));
    }
    NoPlan::nothing(if old.template == new.template {
        "the templates of the pods are the same: no running pod is replaced"
    } else {
        "running pods keep their templates; new pods get the new ones; upgradeStrategy.type Recreate replaces all"
    })
}

/// Why pods of a cluster are deleted when its spec changes: what its controller decides first.
fn deleted(old: &Spec, new: &Spec) -> Vec<Why> {
    let observed = ray::Observed { pods: pods(old), ledger: ray::Ledger::default() };
    let ops = ray::plan(new, Some(&observed), Time::ZERO).ops;
    let whys = ops.into_iter().filter_map(|op| match op {
        Op::DeletePod { why, .. } => Some(why),
        _ => None,
    });
    whys.collect()
}

/// The pods of a cluster that is as its spec wants it.
fn pods(spec: &Spec) -> Vec<Pod> {
    if spec.suspended {
        return Vec::new();
    }
    let workers = spec.groups.iter().flat_map(|group| {
        let replicas =
            (0..group.desired()).flat_map(|replica| (0..group.hosts()).map(move |host| (replica, host)));
        replicas.map(|(replica, host)| Op::CreateWorker {
            group: group.name.clone(),
            replica,
            host,
            incarnation: 0,
        })
    });
    [Op::CreateHead].into_iter().chain(workers).filter_map(|op| pod(spec, op)).collect()
}

fn pod(spec: &Spec, op: Op) -> Option<Pod> {
    let name = op.pod_name(spec)?;
    let role = match op {
        Op::CreateWorker { group, replica, host, .. } => Role::Worker { group, replica, host },
        _ => Role::Head,
    };
    Some(Pod {
        uid: Uid(name.clone()),
        name,
        role,
        incarnation: 0,
        template: Some(spec.template),
        phase: Phase::Running,
        ready_since: Some(Time::ZERO),
        raylet_unhealthy_since: None,
        marked_unhealthy: false,
        terminating: false,
        node_lost: false,
        ray: RayContainer::Up,
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Clusters, decide::decide, observe::Observed},
        *,
    };
    use crate::rehearsal::tests::{Acts, Answer};

    impl Acts for Clusters {
        /// What the controller decides of a cluster whose pods are as they were wanted before.
        fn comes_to(before: &Observed, after: Observed, _: bool, _: &Assumptions) -> Answer {
            let before = wanted::spec(&before.cluster);
            let spec = decide(&after, Time::ZERO).spec;
            let all = pods(&before);
            let observed = ray::Observed { pods: all.clone(), ledger: ray::Ledger::default() };
            let ops = ray::plan(&spec, Some(&observed), Time::ZERO).ops;
            let gone =
                |pod: &Pod| ops.iter().any(|op| matches!(op, Op::DeletePod { uid, .. } if *uid == pod.uid));
            if !all.is_empty() && all.iter().all(gone) { Answer::AtOnce } else { Answer::RollsNothing }
        }
    }
}
