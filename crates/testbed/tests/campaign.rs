//! A slice of the campaigns: the rest is run by command (docs/faults.md).
#![allow(clippy::unwrap_used, clippy::panic)]

use testbed::campaign::{Fault, Plan, Report, Seeing, What, Workload, campaign, run, workloads};

fn story(kind: &str, name: &str) -> Workload {
    workloads(kind).into_iter().find(|story| story.name == name).unwrap()
}

fn clean(report: &Report) {
    assert!(report.is_clean(), "{:#?}", report.violations());
}

/// What a run found can be looked at again: two leaders race for every write, and their watches break off.
#[test]
fn the_same_story_plan_and_seed_give_the_same_run() {
    let story = story("modeldeployment", "hand over, rolling");
    let seeing = Seeing { late_millis: 0, expires: None, cut: Some(9), old_lists: 0 };
    let plan = Plan { two_leaders: true, seeing, ..Plan::one(Fault { at: 60, what: What::CrashBefore }) };
    let digest = |seed| run(&story, &plan, seed).digest;
    let first = digest(7);
    assert_eq!([digest(7), digest(7)], [first, first]);
    assert_ne!(digest(8), first, "the digest says nothing");
}

#[test]
fn sets_keep_their_promises_under_random_plans() {
    let stories = ["roll, one more", "roll back midway", "restart of a worker", "scale while rolling"]
        .map(|name| story("lws", name));
    let report = campaign(&stories, false, &(1..9));
    clean(&report);
    let edges = ["Available -> Progressing+UpdateInProgress", "Progressing+UpdateInProgress -> Available"];
    for fault in ["late event", "watch 410", "watch cut", "old list"].into_iter().chain(edges) {
        assert!(report.reached(fault) > 0, "{fault} was never reached: {}", report.json());
    }
}

#[test]
fn servings_keep_their_promises_under_random_plans() {
    let stories =
        ["steps", "groups, one more", "restart, the whole group"].map(|name| story("modelserving", name));
    clean(&campaign(&stories, false, &(1..5)));
}

#[test]
fn deployments_keep_their_promises_under_random_plans() {
    let stories = ["hand over, rolling", "hand back midway"].map(|name| story("modeldeployment", name));
    clean(&campaign(&stories, false, &(1..7)));
}

/// Two leaders that scale two versions: neither knows what the other one has asked for before it has the event, and what
/// one has written to the status may not have been done yet.
#[test]
fn two_leaders_give_no_room_away_twice() {
    let story = story("modeldeployment", "a third version midway");
    let reference = run(&story, &Plan::default(), 0);
    let mut report = Report::default();
    for (seeing, seed) in [
        (Seeing { late_millis: 247, old_lists: 27, ..Seeing::default() }, 95),
        (Seeing { late_millis: 247, old_lists: 27, ..Seeing::default() }, 96),
        (Seeing { cut: Some(4), ..Seeing::default() }, 40),
        (Seeing { expires: Some(5), ..Seeing::default() }, 206),
    ] {
        let plan = Plan { two_leaders: true, seeing, ..Plan::default() };
        report.add(&format!("{plan} and seed {seed}"), &run(&story, &plan, seed), Some(&reference));
    }
    clean(&report);
}

#[test]
fn clusters_keep_their_promises_under_random_plans() {
    let stories = ["loss of the head", "the check of every worker fails", "two workers are marked", "delete"]
        .map(|name| story("raycluster", name));
    let report = campaign(&stories, false, &(1..5));
    clean(&report);
    let edge = "HeadPodReady+RayClusterProvisioned -> RayClusterProvisioned";
    assert!(report.reached(edge) > 0, "no head was lost: {}", report.json());
}

#[test]
fn a_crash_around_any_write_changes_nothing() {
    let stories = [
        ("lws", "roll, single pods"),
        ("modelserving", "steps"),
        ("modeldeployment", "hand over, rolling"),
        ("raycluster", "loss of the head"),
    ];
    for (kind, name) in stories {
        let story = story(kind, name);
        let reference = run(&story, &Plan::default(), 0);
        let mut report = Report::default();
        // Every write is hit by the campaign; here every seventh, before and after in turn.
        for at in (1..=reference.writes).step_by(7) {
            let what = if at % 2 == 0 { What::CrashBefore } else { What::CrashAfter };
            let plan = Plan::one(Fault { at, what });
            report.add(&format!("{name} with {plan}"), &run(&story, &plan, 0), Some(&reference));
        }
        clean(&report);
    }
}

/// Where a failure makes the whole group again, what is missing because it was never made is no failure.
#[test]
fn an_interrupted_creation_of_groups_is_continued() {
    let story = story("modelserving", "restart, the whole group");
    let reference = run(&story, &Plan::default(), 0);
    let mut report = Report::default();
    for at in 3..=6 {
        for what in [What::CrashAfter, What::Refused(409)] {
            let plan = Plan::one(Fault { at, what });
            report.add(&format!("{plan}"), &run(&story, &plan, 0), Some(&reference));
        }
    }
    clean(&report);
}

/// A crash, and then a list from before the groups served: what looks idle in it would go first, and all of it at once.
#[test]
fn a_group_that_is_idle_in_a_stale_list_is_not_replaced() {
    let story = story("modelserving", "groups, one more");
    let reference = run(&story, &Plan::default(), 0);
    let plan = Plan::random(1603, reference.writes);
    let outcome = run(&story, &plan, 1603);
    assert!(outcome.reached.contains_key("old list"), "{plan} has no old list");
    let mut report = Report::default();
    report.add(&format!("{plan}"), &outcome, Some(&reference));
    clean(&report);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let story = story("lws", "roll, one more");
    let plan = Plan::random(11, 100);
    let (one, two) = (run(&story, &plan, 11), run(&story, &plan, 11));
    assert_eq!((one.writes, &one.reached, &one.violations), (two.writes, &two.reached, &two.violations));
}

#[test]
fn the_checker_sees_traffic_that_comes_too_early() {
    let story = story("modeldeployment", "hand over, rolling");
    let plan = Plan { without_gate: true, ..Plan::default() };
    let outcome = run(&story, &plan, 0);
    assert!(outcome.violations.iter().any(|it| it.starts_with("T3")), "{:?}", outcome.violations);
}

/// Two leaders begin rollouts, number versions and ask for replicas at the same time.
#[test]
fn two_leaders_agree_on_a_third_version_midway() {
    let story = story("modeldeployment", "a third version midway");
    let reference = run(&story, &Plan::default(), 0);
    let mut report = Report::default();
    for seed in 700_037..=700_040 {
        let plan = Plan { two_leaders: true, ..Plan::random(seed, reference.writes) };
        report.add(&format!("{plan} and seed {seed}"), &run(&story, &plan, seed), Some(&reference));
    }
    clean(&report);
}
