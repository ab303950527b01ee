//! What is read about an object, and the answer that follows from it.

use std::time::Duration;

use controllers::{
    blocking,
    kind::{Idle, Served},
    request::verbs,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::Value;

use super::{
    answer::{BlockedPod, Condition, Event, State, Wait, Why},
    status::{MOST, groups, notable_conditions, text, time, wait},
};
use crate::verbs::rollout::PARTITION_BEFORE_PAUSE;

/// What is read about an object.
#[derive(Debug)]
pub(super) struct Observation {
    /// The description of its kind, which says how its status is read.
    pub(super) served: &'static Served,
    pub(super) title: String,
    pub(super) namespace: String,
    pub(super) object: Value,
    /// The objects that it is made of: the sets of its versions.
    pub(super) children: Vec<Child>,
    pub(super) pods: Vec<Pod>,
    pub(super) events: Vec<Value>,
    /// Whether another operator owns its pods.
    pub(super) is_not_adopted: bool,
    pub(super) now: Timestamp,
}

/// An object that the explained one is made of.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) served: &'static Served,
    pub(super) object: Value,
}

impl Child {
    fn name(&self) -> String {
        text(&self.object["metadata"]["name"]).unwrap_or_default()
    }

    fn title(&self) -> String {
        format!("{}/{}", self.served.kind.singular, self.name())
    }

    fn is_leaving(&self) -> bool {
        self.object["metadata"]["deletionTimestamp"].is_string()
    }
}

impl Observation {
    pub(super) fn explain(&self) -> Why {
        let conditions = self.conditions();
        let pods = self.blocked_pods();
        let waits = self.waits(&pods);
        let state = self.state(&conditions, &waits);
        // Where nothing is left to do, what ends by itself is worth knowing: a version that is kept for a while.
        let is_over = matches!(state, State::Idle | State::Failed | State::Aborted);
        let is_told = |wait: &Wait| !is_over || wait.until.is_some();
        let waits: Vec<Wait> = waits.into_iter().filter(is_told).collect();
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

    /// Returns the uids of the objects whose events are printed, the most important first.
    pub(super) fn event_subjects(&self) -> Vec<String> {
        let own = text(&self.object["metadata"]["uid"]);
        let pods = self.pods.iter().filter(|pod| self.not_ready(pod).is_some());
        own.into_iter().chain(pods.filter_map(ResourceExt::uid)).collect()
    }

    fn not_ready(&self, pod: &Pod) -> Option<String> {
        let now = Duration::from_secs(u64::try_from(self.now.as_second()).unwrap_or_default());
        blocking::not_ready(pod, now)
    }

    fn is_true(&self, condition: controllers::conditions::Type) -> bool {
        let mut all = self.object["status"]["conditions"].as_array().into_iter().flatten();
        all.any(|it| it["type"] == condition.name && it["status"] == "True")
    }

    /// By its partition.
    fn is_held_back(&self) -> bool {
        self.object["metadata"]["annotations"][PARTITION_BEFORE_PAUSE].is_string()
    }

    /// Whether what it comes from is not yet what its spec asks for.
    fn is_updating(&self) -> bool {
        let status = &self.object["status"];
        status["currentRevision"] != status["updateRevision"]
    }

    fn is_held(&self) -> bool {
        let says_so = self.served.progress.paused.is_some_and(|paused| self.is_true(paused));
        says_so || self.is_held_back() && self.is_updating()
    }

    /// Whether its last update failed and no user has answered that.
    fn has_failed(&self) -> bool {
        let failure = self.served.progress.failure;
        failure.is_some_and(|at| self.object["status"].pointer(at).is_some_and(Value::is_object))
    }

    /// Whether an update that failed is being taken back. A first version that fails has nothing to go back to.
    fn goes_back(&self) -> bool {
        self.served.progress.going_back.is_none_or(|it| self.is_true(it))
    }

    /// Whether a person aborted its last update, and no user has answered that.
    fn is_aborted(&self) -> bool {
        let verb = self.served.progress.verb.and_then(|at| self.object["status"].pointer(at));
        verb.is_some_and(|verb| verb == verbs::ABORT)
    }

    /// Whether an update is under way: the condition that tells so stands first.
    fn is_moving(&self) -> bool {
        self.served.progress.busy.first().is_some_and(|it| self.is_true(*it))
    }

    fn is_idle(&self, waits: &[Wait]) -> bool {
        match self.served.progress.idle {
            Idle::NothingWaitedFor => waits.is_empty(),
            Idle::NotBusy => !self.served.progress.busy.iter().any(|it| self.is_true(*it)),
        }
    }

    /// Whether a controller has seen what the spec asks for. A controller that cannot store the revision of the spec leaves
    /// the rest of the status to the spec before, and says so in an alarm.
    fn is_observed(&self, conditions: &[Condition]) -> bool {
        let generation = self.object["metadata"]["generation"].as_i64();
        let speaks_of_it = |it: &Condition| it.stalls && it.of.is_none() && it.generation == generation;
        self.object["status"]["observedGeneration"].as_i64() == generation
            || conditions.iter().any(speaks_of_it)
    }

    fn state(&self, conditions: &[Condition], waits: &[Wait]) -> State {
        if self.object["metadata"]["deletionTimestamp"].is_string() {
            State::Deleting
        } else if self.is_not_adopted {
            State::NotAdopted
        } else if !self.is_observed(conditions) {
            State::NotSeen
        } else if self.has_failed() && (self.is_held() || !self.is_moving() || !self.goes_back()) {
            State::Failed
        } else if self.is_aborted() && !self.is_moving() {
            State::Aborted
        } else if self.is_held() {
            State::Paused
        } else if conditions.iter().any(|condition| condition.stalls) {
            State::Stalled
        } else if self.is_idle(waits) {
            State::Idle
        } else {
            State::Working
        }
    }

    /// Its own, and those of what it is made of: what the API refuses them is seen nowhere else.
    fn conditions(&self) -> Vec<Condition> {
        let own = notable_conditions(self.served, &self.object, None);
        let children = self.children.iter().filter(|child| !child.is_leaving());
        let theirs = children.flat_map(|child| {
            let told = notable_conditions(child.served, &child.object, Some(&child.title()));
            told.into_iter().filter(|condition| condition.stalls)
        });
        own.into_iter().chain(theirs).collect()
    }

    /// What the parts of an object wait for tells more than what the whole waits for.
    fn waits(&self, pods: &[BlockedPod]) -> Vec<Wait> {
        let status = &self.object["status"];
        let mut waits = groups(self.served, &self.object, "", pods);
        if waits.is_empty() {
            waits.extend(status.pointer(self.served.progress.wait).and_then(|it| wait("", it)));
        }
        for child in &self.children {
            waits.extend(groups(child.served, &child.object, &format!("{}: ", child.name()), pods));
        }
        if waits.is_empty() && self.served.progress.busy.iter().any(|it| self.is_true(*it)) {
            let message = text(&status["message"]);
            waits.extend(message.map(|what| Wait { what, since: self.busy_since(), ..Wait::default() }));
        }
        waits
    }

    /// Since when something is left to do.
    fn busy_since(&self) -> Option<Timestamp> {
        let all = || self.object["status"]["conditions"].as_array().into_iter().flatten();
        let find = |ty: &controllers::conditions::Type| {
            all().find(|it| it["type"] == ty.name && it["status"] == "True")
        };
        let first = self.served.progress.busy.iter().find_map(find);
        first.and_then(|it| time(&it["lastTransitionTime"]))
    }

    /// The pods that do not serve, those that wait longest first.
    fn blocked_pods(&self) -> Vec<BlockedPod> {
        let mut blocked_pods: Vec<BlockedPod> = self
            .pods
            .iter()
            .filter_map(|pod| Some((pod, self.not_ready(pod)?)))
            .map(|(pod, why)| {
                let status = pod.status.as_ref();
                let ready =
                    status.and_then(|it| it.conditions.as_ref()?.iter().find(|it| it.type_ == "Ready"));
                let since = ready.and_then(|it| it.last_transition_time.as_ref());
                let containers = status.into_iter().flat_map(|it| it.container_statuses.iter().flatten());
                BlockedPod {
                    name: pod.name_any(),
                    why,
                    since: since.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0),
                    restarts: containers.map(|it| it.restart_count).sum(),
                }
            })
            .collect();
        blocked_pods.sort_by_key(|pod| pod.since);
        blocked_pods
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

    /// Returns the commands of those verbs that the kind has: the first, and the others where they apply, too.
    fn verbs(&self, verbs: &[&str], all: bool, command: impl Fn(&str) -> String) -> Vec<String> {
        let has = |verb: &&&str| self.served.requests.iter().any(|(known, _)| *known == **verb);
        let count = if all { verbs.len() } else { 1 };
        verbs.iter().take(count).filter(has).map(|verb| command(verb)).collect()
    }

    fn next(&self, state: State, waits: &[Wait]) -> Vec<String> {
        let title = &self.title;
        let within =
            if self.namespace == "default" { String::new() } else { format!(" -n {}", self.namespace) };
        let mut next = Vec::new();
        if state == State::NotAdopted {
            next.push(format!("segue adopt {title}{within} --dry-run"));
        }
        if state == State::NotSeen {
            next.push("check that an operator runs for this kind and this namespace".to_owned());
        }
        let verb = |verb: &str| format!("segue {verb} {title}{within}");
        if matches!(state, State::Failed | State::Aborted) {
            next.push(format!("segue get {title} -o yaml{within}"));
            next.push("segue apply -f FILE, with a version that works".to_owned());
            next.extend(self.verbs(
                &[verbs::RETRY, verbs::RESUME, verbs::ABORT],
                state == State::Failed && self.is_held(),
                verb,
            ));
        }
        if state == State::Paused {
            let resume = self.is_held_back().then(|| verb(verbs::RESUME));
            next.extend(resume.into_iter().chain(self.verbs(&[verbs::RESUME, verbs::ABORT], true, verb)));
        }
        if state == State::Working && waits.iter().any(Wait::ends_by_promotion) {
            next.extend(self.verbs(&[verbs::PROMOTE, verbs::ABORT], true, verb));
        }
        if let Some(pod) = waits.iter().find_map(|wait| wait.pod.as_ref()) {
            next.push(format!("segue logs {pod}{within}"));
            next.push(format!("segue get pod/{pod} -o yaml{within}"));
        }
        if state == State::Stalled && self.is_updating() && self.served.revisions.is_some() {
            next.push(format!("segue undo {title}{within}"));
        }
        next
    }
}

#[cfg(test)]
mod tests;
