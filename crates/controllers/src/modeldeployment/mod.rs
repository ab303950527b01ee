//! `ModelDeployment`: versions, and the way from one to the next.

mod act;
mod observe;
mod route;
mod status;
mod version;
mod wanted;

use std::{sync::Arc, time::Duration};

use api::modeldeployment::{ModelDeployment, ModelDeploymentStatus};
use planner::handover::{self, Action};

use self::observe::{Found, Look};
pub use self::wanted::wanted;
use crate::runtime::{Context, Error, Key, Next};

/// How often what users get is looked at during a rollout.
const COUNTED: Duration = Duration::from_secs(2);

/// Looks at a deployment, and does the next thing for it.
pub(crate) async fn reconcile(context: &Context, key: &Key) -> Result<Next, Error> {
    let now = context.now();
    let data_plane = context.outside.data_plane();
    let protections = context.settings.protections;
    let found = {
        let world = context.index.read();
        Look { world: &world, data_plane: data_plane.as_ref(), protections, now }.observe(key)
    };
    let observed = match found {
        Found::Nothing => return Ok(Next::default()),
        Found::NotServed(deployment, why) => {
            let status = status::not_served(&deployment, why, now);
            return write_status(context, &deployment, status).await.map(|_| Next::default());
        }
        Found::Deployment(observed) => observed,
    };
    let (action, reason) = handover::plan(&observed.wanted, &observed.seen, now);
    let status = status::status(&observed, &action, &reason, now);
    let written = write_status(context, &observed.deployment, status).await?;
    if !written && !matches!(action, Action::Wait | Action::Done) {
        context.is_current(observed.deployment.as_ref()).await?;
    }
    act::act(context, &observed, &action, now).await?;
    if let Some((word, note)) = act::event(&observed, &action).filter(|_| written) {
        context.tell(observed.deployment.as_ref(), false, word, note).await;
    }
    // What was done is seen when it is looked at again; what was only written down is looked at by ourselves.
    let again = matches!(action, Action::EnterStep(_) | Action::Enter(_) | Action::Promote(_));
    // Where somebody counts, what users get is looked at again as long as it moves.
    let counted = data_plane.is_some() && action != Action::Done;
    let next = observed.next.until(reason.until).after(now);
    Ok(next.until(again.then_some(now)).until(counted.then_some(now + COUNTED)))
}

/// Writes the status if it says anything new, on the condition that nobody decided anything meanwhile.
async fn write_status(
    context: &Context,
    deployment: &Arc<ModelDeployment>,
    status: ModelDeploymentStatus,
) -> Result<bool, Error> {
    if deployment.status.as_ref().is_some_and(|before| status::say_the_same(before, &status)) {
        return Ok(false);
    }
    let mut deployment = deployment.as_ref().clone();
    deployment.status = Some(status);
    context.write_status(&deployment).await.map(|()| true)
}
