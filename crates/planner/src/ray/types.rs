//! What is wanted, what is, and what to do.

use std::time::Duration;

use super::{ledger::Ledger, name};
use crate::{Code, Reason, Time, Uid};

/// A hash over the templates of the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Template(pub u64);

/// What a change of the templates does to running pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Upgrade {
    /// Pods of another template go, all of them, and only then the new ones come.
    Recreate,
    /// Nothing; a pod that is created anew takes the new template.
    #[default]
    None,
}

/// How long the raylet check must have been failing before a pod counts as unhealthy, beyond the check's own threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thresholds {
    /// For the head.
    pub head: Duration,
    /// For workers, counted from when the head was last ready: raylets recover after their head does.
    pub worker: Duration,
}

/// A cluster as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The cluster's name, with which pod names begin.
    pub name: String,
    /// The cluster's own identity; pod names carry a hash of it, so two clusters never ask for the same name.
    pub uid: Uid,
    /// The templates.
    pub template: Template,
    /// The worker groups.
    pub groups: Vec<Group>,
    /// Whether the cluster gives all its pods back.
    pub suspended: bool,
    /// What a change of the templates does.
    pub upgrade: Upgrade,
    /// Whether Ray's autoscaler chooses which workers go.
    pub autoscaling: bool,
    /// Whether the head keeps its tables in external storage.
    pub fault_tolerant: bool,
    /// When a pod counts as unhealthy.
    pub thresholds: Thresholds,
}

/// A worker group as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The wanted replicas.
    pub replicas: Option<u32>,
    /// The fewest.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// Pods of one replica, which start and end together.
    pub hosts: u32,
    /// Names of pods that the autoscaler wants gone. It is not told when to forget one, so a name may be long stale.
    pub workers_to_delete: Vec<String>,
    /// Whether the group gives its pods back.
    pub suspended: bool,
}

impl Group {
    /// The replicas that are wanted: within the bounds (the upper one wins), none while suspended.
    pub fn desired(&self) -> u32 {
        if self.suspended { 0 } else { self.replicas.unwrap_or(self.min).max(self.min).min(self.max) }
    }

    /// Pods of one replica, at least one.
    pub fn hosts(&self) -> u32 {
        self.hosts.max(1)
    }

    /// How many pods may be away at once because they were unhealthy: a tenth, and never none.
    pub fn eviction_budget(&self) -> u32 {
        (self.desired().saturating_mul(self.hosts()) / 10).max(1)
    }

    pub(super) fn lists(&self, name: &str) -> bool {
        self.workers_to_delete.iter().any(|listed| listed == name)
    }
}

/// A place for pods that live and die together. Its pods share an incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// The head.
    Head,
    /// A replica of a group.
    Replica {
        /// The group's name.
        group: String,
        /// Which replica.
        index: u32,
    },
}

/// What a pod is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The head.
    Head,
    /// A worker.
    Worker {
        /// Its group's name.
        group: String,
        /// Which replica it is a part of.
        replica: u32,
        /// Which part.
        host: u32,
    },
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not started: unscheduled, pulling, or waiting for the head in its init container.
    Pending,
    /// Started.
    Running,
    /// Ended well, which a Ray node never should.
    Succeeded,
    /// Ended badly.
    Failed,
}

/// The Ray container of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RayContainer {
    /// Not known to have ended.
    Up,
    /// Ended.
    Ended {
        /// Whether the pod's restart policy brings it back.
        comes_back: bool,
    },
}

/// A pod of this cluster as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: Uid,
    /// What it is.
    pub role: Role,
    /// Which of the workers that ever had this place. A head is always 0.
    pub incarnation: u32,
    /// The template that it was made from; nothing for an adopted pod, which then counts as current.
    pub template: Option<Template>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Since when it is ready.
    pub ready_since: Option<Time>,
    /// Since when the raylet (or, on the head, GCS) check fails past its own threshold. Never the Serve proxy check:
    /// a worker without a replica of Serve fails that one by design.
    pub raylet_unhealthy_since: Option<Time>,
    /// Whether anyone marked it as unhealthy.
    pub marked_unhealthy: bool,
    /// Whether its deletion was asked for.
    pub terminating: bool,
    /// Whether its node is known to be lost, not merely silent: gone, or tainted as out of service.
    pub node_lost: bool,
    /// Its Ray container.
    pub ray: RayContainer,
}

impl Pod {
    /// The place it fills.
    pub fn slot(&self) -> Slot {
        match &self.role {
            Role::Head => Slot::Head,
            Role::Worker { group, replica, .. } => Slot::Replica { group: group.clone(), index: *replica },
        }
    }

    pub(super) fn host(&self) -> u32 {
        if let Role::Worker { host, .. } = self.role { host } else { 0 }
    }

    pub(super) fn ready(&self) -> bool {
        self.phase == Phase::Running && self.ready_since.is_some() && !self.failed() && !self.node_lost
    }

    /// Ended, and nothing else brings it back. A container that the kubelet restarts is the kubelet's.
    pub(super) fn failed(&self) -> bool {
        let ended = self.phase == Phase::Running && self.ray == RayContainer::Ended { comes_back: false };
        matches!(self.phase, Phase::Failed | Phase::Succeeded) || ended
    }

    /// Terminating on a lost node: it may stay for ever, because no kubelet confirms its end.
    pub(super) fn ghost(&self) -> bool {
        self.terminating && self.node_lost
    }
}

/// What is.
///
/// # Assumptions
/// The pods are all those whose controller is this cluster (by its uid), from one consistent view that is no older than
/// any view that an earlier plan was made from: they are read after the cluster object, because the ledger in it tells
/// what earlier views showed. With pods that were read before it, workers that came in between would be made a second
/// time, under new names. A read that failed is no `Observed` at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observed {
    /// The pods.
    pub pods: Vec<Pod>,
    /// What earlier plans asked to be remembered.
    pub ledger: Ledger,
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It ended, and nothing else brings it back.
    PodFailed,
    /// Its node is lost.
    NodeLost,
    /// Its raylet fails, or it is marked.
    Unhealthy,
    /// A part of its replica is missing or ended, and the parts live together.
    IncompleteReplica,
    /// The autoscaler chose it.
    WorkersToDelete,
    /// There are more replicas than wanted.
    ScaledDown,
    /// The cluster or its group is suspended.
    Suspended,
    /// The templates changed.
    TemplateChanged,
    /// The head that it had joined is gone, with all that it knew.
    HeadLost,
    /// Its group is no longer wanted.
    GroupRemoved,
    /// A later incarnation has its place.
    Superseded,
}

impl Why {
    /// The word for events and conditions.
    pub fn code(self) -> Code {
        match self {
            Self::PodFailed => Code::PodFailed,
            Self::NodeLost => Code::NodeLost,
            Self::Unhealthy => Code::Unhealthy,
            Self::IncompleteReplica => Code::IncompleteReplica,
            Self::WorkersToDelete => Code::WorkersToDelete,
            Self::ScaledDown => Code::ScaledDown,
            Self::Suspended => Code::Suspended,
            Self::TemplateChanged => Code::TemplateChanged,
            Self::HeadLost => Code::HeadLost,
            Self::GroupRemoved => Code::GroupRemoved,
            Self::Superseded => Code::Superseded,
        }
    }

    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::PodFailed => "it ended and nothing restarts it",
            Self::NodeLost => "its node is lost",
            Self::Unhealthy => "it is marked unhealthy",
            Self::IncompleteReplica => "a part of its replica is missing, and the parts live together",
            Self::WorkersToDelete => "the autoscaler chose it",
            Self::ScaledDown => "fewer replicas are wanted",
            Self::Suspended => "it is suspended",
            Self::TemplateChanged => "its template is no longer the wanted one",
            Self::HeadLost => {
                "its head is gone, and without external storage no worker can join the next one"
            }
            Self::GroupRemoved => "its group is gone",
            Self::Superseded => "a later one has its place",
        }
    }

    /// Whether this is the pod's own trouble, which may come again at once: such replacements are spaced out.
    pub fn backs_off(self) -> bool {
        matches!(self, Self::PodFailed | Self::NodeLost | Self::Unhealthy | Self::IncompleteReplica)
    }
}

/// One write. Each may be repeated: names are deterministic, and a deletion is for one uid only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Create the head. That the name is taken means that it is done.
    CreateHead,
    /// Create one worker. That the name is taken means that it is done.
    CreateWorker {
        /// Its group's name.
        group: String,
        /// Which replica it is a part of.
        replica: u32,
        /// Which part.
        host: u32,
        /// Which of the replicas that ever had this place.
        incarnation: u32,
    },
    /// Delete this pod, and no other of its name.
    DeletePod {
        /// Its name.
        name: String,
        /// The precondition.
        uid: Uid,
        /// Why.
        why: Why,
    },
    /// Remove this pod, and no other of its name, without waiting for its node, which is lost.
    ReleasePod {
        /// Its name.
        name: String,
        /// The precondition.
        uid: Uid,
    },
    /// Set `ray.io/health-state: Unhealthy` on this pod.
    MarkUnhealthy {
        /// The precondition.
        uid: Uid,
    },
}

impl Op {
    /// The name of the pod that this creates, or deletes.
    pub fn pod_name(&self, spec: &Spec) -> Option<String> {
        match self {
            Self::CreateHead => Some(name::head(spec)),
            Self::CreateWorker { group, replica, host, incarnation } => {
                Some(name::worker(spec, group, *replica, *host, *incarnation))
            }
            Self::DeletePod { name, .. } | Self::ReleasePod { name, .. } => Some(name.clone()),
            Self::MarkUnhealthy { .. } => None,
        }
    }
}

/// What to do, and why.
///
/// # Guarantees
/// With `record`, that is written first, under the condition that the cluster object is still the one that was read;
/// where the write is refused, no op runs. So every new deletion is decided on the current goal and by one operator,
/// and a crash anywhere in the list leads to the same end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// What must be remembered before anything is done, if that changed.
    pub record: Option<Ledger>,
    /// What to do, in order; creations may run in parallel.
    pub ops: Vec<Op>,
    /// The first thing to tell.
    pub reason: Reason,
    /// What else was decided or is waited for.
    pub others: Vec<Reason>,
}

impl Plan {
    /// When to look again although nothing changed.
    pub fn wake(&self) -> Option<Time> {
        std::iter::once(&self.reason).chain(&self.others).filter_map(|reason| reason.until).min()
    }
}
