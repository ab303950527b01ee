//! Carries decisions out: every write for one object, in one pass.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use planner::Time;
use serde::Serialize;
use serde_json::Value;

use super::Refusals;
use crate::{
    labels,
    runtime::{Applied, Apply, Context, Error, Event, Key, Watched, timestamp},
};

/// Writes on behalf of one object. Foreign names are remembered, and hold nothing else up.
#[derive(Debug)]
pub struct Executor<'a, K> {
    context: &'a Context,
    object: &'a K,
    now: Time,
    refusals: Mutex<Refusals>,
    deferred: Mutex<Option<Error>>,
}

impl<'a, K: Watched> Executor<'a, K> {
    pub(crate) fn new(context: &'a Context, object: &'a K, now: Time) -> Self {
        Self { context, object, now, refusals: Mutex::default(), deferred: Mutex::default() }
    }

    pub(super) fn refusals(self) -> Refusals {
        self.refusals.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a pass go on after a write was refused that nothing else in it depends on: the refusal fails the pass at
    /// its end. A stale observation still ends the pass at once.
    pub(crate) fn defer(&self, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Err(error @ (Error::Refused { .. } | Error::Unanswered { .. })) => {
                self.deferred.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                Ok(())
            }
            result => result,
        }
    }

    /// The first refusal that was deferred.
    pub(super) fn deferred(&self) -> Result<(), Error> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// What time it is in this pass.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The object on whose behalf is written.
    pub fn object(&self) -> &'a K {
        self.object
    }

    /// The context of all controllers.
    pub fn context(&self) -> &'a Context {
        self.context
    }

    fn owner(&self) -> String {
        self.object.uid().unwrap_or_default()
    }

    /// Remembers that something cannot be made because of its name.
    pub fn name_is_taken(&self, why: String) {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).add_name(why);
    }

    /// Makes an object that the owner controls. Returns whether it is there: an object of another owner is left alone.
    pub async fn create<C: Watched>(&self, key: &Key, body: &Value) -> Result<bool, Error> {
        let made = self.context.create::<C>(key, &self.owner(), body).await;
        self.unless_foreign(made).map(|made| made.is_some())
    }

    /// Makes an object what it should be. Returns whether it is: an object of another owner is left alone.
    pub(crate) async fn apply<C: Watched + Serialize>(&self, wanted: Apply<'_, C>) -> Result<bool, Error> {
        self.apply_for(&self.owner(), wanted).await
    }

    /// The same for an object that another object of ours controls.
    pub(crate) async fn apply_for<C: Watched + Serialize>(
        &self,
        owner: &str,
        wanted: Apply<'_, C>,
    ) -> Result<bool, Error> {
        let name = format!("{} {}", C::kind(&()), wanted.key.name);
        let applied = self.unless_foreign(self.context.apply(owner, wanted).await)?;
        if applied == Some(Applied::Repaired) {
            let note = format!("{name} was changed by another client and is set back");
            self.record(Event::warning("Update", "Repaired", note)).await;
        }
        Ok(applied.is_some())
    }

    fn unless_foreign<T>(&self, done: Result<T, Error>) -> Result<Option<T>, Error> {
        match done {
            Err(error @ Error::NotOwned { .. }) => {
                self.name_is_taken(error.to_string());
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    /// Changes fields of an object, on the condition that it has not changed since it was observed.
    pub async fn change<C: Watched>(&self, live: &C, patch: Value) -> Result<(), Error> {
        self.context.change(live, patch).await
    }

    /// Deletes the object that was observed. With `exactly`, only if it has not changed since.
    pub async fn delete<C: Watched>(&self, live: &C, exactly: bool) -> Result<(), Error> {
        self.context.delete(live, exactly).await
    }

    /// Puts a pod in service: its readiness gate opens.
    pub(crate) async fn put_in_service(&self, pod: &Pod, why: &str) -> Result<(), Error> {
        let gate = (true, "InService", why);
        self.context.set_pod_condition(pod, labels::IN_SERVICE, gate, timestamp(self.now)).await
    }

    /// Takes a pod out of service: the first of the two writes that retire a unit. Times in conditions are whole
    /// seconds: the next one, so that nothing drains for less than was promised.
    pub(crate) async fn take_out(&self, pod: &Pod, reason: &str, why: &str) -> Result<(), Error> {
        let since = Time::from_secs(self.now.as_secs() + u64::from(self.now.subsec_nanos() > 0));
        let gate = (false, reason, why);
        self.context.set_pod_condition(pod, labels::IN_SERVICE, gate, timestamp(since)).await
    }

    /// Tells that something has happened.
    pub async fn record(&self, event: Event) {
        self.context.record(self.object, event).await;
    }
}
