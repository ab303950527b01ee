//! What the Serve of a cluster is told and asked, and what its answers mean.
//!
//! A config is told with an id: a digest of the config and the capacity, and the attempt. A report is asked for with an id
//! that names the config that was accepted, so that an old report is never taken for one of the new config.

use std::{collections::BTreeMap, time::Duration};

use api::rayservice::{ApplicationStatus, DeploymentStatus, ServeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use planner::{Backoff, Time, agreed, counted};
use serde_json::{Value, json};

use super::observe::{Cluster, address};
use crate::{
    Answer, Call, Expects,
    digest::digest,
    int,
    runtime::{moment, timestamp},
    wait::cut,
};

/// How often a report is asked for while something changes.
const BUSY: Duration = Duration::from_secs(2);
/// The same of a dashboard that did not answer the last time.
const MUTE: Duration = Duration::from_secs(10);
/// The same, at steady state.
const IDLE: Duration = Duration::from_secs(20);
/// The waits before a config is told again that was not accepted.
const BACK_OFF: Backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(30) };
/// How long after a config was accepted Serve may still report what was before.
const SETTLED: Duration = Duration::from_secs(1);
/// How long after a config was accepted a report without it means that Serve has lost it.
const LOST: Duration = Duration::from_secs(10);
/// The longest message of an application that is kept.
const LONGEST: usize = 1_024;
/// The state of an application, of a replica that serves.
const RUNNING: &str = "RUNNING";
/// The states of applications that do not get well by waiting.
const FAILED: [&str; 2] = ["UNHEALTHY", "DEPLOY_FAILED"];

/// The id of a config at a capacity. All of it is told by naming no capacity: Serve may then scale to zero again.
pub(super) fn config_id(applications: &str, capacity: u32, attempt: i32) -> String {
    format!("{}-{attempt}", digest(&json!([applications, (capacity < 100).then_some(capacity)])))
}

/// The body of a config at a capacity.
fn body(config: &Value, capacity: u32) -> Value {
    let mut body = config.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("target_capacity");
        if capacity < 100 {
            fields.insert("target_capacity".to_owned(), capacity.into());
        }
    }
    body
}

fn config_target(cluster: &str) -> String {
    format!("{cluster}/config")
}

fn state_target(cluster: &str) -> String {
    format!("{cluster}/state")
}

fn check_target(cluster: &str) -> String {
    format!("{cluster}/check")
}

/// What is told to the Serve of a cluster and asked of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServeCall {
    pub(super) cluster: String,
    /// The id of the config that it should have.
    pub(super) wanted: String,
    /// Whether that is told now.
    pub(super) tells: bool,
    pub(super) calls: Vec<Call>,
    /// When something else is told or asked.
    pub(super) next: Option<Time>,
}

/// What is said to a cluster that should have its config at this capacity. Nothing is said to one whose head is not there.
pub(super) fn serve_call(cluster: &Cluster, capacity: u32, is_busy: bool, now: Time) -> Option<ServeCall> {
    let serve = cluster.serve();
    let wanted = config_id(&cluster.applications, capacity, serve.attempt);
    let (config, address) = (cluster.config.as_ref()?, cluster.dashboard.as_ref()?);
    let url = |path: &str| format!("http://{address}/api/serve/applications/{path}");
    let mut serve_call = ServeCall {
        cluster: cluster.name.clone(),
        wanted: wanted.clone(),
        tells: false,
        calls: Vec::new(),
        next: None,
    };
    if serve.accepted.as_ref() != Some(&wanted) {
        let failed = serve.failed_at.as_ref().map(|at| moment(at.0)).filter(|_| serve.failures > 0);
        let again = failed.map(|at| at + BACK_OFF.after(serve.failures.unsigned_abs()));
        if let Some(again) = again.filter(|again| *again > now) {
            return Some(ServeCall { next: Some(again), ..serve_call });
        }
        serve_call.tells = true;
        serve_call.calls.push(Call {
            target: config_target(&cluster.name),
            id: wanted,
            url: url(""),
            method: "PUT",
            body: Some(body(config, capacity)),
            expects: Expects::Json,
        });
        return Some(serve_call);
    }
    let is_mute = serve.reported.is_none() && serve.message.is_some();
    let period = match is_busy {
        true if is_mute => MUTE,
        true => BUSY,
        false => IDLE,
    };
    // Services are not asked all in the same moment.
    let shift =
        Duration::from_millis(u64::from(cluster.name.bytes().map(u32::from).sum::<u32>() * 97 % 2_000));
    let slot = (now + shift).as_millis() / period.as_millis();
    let slot = u32::try_from(slot).unwrap_or(u32::MAX);
    serve_call.next = Some((period * (slot + 1)).saturating_sub(shift));
    let ask = |target: String, url: String, expects: Expects| {
        let id = format!("{slot}/{}@{wanted}", period.as_secs());
        Call { target, id, url, method: "GET", body: None, expects }
    };
    let needs_check = is_busy || serve.checked.as_ref() != Some(&wanted);
    if let Some(url) = check_url(cluster).filter(|_| needs_check) {
        serve_call.calls.push(ask(check_target(&cluster.name), url, Expects::Success));
    }
    serve_call.calls.push(ask(state_target(&cluster.name), url("?api_type=declarative"), Expects::Json));
    Some(serve_call)
}

/// Where the readiness check of the user is answered: by a pod whose proxy is healthy.
fn check_url(cluster: &Cluster) -> Option<String> {
    let path = cluster.readiness_path.as_ref()?;
    let serving = cluster.serve().serving_pods?;
    let pod = cluster.pods.iter().find(|pod| pod.address.is_some() && serving.contains(&pod.name))?;
    Some(format!("http://{}{path}", address(pod.address.as_deref()?, cluster.ports.serve)))
}

/// What Serve reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    capacity: Option<i32>,
    running: i32,
    target: i32,
    /// The instance ids and the addresses of nodes with a healthy proxy.
    proxies: Option<Vec<String>>,
    pub(super) applications: BTreeMap<String, ApplicationStatus>,
}

/// Reads a report.
pub(super) fn report(answer: &Value) -> Report {
    let mut report =
        Report { capacity: answer["target_capacity"].as_f64().and_then(whole), ..Report::default() };
    for (name, application) in answer["applications"].as_object().into_iter().flatten() {
        let mut status = ApplicationStatus {
            status: text(&application["status"]),
            message: text(&application["message"]),
            ..ApplicationStatus::default()
        };
        for (name, deployment) in application["deployments"].as_object().into_iter().flatten() {
            let replicas = deployment["replicas"].as_array();
            let running = replicas.into_iter().flatten().filter(|it| it["state"] == RUNNING).count();
            let target = deployment["target_num_replicas"].as_u64();
            let target = target.or_else(|| u64::try_from(replicas?.len()).ok()).unwrap_or_default();
            let target = int(target);
            // What one deployment has too many makes up for none that another lacks.
            report.running += int(running).min(target);
            report.target += target;
            let status_of = DeploymentStatus {
                status: text(&deployment["status"]),
                message: text(&deployment["message"]),
            };
            status.serve_deployment_statuses.insert(name.clone(), status_of);
        }
        let name = if name.is_empty() { "default" } else { name };
        report.applications.insert(name.to_owned(), status);
    }
    if let Some(proxies) = answer["proxies"].as_object() {
        let healthy = proxies.values().filter(|proxy| proxy["status"] == "HEALTHY");
        let named = |proxy: &Value| ["node_instance_id", "node_ip"].map(|field| text(&proxy[field]));
        report.proxies = Some(healthy.flat_map(named).flatten().collect());
    }
    report
}

/// Serve keeps a capacity as a number with a fraction.
fn whole(capacity: f64) -> Option<i32> {
    format!("{capacity:.0}").parse().ok()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(|text| cut(text, LONGEST))
}

/// Takes what was heard of a cluster into its status.
pub(super) fn hear(
    cluster: &Cluster,
    before: &ServeStatus,
    serve_call: Option<&ServeCall>,
    heard: &[Answer],
) -> ServeState {
    let mut heard_of = ServeState { serve: before.clone(), applications: None };
    let serve = &mut heard_of.serve;
    if let Some(serve_call) = serve_call.filter(|serve_call| serve_call.tells) {
        serve.told = Some(serve_call.wanted.clone());
    }
    for answer in heard {
        if answer.target == config_target(&cluster.name) {
            hear_config(serve, answer);
        } else if answer.target == state_target(&cluster.name) {
            let found = hear_state(cluster, serve, answer);
            heard_of.applications = found.or(heard_of.applications);
        } else if answer.target == check_target(&cluster.name) {
            hear_check(serve, answer);
        }
    }
    heard_of
}

/// What became of the status of a cluster.
pub(super) struct ServeState {
    pub(super) serve: ServeStatus,
    /// The applications, where Serve has told them.
    pub(super) applications: Option<BTreeMap<String, ApplicationStatus>>,
}

fn hear_config(serve: &mut ServeStatus, answer: &Answer) {
    if serve.told.as_ref() != Some(&answer.id) || serve.accepted.as_ref() == Some(&answer.id) {
        return;
    }
    match &answer.result {
        Ok(_) => {
            serve.accepted = Some(answer.id.clone());
            serve.accepted_at = Some(micro(answer.at));
            (serve.reported, serve.reported_capacity) = (None, None);
            (serve.checked, serve.check_failure) = (None, None);
            (serve.failures, serve.failed_at, serve.message) = (0, None, None);
        }
        // The attempt is part of the id: this answer is not counted twice.
        Err(why) if answer.id.ends_with(&format!("-{}", serve.attempt)) => {
            serve.attempt += 1;
            serve.failures = serve.failures.saturating_add(1);
            serve.failed_at = Some(micro(answer.at));
            serve.message = Some(cut(why, LONGEST));
        }
        Err(_) => {}
    }
}

/// An answer counts for the config that it was asked about.
fn hear_check(serve: &mut ServeStatus, answer: &Answer) {
    let about = answer.id.split_once('@').map(|(_, accepted)| accepted);
    let Some(accepted) = serve.accepted.clone().filter(|accepted| about == Some(accepted.as_str())) else {
        return;
    };
    (serve.checked, serve.check_failure) = match &answer.result {
        Ok(_) => (Some(accepted), None),
        Err(why) => (None, Some(cut(why, LONGEST))),
    };
}

fn hear_state(
    cluster: &Cluster,
    serve: &mut ServeStatus,
    answer: &Answer,
) -> Option<BTreeMap<String, ApplicationStatus>> {
    let about = answer.id.split_once('@').map(|(_, accepted)| accepted);
    let accepted = serve.accepted.clone().filter(|accepted| about == Some(accepted.as_str()))?;
    let since = serve.accepted_at.as_ref().map(|at| moment(at.0)).unwrap_or_default();
    let found = match &answer.result {
        Ok(found) => report(found),
        Err(why) => {
            serve.reported = None;
            serve.message = Some(cut(why, LONGEST));
            return None;
        }
    };
    serve.message = None;
    if answer.at < since + SETTLED {
        return Some(found.applications);
    }
    let serving = serving_pods(cluster, &found);
    let is_lost = found.applications.is_empty() || has_another_capacity(cluster, &accepted, found.capacity);
    if is_lost && answer.at >= since + LOST {
        // It is told again, as a new attempt.
        (serve.accepted, serve.accepted_at, serve.reported) = (None, None, None);
        serve.attempt += 1;
        serve.message = Some("Serve has lost its config, and is told it again".to_owned());
        return Some(found.applications);
    }
    serve.reported = Some(accepted);
    serve.reported_capacity = found.capacity;
    (serve.running_replicas, serve.target_replicas) = (found.running, found.target);
    serve.serving_pods = serving;
    Some(found.applications)
}

/// Whether Serve should report another capacity for a config that it has accepted, where that is what it should have.
fn has_another_capacity(cluster: &Cluster, accepted: &str, reported: Option<i32>) -> bool {
    let capacity = cluster.sent_capacity;
    let is_wanted = config_id(&cluster.applications, capacity, cluster.serve().attempt) == accepted;
    is_wanted && reported != (capacity < 100).then(|| int(capacity))
}

/// The pods of a cluster whose proxy is healthy, by name.
fn serving_pods(cluster: &Cluster, report: &Report) -> Option<Vec<String>> {
    let proxies = report.proxies.as_ref()?;
    let serves = |pod: &&super::observe::RayPod| {
        proxies.contains(&pod.name) || pod.address.as_ref().is_some_and(|address| proxies.contains(address))
    };
    Some(cluster.pods.iter().filter(serves).map(|pod| pod.name.clone()).collect())
}

fn micro(time: Time) -> MicroTime {
    MicroTime(timestamp(time))
}

/// Why a cluster cannot carry its capacity yet; nothing where it can. Each gate is about what is real: what Serve has
/// accepted, reports and aims for, and what gets requests.
pub(super) fn lacks(cluster: &Cluster, capacity: u32) -> Option<String> {
    let (name, serve) = (&cluster.name, cluster.serve());
    if cluster.object.is_none() {
        return Some(format!("RayCluster {name} is not there yet"));
    }
    if cluster.applications.trim().is_empty() {
        return Some("spec.serveConfigV2 is empty: there is no application to serve".to_owned());
    }
    if cluster.config.is_none() {
        return Some("spec.serveConfigV2 is no YAML mapping".to_owned());
    }
    if cluster.dashboard.is_none() {
        return Some(format!("the head of RayCluster {name} is not Ready"));
    }
    let because = |what: String| {
        let why = serve.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        Some(format!("{what}{why}"))
    };
    let wanted = config_id(&cluster.applications, capacity, serve.attempt);
    if serve.accepted.as_ref() != Some(&wanted) {
        return because(format!("Serve of RayCluster {name} has not accepted its config"));
    }
    if serve.reported.as_ref() != Some(&wanted) {
        return because(format!("Serve of RayCluster {name} has not reported since it accepted its config"));
    }
    let reported = serve.reported_capacity.map_or(100, crate::count);
    if reported != capacity {
        return Some(format!(
            "Serve of RayCluster {name} reports {reported}% of its capacity, not {capacity}%"
        ));
    }
    let all = &cluster.status.application_statuses;
    let waits = all.iter().find(|(_, it)| it.status.as_deref() != Some(RUNNING));
    if let Some((application, it)) = waits {
        let is = it.status.as_deref().unwrap_or("unknown");
        let why = it.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        return Some(format!("application {application} on RayCluster {name} is {is}{why}"));
    }
    if all.is_empty() {
        return Some(format!("Serve of RayCluster {name} reports no application"));
    }
    if serve.running_replicas < serve.target_replicas {
        let (running, target) = (serve.running_replicas, serve.target_replicas);
        let run = agreed(running, "runs", "run");
        return Some(format!("{running} of {} {run} on RayCluster {name}", counted(target, "replica")));
    }
    if cluster.endpoints == 0 {
        return Some(format!("no pod of RayCluster {name} takes requests yet"));
    }
    let path = cluster.readiness_path.as_ref().filter(|_| serve.checked.as_ref() != Some(&wanted))?;
    let why =
        serve.check_failure.map_or_else(|| "is not answered yet".to_owned(), |why| format!("fails: {why}"));
    Some(format!("the readiness check {path} of RayCluster {name} {why}"))
}

/// Whether the Serve of a cluster is about to take its config. One that does not answer is not waited for.
pub(super) fn is_unheard(cluster: &Cluster) -> bool {
    let serve = cluster.serve();
    let wanted = config_id(&cluster.applications, cluster.sent_capacity, serve.attempt);
    let is_there = cluster.dashboard.is_some() && cluster.config.is_some();
    is_there && serve.accepted.as_ref() != Some(&wanted) && serve.failures == 0
}

/// The application that does not get well by waiting, and what it says.
pub(super) fn failed(cluster: &Cluster, capacity: u32) -> Option<String> {
    let serve = cluster.serve();
    let wanted = config_id(&cluster.applications, capacity, serve.attempt);
    if serve.reported.as_ref() != Some(&wanted) {
        return None;
    }
    let all = &cluster.status.application_statuses;
    let is_failed = |it: &ApplicationStatus| it.status.as_deref().is_some_and(|is| FAILED.contains(&is));
    let (application, it) = all.iter().find(|(_, it)| is_failed(it))?;
    let why = it.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("application {application} is {}{why}", it.status.as_deref().unwrap_or_default()))
}
