//! A new version inside the one set that there is: layer 1 rolls it, this gates it.

use super::{Action, Decision, InPlace, Observed, Phase, VersionId, Wanted, movement};
use crate::reason::Reason;

/// The next thing for a set that becomes the target unit by unit, or becomes what it was.
pub(super) fn plan(wanted: &Wanted, observed: &Observed, set: InPlace, current: VersionId) -> Decision {
    let goal = match observed.rollout.phase {
        Phase::Forward => wanted.target,
        Phase::Back => current,
        Phase::Paused => {
            return (
                Action::Wait,
                Reason::new("Paused", "the rollout is paused").then("a person resumes it"),
            );
        }
    };
    if set.installed != goal {
        let what =
            if goal == wanted.target { "the set is to become the new version" } else { "the set goes back" };
        return (Action::Install(goal), Reason::new("Installing", what));
    }
    if set.updated < wanted.replicas {
        let what =
            format!("waiting for units of that version to be ready: {} of {}", set.updated, wanted.replicas);
        return movement::waiting(wanted, observed, "WaitingForReady", what);
    }
    if goal != current {
        return (
            Action::Promote(goal),
            Reason::new("Promoted", "every unit is of the new version and ready"),
        );
    }
    movement::scale(wanted, observed, current)
}
