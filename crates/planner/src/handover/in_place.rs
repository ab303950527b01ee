//! A new version inside the one set that there is: layer 1 rolls it, this gates it.

use super::{Action, Decision, InPlace, Observed, Phase, VersionId, Wanted, movement};
use crate::{Code, reason::Reason};

/// The next thing for a set that becomes the target unit by unit, or becomes what it was.
pub(super) fn plan(wanted: &Wanted, observed: &Observed, set: InPlace, current: VersionId) -> Decision {
    let goal = match observed.rollout.phase {
        Phase::Forward => wanted.target,
        Phase::RollingBack => current,
        Phase::Paused => {
            return (
                Action::Wait,
                Reason::new(Code::Paused, "the rollout is paused").then("it continues once it is resumed"),
            );
        }
    };
    if set.installed != goal {
        let what = if goal == wanted.target {
            "updating the set to the new version"
        } else {
            "reverting the set to the current version"
        };
        return (Action::Install(goal), Reason::new(Code::Installing, what));
    }
    if set.updated < wanted.replicas {
        let what =
            format!("waiting for updated replicas to be ready: {} of {}", set.updated, wanted.replicas);
        return movement::waiting(wanted, observed, Code::WaitingForReady, what);
    }
    if goal != current {
        return (
            Action::Promote(goal),
            Reason::new(Code::Promoted, "every replica has the new version and is ready"),
        );
    }
    movement::scale(wanted, observed, current)
}
