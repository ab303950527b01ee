//! `LeaderWorkerSet`: groups of a leader and its workers.

mod act;
pub mod adopt;
mod budgets;
mod claims;
mod events;
mod normal;
mod observe;
mod render;
mod revision;
mod services;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::ResourceExt;
use planner::{
    Reason, Time,
    sets::{self, State},
    units,
};

use serde_json::json;

use self::observe::{Found, Observed};
use crate::{
    labels, request,
    runtime::{Context, Error, Key, Next, timestamp},
};

/// When a name is tried again that is somebody else's: nobody tells us when they let go of it.
const BLOCKED_AGAIN: Duration = Duration::from_secs(30);

/// What is done next, for the set and for each group that the set leaves alone.
#[derive(Debug)]
pub(crate) struct Decision {
    set: sets::Plan,
    groups: BTreeMap<u32, (Vec<units::Op>, Reason)>,
    /// Groups of which nothing but a record is left, and that are not wanted any more.
    forgotten: BTreeSet<u32>,
}

impl Decision {
    fn is_forgotten(&self, place: u32) -> bool {
        self.forgotten.contains(&place)
    }
}

/// Looks at a set, and does the next thing for it.
pub(crate) async fn reconcile(context: &Context, key: &Key) -> Result<Next, Error> {
    let now = context.now();
    let data_plane = context.outside.data_plane();
    let protections = context.settings.protections;
    let found = observe::observe(&context.index.read(), key, data_plane.as_ref(), protections, now)?;
    let observed = match found {
        Found::Nothing => return Ok(Next::default()),
        // What follows sees it in the index.
        Found::NewTemplate(set) => return revision::store(context, &set).await.map(|()| Next::default()),
        Found::Anothers(set, pod) => {
            let note =
                format!("another operator made pod {pod}: nothing is done until `segue adopt {}`", key.name);
            context.tell(set.as_ref(), true, "NotAdopted", note).await;
            return Ok(Next::default());
        }
        Found::Contested(set, until) => {
            let note = "another operator has just written its status: nothing is done while it works on it; stop that one, \
                        or give each of them namespaces of its own"
                .to_owned();
            context.tell(set.as_ref(), true, "AnotherOperator", note).await;
            return Ok(Next { at: Some(until), outside: false });
        }
        Found::Set(observed) => observed,
    };
    let decision = decide(&observed, now);
    confirm_failures(context, &observed, &decision).await?;
    let written = write_status(context, &observed, &decision, now).await?;
    let act::Outcome { blocked, result } = act::act(context, &observed, &decision, written, now).await;
    // What broke off has not tried every name.
    if result.is_ok() || !blocked.is_empty() {
        say_what_is_blocked(context, key, &blocked, now).await?;
    }
    if let Err(error) = result {
        events::tell_of_refusal(context, &observed, &error).await;
        return Err(error);
    }
    answer_request(context, &observed, now).await?;
    let used = observed.groups.values().map(|group| group.unit.revision);
    let used = used.chain([observed.spec.target, observed.spec.old]);
    let used: Vec<String> = used.map(|revision| observed.revisions.key(revision)).collect();
    revision::prune(context, &observed.set, &used).await?;
    Ok(next(&observed, &decision, !blocked.is_empty(), now).after(now))
}

fn decide(observed: &Observed, now: Time) -> Decision {
    let set = sets::plan(&observed.spec, &observed.units(), now);
    let place = |op: &sets::Op| match op {
        sets::Op::Create { ordinal, .. }
        | sets::Op::TakeOut { ordinal, .. }
        | sets::Op::Delete { ordinal, .. } => *ordinal,
    };
    let chosen: BTreeSet<u32> = set.ops.iter().map(place).collect();
    let left_alone = observed.groups.iter().filter(|(place, _)| !chosen.contains(place));
    let groups =
        left_alone.map(|(place, group)| (*place, units::plan(&group.spec, &group.unit, now))).collect();
    let deleted = set.ops.iter().filter(|op| matches!(op, sets::Op::Delete { .. })).map(place);
    let empty = |place: &u32| observed.groups.get(place).is_some_and(|group| group.pods.is_empty());
    let forgotten = deleted.filter(empty).collect();
    Decision { set, groups, forgotten }
}

/// A group that is made again loses what it has: its failure must be one, and not a pod that we have not heard of yet.
async fn confirm_failures(context: &Context, observed: &Observed, decision: &Decision) -> Result<(), Error> {
    for (place, (ops, _)) in &decision.groups {
        let fails = ops.iter().any(|op| matches!(op, units::Op::RecordRecreation { .. }));
        if let Some(group) = observed.groups.get(place).filter(|_| fails) {
            let name = observed.set.name_any();
            let labels = format!("{}={name},{}={place}", labels::SET_NAME, labels::GROUP_INDEX);
            context.are_current(&Key::of(observed.set.as_ref()), &labels, &group.pods).await?;
        }
    }
    Ok(())
}

/// Writes the status if it differs, before anything is done: what must be remembered is in it, and whoever decided
/// otherwise meanwhile makes it fail.
async fn write_status(
    context: &Context,
    observed: &Observed,
    decision: &Decision,
    now: Time,
) -> Result<bool, Error> {
    let status = status::status(observed, decision, now);
    if observed.set.status.as_ref() == Some(&status) {
        return Ok(false);
    }
    let mut set = observed.set.as_ref().clone();
    set.status = Some(status.clone());
    context.write_status(&set).await?;
    events::tell_of_conditions(context, observed, &status).await;
    Ok(true)
}

/// The one request that is not a change of the spec: groups that wait because they failed are made again at once.
const RETRY: &str = "retry";

/// Answers the request that was looked at, now that it is carried out. Whoever asks for more than that changes the spec.
async fn answer_request(context: &Context, observed: &Observed, now: Time) -> Result<(), Error> {
    let outcome = match request::unanswered(observed.set.as_ref()) {
        None => return Ok(()),
        Some(Err(why)) => Err(why),
        Some(Ok(asked)) if asked.verb == RETRY => Ok("groups that failed do not wait any longer".to_owned()),
        Some(Ok(asked)) => Err(format!(
            "the verb {:?} is not known for a LeaderWorkerSet; there is {RETRY:?}, and everything else is in its spec",
            asked.verb
        )),
    };
    let key = Key::of(observed.set.as_ref());
    let Some(set) = context.index.read().sets.get(&key).cloned() else { return Ok(()) };
    if set.annotations().get(request::REQUEST) != observed.set.annotations().get(request::REQUEST) {
        return Ok(());
    }
    let response = request::answer(set.as_ref(), outcome, timestamp(now));
    let text = serde_json::to_string(&response)
        .map_err(|error| Error::Malformed { what: key.to_string(), why: error.to_string() })?;
    let patch = json!({"metadata": {"annotations": {request::RESPONSE: text}}});
    context.change(set.as_ref(), patch).await?;
    context.tell(set.as_ref(), !response.done, "Request", response.message).await;
    Ok(())
}

/// A name that is somebody else's is known only when it is tried: it is said afterwards.
async fn say_what_is_blocked(
    context: &Context,
    key: &Key,
    blocked: &BTreeSet<String>,
    now: Time,
) -> Result<(), Error> {
    let Some(set) = context.index.read().sets.get(key).cloned() else { return Ok(()) };
    let mut set = set.as_ref().clone();
    let Some(status) = &mut set.status else { return Ok(()) };
    let before = status.conditions.clone();
    status::set_blocked(&mut status.conditions, blocked, set.metadata.generation.unwrap_or_default(), now);
    if status.conditions == before { Ok(()) } else { context.write_status(&set).await }
}

/// The earliest time at which anything is decided otherwise.
fn next(observed: &Observed, decision: &Decision, is_blocked: bool, now: Time) -> Next {
    let reasons = decision.groups.values().map(|(_, reason)| reason).chain([&decision.set.reason]);
    let stuck = observed.groups.values().filter_map(|group| group.stuck_at).filter(|at| *at > now);
    let again = is_blocked.then(|| now + BLOCKED_AGAIN);
    let at = reasons.filter_map(|reason| reason.until).chain(observed.given_up_at);
    let at = at.chain(stuck).chain(again).min();
    let outside = observed.groups.values().any(|group| matches!(group.state, State::Leaving { .. }));
    Next { at, outside }
}
