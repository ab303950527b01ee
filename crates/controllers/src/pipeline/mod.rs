//! How an object is reconciled, whatever its kind: observe, decide, status, act.
//!
//! A kind implements [`Controller`]; this is everything that kinds have in common. Each step is a function of a kind
//! with one task: `observe` reads and has no clock, `decide` is pure, the status is written on the condition that the
//! object has not changed since (the compare-and-set of the decision), and only then is anything done.

mod controller;
mod executor;
mod memory;
mod refusals;

use std::{marker::PhantomData, sync::Arc, time::Duration};

use api::{Object, Status};
use futures_util::future::BoxFuture;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};
use kube::{Resource, ResourceExt};
use planner::Time;
use serde_json::json;

pub(crate) use self::memory::Memory;
use self::refusals::Refusals;
pub use self::{
    controller::{Controller, Found, History, Inputs, PodCheck},
    executor::Executor,
};
use crate::{
    Call, ObjectId,
    conditions::{Writer, reasons, types},
    request, revisions,
    runtime::{
        Cache, Context, Error, Event, FIELD_MANAGER, Key, Reconciler, Requeue, Times, Watched, Watches,
        timestamp,
    },
    units::labelled,
};

/// The time after which a foreign name is tried again: no event tells that it is free.
const NAME_RETRY: Duration = Duration::from_secs(30);

/// How long a write of another operator says that it is alive. Its Lease says so too, but it may run without one.
const OTHER_OPERATOR_QUIET: Duration = Duration::from_secs(30);

/// Runs a kind.
#[derive(Debug)]
pub struct Pipeline<C>(PhantomData<fn() -> C>);

impl<C> Pipeline<C> {
    /// The pipeline of a kind.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<C> Default for Pipeline<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Controller> Reconciler for Pipeline<C> {
    fn name(&self) -> &'static str {
        C::kind().name
    }

    fn watches(&self, watches: &mut Watches<'_>) {
        C::watches(watches);
    }

    fn keys(&self, cache: &Cache) -> Vec<Key> {
        cache.all::<C::Object>().map(|object| Key::of(object.as_ref())).collect()
    }

    fn reconcile<'a>(&'a self, context: &'a Context, key: &'a Key) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(reconcile::<C>(context, key))
    }
}

/// One pass over one object.
async fn reconcile<C: Controller>(context: &Context, key: &Key) -> Result<Requeue, Error> {
    let times = context.times();
    let Some(object) = active_object::<C>(context, key) else {
        forget::<C>(context, key);
        return Ok(Requeue::default());
    };
    if let Some(until) = contested_until::<C>(&object, &times).filter(|until| *until > times.now()) {
        context.outside.forget(C::kind().name, key);
        return Ok(wait_for_another_operator::<C>(context, &object, until).await);
    }
    if let Err(error) = restore_labels(context, object.as_ref()).await {
        return end_early::<C>(context, &object, Err(error), times.now()).await;
    }
    let found = match observe::<C>(context, &object, &times) {
        Ok(found) => found,
        Err(error) => return end_early::<C>(context, &object, Err(error), times.now()).await,
    };
    let observed = match found {
        Found::Observed(observed) => observed,
        // The next pass finds it in the cache.
        Found::NewRevision(revision) => {
            let result = revisions::store(context, object.as_ref(), &revision).await;
            return end_early::<C>(context, &object, result, times.now()).await;
        }
        Found::NotAdopted(pod) => {
            context.outside.forget(C::kind().name, key);
            return Ok(wait_for_adoption(context, object.as_ref(), &pod).await);
        }
        Found::NotServed(why) => return not_served::<C>(context, &object, why, times.now()).await,
    };
    let reconcile = Reconcile::<C> { context, object, observed, now: times.now() };
    reconcile.run().await
}

/// Forgets an object for which nothing is done any more.
fn forget<C: Controller>(context: &Context, key: &Key) {
    context.memory.forget(C::kind().name, key);
    context.outside.forget(C::kind().name, key);
}

/// The object, if anything is done for it.
fn active_object<C: Controller>(context: &Context, key: &Key) -> Option<Arc<C::Object>> {
    let object = context.cache().get::<C::Object>(key).cloned();
    object.filter(|object| C::acts_on(object))
}

fn observe<C: Controller>(
    context: &Context,
    object: &Arc<C::Object>,
    times: &Times,
) -> Result<Found<C::Observed>, Error> {
    let data_plane = context.outside.data_plane();
    let asked = request::unanswered(object.as_ref()).and_then(Result::ok);
    let cache = context.cache();
    let inputs = Inputs {
        cache: &cache,
        data_plane: data_plane.as_ref(),
        protections: context.settings.protections,
        times,
        request: asked.as_ref(),
        memory: &context.memory,
    };
    C::observe(&inputs, object)
}

/// Until when another operator is assumed to work on an object: it is known by what it does, which is to write the
/// status.
fn contested_until<C: Controller>(object: &C::Object, times: &Times) -> Option<Time> {
    let theirs = status_writes_of_others(object).filter(|_| C::HAS_OTHER_OPERATORS);
    theirs
        .filter_map(|write| write.time.as_ref())
        .map(|time| times.moment(time.0) + OTHER_OPERATOR_QUIET)
        .max()
}

/// The last write of each other client to the status of an object.
fn status_writes_of_others(object: &impl Resource) -> impl Iterator<Item = &ManagedFieldsEntry> {
    let writes = object.meta().managed_fields.iter().flatten();
    writes.filter(|write| {
        write.subresource.as_deref() == Some("status") && write.manager.as_deref() != Some(FIELD_MANAGER)
    })
}

async fn wait_for_another_operator<C: Controller>(
    context: &Context,
    object: &C::Object,
    until: Time,
) -> Requeue {
    let name = status_writes_of_others(object).max_by_key(|write| write.time.as_ref().map(|time| time.0));
    let name = name.and_then(|write| write.manager.as_deref());
    let note = format!(
        "another operator ({}) writes this status: nothing is done meanwhile; stop it, or give each its namespaces",
        name.unwrap_or("unnamed")
    );
    context.record_at_intervals(object, Event::warning("Reconcile", "AnotherOperator", note)).await;
    Requeue { at: Some(until), outside: false }
}

/// Nothing is written to objects of another operator.
async fn wait_for_adoption<K: Watched>(context: &Context, object: &K, made: &str) -> Requeue {
    let name = object.name_any();
    let note = format!(
        "{made} belongs to another operator: nothing is done until it is adopted: segue adopt {name}"
    );
    context.record_at_intervals(object, Event::warning("Reconcile", "NotAdopted", note)).await;
    Requeue::default()
}

async fn not_served<C: Controller>(
    context: &Context,
    object: &Arc<C::Object>,
    why: &str,
    now: Time,
) -> Result<Requeue, Error> {
    let generation = object.meta().generation.unwrap_or_default();
    let before = object.status().cloned().unwrap_or_default();
    let mut status = C::not_served(&before, why);
    status.set_observed_generation(generation);
    status.conditions_mut().clone_from(before.conditions());
    let mut conditions = Writer::new(status.conditions_mut(), generation, now);
    conditions.set_true(types::NOT_SERVED, reasons::NOT_SERVED, why);
    // Nothing is written any more that could be refused.
    Refusals::default().write(&mut conditions);
    forget::<C>(context, &Key::of(object.as_ref()));
    if object.status() != Some(&status) {
        let mut changed = object.as_ref().clone();
        changed.set_status(status);
        if let Err(error) = context.write_status(&changed).await {
            return end_early::<C>(context, object, Err(error), now).await;
        }
        context.record(object.as_ref(), Event::warning("Reconcile", reasons::NOT_SERVED, why)).await;
    }
    if request::unanswered(object.as_ref()).is_some() {
        let outcome = Err(format!("nothing is done for this object: {why}"));
        answer_request::<C>(context, object, outcome, now).await?;
    }
    Ok(Requeue::default())
}

/// Gives pods the labels back that they were made with, before anything is observed: pods are told apart by them, and
/// Services select by them. What the API makes of the labels, by an admission webhook, is not written again.
async fn restore_labels<K: Watched>(context: &Context, object: &K) -> Result<(), Error> {
    let changed = labelled::changed(&context.cache(), &object.uid().unwrap_or_default());
    for (pod, labels) in &changed {
        let (id, lost) = (format!("{}/labels", pod.uid().unwrap_or_default()), labels.to_string());
        if context.memory.is_settled(&id, &lost) {
            continue;
        }
        context.change(pod.as_ref(), json!({"metadata": {"labels": labels}})).await?;
        let written = context.cache().get::<Pod>(&Key::of(pod.as_ref())).cloned();
        if written.is_some_and(|written| labelled::lost(&written).as_ref() == Some(labels)) {
            context.memory.remember_applied(&id, lost);
            continue;
        }
        let note =
            format!("the labels of Pod {} were changed by another client and are set back", pod.name_any());
        context.record(object, Event::warning("Update", "Repaired", note)).await;
    }
    Ok(())
}

/// Ends a pass before anything was decided, and says why in the conditions. The rest of the status stays: it is true of
/// what was observed last.
async fn end_early<C: Controller>(
    context: &Context,
    object: &Arc<C::Object>,
    result: Result<(), Error>,
    now: Time,
) -> Result<Requeue, Error> {
    if result.is_ok() {
        return Ok(Requeue::default());
    }
    let (kind, key) = (C::kind().name, Key::of(object.as_ref()));
    let before = context.memory.refusals(kind, &key).unwrap_or_default();
    let known = before.after(Refusals::default(), &result);
    if let Some(event) = known.event() {
        context.record_at_intervals(object.as_ref(), event).await;
    }
    let mut status = object.status().cloned().unwrap_or_default();
    let generation = object.meta().generation.unwrap_or_default();
    known.write(&mut Writer::new(status.conditions_mut(), generation, now));
    context.memory.remember(kind, &key, known);
    if object.status().cloned().unwrap_or_default() != status {
        let mut changed = object.as_ref().clone();
        changed.set_status(status);
        context.write_status(&changed).await?;
    }
    result.map(|()| Requeue::default())
}

/// One pass over an object that was observed.
struct Reconcile<'a, C: Controller> {
    context: &'a Context,
    object: Arc<C::Object>,
    observed: C::Observed,
    now: Time,
}

impl<C: Controller> Reconcile<'_, C> {
    async fn run(&self) -> Result<Requeue, Error> {
        let Self { context, object, observed, now } = self;
        let decision = C::decide(observed, *now);
        let calls = C::calls(observed, &decision);
        let executor = Executor::new(context, object.as_ref(), *now);
        let result = self.carry_out(&executor, &decision, &calls).await;
        let told = self.remember_refusals(executor.refusals(), &result).await;
        result?;
        // The answers to calls are waited for.
        let answered = Requeue { at: None, outside: !calls.is_empty() };
        Ok(C::requeue(observed, &decision, *now).or(told).or(answered))
    }

    /// Everything that a decision writes, in its order: each step may rely on those before it.
    async fn carry_out(
        &self,
        executor: &Executor<'_, C::Object>,
        decision: &C::Decision,
        calls: &[Call],
    ) -> Result<(), Error> {
        let Self { context, object, observed, .. } = self;
        for PodCheck { selector, pods } in C::pods_to_check(observed, decision) {
            context.ensure_pods_current(object.as_ref(), &selector, &pods).await?;
        }
        C::withdraw(executor, observed, decision).await?;
        let is_written = self.write_status(decision).await?;
        let (kind, key) = (C::kind().name, self.key());
        let is_new = !context.memory.has_sent(kind, &key, calls);
        if (C::needs_current_spec(decision) || is_new) && !is_written {
            context.ensure_current(object.as_ref()).await?;
        }
        context.outside.tell(&self.id(), calls);
        context.memory.remember_sent(kind, &key, calls);
        C::act(executor, observed, decision).await?;
        self.answer_request(decision).await?;
        if let Some(history) = C::history(observed, decision) {
            revisions::prune(context, object.as_ref(), &history).await?;
        }
        executor.deferred()
    }

    fn key(&self) -> Key {
        Key::of(self.object.as_ref())
    }

    fn id(&self) -> ObjectId {
        let uid = self.object.uid().unwrap_or_default();
        ObjectId { controller: C::kind().name, key: self.key(), uid }
    }

    /// Writes the status if it says anything new, before anything is done: what must be remembered is in it, and it
    /// fails if another process has decided meanwhile. Returns whether it was written.
    async fn write_status(&self, decision: &C::Decision) -> Result<bool, Error> {
        let Self { context, object, observed, now } = self;
        let generation = object.meta().generation.unwrap_or_default();
        let mut status = C::status(observed, decision, &context.outside.heard(&self.id()), *now);
        let mut conditions = Writer::new(status.conditions_mut(), generation, *now);
        conditions.set_false(types::NOT_SERVED, "", "");
        // A process that has just begun knows nothing better than what is written.
        if let Some(known) = context.memory.refusals(C::kind().name, &self.key()) {
            known.write(&mut conditions);
        }
        if object.status().is_some_and(|before| !C::status_changed(before, &status)) {
            return Ok(false);
        }
        let mut changed = object.as_ref().clone();
        changed.set_status(status.clone());
        context.write_status(&changed).await?;
        let before = object.status().cloned().unwrap_or_default();
        for event in C::events(observed, decision, &before, &status) {
            context.record(object.as_ref(), event).await;
        }
        Ok(true)
    }

    /// Remembers what was refused in this pass: the status of the next pass says it.
    async fn remember_refusals(&self, found: Refusals, result: &Result<(), Error>) -> Requeue {
        let (kind, key) = (C::kind().name, self.key());
        let before = self.context.memory.refusals(kind, &key);
        let known = before.clone().unwrap_or_default().after(found, result);
        if let Some(event) = known.event() {
            self.context.record_at_intervals(self.object.as_ref(), event).await;
        }
        let again = known.has_names().then(|| self.now + NAME_RETRY);
        let status_changed = match before {
            Some(before) => !known.says_the_same(&before),
            None => !self.is_written(&known),
        };
        self.context.memory.remember(kind, &key, known);
        Requeue { at: if status_changed { Some(self.now) } else { again }, outside: false }
    }

    /// Whether the status that was observed says what stood in the way.
    fn is_written(&self, known: &Refusals) -> bool {
        let Some(status) = self.object.status() else { return true };
        let mut conditions = status.conditions().clone();
        let generation = self.object.meta().generation.unwrap_or_default();
        known.write(&mut Writer::new(&mut conditions, generation, self.now));
        conditions == *status.conditions()
    }

    /// Answers the request that was observed, now that it is carried out.
    async fn answer_request(&self, decision: &C::Decision) -> Result<(), Error> {
        let outcome = match request::unanswered(self.object.as_ref()) {
            None => return Ok(()),
            Some(Err(why)) => Err(why),
            Some(Ok(asked)) => {
                C::answer(&self.observed, decision).unwrap_or_else(|| answer::<C>(&asked.verb))
            }
        };
        answer_request::<C>(self.context, &self.object, outcome, self.now).await
    }
}

/// Writes what became of the request that was observed, unless there is another one by now.
async fn answer_request<C: Controller>(
    context: &Context,
    observed: &Arc<C::Object>,
    outcome: Result<String, String>,
    now: Time,
) -> Result<(), Error> {
    let key = Key::of(observed.as_ref());
    let Some(object) = active_object::<C>(context, &key) else { return Ok(()) };
    if object.annotations().get(request::REQUEST) != observed.annotations().get(request::REQUEST) {
        return Ok(());
    }
    let response = request::answer(object.as_ref(), outcome, timestamp(now));
    let text = serde_json::to_string(&response)
        .map_err(|error| Error::Malformed { what: key.to_string(), why: error.to_string() })?;
    let patch = json!({"metadata": {"annotations": {request::RESPONSE: text}}});
    context.change(object.as_ref(), patch).await?;
    let event = Event { warning: !response.done, ..Event::normal("Reconcile", "Request", response.message) };
    context.record(object.as_ref(), event).await;
    Ok(())
}

fn answer<C: Controller>(verb: &str) -> Result<String, String> {
    if let Some((_, done)) = C::REQUESTS.iter().find(|(known, _)| *known == verb) {
        return Ok((*done).to_owned());
    }
    let known: Vec<&str> = C::REQUESTS.iter().map(|(verb, _)| *verb).collect();
    let known = if known.is_empty() { "none is".to_owned() } else { format!("known: {}", known.join(", ")) };
    Err(format!("unknown verb {verb} for a {} ({known}); everything else is in its spec", C::kind().name))
}
