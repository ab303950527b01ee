//! What there is to say of a kind beside how it is reconciled. Everything that must know about kinds reads it here: the
//! watches, the rights of `segue manifests`, and the verbs of the command line. A new kind is a folder, and one line in
//! [`KINDS`].

use std::fmt;

use api::Kind;
use futures_util::future::BoxFuture;
use kube::Client;
use serde_json::Value;

use crate::{
    adopt::Adoptable,
    conditions::{self, types},
    leaderworkerset, modeldeployment, modelserving, raycluster, rayservice,
    rehearsal::{Assumptions, NoPlan, Rehearsal},
    runtime::Reconciler,
};

/// Every kind, in the order in which they are listed to people.
pub static KINDS: [&Served; 5] = [
    &leaderworkerset::SERVED,
    &modelserving::SERVED,
    &modeldeployment::SERVED,
    &raycluster::SERVED,
    &rayservice::SERVED,
];

/// The description of a kind, if there is one of this name.
pub fn named(kind: &str) -> Option<&'static Served> {
    KINDS.into_iter().find(|served| served.kind.name == kind)
}

/// A kind, as everything but its own folder knows it.
pub struct Served {
    /// Its names, its schema and its rules.
    pub kind: &'static Kind,
    /// The label of its pods and of its revisions that has the name of its object.
    pub label: &'static str,
    /// Kinds that must be reconciled beside it: its objects are made of them.
    pub needs: &'static [&'static Kind],
    /// What its controller may do beside what the pipeline does with every kind: see [`Served::all_rights`].
    pub rights: &'static [&'static [Right]],
    /// The public operator of the same kind.
    pub other: Option<OtherOperator>,
    /// How its status tells what is left to do, and what that waits for.
    pub progress: Progress,
    /// How people go back, restart and hold, for a kind that has revisions.
    pub revisions: Option<Revisioned>,
    /// Verbs that people ask the controller for.
    pub requests: &'static [(&'static str, &'static str)],
    /// What another operator made of the objects of a namespace.
    pub adoptable: Option<FindAdoptable>,
    /// The same of one object.
    pub adoptable_named: Option<FindNamedAdoptable>,
    /// What an upgrade to a manifest would do, from another one or from an older version of itself.
    pub plan: fn(&Value, Option<&Value>, &Assumptions) -> Result<Rehearsal, NoPlan>,
    /// Whether an API has room for an upgrade to a manifest, for a kind that is refused without.
    pub fits: Option<FindRoom>,
    /// The fields of a manifest that are kept and have no effect, in sentences; without those of which `api::validate`
    /// warns that they are not acted on.
    pub not_acted_on: fn(&Value) -> Vec<String>,
    /// What reconciles it.
    pub reconciler: &'static dyn Reconciler,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("kind", &self.kind.name).finish_non_exhaustive()
    }
}

impl Served {
    /// Everything that its controller may do: what the pipeline does with the objects of every kind, and what this kind
    /// needs beside.
    pub fn all_rights(&self) -> impl Iterator<Item = Right> {
        let Kind { group, plural, .. } = self.kind;
        let object = |verbs, why| Right::new(group, plural, verbs, why);
        let pipeline = [
            object("get, list, watch", "see what is wanted"),
            object("patch", "answer a request"),
            Right { subresource: Some("status"), ..object("update", "say what is") },
        ];
        pipeline.into_iter().chain(self.rights.iter().copied().flatten().copied())
    }

    /// Whether a condition of this kind, while it is true, holds everything else back.
    pub fn stalls(&self, condition: &str) -> bool {
        let is = |all: &[conditions::Type]| all.iter().any(|it| it.name == condition);
        is(&types::STALLING) && !is(self.progress.noted)
    }

    /// Whether a condition of this kind, while it is true, is worth knowing and holds nothing back.
    pub fn notes(&self, condition: &str) -> bool {
        types::NOTED.iter().chain(self.progress.noted).any(|it| it.name == condition)
    }
}

/// Finds why an upgrade to a manifest, of the object as it is, would be refused for lack of room; nothing where it fits.
pub type FindRoom =
    fn(Client, Value, Option<Value>) -> BoxFuture<'static, Result<Option<String>, kube::Error>>;

/// Finds what another operator made in a namespace.
pub type FindAdoptable = fn(Client, String) -> BoxFuture<'static, Result<Vec<Adoptable>, kube::Error>>;

/// Finds what another operator made of the object of a namespace and a name.
pub type FindNamedAdoptable =
    fn(Client, String, String) -> BoxFuture<'static, Result<Option<Adoptable>, kube::Error>>;

/// How the status of a kind tells what is left to do. The alarms of every kind ([`types::STALLING`], [`types::NOTED`])
/// are told of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The conditions of the kind's own that are worth knowing while they are true. They hold nothing back, also where
    /// they have the name of an alarm.
    pub noted: &'static [conditions::Type],
    /// The conditions that are true while something is left to do, the most telling first.
    pub busy: &'static [conditions::Type],
    /// How it is told that nothing is left to do.
    pub idle: Idle,
    /// Where the status says what the whole object waits for, as a JSON pointer.
    pub wait: &'static str,
    /// Where the status says why the last update failed, for a kind that says so: a JSON pointer to an object with a
    /// `message`.
    pub failure: Option<&'static str>,
    /// The condition that is true while the last update is taken back because it failed. One that failed and is not taken
    /// back waits for a person.
    pub going_back: Option<conditions::Type>,
    /// Where the status names the verb that ended the last rollout, for a kind that says so.
    pub verb: Option<&'static str>,
    /// The condition of an object that a person holds, for a kind that says so.
    pub paused: Option<conditions::Type>,
    /// Which step a group is in, for a kind that replaces groups by steps: of an object, and a group of its status.
    pub step: fn(&Value, &Value) -> Option<Step>,
}

impl Progress {
    /// That of a kind whose status has a wait as long as something is left to do, and nothing of its own.
    pub const WAITS: Self = Self {
        noted: &[],
        busy: &[],
        idle: Idle::NothingWaitedFor,
        wait: "/waitingFor",
        failure: None,
        going_back: None,
        verb: None,
        paused: None,
        step: |_, _| None,
    };
}

/// How a status tells that nothing is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing is waited for.
    NothingWaitedFor,
    /// None of [`Progress::busy`] is true. What is waited for may end by itself.
    NotBusy,
}

/// The step that a group is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which one, and how far it is.
    pub what: String,
    /// The pod that it waits for.
    pub pod: Option<String>,
    /// What keeps that pod from serving, as the controller saw it.
    pub why: Option<String>,
}

/// Where a right holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the whole cluster.
    Cluster,
    /// Where the kinds are reconciled.
    Namespaces,
    /// In the namespace of the operator.
    Home,
}

/// A right to do something to objects of one resource.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// Where.
    pub place: Place,
    /// The API group.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The part of it, if not all.
    pub subresource: Option<&'static str>,
    /// The verbs, with commas between.
    pub verbs: &'static str,
    /// What for, for a person who is asked to grant it.
    pub why: &'static str,
}

impl Right {
    /// A right in the namespaces where the kinds are reconciled.
    pub const fn new(
        group: &'static str,
        resource: &'static str,
        verbs: &'static str,
        why: &'static str,
    ) -> Self {
        Self { place: Place::Namespaces, group, resource, subresource: None, verbs, why }
    }

    /// The resource as rules name it, with its subresource.
    pub fn path(&self) -> String {
        let Self { resource, subresource, .. } = self;
        subresource.map_or_else(|| (*resource).to_owned(), |part| format!("{resource}/{part}"))
    }

    /// The same right in the whole cluster.
    #[must_use]
    pub const fn cluster_wide(self) -> Self {
        Self { place: Place::Cluster, ..self }
    }
}

/// A public operator of a kind of ours, and how it is known.
#[derive(Clone, Copy, Debug)]
pub struct OtherOperator {
    /// The Lease by which one of its replicas leads.
    pub lease: &'static str,
    /// What it means that this Lease is renewed.
    pub renewed: Renewed,
    /// The names of its webhooks, whatever holds them.
    pub webhooks: &'static [&'static str],
    /// The Service that answers them.
    pub webhook_service: &'static str,
}

/// What it means that the Lease of another operator is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// That operator reconciles the kind.
    Reconciles,
    /// A program runs that may reconcile the kind and may not. With what a person does about it.
    MayReconcile(&'static str),
}

/// How people go back, restart and hold. What the spec of a kind can say is a change of the spec.
#[derive(Clone, Copy)]
pub struct Revisioned {
    /// The label of a revision that has its key.
    pub label: &'static str,
    /// The templates of pods in what a revision stores.
    pub pods: fn(&Value) -> Vec<&Value>,
    /// The change of the spec that goes back to what a revision stores.
    pub back: fn(data: &Value, live: &Value) -> Value,
    /// The change of the spec that lays this over every template of pods.
    pub marked: fn(live: &Value, mark: &Value) -> Value,
    /// The type of rollout that a partition of groups holds; nothing for a kind that no partition holds.
    pub rolls: Option<&'static str>,
}

impl fmt::Debug for Revisioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revisioned").field("label", &self.label).finish_non_exhaustive()
    }
}
