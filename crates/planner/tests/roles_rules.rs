//! The semantics of `roleUpgrade.steps` inside one group, one promise each, by the numbers of the design notes. Those
//! of the set of groups (11, 12, 19) are in `roles_set.rs`, which steps are admitted (3, 26) is judged by the API's
//! tables, and 27 is a paragraph of the module's documentation.

mod roles_kit;

use std::time::Duration;

use planner::{
    Amount, Code,
    roles::{Blocking, Group, GroupSpec, Recovery, State, Step, StepState, Turn, plan_group},
};
use roles_kit::{
    NOW, acts, admitted, count, group, hash, pd, percent, recorded, replica, replicas, role, short,
};

const NOTHING: [&str; 0] = [];

fn with_steps(spec: GroupSpec, steps: Vec<Step>) -> GroupSpec {
    GroupSpec { steps, ..spec }
}

fn step(spec: &GroupSpec, group: &Group) -> (usize, String, u32, u32) {
    let step = admitted(spec, group).step.expect("should be at a step");
    (step.index, step.role, step.required, step.satisfied)
}

// 1
#[test]
fn a_share_rounds_up_and_never_exceeds_the_role() {
    let required =
        |amount, replicas| Step { role: "decode".to_owned(), update_to: amount }.required(replicas);
    for (share, replicas, expected) in
        [(1, 4, 1), (25, 4, 1), (26, 4, 2), (50, 3, 2), (100, 3, 3), (100, 0, 0)]
    {
        assert_eq!(required(Amount::Percent(share), replicas), expected, "{share}% of {replicas}");
    }
    assert_eq!(required(Amount::Count(9), 4), 4);
    assert_eq!(required(Amount::Percent(u32::MAX), u32::MAX), u32::MAX);
}

// 2
#[test]
fn a_step_never_asks_for_less_than_an_earlier_one_of_its_role() {
    let spec = with_steps(pd(4, 0), vec![count("decode", 3), percent("decode", 50)]);
    assert_eq!(step(&spec, &group(&[("decode", "aabb"), ("prefill", "")])), (0, "decode".to_owned(), 3, 2));
    // Three are met, so 50 % is too, and the rest follows.
    assert_eq!(step(&spec, &group(&[("decode", "abbb"), ("prefill", "")])), (2, "decode".to_owned(), 4, 3));
    // Nor does the smaller one hide that three were asked for: the fourth is not begun before prefill has its turn.
    let spec = with_steps(pd(4, 1), vec![count("decode", 3), percent("decode", 50), count("prefill", 1)]);
    let lost = group(&[("decode", "-bbb"), ("prefill", "A")]);
    assert_eq!(acts(&spec, &lost), ["+decode-0@a", "-prefill-0"]);
    assert!(!admitted(&spec, &lost).step.expect("should be at a step").regressed);
}

// 2, 3
#[test]
fn a_role_that_shrinks_clamps_its_steps() {
    let spec = with_steps(pd(2, 1), vec![count("decode", 3), count("prefill", 1)]);
    assert_eq!(step(&spec, &group(&[("decode", "bb"), ("prefill", "a")])), (1, "prefill".to_owned(), 1, 0));
}

// 4
#[test]
fn a_step_of_a_role_without_replicas_is_met() {
    let spec = pd(0, 2);
    let group = group(&[("decode", ""), ("prefill", "aa")]);
    assert_eq!(step(&spec, &group), (1, "prefill".to_owned(), 1, 0));
    assert_eq!(acts(&spec, &group), ["out prefill-1"]);
    assert!(admitted(&pd(0, 0), &roles_kit::group(&[("decode", ""), ("prefill", "")])).done);
}

// 5
#[test]
fn a_role_that_did_not_change_is_met_and_never_touched() {
    let mut spec = pd(2, 2);
    spec.roles[0].target = hash("a");
    let before = group(&[("decode", "aa"), ("prefill", "aa")]);
    assert_eq!(step(&spec, &before), (1, "prefill".to_owned(), 1, 0));
    assert_eq!(acts(&spec, &before), ["out prefill-1"]);
    assert!(admitted(&spec, &group(&[("decode", "aa"), ("prefill", "bb")])).done);
    // Nor does it speak for the progress of others: a prefill that crashes before its canary returns as it was.
    let spec = with_steps(spec, vec![percent("decode", 50), count("prefill", 1), percent("decode", 100)]);
    assert_eq!(acts(&spec, &group(&[("decode", "aa"), ("prefill", "-B")])), ["+prefill-0@a"]);
}

// 6
#[test]
fn what_no_step_names_follows_the_last_step_in_the_order_of_the_spec() {
    let spec = with_steps(pd(2, 2), vec![count("prefill", 1)]);
    let rest = group(&[("decode", "aa"), ("prefill", "ab")]);
    assert_eq!(step(&spec, &rest), (1, "decode".to_owned(), 2, 0));
    assert_eq!(acts(&spec, &rest), ["out decode-1"]);
    assert_eq!(acts(&spec, &group(&[("decode", "bb"), ("prefill", "ab")])), ["out prefill-0"]);
}

// 7
#[test]
fn a_replica_is_its_entry_and_all_workers_of_its_own_revision() {
    assert_eq!(State::of_pods(1, 0), State::Ready);
    assert_eq!(State::of_pods(3, 3), State::Starting);
    assert_eq!(State::of_pods(4, 3), State::Ready);
    assert_eq!(State::of_pods(0, 0), State::Starting);
    // One write takes the whole replica out: ops name replicas, never pods.
    assert_eq!(acts(&pd(1, 0), &group(&[("decode", "a"), ("prefill", "")])), ["out decode-0"]);
}

// 8
#[test]
fn what_is_not_ready_goes_first_and_then_the_highest_ordinal() {
    assert_eq!(acts(&pd(4, 1), &group(&[("decode", "aAaa"), ("prefill", "a")])), ["-decode-1"]);
    assert_eq!(acts(&pd(4, 1), &group(&[("decode", "aaaa"), ("prefill", "a")])), ["out decode-3"]);
}

// 9
#[test]
fn one_at_a_time_unless_the_role_has_more_budget_and_never_past_the_step() {
    let mut spec = with_steps(pd(4, 1), vec![count("decode", 3)]);
    let before = group(&[("decode", "aaaa"), ("prefill", "a")]);
    assert_eq!(acts(&spec, &before), ["out decode-3"]);
    spec.roles[0].max_unavailable = 2;
    assert_eq!(acts(&spec, &before), ["out decode-3", "out decode-2"]);
    spec.roles[0].max_unavailable = 4;
    assert_eq!(acts(&spec, &before), ["out decode-3", "out decode-2", "out decode-1"]);
    spec.roles[0].max_unavailable = 0;
    assert_eq!(acts(&spec, &before), ["out decode-3"], "0 could never move");
}

// 10
#[test]
fn those_on_their_way_count_before_another_one_is_taken() {
    for decode in ["aaaB", "aaa~", "aaa.", "aaB~"] {
        let plan = admitted(&pd(4, 4), &group(&[("decode", decode), ("prefill", "aaaa")]));
        assert_eq!(short(&plan.ops), NOTHING, "{decode}");
    }
    assert_eq!(acts(&pd(4, 4), &group(&[("decode", "aaa-"), ("prefill", "aaaa")])), ["+decode-3@b"]);
    // And the next step does not begin on them.
    let waits = group(&[("decode", "aaaB"), ("prefill", "aaaa")]);
    assert_eq!(step(&pd(4, 4), &waits), (0, "decode".to_owned(), 1, 0));
}

// 10
#[test]
fn a_share_of_all_keeps_the_budget_of_the_role() {
    let spec = with_steps(pd(4, 4), vec![percent("decode", 100)]);
    assert_eq!(acts(&spec, &group(&[("decode", "aaab"), ("prefill", "aaaa")])), ["out decode-2"]);
    let plan = admitted(&spec, &group(&[("decode", "aaBb"), ("prefill", "aaaa")]));
    assert_eq!((short(&plan.ops).len(), plan.reason.code), (0, Code::WaitingForRoleBudget));
}

// 13
#[test]
fn a_new_revision_begins_again_and_replaces_the_failed_canary_first() {
    let mut spec = pd(4, 4);
    for role in &mut spec.roles {
        role.target = hash("c");
    }
    let stuck = group(&[("decode", "aaaB"), ("prefill", "aaaa")]);
    assert_eq!(acts(&spec, &stuck), ["-decode-3"], "fixing forward costs no capacity");
    assert_eq!(step(&spec, &stuck), (0, "decode".to_owned(), 1, 0));
    // Three revisions at once: one that was never upgraded and crashes is at its own, not at the one in between.
    let three = group(&[("decode", "-abC"), ("prefill", "aaab")]);
    assert_eq!(acts(&spec, &three), ["+decode-0@a"]);
}

// 14
#[test]
fn a_revert_replaces_only_what_was_upgraded() {
    let mut spec = pd(4, 4);
    for role in &mut spec.roles {
        role.target = hash("a");
    }
    assert_eq!(acts(&spec, &group(&[("decode", "aaab"), ("prefill", "aabB")])), ["-prefill-3"]);
    assert_eq!(acts(&spec, &group(&[("decode", "aaab"), ("prefill", "aaaa")])), ["out decode-3"]);
    // One that was taken out and never upgraded returns as it was.
    assert_eq!(acts(&spec, &group(&[("decode", "aaa-"), ("prefill", "aaaa")])), ["+decode-3@a"]);
    assert!(admitted(&spec, &group(&[("decode", "aaaa"), ("prefill", "aaaa")])).done);
}

// 15
#[test]
fn a_step_that_falls_back_stops_new_work_and_takes_out_nothing_more() {
    let plan = admitted(&pd(4, 4), &group(&[("decode", "aaaB"), ("prefill", "aabb")]));
    assert_eq!(short(&plan.ops), NOTHING);
    let regressed =
        StepState { index: 0, role: "decode".to_owned(), required: 1, satisfied: 0, regressed: true };
    assert_eq!(plan.step, Some(regressed));
    assert_eq!(plan.reason.code, Code::StepRegressed);
    // A prefill that was between its two lives when the canary fell back returns at the new revision.
    for prefill in ["aa-b", "a-bb"] {
        let ops = acts(&pd(4, 4), &group(&[("decode", "aaaB"), ("prefill", prefill)]));
        assert!(ops.len() == 1 && ops[0].ends_with("@b"), "{ops:?}");
    }
    // The lost canary itself returns as the canary.
    assert_eq!(acts(&pd(4, 4), &group(&[("decode", "aaa-"), ("prefill", "aabb")])), ["+decode-3@b"]);
}

// 16
#[test]
fn a_replica_whose_turn_has_not_come_returns_at_its_own_revision() {
    let acts = |decode, prefill| acts(&pd(4, 4), &group(&[("decode", decode), ("prefill", prefill)]));
    // Before the decode canary is Ready, prefill is old; the canary's own slot is new.
    assert_eq!(acts("aaaB", "a-aa"), ["+prefill-1@a"]);
    assert_eq!(acts("aaa-", "a-aa"), ["+decode-3@b", "+prefill-1@a"]);
    // With a canary there, a lost decode is old, also after prefill's canary.
    assert_eq!(acts("-aaB", "aaaa"), ["+decode-0@a"]);
    assert_eq!(acts("-aab", "aaab"), ["+decode-0@a", "out prefill-2"]);
    // Two empty slots and one canary to give: the highest, never two.
    assert_eq!(acts("-aa-", "aaaa"), ["+decode-3@b", "+decode-0@a"]);
    // The canary's slot is still occupied: the other one is not a second canary.
    assert_eq!(acts("-aa.", "aaaa"), ["+decode-0@a"]);
    // Nothing was begun and one is lost: it is the canary, and costs nothing more.
    assert_eq!(acts("a-aa", "aaaa"), ["+decode-1@b"]);
}

// 16
#[test]
fn a_second_canary_of_one_role_is_no_turn_for_another() {
    // A stale read may make two where the step asks for one; prefill's turn has still not come.
    assert_eq!(acts(&pd(2, 2), &group(&[("decode", "BB"), ("prefill", "a-")])), ["+prefill-1@a"]);
}

// 16
#[test]
fn without_a_record_the_lowest_outdated_replica_has_the_old_revision() {
    let mut crashed = group(&[("decode", "a-bB"), ("prefill", "aaaa")]);
    crashed.recorded.clear();
    assert_eq!(acts(&pd(4, 4), &crashed), ["+decode-1@b", "out prefill-3"], "the step of all had begun");
    let mut crashed = group(&[("decode", "a-aB"), ("prefill", "aaaa")]);
    crashed.recorded.clear();
    assert_eq!(acts(&pd(4, 4), &crashed), ["+decode-1@a"]);
}

// 17
#[test]
fn a_role_that_grows_gets_new_replicas_only_as_far_as_its_step_allows() {
    let waits_for_prefill = group(&[("decode", "aaab"), ("prefill", "aaaB")]);
    assert_eq!(acts(&pd(6, 4), &waits_for_prefill), ["+decode-5@a", "+decode-4@a"]);
    let at_all_prefill = group(&[("decode", "aaab"), ("prefill", "aabb")]);
    assert_eq!(acts(&pd(4, 6), &at_all_prefill), ["+prefill-5@b", "+prefill-4@b"]);
    let not_begun = group(&[("decode", "aaaa"), ("prefill", "aaaa")]);
    assert_eq!(acts(&pd(6, 4), &not_begun), ["+decode-5@b", "+decode-4@a"], "the canary comes for free");
}

// 18
#[test]
fn a_role_that_shrinks_parts_with_the_unready_the_outdated_the_cheap_then_the_highest() {
    assert_eq!(acts(&pd(3, 1), &group(&[("decode", "aAab"), ("prefill", "B")])), ["-decode-1"]);
    assert_eq!(acts(&pd(3, 1), &group(&[("decode", "aaab"), ("prefill", "B")])), ["out decode-2"]);
    assert_eq!(
        acts(&pd(2, 1), &group(&[("decode", "aabb"), ("prefill", "B")])),
        ["out decode-1", "out decode-0"]
    );
    let mut costly = group(&[("decode", "aaab"), ("prefill", "B")]);
    costly.replicas[2].deletion_cost = 5;
    assert_eq!(acts(&pd(3, 1), &costly), ["out decode-1"]);
    // One on its way out is the one that goes: nothing else does.
    assert_eq!(acts(&pd(3, 1), &group(&[("decode", "aab~"), ("prefill", "B")])), NOTHING);
    // What is left is not filled up: its ordinals stay as they are.
    assert_eq!(acts(&pd(3, 1), &group(&[("decode", "aa-b"), ("prefill", "B")])), NOTHING);
}

// 20
#[test]
fn a_new_role_comes_with_its_step_or_with_the_groups_turn() {
    let before = group(&[("decode", "aa")]);
    assert_eq!(acts(&pd(2, 2), &before), ["out decode-1"], "named: when its step is reached");
    assert_eq!(acts(&pd(2, 2), &group(&[("decode", "ab")])), ["+prefill-0@b"], "one, as its step says");
    let mut canary = group(&[("decode", "ab")]);
    canary.replicas.extend(replicas("prefill", "b"));
    assert_eq!(acts(&pd(2, 2), &canary), ["+prefill-1@b"]);
    let unnamed = with_steps(pd(2, 2), vec![count("decode", 1)]);
    assert_eq!(acts(&unnamed, &before), ["+prefill-0@b", "+prefill-1@b", "out decode-1"]);
    for turn in [Turn::Waiting, Turn::Protected] {
        assert_eq!(plan_group(&unnamed, &before, turn, NOW).ops, []);
    }
}

// 20
#[test]
fn a_dropped_role_goes_after_the_last_step_and_is_kept_up_until_then() {
    let spec = pd(1, 1);
    let busy = group(&[("decode", "b"), ("prefill", "B"), ("router", "a-")]);
    assert_eq!(acts(&spec, &busy), ["+router-1@a"]);
    let met = group(&[("decode", "b"), ("prefill", "b"), ("router", "aA")]);
    let plan = admitted(&spec, &met);
    assert_eq!(short(&plan.ops), ["out router-0", "-router-1"]);
    assert_eq!((plan.done, plan.reason.code), (false, Code::RemovingReplicas));
    let below = group(&[("decode", "b"), ("prefill", "b"), ("router", "a-")]);
    assert_eq!(short(&admitted(&spec, &below).ops), ["out router-0"], "nothing is made that would go again");
    for turn in [Turn::Waiting, Turn::Protected] {
        assert_eq!(plan_group(&spec, &met, turn, NOW).ops, []);
    }
}

// 21
#[test]
fn another_number_of_workers_is_another_hash_and_replaces_the_replica() {
    // The caller's hash covers the number of workers; here nothing but replacing whole replicas exists.
    let spec = GroupSpec { roles: vec![role("decode", 2, "a-with-3-workers")], ..GroupSpec::default() };
    assert_eq!(acts(&spec, &group(&[("decode", "aa")])), ["out decode-1"]);
}

// 22
#[test]
fn a_failure_makes_the_replica_anew_or_the_group_at_one_revision() {
    let mut failed = group(&[("decode", "aaB"), ("prefill", "a.")]);
    failed.replicas[2].failed = true;
    let mut spec = pd(3, 2);
    assert_eq!(acts(&spec, &failed), ["-decode-2"]);
    spec.recovery = Recovery::None;
    assert_eq!(acts(&spec, &failed), NOTHING);
    spec.recovery = Recovery::Group;
    let plan = admitted(&spec, &failed);
    assert_eq!(short(&plan.ops), ["out decode-0", "out decode-1", "out prefill-0"]);
    assert_eq!(plan.reason.code, Code::RebuildingGroup);
    // The failed one is the last to go, so that a restart in between still knows.
    let mut last = group(&[("decode", "~.B"), ("prefill", "..")]);
    last.replicas[2].failed = true;
    assert_eq!(acts(&spec, &last), ["-decode-2"]);
    // Gone, they return at one revision: the new one where the group was admitted, else its own.
    let gone = group(&[("decode", "---"), ("prefill", "-B")]);
    let created = |turn| short(&plan_group(&spec, &gone, turn, NOW).ops);
    assert_eq!(created(Turn::Admitted), ["+decode-2@b", "+decode-1@b", "+decode-0@b", "+prefill-0@b"]);
    assert!(created(Turn::Protected).iter().all(|op| op.ends_with("@a")));
    // Who remembers the failure elsewhere marks all of them: those that serve drain.
    let mut marked = group(&[("decode", "aB-"), ("prefill", "aa")]);
    marked.replicas.iter_mut().for_each(|replica| replica.failed = true);
    assert_eq!(acts(&spec, &marked), ["out decode-0", "-decode-1", "out prefill-0", "out prefill-1"]);
    // Our own deletions are no failures.
    let mut ours = group(&[("decode", "aa~"), ("prefill", "aa")]);
    ours.replicas[2].failed = true;
    assert_eq!(acts(&spec, &ours), NOTHING);
}

// 23
#[test]
fn the_gang_minimum_is_kept_where_the_role_has_more() {
    let mut spec = with_steps(pd(4, 0), vec![percent("decode", 100)]);
    spec.roles[0].max_unavailable = 4;
    spec.roles[0].min_replicas = Some(3);
    assert_eq!(acts(&spec, &group(&[("decode", "aaaa"), ("prefill", "")])), ["out decode-3"]);
    let plan = admitted(&spec, &group(&[("decode", "aaaB"), ("prefill", "")]));
    assert_eq!((plan.ops.len(), plan.reason.code), (0, Code::WaitingForGangMinimum));
    // No more than the minimum exist: the upgrade still moves, within its budget.
    spec.roles[0].min_replicas = Some(4);
    spec.roles[0].max_unavailable = 1;
    assert_eq!(acts(&spec, &group(&[("decode", "aaaa"), ("prefill", "")])), ["out decode-3"]);
}

// 24
#[test]
fn steps_may_be_edited_on_the_way() {
    let midway = group(&[("decode", "aaab"), ("prefill", "aabb")]);
    assert_eq!(step(&pd(4, 4), &midway).0, 2);
    let edited =
        with_steps(pd(4, 4), vec![percent("decode", 50), count("prefill", 2), percent("prefill", 100)]);
    assert_eq!(step(&edited, &midway), (0, "decode".to_owned(), 2, 1));
    assert_eq!(acts(&edited, &midway), ["out decode-2"]);
    let fewer = with_steps(pd(4, 4), vec![count("prefill", 1)]);
    assert_eq!(step(&fewer, &midway), (1, "decode".to_owned(), 4, 1));
}

// 25
#[test]
fn a_stall_names_the_step_and_the_pod_and_never_advances() {
    let mut stuck = group(&[("decode", "aaaB"), ("prefill", "aaaa")]);
    let why = "cannot pull its image".to_owned();
    stuck.replicas[3].blocking = Some(Blocking { pod: "m-0-decode-3-0".to_owned(), why });
    let mut spec = pd(4, 4);
    spec.deadline = Some(Duration::from_mins(1));
    let at = |seconds| plan_group(&spec, &stuck, Turn::Admitted, NOW + Duration::from_secs(seconds));
    let plan = at(59);
    assert_eq!((plan.reason.code, plan.reason.since), (Code::WaitingForReady, Some(NOW)));
    assert_eq!(plan.reason.until, Some(NOW + Duration::from_mins(1)));
    assert_eq!(
        plan.reason.what,
        "step 1 of 4 (0 of 1 decode updated and Ready) waits: \
         decode-3 is blocked by pod m-0-decode-3-0: cannot pull its image"
    );
    let late = at(60);
    assert_eq!((late.reason.code, &late.reason.what), (Code::StepOverdue, &plan.reason.what));
    assert_eq!(late.reason.until, None, "nothing changes any more by time alone");
    assert_eq!((late.ops, late.step, late.done), (plan.ops, plan.step, plan.done));
}

// 26
#[test]
fn without_steps_the_roles_follow_in_order_each_in_its_budget() {
    let spec = with_steps(pd(2, 2), Vec::new());
    assert_eq!(acts(&spec, &group(&[("decode", "aa"), ("prefill", "aa")])), ["out decode-1"]);
    assert_eq!(acts(&spec, &group(&[("decode", "ab"), ("prefill", "aa")])), ["out decode-0"]);
    assert_eq!(acts(&spec, &group(&[("decode", "Bb"), ("prefill", "aa")])), NOTHING);
    assert_eq!(acts(&spec, &group(&[("decode", "bb"), ("prefill", "aa")])), ["out prefill-1"]);
}

#[test]
fn a_drained_replica_is_deleted_whatever_the_step() {
    let mut leaving = group(&[("decode", "aaab"), ("prefill", "aaB")]);
    leaving.recorded.push(recorded("router", 1, "a"));
    leaving.replicas.push(replica("router", 0, "a", State::Leaving { done: true }));
    assert_eq!(acts(&pd(4, 3), &leaving), ["-router-0"]);
}
