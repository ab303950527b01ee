//! Conditions, whose times change when they do.

use api::Conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time as ApiTime};
use planner::Time;

use crate::runtime::timestamp;

/// Says that something is so or not, and why.
pub(crate) fn set(
    conditions: &mut Conditions,
    (ty, is, reason, message): (&str, bool, &str, &str),
    generation: i64,
    now: Time,
) {
    let status = if is { "True" } else { "False" };
    let before = conditions.iter().position(|condition| condition.type_ == ty);
    let since = before.map(|place| &conditions[place]).filter(|condition| condition.status == status);
    let condition = Condition {
        type_: ty.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: Some(generation),
        last_transition_time: since
            .map_or_else(|| ApiTime(timestamp(now)), |before| before.last_transition_time.clone()),
    };
    match before {
        Some(place) => conditions[place] = condition,
        None => conditions.push(condition),
    }
}

/// Says that something that was once so is not any more, and leaves what was said of it.
pub(crate) fn unset(conditions: &mut Conditions, ty: &str, generation: i64, now: Time) {
    let Some(known) = conditions.iter().find(|condition| condition.type_ == ty).cloned() else { return };
    set(conditions, (ty, false, &known.reason, &known.message), generation, now);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change() {
        let mut conditions = Vec::new();
        let at = |seconds| Duration::from_secs(seconds);
        unset(&mut conditions, "Ready", 1, at(1));
        assert!(conditions.is_empty());
        set(&mut conditions, ("Ready", true, "Why", "because"), 1, at(2));
        set(&mut conditions, ("Ready", true, "Other", "words"), 2, at(3));
        let since = |conditions: &Conditions| conditions[0].last_transition_time.0.as_second();
        assert_eq!((since(&conditions), conditions[0].reason.as_str()), (2, "Other"));
        unset(&mut conditions, "Ready", 3, at(4));
        assert_eq!((since(&conditions), conditions[0].message.as_str()), (4, "words"));
        assert_eq!(conditions[0].observed_generation, Some(3));
    }
}
