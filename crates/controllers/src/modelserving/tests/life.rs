//! A ModelServing with steps from its creation through a few changes, on nodes where pods take their time and crash.

use std::{cell::Cell, collections::BTreeMap, time::Duration};

use fastrand::Rng;
use kube::Client;
use planner::Time;
use serde_json::{Value, json};

use super::api::{Shared, second, set_condition};
use crate::{
    Clock, Settings,
    modelserving::SERVED,
    runtime::{Context, Key},
};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

fn clock() -> Time {
    Duration::from_secs(NOW.get())
}

/// How the controller goes on from one decision to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    /// One lives all the time, hears what changes, and knows what it wrote.
    Lives,
    /// Another one begins before every decision, and knows what the API has.
    BeginsAnew,
}

/// How long a change may take, in its own time.
const PATIENCE: u64 = 3_600;

/// What a life was.
#[derive(Debug)]
pub(super) struct Life {
    /// What the controller wrote at each look, by name: writes of one look are done together.
    pub(super) decisions: Vec<Vec<String>>,
    /// Pods that crashed or were deleted.
    pub(super) crashes: u64,
    /// The changes that came to their end.
    pub(super) settled: usize,
}

/// Lives one life. Whatever is random in it follows from the seed and from what is in the API.
pub(super) async fn live(seed: u64, controller: Controller) -> Life {
    let mut random = Rng::with_seed(seed);
    NOW.set(0);
    let changes = changes(&mut random);
    let shared = Shared::default();
    let (client, settings) =
        (shared.client(), Settings { clock: Clock::single(clock), ..Settings::default() });
    let mut stage = Stage {
        nodes: Nodes { random: Rng::with_seed(seed ^ 0x5eed), pods: BTreeMap::new(), crashes: 0 },
        context: Context::idle(client.clone(), settings.clone()),
        client,
        settings,
        shared,
        controller,
        decisions: Vec::new(),
    };
    let mut settled = 0;
    for (serving, midway) in changes {
        stage.want(serving);
        // A change that is overtaken by the next need not come to its end.
        settled += usize::from(stage.settle(midway).await || midway.is_some());
    }
    Life { decisions: stage.decisions, crashes: stage.nodes.crashes, settled }
}

/// How many changes a life has.
pub(super) const CHANGES: usize = 3;

/// What is asked for, one after the other, and for how long, where the next does not wait for its end.
fn changes(random: &mut Rng) -> Vec<(Value, Option<u64>)> {
    let mut roles: Vec<(u32, u32, u32)> = (0..random.usize(1..=3))
        .map(|_| (random.u32(0..=3), random.u32(0..=1) * random.u32(0..=1), 1))
        .collect();
    let groups = random.u32(1..=2);
    let common = json!({
        "replicas": groups,
        "schedulerName": "default-scheduler",
        "recoveryPolicy": random.choice(["RoleRecreate", "RoleRecreate", "ServingGroupRecreate", "None"]),
    });
    let grace = random.u32(0..=1) * random.u32(0..=4);
    let wait = random.u32(0..=2).to_string();
    let mut all = Vec::new();
    for change in 0..CHANGES {
        if change > 0 {
            // Some roles get another template, or the one that they had before; some are scaled.
            for role in &mut roles {
                if random.u8(..4) > 0 {
                    role.2 = random.u32(1..=3);
                }
                if random.u8(..8) == 0 {
                    role.0 = random.u32(0..=3);
                }
            }
        }
        let mut spec = common.clone();
        spec["template"] = json!({
            "restartGracePeriodSeconds": grace,
            "roles": roles.iter().zip(NAMES).map(|(role, name)| written(name, *role, random)).collect::<Vec<_>>(),
        });
        let partition = if random.u8(..5) == 0 { random.u32(0..=groups) } else { 0 };
        spec["rolloutStrategy"] = json!({
            "type": "ServingGroupRollingUpdate",
            "rollingUpdateConfiguration": {
                "maxUnavailable": random.u32(1..=2), "partition": partition,
                "roleUpgrade": {"steps": steps(roles.len(), random)},
            },
        });
        let serving = json!({
            "apiVersion": "workload.serving.volcano.sh/v1alpha1",
            "kind": "ModelServing",
            "metadata": {
                "name": "pd",
                "annotations": {"segue.dev/settle-seconds": wait, "segue.dev/drain-seconds": wait},
            },
            "spec": spec,
        });
        let midway = (change == 1 && random.bool()).then(|| random.u64(1..=20));
        all.push((serving, midway));
    }
    all
}

const NAMES: [&str; 3] = ["decode", "prefill", "router"];

fn written(name: &str, (replicas, workers, image): (u32, u32, u32), random: &mut Rng) -> Value {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": format!("image:{image}")}]}});
    let mut role = json!({
        "name": name, "replicas": replicas, "workerReplicas": workers, "maxUnavailable": random.u32(1..=2),
        "entryTemplate": pod,
    });
    if workers > 0 {
        role["workerTemplate"] = pod;
    }
    role
}

fn steps(roles: usize, random: &mut Rng) -> Vec<Value> {
    let mut reached = [0_u32; 3];
    // At least one: without steps whole groups are replaced.
    let many = random.usize(1..=5);
    let step = |_| {
        let role = random.usize(..roles);
        reached[role] = random.u32(reached[role].max(1)..=100);
        let share = reached[role];
        // A number of at most three is as good as a share of three.
        let to = if random.bool() { json!(format!("{share}%")) } else { json!(share.div_ceil(34)) };
        json!({"role": NAMES[role], "updateTo": to})
    };
    (0..many).map(step).collect()
}

struct Stage {
    shared: Shared,
    client: Client,
    settings: Settings,
    context: Context,
    controller: Controller,
    nodes: Nodes,
    decisions: Vec<Vec<String>>,
}

impl Stage {
    /// A person changes the spec.
    fn want(&mut self, serving: Value) {
        let mut api = self.shared.api();
        let place = ("modelservings".to_owned(), "pd".to_owned());
        let Some(mut live) = api.objects.get(&place).cloned() else {
            api.create("modelservings", serving);
            return;
        };
        if live["spec"] != serving["spec"] {
            live["spec"] = serving["spec"].clone();
            live["metadata"]["generation"] = (live["metadata"]["generation"].as_i64().unwrap() + 1).into();
            api.put("modelservings", live);
        }
    }

    /// Lets time pass until nothing is left to do, or for so many seconds. Says whether it came to its end.
    async fn settle(&mut self, seconds: Option<u64>) -> bool {
        let begin = NOW.get().max(1);
        let end = begin + seconds.unwrap_or(PATIENCE);
        let mut again = Some(begin);
        for now in begin..end {
            NOW.set(now);
            self.shared.api().now = now;
            let changed = self.nodes.tick(&self.shared, now);
            if changed || again.is_some_and(|at| at <= now) {
                again = self.reconcile().await;
            }
            if seconds.is_none() && self.is_settled() {
                return true;
            }
        }
        false
    }

    /// Looks until there is nothing to write, and says when it would look again.
    async fn reconcile(&mut self) -> Option<u64> {
        loop {
            match self.controller {
                Controller::Lives => {
                    let news = std::mem::take(&mut self.shared.api().news);
                    for (object, gone) in news {
                        object.reach(&self.context, gone);
                    }
                }
                Controller::BeginsAnew => {
                    self.context = Context::idle(self.client.clone(), self.settings.clone());
                    let all: Vec<_> = self.shared.api().read.values().cloned().collect();
                    for object in all {
                        object.reach(&self.context, false);
                    }
                }
            }
            let result = SERVED.reconciler.reconcile(&self.context, &Key::new("default", "pd")).await;
            let mut written = std::mem::take(&mut self.shared.api().written);
            written.sort();
            written.extend(result.as_ref().err().map(|error| format!("failed: {error}")));
            assert!(self.decisions.len() < 10_000, "it never ends: {written:?}");
            let is_done = written.is_empty();
            self.decisions.push(written);
            if is_done {
                let again = result.ok().and_then(|next| next.at);
                // A time with a part of a second comes with the next.
                return again.map(|at| at.as_secs() + u64::from(at.subsec_nanos() > 0));
            }
        }
    }

    fn is_settled(&self) -> bool {
        let api = self.shared.api();
        let serving = &api.objects[&("modelservings".to_owned(), "pd".to_owned())];
        let status = &serving["status"];
        let is_seen = status["observedGeneration"] == serving["metadata"]["generation"];
        is_seen && status["message"].is_null() && self.nodes.is_quiet(&api.objects)
    }
}

/// What runs pods.
struct Nodes {
    random: Rng,
    pods: BTreeMap<String, Running>,
    crashes: u64,
}

/// A pod, as its node knows it.
#[derive(Debug)]
struct Running {
    ready_at: u64,
    takes: u64,
    crashes_at: Option<u64>,
    gone_at: Option<u64>,
    restarts: u32,
}

/// Crashes of a life: what goes wrong for ever never comes to an end.
const MOST_CRASHES: u64 = 6;

impl Nodes {
    /// What happens to pods in this second. Says whether anything did.
    fn tick(&mut self, shared: &Shared, now: u64) -> bool {
        let mut api = shared.api();
        let mut happens = Vec::new();
        for (place, pod) in api.objects.iter().filter(|((plural, _), _)| plural == "pods") {
            let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
            let running = self.pods.entry(uid).or_insert_with(|| Running::new(&mut self.random, now));
            if pod["metadata"]["deletionTimestamp"].is_string() {
                let takes = running.takes / 2;
                let is_gone = now >= *running.gone_at.get_or_insert(now + takes);
                happens.extend(is_gone.then(|| (place.clone(), None)));
                continue;
            }
            let crashes =
                running.crashes_at.take_if(|at| *at <= now).is_some() && self.crashes < MOST_CRASHES;
            self.crashes += u64::from(crashes);
            if crashes && self.random.u8(..3) == 0 {
                // A person deletes it.
                let mut pod = pod.clone();
                pod["metadata"]["deletionTimestamp"] = second(now);
                happens.push((place.clone(), Some(pod)));
                continue;
            }
            if crashes {
                running.restarts += 1;
                running.ready_at = now + running.takes;
            }
            happens.extend(running.event(pod, now).map(|pod| (place.clone(), Some(pod))));
        }
        let changed = !happens.is_empty();
        for (place, pod) in happens {
            match pod {
                Some(pod) => drop(api.put("pods", pod)),
                None => api.remove(&place),
            }
        }
        changed
    }

    /// Whether no pod that is there will crash any more, and all are told of.
    fn is_quiet(&self, objects: &BTreeMap<super::api::Place, Value>) -> bool {
        let pods = objects.iter().filter(|((plural, _), _)| plural == "pods");
        pods.map(|(_, pod)| pod["metadata"]["uid"].as_str().unwrap()).all(|uid| {
            self.pods.get(uid).is_some_and(|it| it.crashes_at.is_none() || self.crashes >= MOST_CRASHES)
        })
    }
}

impl Running {
    fn new(random: &mut Rng, now: u64) -> Self {
        let takes = random.u64(0..=6);
        let crashes_at = (random.u8(..8) == 0).then(|| now + random.u64(1..=40));
        Self { ready_at: now + takes, takes, crashes_at, gone_at: None, restarts: 0 }
    }

    /// A pod with what its node says of it, if that is anything new.
    fn event(&self, pod: &Value, now: u64) -> Option<Value> {
        let ready = now >= self.ready_at;
        let is = |pod: &Value, ty: &str| {
            let mut all = pod["status"]["conditions"].as_array().into_iter().flatten();
            all.any(|it| it["type"] == ty && it["status"] == "True")
        };
        let gated = pod["spec"]["readinessGates"].is_array();
        let serves = ready && (!gated || is(pod, crate::labels::IN_SERVICE));
        let known = &pod["status"]["containerStatuses"][0]["restartCount"];
        if *known == self.restarts && is(pod, "ContainersReady") == ready && is(pod, "Ready") == serves {
            return None;
        }
        let mut pod = pod.clone();
        for (ty, so) in [("PodScheduled", true), ("ContainersReady", ready), ("Ready", serves)] {
            if is(&pod, ty) != so || pod["status"]["phase"].is_null() {
                let status = if so { "True" } else { "False" };
                let condition = json!({"type": ty, "status": status, "lastTransitionTime": second(now)});
                set_condition(&mut pod["status"], condition);
            }
        }
        pod["status"]["phase"] = "Running".into();
        pod["status"]["podIP"] = "10.0.0.1".into();
        pod["status"]["containerStatuses"] = json!([{
            "name": "c", "image": "", "imageID": "", "ready": ready, "restartCount": self.restarts,
            "state": {"running": {}},
        }]);
        Some(pod)
    }
}
