//! One event for each transition of an upgrade: what a status says now and did not say before.

use api::modelserving::{GroupStatus, ModelServingStatus};

use crate::{
    conditions::{reasons, types},
    runtime::Event,
};

/// What happened between two statuses: each group that came to another step, fell back, or is updated.
pub(super) fn of_transitions(
    before: &ModelServingStatus,
    after: &ModelServingStatus,
    steps: usize,
) -> Vec<Event> {
    let event = |(warning, reason, note)| Event { warning, ..Event::normal("Update", reason, note) };
    notes(before, after, steps).into_iter().map(event).collect()
}

fn notes(
    before: &ModelServingStatus,
    after: &ModelServingStatus,
    steps: usize,
) -> Vec<(bool, &'static str, String)> {
    let mut notes = Vec::new();
    let find = |status: &'_ ModelServingStatus, index: i32| -> Option<GroupStatus> {
        status.groups.iter().find(|group| group.index == index).cloned()
    };
    for group in &after.groups {
        let Some(step) = &group.step else { continue };
        let earlier = find(before, group.index).and_then(|group| group.step);
        let name = match usize::try_from(step.index) {
            Ok(index) if index < steps => format!("step {} of {steps}", index + 1),
            _ => "what is left after the steps".to_owned(),
        };
        let far = format!("{} of {} {} updated and Ready", step.satisfied, step.required, step.role);
        let note = format!("group {}: {name}: {far}", group.index);
        // Of another spec nothing was met yet that could fall back.
        let is_same = before.observed_generation == after.observed_generation;
        match earlier {
            Some(earlier) if is_same && step.index < earlier.index => {
                notes.push((true, "StepRegressed", note));
            }
            Some(earlier) if step.index == earlier.index => {}
            _ => notes.push((false, "StepEntered", note)),
        }
    }
    if let Some(why) = stalled(after).filter(|why| stalled(before) != Some(*why)) {
        notes.push((true, reasons::STEP_WAITS, why.to_owned()));
    }
    for group in before.groups.iter().filter(|group| group.step.is_some()) {
        let over = find(after, group.index).is_none_or(|after| after.step.is_none());
        let updated = find(after, group.index)
            .is_none_or(|after_group| Some(&after_group.revision) == after.update_revision.as_ref());
        if over && updated && after.update_revision == before.update_revision {
            notes.push((false, "GroupUpdated", format!("group {}: every step is met", group.index)));
        }
    }
    notes
}

fn stalled(status: &ModelServingStatus) -> Option<&str> {
    let stalled = status.conditions.iter().find(|it| it.type_ == types::STALLED.name && it.status == "True");
    stalled.map(|it| it.message.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(step: Value) -> ModelServingStatus {
        let mut group = json!({"index": 1, "revision": if step.is_null() { "new" } else { "old" }});
        if !step.is_null() {
            group["step"] = step;
        }
        serde_json::from_value(json!({"updateRevision": "new", "groups": [group]})).unwrap()
    }

    fn step(index: u32, satisfied: u32, why: Option<&str>) -> Value {
        let mut step = json!({"index": index, "role": "decode", "required": 2, "satisfied": satisfied});
        if let Some(why) = why {
            step["blockingPod"] = "p".into();
            step["reason"] = why.into();
        }
        step
    }

    fn recorded(before: &Value, after: &Value) -> Vec<(bool, &'static str)> {
        let notes = notes(&status(before.clone()), &status(after.clone()), 2);
        notes.into_iter().map(|(warning, reason, _)| (warning, reason)).collect()
    }

    #[test]
    fn each_transition_is_recorded_once() {
        let (first, second) = (step(0, 0, None), step(1, 2, None));
        assert_eq!(recorded(&Value::Null, &first), [(false, "StepEntered")]);
        assert_eq!(recorded(&first, &first), []);
        assert_eq!(recorded(&first, &step(0, 1, None)), [], "a count is no transition");
        assert_eq!(recorded(&first, &second), [(false, "StepEntered")]);
        assert_eq!(recorded(&second, &first), [(true, "StepRegressed")]);
        let edited = ModelServingStatus { observed_generation: 2, ..status(first.clone()) };
        let edited = notes(&status(second.clone()), &edited, 2);
        assert_eq!(
            edited.iter().map(|it| it.1).collect::<Vec<_>>(),
            ["StepEntered"],
            "the spec is another one"
        );
        assert_eq!(recorded(&second, &Value::Null), [(false, "GroupUpdated")]);
        let starts = step(0, 0, Some("container c is not ready"));
        assert_eq!(recorded(&first, &starts), [], "a pod that starts is no news");
        let with = |message: &str| {
            let mut status = status(starts.clone());
            let stalled = json!({"type": "Stalled", "status": "True", "reason": "StepWaits", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            status.conditions = vec![serde_json::from_value(stalled).unwrap()];
            status
        };
        let (before, after) = (status(starts.clone()), with("no image"));
        assert_eq!(notes(&before, &after, 2), [(true, "StepWaits", "no image".to_owned())]);
        assert_eq!(notes(&after, &after, 2), []);
    }

    #[test]
    fn what_is_said_names_the_step_its_target_and_how_far_it_is() {
        let notes = notes(&status(Value::Null), &status(step(1, 1, None)), 2);
        assert_eq!(notes[0].2, "group 1: step 2 of 2: 1 of 2 decode updated and Ready");
    }
}
