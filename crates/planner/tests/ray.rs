//! The planner of a RayCluster, rule by rule.

mod ray_world;

use std::time::Duration;

use planner::{
    Code, Time, Uid,
    ray::{Group, Observed, Op, Phase, Plan, Pod, RayContainer, Role, Spec, Template, Upgrade, Why, plan},
};
use ray_world::{NOW, World, group, slot, spec};

fn small() -> Spec {
    spec(vec![group("g", 2, 1), group("m", 1, 2)])
}

fn big(replicas: u32) -> Spec {
    spec(vec![group("g", replicas, 1)])
}

/// A cluster in which all is well, for long.
fn well(spec: Spec) -> World {
    World::new(spec, 0).settled()
}

fn head(world: &mut World) -> &mut Pod {
    world.pods.iter_mut().find(|pod| pod.role == Role::Head).expect("should have a head")
}

fn worker<'a>(world: &'a mut World, group: &str, index: u32, host: u32) -> &'a mut Pod {
    let role = Role::Worker { group: group.to_owned(), replica: index, host };
    world.pods.iter_mut().find(|pod| pod.role == role).expect("should have that worker")
}

fn sicken(pod: &mut Pod) {
    pod.raylet_unhealthy_since = Some(Duration::ZERO);
    pod.ready_since = None;
}

fn at(world: &World, now: Time) -> Plan {
    let observed = Observed { pods: world.pods.clone(), ledger: world.ledger.clone() };
    plan(&world.spec, Some(&observed), now)
}

fn deleted(plan: &Plan) -> Vec<(&str, Why)> {
    let ops = plan.ops.iter();
    ops.filter_map(
        |op| if let Op::DeletePod { name, why, .. } = op { Some((name.as_str(), *why)) } else { None },
    )
    .collect()
}

fn creations(plan: &Plan) -> usize {
    plan.ops.iter().filter(|op| matches!(op, Op::CreateHead | Op::CreateWorker { .. })).count()
}

fn codes(plan: &Plan) -> Vec<Code> {
    std::iter::once(&plan.reason).chain(&plan.others).map(|reason| reason.code).collect()
}

/// Does the whole plan, and lets terminating pods go.
fn next(world: &World) -> World {
    let mut world = world.after(&ray_world::Step::Reconcile(usize::MAX));
    assert_eq!(world.broken, None);
    world.pods.retain(|pod| !pod.terminating || pod.node_lost);
    world
}

#[test]
fn everything_is_created_at_once() {
    let plan = World::new(small(), 0).plan();
    assert_eq!(plan.ops[0], Op::CreateHead);
    assert_eq!(creations(&plan), 5);
    assert_eq!(codes(&plan), [Code::CreatingHead, Code::CreatingWorkers, Code::CreatingWorkers]);
}

#[test]
fn what_matches_is_left_alone() {
    let plan = well(small()).plan();
    assert_eq!((plan.ops.len(), plan.record.clone(), plan.reason.code), (0, None, Code::Matched));
}

#[test]
fn a_failed_read_decides_nothing() {
    let plan = plan(&small(), None, NOW);
    assert_eq!((plan.ops.len(), plan.record, plan.reason.code), (0, None, Code::ObservationMissing));
}

#[test]
fn replicas_are_clamped() {
    let bounded = |replicas, min, max| Group { replicas, min, max, ..group("g", 0, 1) }.desired();
    assert_eq!(bounded(None, 2, 5), 2);
    assert_eq!(bounded(Some(9), 2, 5), 5);
    assert_eq!(bounded(Some(0), 2, 5), 2);
    assert_eq!(bounded(Some(3), 7, 5), 5);
    assert_eq!(Group { suspended: true, ..group("g", 3, 1) }.desired(), 0);
}

#[test]
fn the_next_head_waits_for_the_last_one_and_takes_its_name() {
    let mut world = well(small());
    let name = head(&mut world).name.clone();
    head(&mut world).terminating = true;
    let plan = world.plan();
    assert_eq!((plan.ops.len(), plan.reason.code), (0, Code::WaitingForHeadToLeave));
    world.pods.retain(|pod| pod.role != Role::Head);
    let plan = world.plan();
    assert_eq!(plan.ops, [Op::CreateHead]);
    assert_eq!(plan.ops[0].pod_name(&world.spec), Some(name));
}

#[test]
fn a_head_that_terminates_on_a_lost_node_blocks_nothing() {
    let mut world = well(small());
    head(&mut world).node_lost = true;
    assert_eq!(deleted(&world.plan()).first().map(|(_, why)| *why), Some(Why::NodeLost));
    head(&mut world).terminating = true;
    let (name, uid) = (head(&mut world).name.clone(), head(&mut world).uid.clone());
    let ops = world.plan().ops;
    assert_eq!(ops, [Op::ReleasePod { name: name.clone(), uid }, Op::CreateHead]);
    assert_eq!(ops[1].pod_name(&world.spec), Some(name), "one name, so that there is never a second head");
}

#[test]
fn a_lost_head_costs_no_worker() {
    for kill in [
        |pod: &mut Pod| pod.phase = Phase::Failed,
        |pod: &mut Pod| pod.node_lost = true,
        |pod: &mut Pod| pod.terminating = true,
        |pod: &mut Pod| sicken(pod),
    ] {
        let mut world = well(small());
        kill(head(&mut world));
        // Workers suffer with their head, and one of two hosts even ends.
        sicken(worker(&mut world, "g", 0, 0));
        worker(&mut world, "g", 1, 0).marked_unhealthy = true;
        worker(&mut world, "m", 0, 1).phase = Phase::Failed;
        let plan = world.plan();
        assert!(deleted(&plan).iter().all(|(name, _)| name.contains("-head-")), "{plan:#?}");
        assert!(codes(&plan).contains(&Code::EvictionStoppedByHead), "{plan:#?}");
    }
}

#[test]
fn workers_get_time_to_recover_after_their_head() {
    let mut world = well(big(5));
    head(&mut world).ready_since = Some(NOW);
    sicken(worker(&mut world, "g", 0, 0));
    let plan = world.plan();
    assert_eq!((plan.ops.len(), plan.reason.code), (0, Code::WaitingForThreshold));
    assert_eq!(plan.wake(), Some(NOW + Duration::from_mins(1)));
}

#[test]
fn without_fault_tolerance_workers_go_with_their_head_and_before_the_next() {
    let mut world = well(Spec { fault_tolerant: false, ..small() });
    worker(&mut world, "g", 1, 0).phase = Phase::Pending;
    world.pods.retain(|pod| pod.role != Role::Head);
    let plan = world.plan();
    assert_eq!(deleted(&plan).len(), 3, "the one that waits for a head stays: {plan:#?}");
    assert!(deleted(&plan).iter().all(|(_, why)| *why == Why::HeadLost));
    assert_eq!(creations(&plan), 0, "{plan:#?}");
    assert_eq!(creations(&next(&world).plan()), 4);
}

#[test]
fn the_unhealthy_are_marked_then_deleted_then_created_anew() {
    let mut world = well(big(5));
    sicken(worker(&mut world, "g", 3, 0));
    let uid = worker(&mut world, "g", 3, 0).uid.clone();
    assert_eq!(world.plan().ops, [Op::MarkUnhealthy { uid }]);
    let marked = next(&world);
    let plan = marked.plan();
    assert_eq!((deleted(&plan).len(), deleted(&plan)[0].1, creations(&plan)), (1, Why::Unhealthy, 0));
    let create = Op::CreateWorker { group: "g".to_owned(), replica: 3, host: 0, incarnation: 1 };
    assert_eq!(next(&marked).plan().ops, [create]);
}

#[test]
fn a_check_that_fails_for_a_moment_is_only_waited_for() {
    let mut world = well(big(5));
    worker(&mut world, "g", 3, 0).raylet_unhealthy_since = Some(NOW);
    let plan = world.plan();
    assert_eq!((plan.ops.len(), plan.reason.code), (0, Code::WaitingForThreshold));
}

#[test]
fn a_pod_that_anyone_marks_is_replaced() {
    let mut world = well(big(5));
    worker(&mut world, "g", 2, 0).marked_unhealthy = true;
    assert_eq!(deleted(&world.plan()).len(), 1);
    head(&mut world).marked_unhealthy = true;
    let plan = world.plan();
    assert_eq!(deleted(&plan).len(), 1, "the head first: {plan:#?}");
}

#[test]
fn evictions_stay_within_a_tenth() {
    for (replicas, budget) in [(1, 1), (5, 1), (19, 1), (20, 2), (40, 4)] {
        let mut world = well(spec(vec![Group { max: 100, ..group("g", replicas, 1) }]));
        world
            .pods
            .iter_mut()
            .filter(|pod| pod.role != Role::Head)
            .for_each(|pod| pod.marked_unhealthy = true);
        assert_eq!(deleted(&world.plan()).len(), budget, "{replicas}");
        // Terminating, gone, and created but not ready: each still counts.
        let terminating = world.after(&ray_world::Step::Reconcile(usize::MAX));
        let gone = next(&world);
        let starting = next(&gone);
        for later in [terminating, gone, starting] {
            assert!(deleted(&later.plan()).is_empty(), "{replicas}: {:#?}", later.plan());
        }
    }
}

#[test]
fn an_eviction_counts_until_its_successor_is_ready_whatever_befalls_that() {
    let mut world = well(big(5));
    worker(&mut world, "g", 0, 0).marked_unhealthy = true;
    let mut world = next(&next(&world));
    worker(&mut world, "g", 1, 0).marked_unhealthy = true;
    worker(&mut world, "g", 0, 0).phase = Phase::Failed;
    world.ledger.0.values_mut().for_each(|entry| entry.at = Some(Duration::ZERO));
    let plan = world.plan();
    assert_eq!(deleted(&plan).iter().map(|(_, why)| *why).collect::<Vec<_>>(), [Why::PodFailed]);
    assert!(codes(&plan).contains(&Code::EvictionBudgetSpent));
}

#[test]
fn an_evicted_replica_that_is_not_wanted_holds_up_no_other() {
    let mut world = well(Spec { autoscaling: true, ..big(5) });
    worker(&mut world, "g", 4, 0).marked_unhealthy = true;
    let mut world = next(&world);
    worker(&mut world, "g", 1, 0).marked_unhealthy = true;
    assert!(codes(&world.plan()).contains(&Code::EvictionBudgetSpent));
    // With an autoscaler fewer are wanted first, and who goes is named later.
    world.spec.groups[0].replicas = Some(0);
    assert_eq!(deleted(&world.plan()).iter().map(|(_, why)| *why).collect::<Vec<_>>(), [Why::Unhealthy]);
}

#[test]
fn correlated_trouble_stops_evictions() {
    let mut world = well(big(4));
    for index in 0..3 {
        sicken(worker(&mut world, "g", index, 0));
    }
    let plan = world.plan();
    assert_eq!((plan.ops.len(), plan.reason.code), (0, Code::EvictionStoppedCorrelated));
    worker(&mut world, "g", 0, 0).raylet_unhealthy_since = None;
    assert_eq!(world.plan().ops.len(), 1, "half is not more than half");
}

#[test]
fn one_worker_alone_is_no_correlation() {
    let mut world = well(big(1));
    sicken(worker(&mut world, "g", 0, 0));
    assert_eq!(world.plan().ops.len(), 1);
}

#[test]
fn lost_nodes_are_replaced_unless_most_are_lost() {
    let mut world = well(big(4));
    worker(&mut world, "g", 0, 0).node_lost = true;
    worker(&mut world, "g", 1, 0).node_lost = true;
    assert_eq!(deleted(&world.plan()).len(), 2);
    worker(&mut world, "g", 2, 0).node_lost = true;
    assert_eq!(deleted(&world.plan()).len(), 0);
    worker(&mut world, "g", 2, 0).terminating = true;
    assert_eq!(creations(&world.plan()), 1, "what Kubernetes gave up is replaced at once");
}

#[test]
fn the_failed_are_recreated_and_the_restarting_left_to_the_kubelet() {
    let ended = |comes_back| RayContainer::Ended { comes_back };
    for (phase, ray, gone) in [
        (Phase::Failed, RayContainer::Up, 1),
        (Phase::Succeeded, RayContainer::Up, 1),
        (Phase::Running, ended(false), 1),
        (Phase::Running, ended(true), 0),
    ] {
        let mut world = well(small());
        worker(&mut world, "g", 0, 0).phase = phase;
        worker(&mut world, "g", 0, 0).ray = ray;
        assert_eq!(deleted(&world.plan()).len(), gone, "{phase:?} {ray:?}");
        let mut world = well(small());
        head(&mut world).phase = phase;
        head(&mut world).ray = ray;
        assert_eq!(deleted(&world.plan()).len(), gone, "head {phase:?} {ray:?}");
    }
}

#[test]
fn replacements_of_a_place_are_spaced_out() {
    let mut world = well(big(5));
    let mut now = NOW;
    for pause in [0, 10, 20, 40, 80, 160, 300, 300] {
        worker(&mut world, "g", 0, 0).phase = Phase::Failed;
        let early = at(&world, (now + Duration::from_secs(pause)).saturating_sub(Duration::from_nanos(1)));
        assert_eq!(deleted(&early).len(), usize::from(pause == 0));
        if pause > 0 {
            assert_eq!(
                (early.reason.code, early.wake()),
                (Code::BackingOff, Some(now + Duration::from_secs(pause)))
            );
        }
        now += Duration::from_secs(pause);
        let plan = at(&world, now);
        assert_eq!(deleted(&plan).len(), 1, "after {pause}s");
        world.ledger = plan.record.unwrap();
        let pod = worker(&mut world, "g", 0, 0);
        pod.incarnation += 1;
    }
    worker(&mut world, "g", 0, 0).phase = Phase::Failed;
    let record = at(&world, now + Duration::from_mins(10)).record.unwrap();
    assert_eq!(record.0[&slot("g", 0)].replaced, 1, "long ago is forgotten");
}

#[test]
fn a_replica_of_several_hosts_lives_and_dies_whole() {
    let mut world = well(small());
    worker(&mut world, "m", 0, 1).phase = Phase::Failed;
    let plan = world.plan();
    assert_eq!(deleted(&plan).iter().map(|(_, why)| *why).collect::<Vec<_>>(), [Why::IncompleteReplica; 2]);
    let mut world = well(small());
    worker(&mut world, "m", 0, 0).marked_unhealthy = true;
    assert_eq!(deleted(&world.plan()).len(), 2);
    let mut world = well(small());
    worker(&mut world, "m", 0, 0).terminating = true;
    assert_eq!(deleted(&world.plan()).len(), 1, "the other one follows");
    let hosts = next(&world).plan().ops;
    assert!(hosts.iter().all(|op| matches!(op, Op::CreateWorker { incarnation: 1, .. })), "{hosts:?}");
    assert_eq!(hosts.len(), 2);
}

#[test]
fn a_started_replica_with_a_part_missing_or_too_many_is_replaced_whole() {
    let whys = |world: &World| deleted(&world.plan()).iter().map(|(_, why)| *why).collect::<Vec<_>>();
    let mut vanished = well(small());
    let part = worker(&mut vanished, "m", 0, 1).name.clone();
    vanished.pods.retain(|pod| pod.name != part);
    assert_eq!(whys(&vanished), [Why::IncompleteReplica]);
    let mut smaller = well(small());
    smaller.spec.groups[1].hosts = 1;
    assert_eq!(whys(&smaller), [Why::IncompleteReplica; 2]);
}

#[test]
fn a_failing_check_is_a_verdict_at_its_threshold_and_not_before() {
    let mut world = well(big(3));
    sicken(worker(&mut world, "g", 0, 0));
    let minute = Duration::from_mins(1);
    let early = at(&world, Duration::from_secs(59));
    assert_eq!(
        (early.ops.len(), early.reason.code, early.reason.until),
        (0, Code::WaitingForThreshold, Some(minute))
    );
    assert!(matches!(at(&world, minute).ops[..], [Op::MarkUnhealthy { .. }]));
}

#[test]
fn a_replica_that_was_begun_is_completed() {
    let world = World::new(small(), 0);
    let begun = world.after(&ray_world::Step::Reconcile(4));
    let plan = begun.plan();
    assert_eq!(codes(&plan), [Code::CompletingReplica]);
    assert_eq!(plan.ops, [Op::CreateWorker { group: "m".to_owned(), replica: 0, host: 1, incarnation: 0 }]);
}

#[test]
fn victims_are_the_unhealthy_then_the_unready_then_the_last() {
    let mut world = well(big(5));
    sicken(worker(&mut world, "g", 1, 0));
    worker(&mut world, "g", 2, 0).ready_since = None;
    for (replicas, gone) in [(4, vec![1]), (3, vec![1, 2]), (2, vec![1, 2, 4])] {
        world.spec.groups[0].replicas = Some(replicas);
        let names: Vec<String> =
            gone.iter().map(|index| worker(&mut world, "g", *index, 0).name.clone()).collect();
        let plan = world.plan();
        let mut victims: Vec<&str> = deleted(&plan).into_iter().map(|(name, _)| name).collect();
        victims.sort_unstable();
        assert_eq!(victims, names, "{replicas}");
    }
}

#[test]
fn with_autoscaling_only_the_listed_go_and_what_exceeds_the_maximum() {
    let mut world = well(Spec { autoscaling: true, ..big(5) });
    world.spec.groups[0].replicas = Some(2);
    assert_eq!(world.plan().ops, []);
    let name = worker(&mut world, "g", 2, 0).name.clone();
    world.spec.groups[0].workers_to_delete = vec![name.clone()];
    assert_eq!(deleted(&world.plan()), [(name.as_str(), Why::WorkersToDelete)]);
    world.spec.groups[0].max = 3;
    assert_eq!(deleted(&world.plan()).len(), 2);
}

#[test]
fn a_list_is_honoured_once_and_only_for_this_clusters_workers() {
    let mut world = well(big(3));
    for pod in [worker(&mut world, "g", 1, 0).clone(), head(&mut world).clone()] {
        world.list(pod.name, pod.uid);
    }
    world.list("somebody-elses".to_owned(), Uid("theirs".to_owned()));
    let plan = world.plan();
    assert_eq!(deleted(&plan).len(), 1);
    // The name stays in the list, and its place is filled: the new pod has another name.
    let world = next(&next(&world));
    assert_eq!(world.pods.len(), 4);
    assert_eq!(world.plan().ops, []);
}

#[test]
fn a_name_that_was_seen_or_is_listed_is_never_given_again() {
    let mut world = well(big(3));
    let gone = world.pods.iter().position(|pod| pod.slot() == slot("g", 1)).unwrap();
    let name = world.pods.remove(gone).name;
    let created = world.plan().ops[0].pod_name(&world.spec).unwrap();
    assert_ne!(created, name, "seen");
    world.spec.groups[0].workers_to_delete = vec![created.clone()];
    let plan = world.plan();
    assert_ne!(plan.ops[0].pod_name(&world.spec), Some(created), "listed");
    // And the choice outlives the list.
    world.ledger = plan.record.clone().unwrap();
    world.spec.groups[0].workers_to_delete.clear();
    assert_eq!(world.plan().ops, plan.ops);
}

#[test]
fn terminating_pods_occupy_their_place() {
    let mut world = well(big(3));
    worker(&mut world, "g", 1, 0).terminating = true;
    assert_eq!(creations(&world.plan()), 0);
}

#[test]
fn suspension_takes_all_and_resumption_creates_all() {
    let mut world = well(small());
    world.spec.suspended = true;
    assert_eq!(deleted(&world.plan()).len(), 5);
    let empty = next(&world);
    assert_eq!((empty.plan().ops.len(), empty.plan().reason.code), (0, Code::Suspended));
    let mut resumed = empty;
    resumed.spec.suspended = false;
    assert_eq!(creations(&resumed.plan()), 5);
}

#[test]
fn a_suspended_group_and_a_removed_one_give_their_pods_back() {
    let mut world = well(small());
    world.spec.groups[0].suspended = true;
    world.spec.groups.remove(1);
    let plan = world.plan();
    let of = |why| deleted(&plan).iter().filter(|(_, w)| *w == why).count();
    assert_eq!((of(Why::Suspended), of(Why::GroupRemoved)), (2, 2));
}

#[test]
fn recreation_deletes_all_and_then_creates_all() {
    let mut world = well(small());
    world.spec.template = Template(7);
    assert_eq!(world.plan().ops, [], "without the strategy nothing happens");
    world.spec.upgrade = Upgrade::Recreate;
    let plan = world.plan();
    assert_eq!((deleted(&plan).len(), creations(&plan)), (5, 0));
    let mut half = world.after(&ray_world::Step::Reconcile(usize::MAX));
    half.pods.truncate(1);
    assert_eq!(half.plan().ops, [], "one is still there");
    assert_eq!(creations(&next(&world).plan()), 5);
    world.pods.iter_mut().for_each(|pod| pod.template = None);
    assert_eq!(world.plan().ops, [], "adopted pods are not restarted");
}

#[test]
fn every_deletion_names_the_uid_that_was_seen() {
    let mut world = well(small());
    world.pods.iter_mut().enumerate().for_each(|(index, pod)| pod.uid = Uid(index.to_string()));
    world.spec.suspended = true;
    for op in world.plan().ops {
        let Op::DeletePod { name, uid, .. } = op else { panic!("{op:?}") };
        assert!(world.pods.iter().any(|pod| pod.name == name && pod.uid == uid));
    }
}

#[test]
fn a_crash_after_the_record_repeats_the_deletion_and_no_pause() {
    for victim in 0..5 {
        let mut world = well(small());
        world.pods[victim].phase = Phase::Failed;
        let ops = world.plan().ops;
        let crashed = world.after(&ray_world::Step::Reconcile(0));
        assert_eq!(crashed.plan().ops, ops);
        assert_eq!(crashed.plan().record, None);
    }
}

#[test]
fn a_view_that_went_back_in_time_is_put_right() {
    let mut world = well(big(2));
    let mut twin = worker(&mut world, "g", 1, 0).clone();
    twin.incarnation += 1;
    "twin".clone_into(&mut twin.name);
    twin.uid = Uid("twin".to_owned());
    let old = worker(&mut world, "g", 1, 0).name.clone();
    world.pods.push(twin);
    assert_eq!(deleted(&world.plan()), [(old.as_str(), Why::Superseded)]);
}

/// Why pods are read after the cluster object: names protect nobody from a view that is older than the ledger.
#[test]
fn pods_that_were_read_before_their_ledger_would_be_made_twice() {
    let first = World::new(small(), 0);
    let seen = well(small());
    let late = Observed { pods: first.pods, ledger: first.ledger };
    let names = |ops: Vec<Op>| ops.into_iter().filter_map(|op| op.pod_name(&small())).collect::<Vec<_>>();
    let there = |name: &String| seen.pods.iter().any(|pod| pod.name == *name);
    assert!(
        names(plan(&small(), Some(&late), NOW).ops).iter().all(there),
        "an old view of both makes nothing new"
    );
    let mixed = Observed { ledger: seen.ledger.clone(), ..late };
    assert!(!names(plan(&small(), Some(&mixed), NOW).ops).iter().all(there));
}

#[test]
fn names_fit_and_never_meet() {
    let name = |cluster: &str, uid: &str, group: &str| {
        let spec = Spec { name: cluster.to_owned(), uid: Uid(uid.to_owned()), ..small() };
        let op = Op::CreateWorker { group: group.to_owned(), replica: 9_999, host: 99, incarnation: 99_999 };
        op.pod_name(&spec).unwrap()
    };
    assert_ne!(name("a", "1", "b-c"), name("a-b", "2", "c"));
    assert_ne!(name("a", "1", "b"), name("a", "2", "b"));
    assert!(name(&"a".repeat(53), "1", &"b".repeat(63)).len() <= 63);
    assert!(!name(&"a".repeat(31), "1", "b").contains("--"));
}
