//! What a kind gives to the pipeline: one function for each step, and the values that go from one to the next.

use std::sync::Arc;

use api::{Kind, Object};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use planner::Time;
use serde::Serialize;

use super::{Executor, Memory};
use crate::{
    Answer, Call, DataPlane, Protections,
    request::Request,
    revisions::NewRevision,
    runtime::{Cache, Error, Event, Requeue, Times, Watched, Watches},
};

/// What an object is observed with.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The objects of the API.
    pub cache: &'a Cache,
    /// What the data plane does, where it is known.
    pub data_plane: Option<&'a DataPlane>,
    /// What keeps requests from failing.
    pub protections: Protections,
    /// How times are read.
    pub times: &'a Times,
    /// What a person asks for beside the spec: the request that was not answered.
    pub request: Option<&'a Request>,
    pub(crate) memory: &'a Memory,
}

#[cfg(test)]
impl Inputs<'_> {
    /// What these objects look like at a time, with nothing else known.
    pub(crate) fn at<T>(cache: &Cache, now: Time, observe: impl FnOnce(&Inputs<'_>) -> T) -> T {
        observe(&Inputs {
            cache,
            data_plane: None,
            protections: Protections::default(),
            times: &Times::at(now),
            request: None,
            memory: &Memory::default(),
        })
    }
}

/// The result of an observation.
#[derive(Debug)]
pub enum Found<O> {
    /// The object, and what belongs to it.
    Observed(O),
    /// A revision must be stored before anything is made from it.
    NewRevision(Arc<NewRevision>),
    /// Another operator made this of the object, such as "pod x", and the object is not adopted.
    NotAdopted(String),
    /// The object asks for something that is not served.
    NotServed(&'static str),
}

/// Pods that are to be given up, and the selector that finds them: before that happens the API is asked whether they
/// are as they were observed.
#[derive(Debug)]
pub struct PodCheck {
    /// The labels of these pods and of no others.
    pub selector: String,
    /// The pods as observed.
    pub pods: Vec<Arc<Pod>>,
}

/// The revisions that are kept.
#[derive(Debug)]
pub struct History {
    /// The label that has the key of a revision.
    pub label: &'static str,
    /// The keys of those that something is made from or may return to.
    pub used: Vec<String>,
    /// How many of the others are kept.
    pub limit: usize,
}

/// A kind: what is its own in every step.
pub trait Controller: Send + Sync + Sized + 'static {
    /// Its objects.
    type Object: Object + Watched + Serialize;
    /// What there is of an object, in the words of the API.
    type Observed: Send + Sync;
    /// What is done next, and why, in the words of the planner.
    type Decision: Send + Sync;

    /// Verbs that a person can ask for beside the spec, each with what is answered when it is carried out.
    const REQUESTS: &'static [(&'static str, &'static str)] = &[];

    /// The answer to the request that was observed, where [`Self::REQUESTS`] does not give it.
    fn answer(_observed: &Self::Observed, _decision: &Self::Decision) -> Option<Result<String, String>> {
        None
    }

    /// Whether the kind has other operators, too: an object is not acted on just after one of them wrote its status.
    const HAS_OTHER_OPERATORS: bool = false;

    /// The kind.
    fn kind() -> &'static Kind;

    /// Whether anything is done for an object: nothing is for one that is being deleted, or that belongs to others.
    fn acts_on(object: &Self::Object) -> bool {
        object.meta().deletion_timestamp.is_none()
    }

    /// Says what is watched for it.
    fn watches(watches: &mut Watches<'_>);

    /// Reads what there is. Judges nothing: there is no clock.
    fn observe(inputs: &Inputs<'_>, object: &Arc<Self::Object>) -> Result<Found<Self::Observed>, Error>;

    /// Decides what is done next. Pure.
    fn decide(observed: &Self::Observed, now: Time) -> Self::Decision;

    /// The pods that the decision gives up.
    fn pods_to_check(_observed: &Self::Observed, _decision: &Self::Decision) -> Vec<PodCheck> {
        Vec::new()
    }

    /// Withdraws a write of an earlier decision that may still be on its way, where this decision does not expect it.
    /// That changes what was observed: the error is [`Error::Stale`].
    fn withdraw(
        _executor: &Executor<'_, Self::Object>,
        _observed: &Self::Observed,
        _decision: &Self::Decision,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Whether the decision takes something away that serves, or could, or makes something that an object with another
    /// spec must not have: then the object must still be what was observed.
    fn needs_current_spec(decision: &Self::Decision) -> bool;

    /// What is, when this was observed, that was decided, and so much was answered by what is outside the API.
    fn status(
        observed: &Self::Observed,
        decision: &Self::Decision,
        heard: &[Answer],
        now: Time,
    ) -> <Self::Object as Object>::Status;

    /// Whether a status says something new.
    fn status_changed(
        before: &<Self::Object as Object>::Status,
        after: &<Self::Object as Object>::Status,
    ) -> bool {
        before != after
    }

    /// The status of an object that asks for something that is not served, beside the condition that says so.
    fn not_served(
        _before: &<Self::Object as Object>::Status,
        _why: &str,
    ) -> <Self::Object as Object>::Status {
        Default::default()
    }

    /// What people are told when a new status is written.
    fn events(
        _observed: &Self::Observed,
        _decision: &Self::Decision,
        _before: &<Self::Object as Object>::Status,
        _after: &<Self::Object as Object>::Status,
    ) -> Vec<Event> {
        Vec::new()
    }

    /// What is to be told to what is outside the API.
    fn calls(_observed: &Self::Observed, _decision: &Self::Decision) -> Vec<Call> {
        Vec::new()
    }

    /// Does what was decided.
    fn act(
        executor: &Executor<'_, Self::Object>,
        observed: &Self::Observed,
        decision: &Self::Decision,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The revisions that are kept, for a kind that stores some.
    fn history(_observed: &Self::Observed, _decision: &Self::Decision) -> Option<History> {
        None
    }

    /// When anything is decided otherwise though nothing changes.
    fn requeue(observed: &Self::Observed, decision: &Self::Decision, now: Time) -> Requeue;
}
