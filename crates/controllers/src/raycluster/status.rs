//! What is, of a cluster, in the words of its contract.

use api::{
    Conditions, Texts,
    raycluster::{HeadStatus, RayClusterStatus},
};
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time as ApiTime};
use kube::ResourceExt;
use planner::{Code, Time, counted, ray::Slot};
use schema::quantity::{self, Form};

use super::{
    decide::Decision,
    observe::{Member, Observed},
    record, services,
};
use crate::{
    blocking,
    conditions::{Writer, raycluster as contract, reasons, types},
    count, int,
    rehearsal::Resources,
    runtime::timestamp,
    units::condition,
    wait,
};

/// The longest message that a status takes.
const LONGEST: usize = 1_024;

/// How often in a row a place is replaced before that is worth a word.
const AGAIN: u32 = 2;

/// The status of a cluster when this was observed and that was decided.
pub(super) fn status(observed: &Observed, decision: &Decision, now: Time) -> RayClusterStatus {
    let Observed { cluster, .. } = observed;
    let Decision { spec, tally, waits, .. } = decision;
    let before = cluster.status.clone().unwrap_or_default();
    let pods = |of: fn(&planner::ray::Group) -> u32| {
        let groups = spec.groups.iter().filter(|group| !group.suspended);
        int(groups.map(|group| u64::from(of(group)) * u64::from(group.hosts())).sum::<u64>())
    };
    let pod = waits.as_ref().and_then(|_| unready(observed, now));
    let mut status = RayClusterStatus {
        observed_generation: cluster.metadata.generation.unwrap_or_default(),
        state: state(decision).map(str::to_owned),
        reason: None,
        message: waits.as_ref().map(|reason| wait::cut(&wait::sentence(reason), LONGEST)),
        waiting_for: waits.as_ref().map(|reason| wait::of(reason, pod, before.waiting_for.as_ref(), now)),
        ready_worker_replicas: int(tally.ready),
        available_worker_replicas: int(tally.running),
        desired_worker_replicas: int(tally.desired),
        min_worker_replicas: pods(|group| group.min),
        max_worker_replicas: pods(|group| group.max),
        places: record::places(&decision.ledger),
        endpoints: endpoints(observed),
        head: Some(head(observed)),
        conditions: before.conditions.clone(),
        state_transition_times: before.state_transition_times.clone(),
        last_update_time: before.last_update_time.clone(),
        ..RayClusterStatus::default()
    };
    set_resources(&mut status, observed, decision);
    if let Some(state) = status.state.clone().filter(|_| status.state != before.state) {
        status.state_transition_times.insert(state, ApiTime(timestamp(now)));
    }
    let mut conditions = std::mem::take(&mut status.conditions);
    set_conditions(&mut conditions, &before, observed, decision, now);
    status.conditions = conditions;
    if status != before {
        status.last_update_time = Some(ApiTime(timestamp(now)));
    }
    status
}

fn state(Decision { spec, plan, tally, ending, .. }: &Decision) -> Option<&'static str> {
    if ending.is_some() {
        return None;
    }
    if spec.suspended {
        return (plan.reason.code == Code::Suspended).then_some("suspended");
    }
    tally.is_ready().then_some("ready")
}

/// The first pod that is not Ready; the head before its workers.
fn unready(observed: &Observed, now: Time) -> Option<String> {
    let mut unready: Vec<&Member> = observed.members.iter().filter(|member| !member.is_ready()).collect();
    unready.sort_by_key(|member| (!member.is_head(), member.pod.name_any()));
    let first = unready.first()?;
    blocking::not_ready(&first.pod, now).map(|_| first.pod.name_any())
}

/// The ports of the Service of the head, as it is.
fn endpoints(observed: &Observed) -> Texts {
    let name = services::head_name(&observed.cluster);
    let service = observed.services.iter().find(|service| service.name_any() == name);
    let ports = service.and_then(|service| service.spec.as_ref()?.ports.as_ref());
    ports.into_iter().flatten().filter_map(|port| Some((port.name.clone()?, port.port.to_string()))).collect()
}

fn head(observed: &Observed) -> HeadStatus {
    let name = services::head_name(&observed.cluster);
    let pod = observed.members.iter().find(|member| member.is_head() && member.stays());
    let ip = pod.and_then(|member| member.pod.status.as_ref()?.pod_ip.clone());
    let service = observed.services.iter().find(|service| service.name_any() == name);
    let address = service.and_then(|service| service.spec.as_ref()?.cluster_ip.clone());
    HeadStatus {
        // A headless Service leads to the pod.
        service_ip: address.filter(|address| address != "None").or_else(|| ip.clone()),
        service_name: service.map(|service| service.name_any()),
        pod_name: pod.map(|member| member.pod.name_any()),
        pod_ip: ip,
    }
}

/// What the head and the wanted workers ask for.
fn set_resources(status: &mut RayClusterStatus, observed: &Observed, decision: &Decision) {
    let spec = &observed.cluster.spec;
    let mut total = Resources::of(&spec.head_group_spec.template);
    for (group, wanted) in spec.worker_group_specs.iter().zip(&decision.spec.groups) {
        let pods = wanted.desired().saturating_mul(count(group.num_of_hosts).max(1));
        total = total.plus(&Resources::of(&group.template).times(pods));
    }
    let sum =
        |is: fn(&str) -> bool| total.amounts().filter(|(name, _)| is(name)).map(|(_, amount)| amount).sum();
    let text = |thousandths: u64, form| {
        let amount = quantity::Quantity::from_millis(i64::try_from(thousandths).unwrap_or(i64::MAX));
        Some(Quantity(amount.text(form)))
    };
    status.desired_cpu = text(sum(|name| name == "cpu"), Form::DecimalSi);
    status.desired_memory = text(sum(|name| name == "memory"), Form::BinarySi);
    status.desired_gpu = text(sum(|name| name.ends_with("gpu")), Form::DecimalSi);
    status.desired_tpu = text(sum(|name| name == "google.com/tpu"), Form::DecimalSi);
}

fn set_conditions(
    list: &mut Conditions,
    before: &RayClusterStatus,
    observed: &Observed,
    decision: &Decision,
    now: Time,
) {
    let generation = observed.cluster.metadata.generation.unwrap_or_default();
    let mut conditions = Writer::new(list, generation, now);
    set_head(&mut conditions, observed, now);
    let was = |name: &str| before.conditions.iter().any(|it| it.type_ == name && it.status == "True");
    let Decision { spec, plan, tally, .. } = decision;
    if !spec.suspended && (tally.is_ready() || was(contract::PROVISIONED.name)) {
        let message = "All Ray Pods are ready for the first time";
        conditions.set_true(contract::PROVISIONED, reasons::ALL_PODS_READY, message);
    } else {
        let message = "The pods of the RayCluster are not all ready yet";
        conditions.set_false(contract::PROVISIONED, reasons::PODS_PROVISIONING, message);
    }
    let is_suspended = observed.cluster.spec.suspend == Some(true);
    let is_gone = plan.reason.code == Code::Suspended;
    for (ty, is) in
        [(contract::SUSPENDING, is_suspended && !is_gone), (contract::SUSPENDED, is_suspended && is_gone)]
    {
        if is {
            conditions.set_true(ty, reasons::USER_REQUESTED, "spec.suspend is true");
        } else {
            conditions.set_false(ty, "", "");
        }
    }
    conditions.alarm(types::DEGRADED, reasons::PODS_FAILING, failing(decision).as_deref());
}

fn set_head(conditions: &mut Writer<'_>, observed: &Observed, now: Time) {
    let head = observed.members.iter().find(|member| member.is_head() && member.stays());
    match head {
        None => conditions.set_false(
            contract::HEAD_POD_READY,
            reasons::HEAD_POD_NOT_FOUND,
            "There is no head pod",
        ),
        Some(head) if head.is_ready() => {
            conditions.set_true(contract::HEAD_POD_READY, reasons::HEAD_POD_READY, "The head pod is ready");
        }
        Some(head) => {
            let ready = condition(&head.pod, "Ready").and_then(|it| it.reason.clone());
            let reason = ready.filter(|reason| !reason.is_empty());
            let why = blocking::not_ready(&head.pod, now).unwrap_or_default();
            let reason = reason.as_deref().unwrap_or(reasons::UNKNOWN);
            conditions.set_false(contract::HEAD_POD_READY, reason, &why);
        }
    }
}

/// The place whose pods were replaced most often in a row.
fn failing(Decision { ledger, tally, .. }: &Decision) -> Option<String> {
    if tally.is_ready() {
        return None;
    }
    let places = ledger.0.iter().filter(|(_, entry)| entry.replaced >= AGAIN);
    let (slot, entry) = places.max_by_key(|(_, entry)| entry.replaced)?;
    let what = match slot {
        Slot::Head => "the head".to_owned(),
        Slot::Replica { group, index } => format!("replica {index} of group {group}"),
    };
    let why = entry.why.map(|why| why.code().to_string()).unwrap_or_default();
    Some(format!(
        "{what} was replaced {} in a row, the last time because of {why}",
        counted(entry.replaced, "time")
    ))
}
