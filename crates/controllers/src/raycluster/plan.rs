//! What a change of a cluster does to its pods.

use api::raycluster::RayCluster;
use planner::ray::Upgrade;
use serde_json::Value;

use super::wanted;
use crate::rehearsal::{Assumptions, NoPlan, Rehearsal, typed};

/// Nothing is rolled out, so there are no steps to show: what happens is said in a sentence.
pub(super) fn plan(manifest: &Value, old: Option<&Value>, _: &Assumptions) -> Result<Rehearsal, NoPlan> {
    let new: RayCluster = typed(manifest)?;
    let old: Option<RayCluster> = old.map(typed).transpose()?;
    let same = old.as_ref().is_none_or(|old| wanted::template(old) == wanted::template(&new));
    Err(NoPlan::nothing(match (same, wanted::spec(&new).upgrade) {
        (true, _) => "the templates of the pods are the same: no running pod is replaced",
        (false, Upgrade::Recreate) => {
            "upgradeStrategy.type is Recreate: all pods are deleted, and made again from the new templates"
        }
        (false, Upgrade::None) => {
            "running pods keep their templates; new pods get the new ones; upgradeStrategy.type Recreate replaces all"
        }
    }))
}
