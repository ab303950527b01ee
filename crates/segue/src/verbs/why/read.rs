//! An answer, from what the API has.

use std::time::Duration;

use controllers::{blocking, sentence};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;

use crate::verbs::rollout::HELD;

/// What there is to read.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) title: String,
    pub(super) namespace: String,
    pub(super) object: Value,
    /// The sets of its versions.
    pub(super) sets: Vec<Value>,
    pub(super) pods: Vec<Pod>,
    pub(super) events: Vec<Value>,
    pub(super) now: Timestamp,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Why {
    pub(super) object: String,
    pub(super) namespace: String,
    pub(super) now: Timestamp,
    pub(super) state: State,
    /// What it does, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    pub(super) waits: Vec<Wait>,
    /// What is wrong, or without effect.
    pub(super) conditions: Vec<Condition>,
    /// Pods that do not serve.
    pub(super) pods: Vec<Trouble>,
    /// The latest first.
    pub(super) events: Vec<Event>,
    /// What a person can do.
    pub(super) next: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum State {
    /// Nothing is left to do.
    Idle,
    /// Something is done or waited for.
    Working,
    /// It waits for one thing, and does nothing else until then.
    Stalled,
    /// A person holds it.
    Paused,
    /// The controllers have not seen what it asks for.
    NotSeen,
    /// It goes.
    Deleting,
}

/// A wait.
#[derive(Debug, Default, Serialize)]
pub(super) struct Wait {
    /// What is done.
    pub(super) what: String,
    /// What it waits for.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub(super) what_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Timestamp>,
    /// Without, until it happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) then: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) ty: String,
    pub(super) message: String,
    pub(super) since: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
pub(super) struct Trouble {
    pub(super) name: String,
    pub(super) why: String,
    pub(super) since: Option<Timestamp>,
    pub(super) restarts: i32,
}

#[derive(Debug, Serialize)]
pub(super) struct Event {
    pub(super) at: Option<Timestamp>,
    #[serde(rename = "type")]
    pub(super) ty: String,
    pub(super) reason: String,
    pub(super) note: String,
    pub(super) about: String,
}

/// Conditions that hold everything else back.
const STALLED: [&str; 4] = ["Stalled", "Degraded", "NamesTaken", "SchedulerMissing"];

/// Conditions that are worth knowing.
const NOTED: [&str; 4] = ["NotActedOn", "DisruptionsMiscounted", "RollbackInProgress", "Paused"];

/// Pods and events that are told. More is no help.
const MOST: usize = 8;

impl Seen {
    pub(super) fn explain(&self) -> Why {
        let conditions = self.conditions();
        let pods = self.troubles();
        let waits = self.waits(&pods);
        let state = self.state(&conditions, &waits);
        let waits = if state == State::Idle { Vec::new() } else { waits };
        Why {
            object: self.title.clone(),
            namespace: self.namespace.clone(),
            now: self.now,
            state,
            message: text(&self.object["status"]["message"]),
            next: self.next(state, &waits),
            waits,
            conditions,
            pods: pods.into_iter().take(MOST).collect(),
            events: self.events(),
        }
    }

    /// The objects whose events are told, the most important first.
    pub(super) fn told_of(&self) -> Vec<String> {
        let own = text(&self.object["metadata"]["uid"]);
        let pods = self.pods.iter().filter(|pod| self.not_ready(pod).is_some());
        own.into_iter().chain(pods.filter_map(ResourceExt::uid)).collect()
    }

    fn not_ready(&self, pod: &Pod) -> Option<String> {
        let now = Duration::from_secs(u64::try_from(self.now.as_second()).unwrap_or_default());
        blocking::not_ready(pod, now)
    }

    fn is_deployment(&self) -> bool {
        self.object["kind"] == "ModelDeployment"
    }

    fn is_held(&self) -> bool {
        let status = &self.object["status"];
        let held = self.object["metadata"]["annotations"][HELD].is_string();
        status["phase"] == "Paused" || held && status["currentRevision"] != status["updateRevision"]
    }

    fn state(&self, conditions: &[Condition], waits: &[Wait]) -> State {
        let (metadata, status) = (&self.object["metadata"], &self.object["status"]);
        if metadata["deletionTimestamp"].is_string() {
            State::Deleting
        } else if status["observedGeneration"] != metadata["generation"] {
            State::NotSeen
        } else if self.is_held() {
            State::Paused
        } else if conditions.iter().any(|condition| STALLED.contains(&condition.ty.as_str())) {
            State::Stalled
        } else if if self.is_deployment() { status["phase"] == "Idle" } else { waits.is_empty() } {
            State::Idle
        } else {
            State::Working
        }
    }

    fn conditions(&self) -> Vec<Condition> {
        let all = self.object["status"]["conditions"].as_array().into_iter().flatten();
        let is_told = |ty: &str| STALLED.contains(&ty) || NOTED.contains(&ty);
        all.filter(|it| it["status"] == "True" && it["type"].as_str().is_some_and(is_told))
            .map(|it| Condition {
                ty: text(&it["type"]).unwrap_or_default(),
                message: text(&it["message"]).unwrap_or_default(),
                since: time(&it["lastTransitionTime"]),
            })
            .collect()
    }

    fn waits(&self, pods: &[Trouble]) -> Vec<Wait> {
        let status = &self.object["status"];
        let mut waits: Vec<Wait> = deployment_wait(&status["rollout"]["waitingFor"]).into_iter().collect();
        waits.extend(self.groups(&self.object, "", pods));
        for set in &self.sets {
            let name = text(&set["metadata"]["name"]).unwrap_or_default();
            waits.extend(self.groups(set, &format!("{name}: "), pods));
        }
        if waits.is_empty()
            && let Some(message) = text(&status["message"])
        {
            waits.push(Wait { since: since(&self.object), ..told("", &message) });
        }
        waits
    }

    /// The groups that have something to say.
    fn groups(&self, object: &Value, before: &str, pods: &[Trouble]) -> Vec<Wait> {
        let groups = object["status"]["groups"].as_array().cloned().unwrap_or_default();
        let since = since(object);
        let wait = |group: &Value| {
            let message = text(&group["message"]);
            let mut wait = told(&format!("{before}group {}: ", group["index"]), message.as_deref()?);
            wait.since = since;
            let step = &group["step"];
            if step.is_object() {
                let name = self.step(step);
                let (role, satisfied) = (text(&step["role"])?, &step["satisfied"]);
                let far = format!("{satisfied} of {} {role} updated and Ready", step["required"]);
                wait.what = format!("{before}group {}, {name}: {far}", group["index"]);
            }
            if let Some(pod) = text(&step["blockingPod"]) {
                let why = text(&step["reason"]).unwrap_or_default();
                let known = pods.iter().find(|it| it.name == pod);
                wait.since = known.and_then(|it| it.since).or(wait.since);
                wait.what_for = Some(format!("pod {pod}: {}", known.map_or(&why, |it| &it.why)));
                wait.then
                    .get_or_insert_with(|| "the steps go on; until then nothing more is replaced".to_owned());
                wait.pod = Some(pod);
            }
            Some(wait)
        };
        groups.iter().filter_map(wait).take(MOST).collect()
    }

    fn step(&self, step: &Value) -> String {
        let rolling = &self.object["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"];
        let steps = rolling["roleUpgrade"]["steps"].as_array().map_or(0, Vec::len) as u64;
        match step["index"].as_u64() {
            Some(index) if index < steps => format!("step {} of {steps}", index + 1),
            _ => "what is left after the steps".to_owned(),
        }
    }

    /// The pods that do not serve, those that wait longest first.
    fn troubles(&self) -> Vec<Trouble> {
        let mut troubles: Vec<Trouble> = self
            .pods
            .iter()
            .filter_map(|pod| Some((pod, self.not_ready(pod)?)))
            .map(|(pod, why)| {
                let status = pod.status.as_ref();
                let ready =
                    status.and_then(|it| it.conditions.as_ref()?.iter().find(|it| it.type_ == "Ready"));
                let since = ready.and_then(|it| it.last_transition_time.as_ref());
                let containers = status.into_iter().flat_map(|it| it.container_statuses.iter().flatten());
                Trouble {
                    name: pod.name_any(),
                    why,
                    since: since.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0),
                    restarts: containers.map(|it| it.restart_count).sum(),
                }
            })
            .collect();
        troubles.sort_by_key(|trouble| trouble.since);
        troubles
    }

    fn events(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self
            .events
            .iter()
            .map(|it| {
                let times =
                    [&it["series"]["lastObservedTime"], &it["deprecatedLastTimestamp"], &it["eventTime"]];
                let name = |field: &str| text(&it["regarding"][field]).unwrap_or_default();
                Event {
                    at: times.into_iter().chain([&it["metadata"]["creationTimestamp"]]).find_map(time),
                    ty: text(&it["type"]).unwrap_or_default(),
                    reason: text(&it["reason"]).unwrap_or_default(),
                    note: text(&it["note"]).unwrap_or_default(),
                    about: format!("{}/{}", name("kind").to_lowercase(), name("name")),
                }
            })
            .collect();
        events.sort_by_key(|event| std::cmp::Reverse(event.at));
        events.truncate(MOST);
        events
    }

    fn next(&self, state: State, waits: &[Wait]) -> Vec<String> {
        let title = &self.title;
        let within =
            if self.namespace == "default" { String::new() } else { format!(" -n {}", self.namespace) };
        let mut next = Vec::new();
        if state == State::NotSeen {
            next.push(
                "see whether an operator runs that looks after this kind and this namespace".to_owned(),
            );
        }
        if state == State::Paused && !self.is_deployment() {
            next.push(format!("segue resume {title}{within}"));
        }
        if let Some(pod) = waits.iter().find_map(|wait| wait.pod.as_ref()) {
            next.push(format!("segue logs {pod}{within}"));
            next.push(format!("segue get pod/{pod} -o yaml{within}"));
        }
        let status = &self.object["status"];
        let updates = status["currentRevision"] != status["updateRevision"];
        if state == State::Stalled && updates && !self.is_deployment() {
            next.push(format!("segue undo {title}{within}"));
        }
        next
    }
}

/// Since when something is left to do.
fn since(object: &Value) -> Option<Timestamp> {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let find = |ty: &&str| all.iter().find(|it| it["type"] == **ty && it["status"] == "True");
    let first = ["Stalled", "UpdateInProgress", "Progressing"].iter().find_map(find);
    first.and_then(|it| time(&it["lastTransitionTime"]))
}

/// A line of a status, as a wait.
fn told(before: &str, line: &str) -> Wait {
    let sentence::Told { what, until, then } = sentence::read(line);
    Wait { what: format!("{before}{what}"), until, then, ..Wait::default() }
}

/// What the rollout of a deployment waits for.
fn deployment_wait(wait: &Value) -> Option<Wait> {
    Some(Wait {
        what: text(&wait["subject"])?,
        since: time(&wait["since"]),
        until: time(&wait["deadline"]),
        then: text(&wait["onExpiry"]),
        ..Wait::default()
    })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn explain(object: &Value, pods: Value, sets: Value) -> Why {
        let mut whole = json!({"metadata": {"generation": 2, "uid": "u"}, "spec": {}, "status": {"observedGeneration": 2}});
        for (part, fields) in object.as_object().unwrap() {
            match fields.as_object() {
                Some(fields) => whole[part].as_object_mut().map(|part| part.extend(fields.clone())),
                None => whole.as_object_mut().map(|it| drop(it.insert(part.clone(), fields.clone()))),
            };
        }
        let seen = Seen {
            title: "thing/x".to_owned(),
            namespace: "n".to_owned(),
            object: whole,
            sets: serde_json::from_value(sets).unwrap(),
            pods: serde_json::from_value(pods).unwrap(),
            events: Vec::new(),
            now: "2026-01-01T00:01:40Z".parse().unwrap(),
        };
        seen.explain()
    }

    fn at(text: &str) -> Option<Timestamp> {
        format!("2026-01-01T00:{text}Z").parse().ok()
    }

    #[test]
    fn a_step_that_waits_is_told_with_its_pod_and_what_to_do() {
        let serving = json!({
            "kind": "ModelServing",
            "spec": {"rolloutStrategy": {"rollingUpdateConfiguration": {"roleUpgrade": {"steps": [{}, {}]}}}},
            "status": {
                "currentRevision": "a", "updateRevision": "b",
                "message": "group 0 waits",
                "conditions": [{"type": "Stalled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:50Z"}],
                "groups": [{"index": 0, "message": "waits", "step": {
                    "index": 1, "role": "decode", "required": 2, "satisfied": 1, "blockingPod": "p", "reason": "old news",
                }}],
            },
        });
        let pod = json!({"metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:40Z"}, "status": {
            "podIP": "1.2.3.4",
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 3}],
        }});
        let why = explain(&serving, json!([pod]), json!([]));
        assert_eq!(why.state, State::Stalled);
        let wait = &why.waits[0];
        assert_eq!(wait.what, "group 0, step 2 of 2: 1 of 2 decode updated and Ready");
        assert_eq!(wait.what_for.as_deref(), Some("pod p: container c is not ready"), "what is now counts");
        assert_eq!(wait.since, at("00:40"));
        assert_eq!(why.pods[0].restarts, 3);
        assert_eq!(
            why.next,
            ["segue logs p -n n", "segue get pod/p -o yaml -n n", "segue undo thing/x -n n"]
        );
    }

    #[test]
    fn states_are_told_apart() {
        let state = |object: &Value| explain(object, json!([]), json!([])).state;
        assert_eq!(state(&json!({"kind": "LeaderWorkerSet"})), State::Idle);
        assert_eq!(state(&json!({"status": {"observedGeneration": 1}})), State::NotSeen);
        assert_eq!(state(&json!({"metadata": {"deletionTimestamp": "x"}})), State::Deleting);
        assert_eq!(state(&json!({"status": {"message": "makes groups"}})), State::Working);
        let held = json!({
            "metadata": {"annotations": {HELD: "0"}},
            "status": {"currentRevision": "a", "updateRevision": "b"},
        });
        assert_eq!(state(&held), State::Paused);
        let mut whole = held;
        whole["status"]["currentRevision"] = "b".into();
        assert_eq!(state(&whole), State::Idle, "it has nothing to be held back from");
    }

    #[test]
    fn times_come_from_the_line_and_from_the_wait_of_a_deployment() {
        let set = json!({"metadata": {"name": "v2"}, "status": {"groups": [
            {"index": 1, "message": "it failed twice, until 2026-01-01T00:02:00Z; then it is made again"},
        ]}});
        let waits = json!({
            "subject": "units to be ready: 1 of 2", "since": "2026-01-01T00:00:30Z",
            "deadline": "2026-01-01T00:10:00Z", "onExpiry": "back to v1",
        });
        let deployment = json!({"kind": "ModelDeployment", "status": {"phase": "Waiting", "rollout": {"waitingFor": waits}}});
        let why = explain(&deployment, json!([]), json!([set]));
        assert_eq!(why.state, State::Working);
        let told: Vec<_> =
            why.waits.iter().map(|it| (it.what.as_str(), it.until, it.then.as_deref())).collect();
        assert_eq!(
            told,
            [
                ("units to be ready: 1 of 2", at("10:00"), Some("back to v1")),
                ("v2: group 1: it failed twice", at("02:00"), Some("it is made again")),
            ]
        );
        let idle =
            json!({"kind": "ModelDeployment", "status": {"phase": "Idle", "message": "v2 has it all"}});
        let why = explain(&idle, json!([]), json!([]));
        assert_eq!((why.state, why.waits.len()), (State::Idle, 0));
    }
}
