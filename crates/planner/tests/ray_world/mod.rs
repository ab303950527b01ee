//! A small world around the planner of a RayCluster: pods start, end and fail, nodes are lost, views lag, people edit,
//! and the operator stops after any write. What must never happen is judged here, independently of the planner.

// Several test binaries include this file, and not each uses all of it.
#![allow(dead_code)]

mod judge;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use planner::{
    Time, Uid,
    ray::{
        Entry, Group, Ledger, Observed, Op, Phase, Plan, Pod, RayContainer, Role, Slot, Spec, Template,
        Thresholds, Upgrade, plan,
    },
};

/// The world stands still at this time, and its past ages instead: times are either this or long ago, which keeps the
/// world finite.
pub const NOW: Time = Duration::from_hours(10);

pub fn group(name: &str, replicas: u32, hosts: u32) -> Group {
    let (name, replicas) = (name.to_owned(), Some(replicas));
    Group { name, replicas, min: 0, max: 10, hosts, workers_to_delete: Vec::new(), suspended: false }
}

pub fn spec(groups: Vec<Group>) -> Spec {
    let minute = Duration::from_mins(1);
    Spec {
        name: "c".to_owned(),
        uid: Uid("u".to_owned()),
        template: Template(1),
        groups,
        suspended: false,
        upgrade: Upgrade::None,
        autoscaling: false,
        fault_tolerant: true,
        thresholds: Thresholds { head: minute, worker: minute },
    }
}

pub fn slot(group: &str, index: u32) -> Slot {
    Slot::Replica { group: group.to_owned(), index }
}

/// The pod that an op creates.
pub fn created(spec: &Spec, op: &Op) -> Option<Pod> {
    let (role, incarnation) = match op {
        Op::CreateHead => (Role::Head, 0),
        Op::CreateWorker { group, replica, host, incarnation } => {
            (Role::Worker { group: group.clone(), replica: *replica, host: *host }, *incarnation)
        }
        Op::DeletePod { .. } | Op::ReleasePod { .. } | Op::MarkUnhealthy { .. } => return None,
    };
    let name = op.pod_name(spec)?;
    let uid = Uid(name.clone());
    Some(Pod {
        name,
        uid,
        role,
        incarnation,
        template: Some(spec.template),
        phase: Phase::Pending,
        ready_since: None,
        raylet_unhealthy_since: None,
        marked_unhealthy: false,
        terminating: false,
        node_lost: false,
        ray: RayContainer::Up,
    })
}

/// What goes wrong, or what people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    Die,
    Vanish,
    DeletedByOthers,
    Sick,
    Marked,
    NodeLost,
    Scale,
    List,
    ListStale,
    Suspend,
    NewTemplate,
    StaleView,
    /// Another leader reads the cluster object.
    SecondLeader,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The operator plans and does this many of its ops.
    Reconcile(usize),
    /// It reads the pods, a while after the object and never before it, and decides.
    DecideSecond,
    /// It makes its next write.
    ActSecond,
    /// The other leader learns that it is none.
    Resign,
    /// A pod starts and is ready.
    Start(usize),
    /// A terminating pod is gone.
    End(usize),
    /// Kubernetes gives the pods of a lost node up.
    GiveUp(usize),
    /// A lost node comes back.
    Return(usize),
    /// A check succeeds again.
    Heal(usize),
    /// Much time passes.
    Age,
    /// The view catches up.
    CatchUp,
    /// The autoscaler empties its list.
    ClearList,
    Resume,
    Fault(Fault, usize),
}

/// What an operator sees, perhaps late.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub pods: Vec<Pod>,
    /// Whether the cluster object is late too.
    pub object: Option<(Spec, Ledger)>,
}

/// Another leader, on its way from what it saw to what it does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Second {
    Looked(Spec, Ledger),
    Acting { spec: Spec, observed: Observed, record: Option<Ledger>, ops: Vec<Op> },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub spec: Spec,
    pub pods: Vec<Pod>,
    pub ledger: Ledger,
    pub view: Option<View>,
    pub second: Option<Second>,
    pub faults: u8,
    /// How often the operator may still stop half-way.
    pub crashes: u8,
    /// How often each name was given, for uids.
    lives: BTreeMap<String, u32>,
    /// Whether names of pods that are gone may turn up again.
    pub remembers: bool,
    /// The last worker that is gone and that the operator had seen: its name may turn up in a list.
    gone: Option<(String, Uid)>,
    /// Whom each listed name was meant for.
    meant: BTreeMap<String, Uid>,
    /// Replicas that were evicted and are not back.
    evicted: BTreeSet<Slot>,
    pub broken: Option<String>,
}

impl World {
    pub fn new(spec: Spec, faults: u8) -> Self {
        Self {
            spec,
            pods: Vec::new(),
            ledger: Ledger::default(),
            view: None,
            second: None,
            faults,
            crashes: 0,
            lives: BTreeMap::new(),
            remembers: true,
            gone: None,
            meant: BTreeMap::new(),
            evicted: BTreeSet::new(),
            broken: None,
        }
    }

    /// Runs without faults until nothing is left to do.
    #[must_use]
    pub fn settled(mut self) -> Self {
        for _ in 0..200 {
            if self.matched() {
                return self;
            }
            for step in [Step::Reconcile(usize::MAX), Step::Age] {
                self = self.after(&step);
            }
            while let Some(step) = self.natural().into_iter().find(|step| *step != Step::Age) {
                self = self.after(&step);
            }
        }
        assert!(self.matched(), "not settled: {self:#?}");
        self
    }

    fn seen(&self) -> (Spec, Observed) {
        let Some(view) = &self.view else {
            return (self.spec.clone(), Observed { pods: self.pods.clone(), ledger: self.ledger.clone() });
        };
        let (spec, ledger) = view.object.clone().unwrap_or_else(|| (self.spec.clone(), self.ledger.clone()));
        (spec, Observed { pods: view.pods.clone(), ledger })
    }

    pub fn plan(&self) -> Plan {
        let (spec, observed) = self.seen();
        plan(&spec, Some(&observed), NOW)
    }

    pub fn head_healthy(pods: &[Pod]) -> bool {
        pods.iter().any(|pod| {
            let sick = pod.marked_unhealthy || pod.raylet_unhealthy_since.is_some() || pod.node_lost;
            pod.role == Role::Head && !pod.terminating && pod.ready_since.is_some() && !sick
        })
    }

    /// What happens by itself.
    pub fn natural(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, pod) in self.pods.iter().enumerate() {
            let joins = pod.role == Role::Head || Self::head_healthy(&self.pods);
            match (pod.terminating, pod.node_lost) {
                (false, false) if pod.phase == Phase::Pending && joins => steps.push(Step::Start(index)),
                (true, _) => steps.push(Step::End(index)),
                (false, true) => steps.push(Step::GiveUp(index)),
                (false, false) => {}
            }
            if pod.node_lost {
                steps.push(Step::Return(index));
            }
            if pod.raylet_unhealthy_since.is_some() {
                steps.push(Step::Heal(index));
            }
        }
        if self.young() {
            steps.push(Step::Age);
        }
        if self.view.is_some() {
            steps.push(Step::CatchUp);
        }
        match &self.second {
            Some(Second::Looked(..)) => steps.push(Step::DecideSecond),
            Some(Second::Acting { .. }) => steps.extend([Step::ActSecond, Step::Resign]),
            None => {}
        }
        if self.spec.suspended {
            steps.push(Step::Resume);
        }
        if self.spec.groups.iter().any(|group| !group.workers_to_delete.is_empty()) {
            steps.push(Step::ClearList);
        }
        steps
    }

    fn young(&self) -> bool {
        let of = |pod: &Pod| pod.ready_since == Some(NOW) || pod.raylet_unhealthy_since == Some(NOW);
        self.pods.iter().any(of) || self.ledger.0.values().any(|entry| entry.at == Some(NOW))
    }

    pub fn possible(&self, faults: &[Fault]) -> Vec<Step> {
        if self.faults == 0 {
            return Vec::new();
        }
        let mut steps = Vec::new();
        for fault in faults {
            let all: Vec<usize> = match fault {
                Fault::Scale => (0..=3).collect(),
                Fault::Suspend | Fault::NewTemplate => vec![0],
                Fault::ListStale => self.gone.iter().map(|_| 0).collect(),
                Fault::StaleView if self.view.is_none() => vec![0, 1],
                Fault::SecondLeader if self.second.is_none() => vec![0],
                Fault::StaleView | Fault::SecondLeader => Vec::new(),
                _ => (0..self.pods.len()).filter(|index| self.can(*fault, &self.pods[*index])).collect(),
            };
            steps.extend(all.into_iter().map(|index| Step::Fault(*fault, index)));
        }
        steps
    }

    fn can(&self, fault: Fault, pod: &Pod) -> bool {
        let fine = !pod.terminating && !pod.node_lost && pod.phase == Phase::Running;
        match fault {
            Fault::Sick => fine && pod.raylet_unhealthy_since.is_none(),
            Fault::Marked => !pod.marked_unhealthy && !pod.terminating,
            Fault::NodeLost => !pod.node_lost,
            Fault::Die => fine,
            Fault::DeletedByOthers => !pod.terminating,
            Fault::List => matches!(&pod.role, Role::Worker { .. }) && !self.meant.contains_key(&pod.name),
            _ => true,
        }
    }

    #[must_use]
    pub fn after(&self, step: &Step) -> Self {
        let mut world = self.clone();
        match *step {
            Step::Reconcile(ops) => world.reconcile(ops),
            Step::DecideSecond => world.decide_second(),
            Step::ActSecond => world.act_second(),
            Step::Resign => world.second = None,
            Step::Start(index) => {
                world.pods[index].phase = Phase::Running;
                world.pods[index].be_ready();
            }
            Step::End(index) => world.end(index),
            Step::GiveUp(index) => world.pods[index].terminating = true,
            Step::Return(index) => {
                let pod = &mut world.pods[index];
                pod.node_lost = false;
                if pod.phase == Phase::Running {
                    pod.be_ready();
                }
            }
            Step::Heal(index) => {
                world.pods[index].raylet_unhealthy_since = None;
                world.pods[index].be_ready();
            }
            Step::Age => world.age(),
            Step::CatchUp => world.view = None,
            Step::ClearList => {
                world.spec.groups.iter_mut().for_each(|group| group.workers_to_delete.clear());
                world.meant.clear();
            }
            Step::Resume => world.spec.suspended = false,
            Step::Fault(fault, index) => {
                world.faults -= 1;
                world.suffer(fault, index);
            }
        }
        world.look();
        world
    }

    fn suffer(&mut self, fault: Fault, index: usize) {
        match fault {
            Fault::Die => {
                self.pods[index].phase = Phase::Failed;
                self.pods[index].ready_since = None;
            }
            Fault::Vanish => self.end(index),
            Fault::DeletedByOthers => self.pods[index].terminating = true,
            Fault::Sick => {
                self.pods[index].raylet_unhealthy_since = Some(NOW);
                self.pods[index].ready_since = None;
            }
            Fault::Marked => self.pods[index].marked_unhealthy = true,
            Fault::NodeLost => {
                self.pods[index].node_lost = true;
                self.pods[index].ready_since = None;
            }
            Fault::Scale => self.spec.groups[0].replicas = u32::try_from(index).ok(),
            Fault::List => {
                let pod = self.pods[index].clone();
                self.list(pod.name, pod.uid);
            }
            Fault::ListStale => {
                if let Some((name, uid)) = self.gone.clone() {
                    self.list(name, uid);
                }
            }
            Fault::Suspend => self.spec.suspended = true,
            Fault::NewTemplate => self.spec.template = Template(self.spec.template.0 + 1),
            Fault::StaleView => {
                let object = (index == 1).then(|| (self.spec.clone(), self.ledger.clone()));
                self.view = Some(View { pods: self.pods.clone(), object });
            }
            Fault::SecondLeader => {
                self.second = Some(Second::Looked(self.spec.clone(), self.ledger.clone()));
            }
        }
    }

    /// Lists a name, in every group: honouring it in the wrong one would be a mistake.
    pub fn list(&mut self, name: String, uid: Uid) {
        self.spec.groups.iter_mut().for_each(|group| group.workers_to_delete.push(name.clone()));
        self.meant.insert(name, uid);
    }

    fn end(&mut self, index: usize) {
        let pod = self.pods.remove(index);
        let known = self.ledger.0.get(&pod.slot()).is_some_and(|entry| entry.seen >= Some(pod.incarnation));
        if !known {
            // Nobody can keep a name from being given again that came and went before any view showed it.
            self.meant.remove(&pod.name);
        }
        if self.remembers && known && pod.role != Role::Head {
            self.gone = Some((pod.name, pod.uid));
        }
    }

    fn age(&mut self) {
        let old = |time: &mut Option<Time>| *time = time.map(|_| Duration::ZERO);
        let pods = |pods: &mut Vec<Pod>| {
            for pod in pods {
                old(&mut pod.ready_since);
                old(&mut pod.raylet_unhealthy_since);
            }
        };
        let ledger = |ledger: &mut Ledger| ledger.0.values_mut().for_each(|entry| old(&mut entry.at));
        pods(&mut self.pods);
        ledger(&mut self.ledger);
        if let Some(view) = &mut self.view {
            pods(&mut view.pods);
            view.object.iter_mut().for_each(|(_, l)| ledger(l));
        }
        match &mut self.second {
            Some(Second::Looked(_, seen)) => ledger(seen),
            Some(Second::Acting { observed, record, .. }) => {
                pods(&mut observed.pods);
                ledger(&mut observed.ledger);
                record.iter_mut().for_each(ledger);
            }
            None => {}
        }
    }

    fn reconcile(&mut self, ops: usize) {
        let (spec, observed) = self.seen();
        let plan = plan(&spec, Some(&observed), NOW);
        if !self.record(&spec, &observed, plan.record.as_ref()) {
            return;
        }
        self.crashes = self.crashes.saturating_sub(u8::from(ops < plan.ops.len()));
        for op in plan.ops.iter().take(ops) {
            self.apply(&spec, &observed, op, self.view.is_some());
        }
    }

    /// Writes a record, on the condition that the object is still the one that was read.
    fn record(&mut self, spec: &Spec, observed: &Observed, record: Option<&Ledger>) -> bool {
        let Some(record) = record else { return true };
        if *spec != self.spec || observed.ledger != self.ledger {
            return false;
        }
        self.judge(spec, observed, record);
        self.ledger = record.clone();
        true
    }

    fn decide_second(&mut self) {
        let Some(Second::Looked(spec, ledger)) = self.second.take() else { return };
        let observed = Observed { pods: self.pods.clone(), ledger };
        let Plan { record, ops, .. } = plan(&spec, Some(&observed), NOW);
        self.go_on(spec, observed, record, ops);
    }

    /// Its record is its first write; where that is refused, so is the rest.
    fn act_second(&mut self) {
        let Some(Second::Acting { spec, observed, record, mut ops }) = self.second.take() else { return };
        if record.is_some() {
            if self.record(&spec, &observed, record.as_ref()) {
                self.go_on(spec, observed, None, ops);
            }
            return;
        }
        let op = ops.remove(0);
        self.apply(&spec, &observed, &op, true);
        self.go_on(spec, observed, None, ops);
    }

    fn go_on(&mut self, spec: Spec, observed: Observed, record: Option<Ledger>, ops: Vec<Op>) {
        let acts = record.is_some() || !ops.is_empty();
        self.second = acts.then_some(Second::Acting { spec, observed, record, ops });
    }

    fn apply(&mut self, spec: &Spec, observed: &Observed, op: &Op, late: bool) {
        match op {
            Op::DeletePod { name, uid, .. } => {
                if !observed.pods.iter().any(|pod| pod.name == *name && pod.uid == *uid) {
                    self.breaks(format!("{name} was never seen with {uid:?}"));
                }
                let condemned = |entry: &Entry, pod: &Pod| {
                    pod.incarnation < entry.floor || entry.condemned.as_ref() == Some(&pod.uid)
                };
                let Some(pod) = self.pods.iter_mut().find(|pod| pod.uid == *uid) else { return };
                let decided = self.ledger.0.get(&pod.slot()).is_some_and(|entry| condemned(entry, pod));
                pod.terminating = true;
                pod.ready_since = None;
                if !decided {
                    self.breaks(format!("the end of {name} is not on record"));
                }
            }
            Op::ReleasePod { uid, .. } => {
                let Some(index) = self.pods.iter().position(|pod| pod.uid == *uid) else { return };
                let ghost = self.pods[index].terminating && self.pods[index].node_lost;
                if !late && !ghost {
                    self.breaks("a pod was released that its node could still end".to_owned());
                }
                self.end(index);
            }
            Op::MarkUnhealthy { uid } => {
                self.pods
                    .iter_mut()
                    .filter(|pod| pod.uid == *uid)
                    .for_each(|pod| pod.marked_unhealthy = true);
            }
            Op::CreateHead | Op::CreateWorker { .. } => self.create(spec, observed, op, late),
        }
    }

    fn create(&mut self, spec: &Spec, observed: &Observed, op: &Op, late: bool) {
        let Some(mut pod) = created(spec, op) else { return };
        if self.pods.iter().any(|other| other.name == pod.name) {
            return;
        }
        let life = self.lives.entry(pod.name.clone()).or_default();
        *life += 1;
        pod.uid = Uid(format!("{}#{life}", pod.name));
        let Role::Worker { group, .. } = &pod.role else { return self.insert(pod) };
        // A late view cannot know that a lost node came back, nor who came before the goal became smaller: names keep
        // such a moment from doubling anyone, and the excess goes once the view has caught up.
        let known =
            |pod: &Pod| observed.pods.iter().any(|old| old.uid == pod.uid && old.node_lost == pod.node_lost);
        let stale = late && !self.pods.iter().filter(|pod| pod.role != Role::Head).all(known);
        let begun = stale || self.occupied(group).contains(&pod.slot());
        self.insert(pod.clone());
        let Some(group) = spec.groups.iter().find(|wanted| wanted.name == *group) else {
            return self.breaks(format!("{} is of no group", pod.name));
        };
        if !begun && self.occupied(&group.name).len() > group.desired() as usize {
            self.breaks(format!("{} exceeds what is wanted", pod.name));
        }
    }

    fn insert(&mut self, pod: Pod) {
        let at = self.pods.partition_point(|other| other.name < pod.name);
        self.pods.insert(at, pod);
    }

    /// The places of a group that have pods, except those of which only a lost node's terminating pods are left.
    fn occupied(&self, group: &str) -> BTreeSet<Slot> {
        let pods = self.pods.iter().filter(|pod| !(pod.terminating && pod.node_lost));
        let of = |slot: &Slot| matches!(slot, Slot::Replica { group: name, .. } if name == group);
        pods.map(Pod::slot).filter(of).collect()
    }

    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Whether all is as wanted, and nothing is left to do.
    pub fn matched(&self) -> bool {
        let plan = self.plan();
        let idle =
            plan.ops.is_empty() && plan.record.is_none() && self.view.is_none() && self.second.is_none();
        let fine = self.pods.iter().all(|pod| {
            pod.ready_since.is_some() && !pod.terminating && !pod.node_lost && !pod.marked_unhealthy
        });
        let heads = self.pods.iter().filter(|pod| pod.role == Role::Head).count();
        let counts = self.spec.groups.iter().all(|group| self.counts(group));
        idle && fine && heads == usize::from(!self.spec.suspended) && counts
    }

    fn counts(&self, group: &Group) -> bool {
        let slots = self.occupied(&group.name);
        let whole = |slot: &Slot| {
            let mut hosts: Vec<u32> = self.pods.iter().filter(|pod| pod.slot() == *slot).map(host).collect();
            hosts.sort_unstable();
            hosts == (0..group.hosts).collect::<Vec<_>>()
        };
        let desired = if self.spec.suspended { 0 } else { group.desired() } as usize;
        let most = if self.spec.autoscaling { group.max as usize } else { desired };
        (desired..=most).contains(&slots.len()) && slots.iter().all(whole)
    }
}

trait BeReady {
    fn be_ready(&mut self);
}

impl BeReady for Pod {
    /// Since when a worker is ready matters to nobody; that keeps the world small.
    fn be_ready(&mut self) {
        self.ready_since = Some(if self.role == Role::Head { NOW } else { Duration::ZERO });
    }
}

fn host(pod: &Pod) -> u32 {
    if let Role::Worker { host, .. } = pod.role { host } else { 0 }
}
