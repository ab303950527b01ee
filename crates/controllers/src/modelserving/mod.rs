//! `ModelServing`: serving groups of roles, such as prefill and decode.

mod act;
pub mod adopt;
mod decide;
mod floors;
mod gang;
mod observe;
mod plugin;
mod render;
mod revision;
mod status;
mod tell;
#[cfg(test)]
mod tests;
mod wanted;

use planner::{Time, roles, sets::State, units};

use self::{
    decide::{Decision, GroupDecision, Whole, decide, id_of},
    observe::{Found, Group, Observed, Replica},
};
use crate::{
    runtime::{Context, Error, Key, Next},
    unit::Look,
};

/// Looks at a ModelServing, and does the next thing for it.
pub(crate) async fn reconcile(context: &Context, key: &Key) -> Result<Next, Error> {
    let now = context.now();
    let data_plane = context.outside.data_plane();
    let protections = context.settings.protections;
    let found = {
        let world = context.index.read();
        observe::observe(Look { world: &world, data_plane: data_plane.as_ref(), protections, now }, key)?
    };
    let observed = match found {
        Found::Nothing => return Ok(Next::default()),
        // What follows sees it in the index.
        Found::NewRevision(serving) => {
            return revision::store(context, &serving).await.map(|()| Next::default());
        }
        Found::NotAdopted(serving, pod) => {
            let note =
                format!("another operator made pod {pod}: nothing is done until `segue adopt {}`", key.name);
            context.tell(serving.as_ref(), true, "NotAdopted", note).await;
            return Ok(Next::default());
        }
        Found::Serving(observed) => observed,
    };
    let decision = decide(&observed, now);
    confirm_trouble(context, &observed, &decision).await?;
    let written = write_status(context, &observed, &decision, now).await?;
    act::act(context, &observed, &decision, written, now).await?;
    let used = observed.used();
    revision::prune(context, &observed.serving, |key| used.contains(key)).await?;
    Ok(next(&observed, &decision).after(now))
}

/// What is made again loses what it has: its failure must be one, and not a pod that we have not heard of yet. The same for
/// what is replaced without a place in the budget, because it does not serve: one old pod of a group makes all of it look so.
async fn confirm_trouble(context: &Context, observed: &Observed, decision: &Decision) -> Result<(), Error> {
    for (ordinal, decided) in &decision.groups {
        let fails = decided.units.values().any(|(ops, _)| ops.iter().any(is_recreation));
        let Some(group) = observed.groups.get(ordinal) else { continue };
        if fails || decided.failure.is_some() || takes_what_does_not_serve(group, decided) {
            let pods: Vec<_> = group.replicas.values().flat_map(|it| it.pods.iter().cloned()).collect();
            let owner = Key::of(observed.serving.as_ref());
            context.are_current(&owner, &observed.selector(*ordinal), &pods).await?;
        }
    }
    Ok(())
}

fn takes_what_does_not_serve(group: &Group, decided: &GroupDecision) -> bool {
    let idles = |replica: &Replica| matches!(replica.state, State::Starting | State::Lapsed);
    if decided.whole != Whole::Stays {
        return group.replicas.values().any(idles);
    }
    let taken = decided.ops.iter().filter(|op| !matches!(op, roles::Op::Create { .. }));
    taken.filter_map(|op| group.replicas.get(&id_of(op))).any(idles)
}

fn is_recreation(op: &units::Op) -> bool {
    matches!(op, units::Op::RecordRecreation { .. })
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
    if observed.serving.status.as_ref() == Some(&status) {
        return Ok(false);
    }
    let before = observed.serving.status.clone().unwrap_or_default();
    let mut serving = observed.serving.as_ref().clone();
    serving.status = Some(status.clone());
    context.write_status(&serving).await?;
    tell::transitions(context, observed, &before, &status).await;
    Ok(true)
}

/// The earliest time at which anything is decided otherwise.
fn next(observed: &Observed, decision: &Decision) -> Next {
    let groups = decision.groups.values();
    let reasons =
        groups.flat_map(|group| group.units.values().map(|(_, reason)| reason).chain([&group.reason]));
    let at = reasons.chain([&decision.reason]).filter_map(|reason| reason.until);
    let at = at.chain(observed.judged_again_at).min();
    let mut replicas = observed.groups.values().flat_map(|group| group.replicas.values());
    Next { at, outside: replicas.any(|replica| matches!(replica.state, State::Leaving { .. })) }
}
