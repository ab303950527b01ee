//! The promises, judged on every event of a pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{WatchEvent, WatchParams},
};
use serde_json::Value;

/// What is promised. While one spec gives way to another, the more lenient of both counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowed {
    /// Of groups: the fewest that serve and the most that exist.
    floor: usize,
    ceiling: usize,
    /// Of the units of each role in a group. The one unit of a set's group is a role without a name.
    roles: BTreeMap<String, Room>,
    /// The orders in which roles are upgraded.
    orders: Vec<Order>,
    leader_first: bool,
    deleting: bool,
}

/// The units of a role in each group.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    wanted: usize,
    floor: usize,
    ceiling: usize,
}

/// The steps of an upgrade, the tail included, each with the number that must be updated and serve; and what is new.
#[derive(Clone, Debug, Default)]
struct Order {
    steps: Vec<(String, usize)>,
    images: BTreeMap<String, String>,
}

pub(super) fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap_or_default()).unwrap_or_default()
}

impl Allowed {
    pub(super) fn by(object: &Value) -> Self {
        let spec = &object["spec"];
        let rolling = &spec["rolloutStrategy"]["rollingUpdateConfiguration"];
        let replicas = number(&spec["replicas"]);
        let groups = Self {
            floor: replicas.saturating_sub(number(&rolling["maxUnavailable"])),
            ceiling: replicas + number(&rolling["maxSurge"]),
            leader_first: spec["startupPolicy"] == "LeaderReady",
            ..Self::default()
        };
        if object["kind"] == "ModelServing" {
            return groups.with_roles(spec);
        }
        let one = Room { wanted: 1, floor: 0, ceiling: 1 };
        Self { roles: BTreeMap::from([(String::new(), one)]), ..groups }
    }

    /// A group that is replaced as one promises nothing of its roles; where roles are replaced in it, each keeps its
    /// own floor, and where that happens in all groups at once, no group is promised to be whole.
    fn with_roles(self, spec: &Value) -> Self {
        let strategy = &spec["rolloutStrategy"];
        let by_role = strategy["type"] == "RoleRollingUpdate";
        let steps = &strategy["rollingUpdateConfiguration"]["roleUpgrade"]["steps"];
        let roles = || spec["template"]["roles"].as_array().into_iter().flatten();
        let name = |role: &Value| role["name"].as_str().unwrap_or_default().to_owned();
        let room = |role: &Value| {
            let wanted = number(&role["replicas"]);
            let missing = role["maxUnavailable"].as_u64().map_or(1, |_| number(&role["maxUnavailable"]));
            let floor = if by_role || steps.is_array() { wanted.saturating_sub(missing) } else { 0 };
            (name(role), Room { wanted, floor, ceiling: wanted + number(&role["maxSurge"]) })
        };
        let rooms: BTreeMap<String, Room> = roles().map(room).collect();
        let step = |step: &Value| {
            let role = step["role"].as_str().unwrap_or_default().to_owned();
            let wanted = rooms.get(&role).map_or(0, |room| room.wanted);
            let percent =
                step["updateTo"].as_str().and_then(|it| it.strip_suffix('%')?.parse::<usize>().ok());
            let goal = percent.map_or_else(|| number(&step["updateTo"]), |it| (it * wanted).div_ceil(100));
            (role, goal.min(wanted))
        };
        let mut order: Vec<(String, usize)> = steps.as_array().into_iter().flatten().map(step).collect();
        order.extend(roles().map(|role| (name(role), number(&role["replicas"]))));
        let image = |role: &Value| {
            let image = role["entryTemplate"]["spec"]["containers"][0]["image"].as_str();
            (name(role), image.unwrap_or_default().to_owned())
        };
        let orders = steps.is_array().then(|| Order { steps: order, images: roles().map(image).collect() });
        Self {
            floor: if by_role { 0 } else { self.floor },
            ceiling: if by_role { number(&spec["replicas"]) } else { self.ceiling },
            roles: rooms,
            orders: orders.into_iter().collect(),
            ..self
        }
    }

    pub(super) fn deleting() -> Self {
        Self { ceiling: usize::MAX, deleting: true, ..Self::default() }
    }

    pub(super) fn or(self, other: Self) -> Self {
        let mut roles = self.roles;
        for (name, room) in &mut roles {
            let there = other.roles.get(name).copied().unwrap_or_default();
            room.wanted = room.wanted.min(there.wanted);
            room.floor = room.floor.min(there.floor);
            room.ceiling = room.ceiling.max(there.ceiling);
        }
        for (name, room) in other.roles {
            roles.entry(name).or_insert(Room { wanted: 0, floor: 0, ..room });
        }
        Self {
            floor: self.floor.min(other.floor),
            ceiling: self.ceiling.max(other.ceiling),
            roles,
            orders: [self.orders, other.orders].concat(),
            leader_first: self.leader_first && other.leader_first,
            deleting: self.deleting || other.deleting,
        }
    }
}

/// The observed pods, and the violations.
#[derive(Clone, Default)]
pub(super) struct Checker(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    allowed: Allowed,
    /// Pods that were deleted or broken, and not by the controllers.
    harmed: BTreeSet<String>,
    pods: BTreeMap<String, Pod>,
    leaders_once_ready: BTreeSet<String>,
    created: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl Checker {
    fn with<T>(&self, read: impl FnOnce(&mut Seen) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn allow(&self, allowed: Allowed) {
        self.with(|seen| seen.allowed = allowed);
    }

    pub(super) fn allowed(&self) -> Allowed {
        self.with(|seen| seen.allowed.clone())
    }

    /// Something else than the controllers harms this pod: what follows is not their choice.
    pub(super) fn harm(&self, pod: &str) {
        self.with(|seen| seen.harmed.insert(pod.to_owned()));
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.with(|seen| seen.violations.clone())
    }

    /// How often each pod was made.
    pub(super) fn created(&self) -> BTreeMap<String, u64> {
        self.with(|seen| seen.created.clone())
    }

    /// Follows all pods for ever.
    pub(super) async fn follow(self, client: Client) {
        let note = |pod: &Pod, is_gone: bool| {
            self.with(|seen| if is_gone { drop(seen.pods.remove(&pod.name_any())) } else { seen.here(pod) });
        };
        follow_pods(client, note).await;
    }
}

/// Follows all pods for ever: each as it is, or as it was when it went.
pub(super) async fn follow_pods(client: Client, note: impl Fn(&Pod, bool)) {
    let api: Api<Pod> = Api::all(client);
    let mut version = "0".to_owned();
    loop {
        let Ok(events) = api.watch(&WatchParams::default(), &version).await else { continue };
        let mut events = events.boxed();
        while let Some(Ok(event)) = events.next().await {
            let (pod, is_gone) = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
                WatchEvent::Deleted(pod) => (pod, true),
                _ => continue,
            };
            note(&pod, is_gone);
            version = pod.resource_version().unwrap_or_default();
        }
    }
}

const GATE: &str = "segue.dev/in-service";
const INCARNATION: &str = "segue.dev/incarnation";

pub(super) fn label<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.labels().get(name).map(String::as_str).unwrap_or_default()
}

/// The label that is there: that of a set, or that of a ModelServing.
fn either<'a>(pod: &'a Pod, set: &str, serving: &str) -> &'a str {
    let set = label(pod, set);
    if set.is_empty() { label(pod, serving) } else { set }
}

pub(super) fn group(pod: &Pod) -> &str {
    either(pod, "leaderworkerset.sigs.k8s.io/group-index", "modelserving.volcano.sh/group-name")
}

pub(super) fn role(pod: &Pod) -> &str {
    label(pod, "modelserving.volcano.sh/role")
}

/// A unit: a group of a set, or a role replica of a group.
pub(super) fn unit(pod: &Pod) -> (&str, &str) {
    (group(pod), label(pod, "modelserving.volcano.sh/role-id"))
}

fn revision(pod: &Pod) -> &str {
    let serving = "modelserving.volcano.sh/role-template-hash";
    either(pod, "leaderworkerset.sigs.k8s.io/template-revision-hash", serving)
}

fn is_leader(pod: &Pod) -> bool {
    label(pod, "leaderworkerset.sigs.k8s.io/worker-index") == "0"
        || label(pod, "modelserving.volcano.sh/entry") == "true"
}

fn image(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.containers.first()?.image.as_deref()
}

fn incarnation(pod: &Pod) -> u32 {
    pod.annotations().get(INCARNATION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

pub(super) fn is(pod: &Pod, ty: &str) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.clone().any(|condition| condition.type_ == ty && condition.status == "True")
}

pub(super) fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn serves(pod: &Pod) -> bool {
    is_leader(pod) && is(pod, "Ready") && is(pod, GATE) && !is_going(pod)
}

impl Seen {
    fn here(&mut self, pod: &Pod) {
        let name = pod.name_any();
        let before = self.pods.get(&name).filter(|before| before.uid() == pod.uid()).cloned();
        if is_leader(pod) && is(pod, "ContainersReady") {
            self.leaders_once_ready.insert(pod.uid().unwrap_or_default());
        }
        if let Some(before) = &before {
            self.order(before, pod);
        }
        self.pods.insert(name.clone(), pod.clone());
        match before {
            None => self.created(pod),
            Some(before) => self.changed(&before, pod),
        }
        self.mixed();
    }

    fn of_role<'a>(&'a self, group: &'a str, role: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |pod| self::group(pod) == group && self::role(pod) == role)
    }

    fn serving_of(&self, group: &str, role: &str) -> usize {
        self.of_role(group, role).filter(|pod| serves(pod)).count()
    }

    /// Groups of which every role has as many units in service as it should.
    fn serving(&self) -> usize {
        let groups: BTreeSet<&str> = self.pods.values().map(group).collect();
        let whole = |group: &&&str| {
            self.allowed.roles.iter().all(|(role, room)| self.serving_of(group, role) >= room.wanted)
        };
        groups.iter().filter(whole).count()
    }

    fn created(&mut self, pod: &Pod) {
        *self.created.entry(pod.name_any()).or_default() += 1;
        let name = pod.name_any();
        let groups = self.pods.values().map(group).collect::<BTreeSet<_>>().len();
        let ceiling = self.allowed.ceiling;
        if groups > ceiling {
            self.violations.push(format!("C2: {name} makes {groups} groups, {ceiling} are allowed"));
        }
        let units = self.of_role(group(pod), role(pod)).map(unit).collect::<BTreeSet<_>>().len();
        let ceiling = self.allowed.roles.get(role(pod)).map_or(usize::MAX, |room| room.ceiling);
        if units > ceiling {
            self.violations.push(format!("C2: {name} makes {units} units, {ceiling} are allowed"));
        }
        if self.allowed.leader_first && !is_leader(pod) {
            let leader = self.pods.values().find(|it| unit(it) == unit(pod) && is_leader(it));
            let waited = leader.is_some_and(|leader| {
                self.leaders_once_ready.contains(&leader.uid().unwrap_or_default())
                    || incarnation(leader) > incarnation(pod)
            });
            if !waited {
                self.violations.push(format!("C8: {name} was made before its leader was ready"));
            }
        }
    }

    fn changed(&mut self, before: &Pod, pod: &Pod) {
        let name = pod.name_any();
        let harmed = self.harmed.contains(&name) || self.allowed.deleting;
        if is_going(pod) && !is_going(before) && is(before, GATE) && !harmed {
            self.violations.push(format!("I2: {name} was deleted while it was in service"));
        }
        if !leaves(before, pod) || harmed || self.is_harmed_group(pod) {
            return;
        }
        let (serving, floor) = (self.serving(), self.allowed.floor);
        if serving < floor {
            self.violations
                .push(format!("C1: {name} was taken out and leaves {serving}, the floor is {floor}"));
        }
        let serving = self.serving_of(group(pod), role(pod));
        let floor = self.allowed.roles.get(role(pod)).map_or(0, |room| room.floor);
        if serving < floor {
            self.violations.push(format!(
                "C1: {name} was taken out and leaves {serving} of its role, the floor is {floor}"
            ));
        }
    }

    /// An outdated unit is taken out only by the first step that is not met.
    fn order(&mut self, before: &Pod, pod: &Pod) {
        let harmed = self.allowed.deleting || self.is_harmed_group(pod);
        if !leaves(before, pod) || harmed || self.allowed.orders.is_empty() {
            return;
        }
        let fits = |order: &Order| {
            let is_new = |pod: &Pod| order.images.get(role(pod)).map(String::as_str) == image(pod);
            let wanted = self.allowed.roles.get(role(pod)).map_or(0, |room| room.wanted);
            let units = self.of_role(group(pod), role(pod)).map(unit).collect::<BTreeSet<_>>().len();
            let met = |(role, goal): &&(String, usize)| {
                let updated = self.of_role(group(pod), role).filter(|it| serves(it) && is_new(it));
                updated.count() >= *goal
            };
            let current = order.steps.iter().find(|step| !met(step)).map(|(role, _)| role.as_str());
            units > wanted || (!is_new(pod) && current == Some(role(pod)))
        };
        if !self.allowed.orders.iter().any(fits) {
            self.violations.push(format!("S1: {} was taken out before its step", pod.name_any()));
        }
    }

    /// Whether a pod of its group was harmed: then the group, or its unit in it, restarts as one.
    fn is_harmed_group(&self, pod: &Pod) -> bool {
        let of_group = |name: &String| self.pods.get(name).is_none_or(|it| group(it) == group(pod));
        self.harmed.iter().any(of_group)
    }

    fn mixed(&mut self) {
        for leader in self.pods.values().filter(|pod| is_leader(pod) && is(pod, "Ready")) {
            let mixed = |pod: &&Pod| unit(pod) == unit(leader) && revision(pod) != revision(leader);
            if let Some(other) = self.pods.values().find(mixed) {
                self.violations.push(format!(
                    "C6: {} is ready beside {}",
                    leader.name_any(),
                    other.name_any()
                ));
            }
        }
    }
}

/// Whether a pod that could serve is taken out of service.
fn leaves(before: &Pod, pod: &Pod) -> bool {
    is(before, GATE) && !is(pod, GATE) && is(before, "ContainersReady")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A ModelServing of two roles with two replicas each, upgraded to `two`, decode first.
    fn checker() -> Checker {
        let role = |name: &str| {
            let pod = json!({"spec": {"containers": [{"name": "c", "image": "two"}]}});
            json!({"name": name, "replicas": 2, "workerReplicas": 1, "entryTemplate": pod})
        };
        let steps = json!([{"role": "decode", "updateTo": 1}, {"role": "prefill", "updateTo": "100%"}]);
        let checker = Checker::default();
        checker.allow(Allowed::by(&json!({"kind": "ModelServing", "spec": {
            "replicas": 1,
            "template": {"roles": [role("prefill"), role("decode")]},
            "rolloutStrategy": {"rollingUpdateConfiguration": {"maxUnavailable": 1, "roleUpgrade": {"steps": steps}}},
        }})));
        for role in ["prefill", "decode"] {
            checker.see(&entry(role, 0, "one", true));
            checker.see(&entry(role, 1, "one", true));
        }
        checker
    }

    impl Checker {
        fn see(&self, pod: &Pod) {
            self.with(|seen| seen.here(pod));
        }
    }

    fn entry(role: &str, ordinal: u32, image: &str, in_service: bool) -> Pod {
        let status = if in_service { "True" } else { "False" };
        let name = format!("x-0-{role}-{ordinal}-0");
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("{name}-{image}"), "labels": {
                "modelserving.volcano.sh/group-name": "x-0", "modelserving.volcano.sh/role": role,
                "modelserving.volcano.sh/role-id": format!("{role}-{ordinal}"),
                "modelserving.volcano.sh/role-template-hash": image, "modelserving.volcano.sh/entry": "true",
            }},
            "spec": {"containers": [{"name": "c", "image": image}]},
            "status": {"conditions": [
                {"type": "ContainersReady", "status": "True"},
                {"type": "Ready", "status": status},
                {"type": GATE, "status": status},
            ]},
        }))
        .unwrap()
    }

    fn found(checker: &Checker) -> Vec<String> {
        checker.violations().iter().map(|it| it[..2].to_owned()).collect()
    }

    #[test]
    fn the_first_step_may_begin_and_no_other_one() {
        let right = checker();
        right.see(&entry("decode", 1, "one", false));
        assert_eq!(found(&right), Vec::<String>::new());
        let wrong = checker();
        wrong.see(&entry("prefill", 1, "one", false));
        assert_eq!(found(&wrong), ["S1"]);
        // When the canary serves it is the other role's turn.
        right.see(&entry("decode", 1, "two", true));
        right.see(&entry("prefill", 1, "one", false));
        assert_eq!(found(&right), Vec::<String>::new());
    }

    #[test]
    fn a_second_one_of_a_role_is_below_its_floor() {
        let checker = checker();
        checker.see(&entry("decode", 1, "one", false));
        checker.see(&entry("decode", 0, "one", false));
        assert!(found(&checker).contains(&"C1".to_owned()), "{:?}", checker.violations());
    }

    #[test]
    fn a_replica_of_two_templates_and_one_too_many_are_seen() {
        let seen = checker();
        let mut worker = entry("decode", 1, "two", false);
        worker.metadata.name = Some("x-0-decode-1-1".to_owned());
        worker.metadata.labels.as_mut().unwrap().remove("modelserving.volcano.sh/entry");
        seen.see(&worker);
        assert_eq!(found(&seen), ["C6"]);
        let seen = checker();
        seen.see(&entry("decode", 2, "two", true));
        assert_eq!(found(&seen), ["C2"]);
    }
}
