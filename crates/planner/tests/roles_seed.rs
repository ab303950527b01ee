//! The proposal's own example, to the last write: four decode and four prefill, four steps.

mod roles_kit;

use planner::{
    Code, Uid,
    roles::{Group, GroupSpec, State},
};
use roles_kit::{acts, admitted, apply, group, pd, ready, short};

/// How long replicas take, in rounds: to drain, to go, and to become Ready. No time to start is never.
#[derive(Clone, Copy)]
struct Pace {
    drain: u32,
    go: u32,
    start: Option<u32>,
}

/// A group in a world where time passes in rounds, with what happened in it.
struct Run {
    spec: GroupSpec,
    group: Group,
    ages: Vec<(Uid, State, u32)>,
    writes: Vec<String>,
    fewest: (usize, usize),
    made: u32,
}

impl Run {
    fn new(spec: GroupSpec) -> Self {
        let group = group(&[("decode", "aaaa"), ("prefill", "aaaa")]);
        Self { spec, group, ages: Vec::new(), writes: Vec::new(), fewest: (4, 4), made: 0 }
    }

    /// Decides, writes, and lets a round pass.
    fn round(&mut self, pace: Pace) {
        let plan = admitted(&self.spec, &self.group);
        self.writes.extend(short(&plan.ops));
        for op in &plan.ops {
            self.made += 1;
            apply(&mut self.group, op, Uid(format!("made-{}", self.made)));
        }
        self.pass(pace);
        let now = (ready(&self.group, "decode"), ready(&self.group, "prefill"));
        self.fewest = (self.fewest.0.min(now.0), self.fewest.1.min(now.1));
    }

    fn pass(&mut self, pace: Pace) {
        let mut gone = Vec::new();
        let mut ages = Vec::new();
        for replica in &mut self.group.replicas {
            let same = |age: &&(Uid, State, u32)| age.0 == replica.uid && age.1 == replica.state;
            let age = self.ages.iter().find(same).map_or(1, |age| age.2 + 1);
            ages.push((replica.uid.clone(), replica.state, age));
            match replica.state {
                State::Starting if pace.start.is_some_and(|start| age >= start) => {
                    replica.state = State::Ready;
                }
                State::Leaving { done: false } if age >= pace.drain => {
                    replica.state = State::Leaving { done: true };
                }
                State::Terminating if age >= pace.go => gone.push(replica.uid.clone()),
                _ => {}
            }
        }
        self.group.replicas.retain(|replica| !gone.contains(&replica.uid));
        self.ages = ages;
    }
}

const BRISK: Pace = Pace { drain: 1, go: 1, start: Some(1) };

#[test]
fn the_proposals_example_is_this_sequence_of_writes() {
    let mut run = Run::new(pd(4, 4));
    for _ in 0..60 {
        run.round(BRISK);
    }
    let of = |role: &str, ordinal: u32| {
        let name = format!("{role}-{ordinal}");
        [format!("out {name}"), format!("-{name}"), format!("+{name}@b")]
    };
    let order = [3].map(|at| of("decode", at)).into_iter().chain([3, 2, 1, 0].map(|at| of("prefill", at)));
    let expected: Vec<_> = order.chain([2, 1, 0].map(|at| of("decode", at))).flatten().collect();
    assert_eq!(run.writes, expected);
    assert_eq!(run.fewest, (3, 3));
    let plan = admitted(&run.spec, &run.group);
    assert!(plan.done && plan.ops.is_empty() && plan.step.is_none());
    assert_eq!(plan.reason.code, Code::UpToDate);
}

#[test]
fn a_slow_canary_costs_one_replica_and_time() {
    let mut run = Run::new(pd(4, 4));
    for _ in 0..200 {
        run.round(Pace { drain: 3, go: 2, start: Some(10) });
    }
    assert_eq!(run.fewest, (3, 3));
    assert_eq!(run.writes.iter().filter(|write| write.starts_with("out")).count(), 8);
    assert!(admitted(&run.spec, &run.group).done);
}

#[test]
fn a_canary_that_is_never_ready_costs_exactly_one_replica() {
    let mut run = Run::new(pd(4, 4));
    for _ in 0..200 {
        run.round(Pace { start: None, ..BRISK });
    }
    assert_eq!(run.writes, ["out decode-3", "-decode-3", "+decode-3@b"]);
    assert_eq!(run.fewest, (3, 4));
    assert_eq!(admitted(&run.spec, &run.group).reason.code, Code::WaitingForReady);
}

#[test]
fn a_broken_canary_is_left_behind_by_the_revert_at_no_cost() {
    let mut run = Run::new(pd(4, 4));
    for _ in 0..20 {
        run.round(Pace { start: None, ..BRISK });
    }
    for role in &mut run.spec.roles {
        role.target = roles_kit::hash("a");
    }
    run.writes.clear();
    for _ in 0..20 {
        run.round(BRISK);
    }
    assert_eq!(run.writes, ["-decode-3", "+decode-3@a"]);
    assert_eq!(run.fewest, (3, 4));
    assert!(admitted(&run.spec, &run.group).done);
}

#[test]
fn without_the_in_flight_rule_the_canary_would_have_been_the_first_of_four() {
    // What the proposal read literally deletes next, here is a wait.
    let group = group(&[("decode", "aaaB"), ("prefill", "aaaa")]);
    assert_eq!(acts(&pd(4, 4), &group), Vec::<String>::new());
}
