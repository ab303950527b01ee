//! Random steps, sizes, delays, crashes and changes: the decisions need no memory, the bounds hold at each write, and
//! every upgrade ends.

mod explore;
mod roles_kit;
mod roles_world;

use explore::explore;
use planner::{
    Code, Uid,
    roles::{Group, GroupSpec, Op, SetPlan, SetSpec, State, Step, Turn, plan_group, plan_set},
};
use proptest::{
    prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest},
    test_runner::TestCaseError,
};
use roles_kit::{NOW, apply, count, group, hash, percent, ready, recorded, role};
use roles_world::{Faults, Upgrade};

/// Numbers from a seed, so that a case is a plain value.
struct Dice(u64);

impl Dice {
    fn up_to(&mut self, most: usize) -> usize {
        usize::try_from(self.roll(most as u64 + 1)).unwrap_or(most)
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

const ROLES: [&str; 3] = ["decode", "prefill", "router"];

/// Up to three roles of up to five replicas, and up to six steps that ask for more and more.
fn any_spec() -> impl Strategy<Value = GroupSpec> {
    let roles = proptest::collection::vec((0..=5_u32, 1..=3_u32, proptest::option::of(0..=3_u32)), 1..=3);
    let steps = proptest::collection::vec((0..3_usize, 1..=100_u32, any::<bool>()), 0..=6);
    (roles, steps).prop_map(|(sizes, steps)| {
        let sized = sizes.into_iter().zip(ROLES);
        let roles = sized.map(|((replicas, max_unavailable, min_replicas), name)| planner::roles::RoleSpec {
            max_unavailable,
            min_replicas,
            ..role(name, replicas, "b")
        });
        let roles: Vec<_> = roles.collect();
        let mut steps: Vec<_> = steps;
        steps.sort_by_key(|step| step.1);
        let step = |(at, share, counted): (usize, u32, bool)| {
            let role = &roles[at % roles.len()];
            if counted { count(&role.name, share * role.replicas / 100) } else { percent(&role.name, share) }
        };
        let steps = steps.into_iter().map(step).collect();
        GroupSpec { roles, steps, ..GroupSpec::default() }
    })
}

/// All old and Ready.
fn before(spec: &GroupSpec) -> Group {
    let letters: Vec<_> = spec.roles.iter().map(|role| "a".repeat(role.replicas as usize)).collect();
    let roles: Vec<_> = spec
        .roles
        .iter()
        .zip(&letters)
        .map(|(role, letters)| (role.name.as_str(), letters.as_str()))
        .collect();
    group(&roles)
}

/// The same group as another process would read it: built afresh, and in another order.
fn read_again(group: &Group, dice: &mut Dice) -> Group {
    let mut again = group.clone();
    for at in (1..again.replicas.len()).rev() {
        again.replicas.swap(at, dice.up_to(at));
    }
    again.recorded.reverse();
    again
}

struct Run {
    spec: GroupSpec,
    group: Group,
    dice: Dice,
    made: u32,
    retired: Vec<Uid>,
}

impl Run {
    /// Decides, checks that another process decides the same, and writes all or, in a crash, some.
    fn decide(&mut self, crashes: bool) -> Result<bool, TestCaseError> {
        let plan = plan_group(&self.spec, &self.group, Turn::Admitted, NOW);
        let again = plan_group(&self.spec, &read_again(&self.group, &mut self.dice), Turn::Admitted, NOW);
        prop_assert_eq!(&plan, &again);
        let all = plan.ops.len();
        let some = if crashes && self.dice.one_in(4) { self.dice.up_to(all) } else { all };
        for op in plan.ops.iter().take(some) {
            self.check(op)?;
            self.made += 1;
            apply(&mut self.group, op, Uid(format!("made-{}", self.made)));
        }
        Ok(plan.done)
    }

    /// The bounds: a Ready replica goes only where enough stay, none at its target goes, and none goes twice.
    fn check(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let (Op::TakeOut { role, ordinal, .. } | Op::Delete { role, ordinal, .. }) = op else {
            return Ok(());
        };
        let at = self.spec.roles.iter().position(|spec| spec.name == *role).unwrap_or(usize::MAX);
        let wanted = &self.spec.roles[at];
        let same = |replica: &&planner::roles::Replica| replica.role == *role && replica.ordinal == *ordinal;
        let at = self.group.replicas.iter().position(|replica| same(&replica)).unwrap_or(usize::MAX);
        let replica = &self.group.replicas[at];
        let begins = matches!(replica.state, State::Starting | State::Ready);
        prop_assert!(!begins || replica.hash != wanted.target, "{op:?} has its revision");
        if begins {
            prop_assert!(!self.retired.contains(&replica.uid), "{op:?} twice");
            self.retired.push(replica.uid.clone());
        }
        if replica.state == State::Ready {
            let left = ready(&self.group, role) - 1;
            let gang = wanted.min_replicas.filter(|min| wanted.replicas > *min).unwrap_or(0);
            let floor = wanted.replicas.saturating_sub(wanted.max_unavailable).max(gang) as usize;
            prop_assert!(left >= floor, "{op:?} leaves {left} of {floor}");
        }
        Ok(())
    }

    /// Each replica moves on, or not yet; while faults last, some die.
    fn pass(&mut self, faults: bool) {
        let dice = &mut self.dice;
        self.group.replicas.retain_mut(|replica| {
            let dies = faults && dice.one_in(60);
            let moves = dice.one_in(3);
            match replica.state {
                State::Starting if moves => replica.state = State::Ready,
                State::Leaving { .. } if moves => replica.state = State::Leaving { done: true },
                State::Terminating if moves => return false,
                _ => {}
            }
            !dies
        });
    }

    fn retarget(&mut self, name: &str) {
        for role in &mut self.spec.roles {
            role.target = hash(name);
        }
        self.retired.clear();
    }
}

/// Faults for a while, then none until the end.
fn upgrade(spec: GroupSpec, seed: u64, edit: Option<&str>) -> Result<Run, TestCaseError> {
    let group = before(&spec);
    let mut run = Run { spec, group, dice: Dice(seed | 1), made: 0, retired: Vec::new() };
    for round in 0..2000 {
        let faults = round < 60;
        if let (20, Some(name)) = (round, edit) {
            run.retarget(name);
        }
        if run.decide(faults)? && !faults {
            return Ok(run);
        }
        run.pass(faults);
    }
    Err(TestCaseError::fail(format!("it does not end: {:?}", run.group)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_upgrade_ends_within_its_bounds_and_needs_no_memory(spec in any_spec(), seed in any::<u64>()) {
        upgrade(spec, seed, None)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn so_does_one_that_is_changed_on_the_way(spec in any_spec(), seed in any::<u64>(), revert in any::<bool>()) {
        upgrade(spec, seed, Some(if revert { "a" } else { "c" }))?;
    }

    #[test]
    fn without_faults_each_replica_is_replaced_exactly_once(spec in any_spec(), seed in any::<u64>()) {
        let group = before(&spec);
        let all = group.replicas.len();
        let mut run = Run { spec, group, dice: Dice(seed | 1), made: 0, retired: Vec::new() };
        let mut rounds = 0;
        while !run.decide(false)? {
            run.pass(false);
            rounds += 1;
            prop_assert!(rounds < 2000, "it does not end");
        }
        prop_assert_eq!(run.retired.len(), all);
    }
}

/// What a set has lost that it should not have, at each write; its groups live in the same world.
fn set_run(spec: &SetSpec, seed: u64) -> Result<(), TestCaseError> {
    let old = |ordinal| Group { ordinal, ..before(&spec.group) };
    let mut groups: Vec<_> = (0..3).map(old).collect();
    let mut dice = Dice(seed | 1);
    let mut made = 0;
    for round in 0..3000 {
        let faults = round < 40;
        let plan = plan_set(spec, &groups, NOW);
        let mut again: Vec<_> = groups.iter().map(|group| read_again(group, &mut dice)).collect();
        again.reverse();
        prop_assert_eq!(&plan, &plan_set(spec, &again, NOW));
        check_set(spec, &plan)?;
        if plan.done && !faults {
            let untouched = groups.iter().filter(|group| group.ordinal < spec.partition);
            let old = untouched.flat_map(|group| &group.replicas).all(|replica| replica.hash == hash("a"));
            prop_assert!(old, "a protected group was changed");
            return Ok(());
        }
        let fresh = plan.groups.iter().map(|group| (group.ordinal, group.plan.ops.clone()));
        for (ordinal, ops) in fresh.collect::<Vec<_>>() {
            write_group(spec, &mut groups, ordinal, &ops, &mut made);
        }
        groups = groups.into_iter().filter_map(|group| pass_group(spec, group, &mut dice, faults)).collect();
    }
    Err(TestCaseError::fail(format!(
        "the set does not end: {:?} {groups:?}",
        plan_set(spec, &groups, NOW).reason
    )))
}

/// No more groups at work than the budget has, and none taken out of Running beyond it.
fn check_set(spec: &SetSpec, plan: &SetPlan) -> Result<(), TestCaseError> {
    let room = spec.max_unavailable.max(1) as usize;
    let upgraded =
        || plan.groups.iter().filter(|group| group.turn == Turn::Admitted && group.plan.step.is_some());
    prop_assert!(upgraded().count() <= room.max(broken_when_new(plan)), "too many groups at work");
    let retires = |op: &Op| matches!(op, Op::TakeOut { .. } | Op::Delete { .. });
    let taken = upgraded().filter(|group| group.running && group.plan.ops.iter().any(retires)).count();
    let kept = |group: &&planner::roles::GroupPlan| group.plan.reason.code != Code::RemovingGroup;
    let down = plan.groups.iter().filter(kept).filter(|group| !group.running).count();
    prop_assert!(taken == 0 || taken + down <= room, "{taken} taken and {down} down");
    Ok(())
}

/// Groups that were done and lost replicas: they are repaired at once, whatever the budget.
fn broken_when_new(plan: &SetPlan) -> usize {
    plan.groups.iter().filter(|group| group.turn == Turn::Admitted && !group.running).count()
}

fn write_group(spec: &SetSpec, groups: &mut Vec<Group>, ordinal: u32, ops: &[Op], made: &mut u32) {
    if ops.is_empty() {
        return;
    }
    if !groups.iter().any(|group| group.ordinal == ordinal) {
        let recorded = if ordinal < spec.partition { spec.current.clone() } else { Vec::new() };
        groups.push(Group { ordinal, recorded, replicas: Vec::new() });
    }
    for op in ops {
        *made += 1;
        let group = groups.iter_mut().find(|group| group.ordinal == ordinal).expect("should be there");
        apply(group, op, Uid(format!("made-{made}")));
    }
}

/// A group without replicas is no longer observed, unless its roles want none.
fn pass_group(spec: &SetSpec, group: Group, dice: &mut Dice, faults: bool) -> Option<Group> {
    let spec = spec.group.clone();
    let roll = dice.roll(u64::MAX);
    let mut run = Run { spec, group, dice: Dice(roll | 1), made: 0, retired: Vec::new() };
    run.pass(faults);
    (!run.group.replicas.is_empty()).then_some(run.group)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_set_ends_and_leaves_protected_groups_alone(
        spec in any_spec(),
        (replicas, partition, max_unavailable) in (0..=4_u32, 0..=3_u32, 0..=2_u32),
        seed in any::<u64>(),
    ) {
        let mut spec = spec;
        // A group without any replica cannot be observed.
        spec.roles[0].replicas = spec.roles[0].replicas.max(1);
        let current = spec.roles.iter().map(|role| recorded(&role.name, role.replicas, "a")).collect();
        set_run(&SetSpec { group: spec, replicas, partition, max_unavailable, current }, seed)?;
    }
}

/// Sizes from 0 to 4 of two roles, all of them, each with a few lists of steps from a seed.
#[test]
fn the_end_stays_in_reach_for_every_small_size() {
    let mut dice = Dice(0x5eed);
    let (mut states, mut worlds) = (0, 0);
    for (decode, prefill) in (0..=4).flat_map(|decode| (0..=4).map(move |prefill| (decode, prefill))) {
        for _ in 0..6 {
            let roles = vec![role("decode", decode, "b"), role("prefill", prefill, "b")];
            let spec = GroupSpec { roles, steps: rolled_steps(&mut dice), ..GroupSpec::default() };
            let deaths = u8::from(decode + prefill <= 4);
            let upgrade = Upgrade { spec, faults: Faults { deaths, ..Faults::default() } };
            let goal = upgrade.clone();
            states += explore("sizes", upgrade, move |world| goal.reached(world)).states;
            worlds += 1;
        }
    }
    println!("every small size: {worlds} worlds, {states} states");
}

fn rolled_steps(dice: &mut Dice) -> Vec<Step> {
    let many = dice.roll(5);
    let mut shares: Vec<_> =
        (0..many).map(|_| u32::try_from(1 + dice.roll(100)).expect("should be small")).collect();
    shares.sort_unstable();
    shares.into_iter().map(|share| percent(ROLES[usize::from(dice.one_in(2))], share)).collect()
}
