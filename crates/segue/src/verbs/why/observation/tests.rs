use controllers::kind;
use serde_json::json;

use super::*;

fn explain(object: &Value, pods: Value, children: Value) -> Why {
    observation(object, pods, children).explain()
}

fn kind(object: &Value) -> &'static Served {
    kind::named(object["kind"].as_str().unwrap_or("LeaderWorkerSet")).unwrap()
}

/// What there is to read of an object of a kind, of a LeaderWorkerSet where it names none.
fn observation(object: &Value, pods: Value, children: Value) -> Observation {
    let child = |object: Value| Child { served: kind(&object), object };
    let children: Vec<Value> = serde_json::from_value(children).unwrap();
    let mut whole =
        json!({"metadata": {"generation": 2, "uid": "u"}, "spec": {}, "status": {"observedGeneration": 2}});
    for (part, fields) in object.as_object().unwrap() {
        match fields.as_object() {
            Some(fields) => whole[part].as_object_mut().map(|part| part.extend(fields.clone())),
            None => whole.as_object_mut().map(|it| drop(it.insert(part.clone(), fields.clone()))),
        };
    }
    Observation {
        served: kind(object),
        is_not_adopted: false,
        title: "thing/x".to_owned(),
        namespace: "n".to_owned(),
        object: whole,
        children: children.into_iter().map(child).collect(),
        pods: serde_json::from_value(pods).unwrap(),
        events: Vec::new(),
        now: "2026-01-01T00:01:40Z".parse().unwrap(),
    }
}

fn at(text: &str) -> Option<Timestamp> {
    format!("2026-01-01T00:{text}Z").parse().ok()
}

#[test]
fn a_step_that_waits_is_told_with_its_pod_and_what_to_do() {
    let serving = json!({
        "kind": "ModelServing",
        "spec": {"rolloutStrategy": {"rollingUpdateConfiguration": {"roleUpgrade": {"steps": [{}, {}]}}}},
        "status": {
            "currentRevision": "a", "updateRevision": "b",
            "message": "group 0 waits",
            "conditions": [{"type": "Stalled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:50Z"}],
            "groups": [{"index": 0, "waitingFor": {"subject": "waits"}, "step": {
                "index": 1, "role": "decode", "required": 2, "satisfied": 1, "blockingPod": "p", "reason": "old news",
            }}],
        },
    });
    let pod = json!({"metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:40Z"}, "status": {
        "podIP": "1.2.3.4",
        "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 3}],
    }});
    let why = explain(&serving, json!([pod]), json!([]));
    assert_eq!(why.state, State::Stalled);
    let wait = &why.waits[0];
    assert_eq!(wait.what, "group 0, step 2 of 2: 1 of 2 decode updated and Ready");
    assert_eq!(wait.what_for.as_deref(), Some("pod p: container c is not ready"), "what is now counts");
    assert_eq!(wait.since, at("00:40"));
    assert_eq!(wait.then, None, "what happens then is the controller's to say");
    assert_eq!(why.pods[0].restarts, 3);
    assert_eq!(why.next, ["segue logs p -n n", "segue get pod/p -o yaml -n n", "segue undo thing/x -n n"]);
}

#[test]
fn states_are_told_apart() {
    let state = |object: &Value| explain(object, json!([]), json!([])).state;
    assert_eq!(state(&json!({"kind": "LeaderWorkerSet"})), State::Idle);
    assert_eq!(state(&json!({"status": {"observedGeneration": 1}})), State::NotSeen);
    assert_eq!(state(&json!({"metadata": {"deletionTimestamp": "x"}})), State::Deleting);
    assert_eq!(state(&json!({"status": {"waitingFor": {"subject": "makes groups"}}})), State::Working);
    let held = json!({
        "metadata": {"annotations": {PARTITION_BEFORE_PAUSE: "0"}},
        "status": {"currentRevision": "a", "updateRevision": "b"},
    });
    assert_eq!(state(&held), State::Paused);
    let mut whole = held;
    whole["status"]["currentRevision"] = "b".into();
    assert_eq!(state(&whole), State::Idle, "it has nothing to be held back from");
}

#[test]
fn what_another_operator_made_is_told_with_the_way_out() {
    let mut observation = observation(&json!({"status": {"observedGeneration": 2}}), json!([]), json!([]));
    observation.is_not_adopted = true;
    let why = observation.explain();
    assert_eq!(why.state, State::NotAdopted);
    assert!(why.next[0].starts_with("segue adopt "), "{:?}", why.next);
}

#[test]
fn a_version_that_is_kept_is_told_though_nothing_is_left_to_do() {
    let kept = json!({
        "reason": "Retaining", "subject": "the version before is kept", "since": "2026-01-01T00:00:00Z",
        "deadline": "2026-01-01T00:40:00Z", "onExpiry": "it goes",
    });
    let status = json!({
        "observedGeneration": 2, "message": "the version before is kept",
        "rollout": {"waitingFor": kept},
    });
    let why = explain(&json!({"kind": "ModelDeployment", "status": status}), json!([]), json!([]));
    assert_eq!((why.state, why.waits.len()), (State::Idle, 1));
    assert_eq!((why.waits[0].until, why.waits[0].then.as_deref()), (at("40:00"), Some("it goes")));
}

#[test]
fn an_alarm_while_nothing_else_is_left_to_do_is_no_wait_for_what_is() {
    let status = json!({
        "observedGeneration": 2, "message": "every replica is of the wanted version",
        "conditions": [{"type": "NamesTaken", "status": "True", "message": "Service x", "observedGeneration": 2}],
    });
    let why = explain(&json!({"kind": "ModelDeployment", "status": status}), json!([]), json!([]));
    assert_eq!((why.state, why.waits.len()), (State::Stalled, 0));
}

#[test]
fn an_alarm_about_the_spec_of_now_says_that_it_was_seen() {
    let told = |ty: &str, generation: u32| {
        let conditions = json!([{
            "type": ty, "status": "True", "message": "quota exceeded", "observedGeneration": generation,
        }]);
        let object = json!({"status": {"observedGeneration": 1, "conditions": conditions}});
        explain(&object, json!([]), json!([]))
    };
    let why = told("WritesRefused", 2);
    assert_eq!((why.state, why.next.len()), (State::Stalled, 0));
    assert_eq!(why.conditions[0].message, "quota exceeded");
    assert_eq!(told("WritesRefused", 1).state, State::NotSeen, "it is about the spec before");
    assert_eq!(told("DisruptionsMiscounted", 2).state, State::NotSeen, "it holds nothing back");
}

#[test]
fn times_come_from_the_waits_of_a_deployment_and_of_its_sets() {
    let set = json!({"metadata": {"name": "v2"}, "status": {"groups": [
        {"index": 1, "waitingFor": {
            "subject": "it failed twice", "deadline": "2026-01-01T00:02:00Z", "onExpiry": "it is made again",
        }},
    ]}});
    let waits = json!({
        "subject": "units to be ready: 1 of 2", "since": "2026-01-01T00:00:30Z",
        "deadline": "2026-01-01T00:10:00Z", "onExpiry": "back to v1",
    });
    let progressing = json!([{"type": "Progressing", "status": "True"}]);
    let deployment = json!({
        "kind": "ModelDeployment",
        "status": {"conditions": progressing, "rollout": {"waitingFor": waits}},
    });
    let why = explain(&deployment, json!([]), json!([set]));
    assert_eq!(why.state, State::Working);
    let told: Vec<_> = why.waits.iter().map(|it| (it.what.as_str(), it.until, it.then.as_deref())).collect();
    assert_eq!(
        told,
        [
            ("units to be ready: 1 of 2", at("10:00"), Some("back to v1")),
            ("v2: group 1: it failed twice", at("02:00"), Some("it is made again")),
        ]
    );
    let idle = json!({"kind": "ModelDeployment", "status": {"message": "v2 has it all"}});
    let why = explain(&idle, json!([]), json!([]));
    assert_eq!((why.state, why.waits.len()), (State::Idle, 0));
}

#[test]
fn a_deployment_that_is_made_for_the_first_time_is_at_work() {
    let conditions = json!([
        {"type": "Degraded", "status": "True", "message": "0 of 2 replicas serve", "observedGeneration": 2},
        {"type": "Progressing", "status": "True", "lastTransitionTime": "2026-01-01T00:00:50Z"},
    ]);
    let status = json!({"message": "v1 is made", "conditions": conditions});
    let why = explain(&json!({"kind": "ModelDeployment", "status": status}), json!([]), json!([]));
    assert_eq!(why.state, State::Working);
    assert_eq!((why.waits[0].what.as_str(), why.waits[0].since), ("v1 is made", at("00:50")));
    assert_eq!(why.conditions[0].ty, "Degraded", "it is told all the same");
    let down = json!([{"type": "Degraded", "status": "True", "message": "1 of 2 replicas serve"}]);
    let why =
        explain(&json!({"kind": "ModelDeployment", "status": {"conditions": down}}), json!([]), json!([]));
    assert_eq!(why.state, State::Working, "something is left to do while too few serve");
}

#[test]
fn a_deployment_that_a_person_holds_is_held_by_its_condition() {
    let conditions = json!([
        {"type": "Paused", "status": "True", "message": "a person decides"},
        {"type": "Progressing", "status": "True"},
    ]);
    let status = json!({"conditions": conditions});
    let why = explain(&json!({"kind": "ModelDeployment", "status": status}), json!([]), json!([]));
    assert_eq!(why.state, State::Paused);
    assert_eq!(why.next, ["segue resume thing/x -n n", "segue abort thing/x -n n"]);
}

#[test]
fn a_rollout_that_failed_is_told_until_it_is_answered() {
    let failed = "version v2 failed: 0 of 2 replicas ready; rolled back to v1";
    let why = |phase: &str, failure: Value| {
        let word = if phase == "Idle" { "False" } else { "True" };
        let conditions = json!([
            {"type": "Degraded", "status": "True", "message": failed},
            {"type": "Progressing", "status": word},
            {"type": "Paused", "status": if phase == "Paused" { "True" } else { "False" }},
            {"type": "RollbackInProgress", "status": if phase == "RollingBack" { "True" } else { "False" }},
        ]);
        let rollout = json!({"failure": failure});
        let status =
            json!({"observedGeneration": 2, "message": failed, "conditions": conditions, "rollout": rollout});
        explain(&json!({"kind": "ModelDeployment", "status": status}), json!([]), json!([]))
    };
    let failure = json!({"reason": "ProgressDeadlineExceeded", "message": failed});
    assert_eq!(why("RollingBack", failure.clone()).state, State::Working);
    for phase in ["Idle", "Paused"] {
        let why = why(phase, failure.clone());
        assert_eq!((why.state, why.waits.len()), (State::Failed, 0), "{phase}");
        let text = crate::verbs::why::print::text(&why);
        assert_eq!(text.matches(failed).count(), 1, "{text}");
        assert_eq!(text.matches("segue apply").count(), 1, "{text}");
        assert_eq!(text.contains("segue resume"), phase == "Paused", "{text}");
    }
    assert_eq!(why("Paused", Value::Null).state, State::Paused, "nothing has failed");
}

#[test]
fn alarms_of_what_an_object_is_made_of_are_its_own() {
    let alarm = |ty: &str| json!({"type": ty, "status": "True", "message": "exceeded quota: gpus"});
    let why = |ty: &str, deleted: Value| {
        let metadata = json!({"name": "chat-v2", "deletionTimestamp": deleted});
        let set = json!({"metadata": metadata, "status": {"conditions": [alarm(ty)]}});
        let busy = json!([{"type": "Progressing", "status": "True"}]);
        let deployment = json!({"kind": "ModelDeployment", "status": {"conditions": busy}});
        explain(&deployment, json!([]), json!([set]))
    };
    for ty in ["WritesRefused", "NamesTaken", "Degraded"] {
        let why = why(ty, Value::Null);
        assert_eq!(why.state, State::Stalled, "{ty}");
        let told = &why.conditions[0];
        assert_eq!((told.ty.as_str(), told.message.as_str()), (ty, "exceeded quota: gpus"));
        assert_eq!(told.of.as_deref(), Some("leaderworkerset/chat-v2"));
        let text = crate::verbs::why::print::text(&why);
        let line = format!("{ty} of leaderworkerset/chat-v2, since an unknown time: exceeded quota: gpus");
        assert!(text.contains(&line), "{text}");
    }
    assert_eq!(why("Available", Value::Null).conditions.len(), 0);
    let leaving = why("WritesRefused", json!("2026-01-01T00:00:00Z"));
    assert_eq!((leaving.state, leaving.conditions.len()), (State::Working, 0), "what goes needs nothing");
}

/// A kind that was added says by its description alone how it is read.
#[test]
fn a_kind_that_was_added_is_explained() {
    let why = |status: Value| {
        let mut observation = observation(&json!({"status": status}), json!([]), json!([]));
        observation.served = &crate::toy::SERVED;
        observation.explain()
    };
    assert_eq!(why(json!({"kept": "x-note"})).state, State::Idle);
    assert_eq!(why(json!({"observedGeneration": 1})).state, State::NotSeen);
    let waits = why(json!({"waitingFor": {"subject": "the reader answers"}}));
    assert_eq!((waits.state, waits.waits[0].what.as_str()), (State::Working, "the reader answers"));
    let alarm = json!({"type": "WritesRefused", "status": "True", "message": "exceeded quota: notes"});
    let refused = why(json!({"conditions": [alarm]}));
    assert_eq!((refused.state, refused.conditions[0].of.as_deref()), (State::Stalled, None));
    let held = json!({"type": "Paused", "status": "True", "message": "a person reads it"});
    let held = why(json!({"conditions": [held]}));
    assert_eq!((held.state, held.conditions[0].ty.as_str(), held.next.len()), (State::Paused, "Paused", 0));
}

#[test]
fn a_rollout_that_was_aborted_is_not_up_to_date() {
    let why = |request: Value| {
        let status =
            json!({"observedGeneration": 2, "message": "v6 was aborted", "rollout": {"request": request}});
        explain(&json!({"kind": "ModelDeployment", "status": status}), json!([]), json!([]))
    };
    let aborted = why(json!({"verb": "abort"}));
    assert_eq!(aborted.state, State::Aborted);
    assert_eq!(
        aborted.next[1..],
        ["segue apply -f FILE, with a version that works", "segue retry thing/x -n n"]
    );
    let text = crate::verbs::why::print::text(&aborted);
    assert!(text.contains("has an aborted rollout\n\n  v6 was aborted\n"), "{text}");
    assert_eq!(why(json!({"verb": "promote"})).state, State::Idle);
}

/// A first version has none to go back to: it is tried on, and its status says that it moves.
#[test]
fn a_first_version_that_failed_has_failed_and_one_that_is_taken_back_is_changing() {
    let why = |going_back: &str| {
        let condition =
            |ty: &str, status: &str| json!({"type": ty, "status": status, "message": "v1 failed"});
        let status = json!({
            "observedGeneration": 2, "message": "v1 failed",
            "rollout": {"failure": {"message": "v1 failed"}, "waitingFor": {"subject": "waiting for replicas"}},
            "conditions": [condition("Progressing", "True"), condition("RollbackInProgress", going_back)],
        });
        explain(&json!({"kind": "ModelDeployment", "status": status}), json!([]), json!([]))
    };
    let failed = why("False");
    assert_eq!(failed.state, State::Failed);
    assert!(failed.next.contains(&"segue retry thing/x -n n".to_owned()), "{:?}", failed.next);
    let text = crate::verbs::why::print::text(&failed);
    assert!(text.contains("has a failed rollout\n\n  v1 failed\n"), "{text}");
    assert_eq!(why("True").state, State::Working);
}

#[test]
fn what_a_person_decides_is_told_with_the_verbs() {
    let status = |reason: &str| {
        json!({"conditions": [{"type": "Progressing", "status": "True"}],
            "rollout": {"waitingFor": {"subject": "paused at step 2 of 5", "reason": reason}}})
    };
    let next = |reason| {
        explain(&json!({"kind": "ModelDeployment", "status": status(reason)}), json!([]), json!([])).next
    };
    for reason in ["Paused", "Previewing"] {
        assert_eq!(next(reason), ["segue promote thing/x -n n", "segue abort thing/x -n n"], "{reason}");
    }
    assert_eq!(next("WaitingForReady"), Vec::<String>::new());
}
