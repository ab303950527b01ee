//! The rehearsal of a RayService: percents that Ray Serve grants.

use api::rayservice::RayService;
use planner::granted::{self, Moment, StepSchedule};
use serde_json::Value;

use super::{revision::Service, wanted::wanted};
use crate::rehearsal::{Assumptions, NoPlan, Rehearsal, Row, Side, typed};

/// What an upgrade would do.
pub(super) fn plan(
    manifest: &Value,
    old: Option<&Value>,
    assumptions: &Assumptions,
) -> Result<Rehearsal, NoPlan> {
    let service: RayService = typed(manifest)?;
    let old: Option<RayService> = old.map(typed).transpose()?;
    let wanted = wanted(&service).map_err(NoPlan::NotServed)?;
    let was_suspended = old.as_ref().is_some_and(|old| old.spec.suspend == Some(true));
    match (was_suspended, wanted.is_suspended) {
        (true, true) => return Err(NoPlan::nothing("spec.suspend is true: the service has no cluster")),
        (true, false) => {
            return Err(NoPlan::nothing("the service was suspended: there is no cluster to upgrade"));
        }
        (false, true) => {
            return Err(NoPlan::AtOnce("spec.suspend is true: all clusters are deleted at once".to_owned()));
        }
        (false, false) => {}
    }
    let goal = |service: &RayService| Service::of(&service.spec).ok().map(|it| it.goal);
    if old.is_some_and(|old| goal(&old) == goal(&service)) {
        return Err(NoPlan::nothing("rayClusterConfig is the same: there is no new cluster"));
    }
    let Some(pace) = wanted.strategy.pace() else {
        return Err(NoPlan::nothing("upgradeStrategy.type is None: nothing is upgraded"));
    };
    let options = service.spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.incremental());
    let how = options.map_or_else(
        || "blue/green".to_owned(),
        |it| {
            let (surge, step, interval) = (it.max_surge_percent, it.step_size_percent, it.interval_seconds);
            format!("surge {surge}%, step {step}%, every {interval} s")
        },
    );
    Ok(rehearse(&how, pace, assumptions))
}

fn rehearse(how: &str, pace: StepSchedule, assumptions: &Assumptions) -> Rehearsal {
    let moments = granted::rehearse(pace, assumptions.start, assumptions.called_off);
    Rehearsal {
        how: format!("{how}; new capacity is ready after {} s", assumptions.start.as_secs()),
        rows: moments.into_iter().map(row).collect(),
        ends: true,
        failure: None,
        replica: None,
        advice: Vec::new(),
    }
}

fn row(Moment { at, old, new, reason }: Moment) -> Row {
    let side =
        |side: granted::Side| Side { capacity: side.capacity, weight: Some(side.weight), replicas: None };
    Row { at: at.as_secs(), old: side(old), new: side(new), reason: reason.what }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::rayservice::ClusterServiceStatus;
    use planner::Time;
    use serde_json::json;

    use super::{
        super::{
            Services,
            decide::{Action, decide},
            observe::{Cluster, Observed},
        },
        *,
    };
    use crate::rehearsal::tests::{Acts, Answer};

    /// The cluster of a service that is as its spec wants it.
    fn active(service: &Observed) -> Option<Cluster> {
        let status = ClusterServiceStatus {
            goal: Some(service.goal.clone()),
            traffic_routed_percent: Some(100),
            target_capacity: Some(100),
            ..ClusterServiceStatus::default()
        };
        (!service.wanted.is_suspended).then(|| Cluster {
            name: "x-1".to_owned(),
            status,
            object: None,
            sent_capacity: 100,
            applications: String::new(),
            config: None,
            template: None,
            ports: service.ports,
            dashboard: None,
            pods: Vec::new(),
            endpoints: 0,
            readiness_path: None,
        })
    }

    /// Admission refuses such steps; an object that was stored before it did is not served.
    #[test]
    fn steps_that_never_end_have_no_plan_as_the_controller_has_none() {
        let pods = json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
        let options = json!({"stepSizePercent": 0, "intervalSeconds": 1, "gatewayClassName": "segue"});
        let service = json!({
            "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "x"},
            "spec": {
                "rayClusterConfig": {"headGroupSpec": pods, "enableInTreeAutoscaling": true},
                "upgradeStrategy": {"type": "IncrementalUpgrade", "incrementalUpgradeOptions": options},
            },
        });
        let start = Duration::from_secs(30);
        let assumptions = Assumptions { start, stop: start, called_off: None };
        let planned = plan(&service, None, &assumptions).unwrap_err();
        assert_eq!(planned, NoPlan::NotServed("an upgrade with these steps could never end"));
    }

    impl Acts for Services {
        /// What the controller decides of a service whose cluster is as it was wanted before.
        fn comes_to(before: &Observed, mut after: Observed, _: bool, assumptions: &Assumptions) -> Answer {
            after.active = active(before);
            let is_first = after.active.is_none();
            match decide(&after, Time::ZERO).action {
                Action::Suspend => Answer::AtOnce,
                Action::Begin { .. } if !is_first => {
                    let pace = after.wanted.strategy.pace().unwrap();
                    Answer::Rolls(rehearse("", pace, assumptions).rows)
                }
                _ => Answer::RollsNothing,
            }
        }
    }
}
