//! Every history of a small set: two leaders, one of them with a stale view; crashes between any two writes; units that
//! are slow, die or lapse; people who edit. What must hold, holds in every state, and the end stays in reach.

mod explore;
mod sets_rules;

use explore::explore;
use planner::{
    Budget,
    sets::{Identity, Op, SetSpec, State, Unit},
    units::Revision,
};
use sets_rules::{A, B, C, checked, matched, mk_unit, serving};
use stateright::{Model, Property};

/// What may happen, and what a write is checked against.
#[derive(Clone)]
struct World {
    specs: Vec<SetSpec>,
    /// Never becomes ready.
    bad: Option<Revision>,
    faults: Faults,
    /// A write names the version of the unit that it was decided on.
    version: bool,
    /// A write that removes is not sent once the set's spec has changed.
    generation: bool,
    /// Also from every subset of units that do not serve.
    from_broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Faults {
    crashes: u8,
    stale_reads: u8,
    deaths: u8,
    lapses: u8,
    edits: u8,
}

/// A write that was decided and is not made yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sent {
    op: Op,
    seen: Option<State>,
}

/// What one leader still means to do, and what has happened since it looked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Leader {
    sent: Vec<Sent>,
    lost: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Now {
    spec: u8,
    units: Vec<Unit>,
    /// Looks again when it has done what it meant to.
    fresh: Leader,
    /// Looked once and repeats what it meant, in any order, as long as it likes.
    stale: Leader,
    left: Faults,
    /// The highest ceiling since one of the leaders looked.
    most: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Act,
    LoseWrite,
    Crash,
    Look,
    ActStale(usize),
    GiveUp,
    Ready(u32),
    Drained(u32),
    Gone(u32),
    Die(u32),
    Lapse(u32),
    Edit(u8),
    /// No more faults.
    Calm,
}

impl World {
    fn spec(&self, now: &Now) -> &SetSpec {
        &self.specs[now.spec as usize]
    }

    fn decide(&self, now: &mut Now) -> Leader {
        let (made, broken) = checked(self.spec(now), &now.units);
        now.most = now.most.max(self.ceiling(now));
        now.broken = now.broken.or(broken);
        let sent = made.ops.iter().map(|op| Sent { op: op.clone(), seen: seen(&now.units, op) }).collect();
        Leader { sent, lost: 0 }
    }

    /// Makes a write: the server refuses what is not as it was when it was decided.
    fn write(&self, now: &mut Now, sent: &Sent) {
        let lost = u32::from(now.fresh.lost.max(now.stale.lost));
        let spec = *self.spec(now);
        if let Op::Create { ordinal, revision } = sent.op {
            if !now.units.iter().any(|unit| unit.ordinal == ordinal) {
                now.units.push(mk_unit(ordinal, revision, State::Starting));
                now.units.sort_by_key(|unit| unit.ordinal);
                if now.units.len() > now.most as usize {
                    now.broken = Some("C2: more units than the ceiling");
                }
            }
            return;
        }
        let at = seen(&now.units, &sent.op);
        if self.version && at != sent.seen {
            return;
        }
        let Some(unit) = now.units.iter_mut().find(|unit| unit.ordinal == sent.op.ordinal()) else { return };
        let served = unit.state == State::Ready;
        unit.state = match (&sent.op, unit.state) {
            (_, State::Terminating) | (Op::Delete { .. }, _) => State::Terminating,
            (_, State::Leaving { done }) => State::Leaving { done },
            _ => State::Leaving { done: false },
        };
        if served && serving(&now.units) + lost < spec.budget.floor(spec.replicas) {
            now.broken = Some("C1: a write takes the service below its floor");
        }
        if served {
            // Who decided after a loss does not know of this write, which may have been decided before it.
            let lost = now.fresh.lost.max(now.stale.lost);
            (now.fresh.lost, now.stale.lost) = (lost, lost);
        }
    }

    fn ceiling(&self, now: &Now) -> u8 {
        let spec = self.spec(now);
        u8::try_from(spec.replicas + spec.budget.surge).expect("should be a small world")
    }

    /// A unit is no more: what was decided about its uid can never be done.
    fn remove(now: &mut Now, ordinal: u32) {
        now.units.retain(|unit| unit.ordinal != ordinal);
        let about = |sent: &Sent| sent.op.ordinal() == ordinal && !matches!(sent.op, Op::Create { .. });
        for leader in [&mut now.fresh, &mut now.stale] {
            leader.sent.retain(|sent| !about(sent));
        }
    }

    fn lose(now: &mut Now) {
        for leader in [&mut now.fresh, &mut now.stale] {
            leader.lost += u8::from(!leader.sent.is_empty());
        }
    }
}

fn seen(units: &[Unit], op: &Op) -> Option<State> {
    units.iter().find(|unit| unit.ordinal == op.ordinal()).map(|unit| unit.state)
}

impl Model for World {
    type State = Now;
    type Action = Event;

    fn init_states(&self) -> Vec<Now> {
        let spec = self.specs[0];
        let subsets: u32 = if self.from_broken { 1 << spec.replicas } else { 1 };
        let start = |subset: u32| {
            let state =
                |ordinal: u32| if subset >> ordinal & 1 == 1 { State::Starting } else { State::Ready };
            let units = (0..spec.replicas).map(|ordinal| mk_unit(ordinal, A, state(ordinal))).collect();
            let idle = Leader::default();
            Now { spec: 0, units, fresh: idle.clone(), stale: idle, left: self.faults, most: 0, broken: None }
        };
        (0..subsets).map(start).collect()
    }

    fn actions(&self, now: &Now, actions: &mut Vec<Event>) {
        if now.broken.is_some() {
            return;
        }
        actions.push(Event::Act);
        if now.left.crashes > 0 && !now.fresh.sent.is_empty() {
            actions.extend([Event::Crash, Event::LoseWrite]);
        }
        if now.left.stale_reads > 0 && now.stale.sent.is_empty() {
            actions.push(Event::Look);
        }
        actions.extend((0..now.stale.sent.len()).map(Event::ActStale));
        if !now.stale.sent.is_empty() {
            actions.push(Event::GiveUp);
        }
        for unit in &now.units {
            match unit.state {
                State::Starting | State::Lapsed if Some(unit.revision) != self.bad => {
                    actions.push(Event::Ready(unit.ordinal));
                }
                State::Leaving { done: false } => actions.push(Event::Drained(unit.ordinal)),
                State::Terminating => actions.push(Event::Gone(unit.ordinal)),
                _ => {}
            }
            if now.left.deaths > 0 && unit.state.is_live() {
                actions.push(Event::Die(unit.ordinal));
            }
            if now.left.lapses > 0 && unit.state == State::Ready {
                actions.push(Event::Lapse(unit.ordinal));
            }
        }
        if now.left.edits > 0 {
            let edits = (0..).take(self.specs.len()).filter(|spec| *spec != now.spec);
            actions.extend(edits.map(Event::Edit));
        }
        if now.left != Faults::default() && Some(self.spec(now).target) != self.bad {
            actions.push(Event::Calm);
        }
    }

    fn next_state(&self, before: &Now, event: Event) -> Option<Now> {
        let mut now = before.clone();
        let put = |now: &mut Now, ordinal: u32, state: State| {
            now.units.iter_mut().filter(|unit| unit.ordinal == ordinal).for_each(|unit| unit.state = state);
        };
        match event {
            Event::Act => {
                if now.fresh.sent.is_empty() {
                    now.fresh = self.decide(&mut now);
                }
                if !now.fresh.sent.is_empty() {
                    let sent = now.fresh.sent.remove(0);
                    self.write(&mut now, &sent);
                }
            }
            Event::LoseWrite => {
                now.left.crashes -= 1;
                now.fresh.sent.remove(0);
            }
            Event::Crash => {
                now.left.crashes -= 1;
                now.fresh.sent.clear();
            }
            Event::Look => {
                now.left.stale_reads -= 1;
                now.stale = self.decide(&mut now);
            }
            Event::ActStale(index) => {
                let sent = now.stale.sent[index].clone();
                self.write(&mut now, &sent);
            }
            Event::GiveUp => now.stale.sent.clear(),
            Event::Ready(ordinal) => put(&mut now, ordinal, State::Ready),
            Event::Drained(ordinal) => put(&mut now, ordinal, State::Leaving { done: true }),
            Event::Gone(ordinal) => Self::remove(&mut now, ordinal),
            Event::Die(ordinal) => {
                now.left.deaths -= 1;
                if seen(&now.units, &Op::Delete { ordinal, uid: mk_unit(ordinal, A, State::Ready).uid })
                    == Some(State::Ready)
                {
                    Self::lose(&mut now);
                }
                Self::remove(&mut now, ordinal);
            }
            Event::Lapse(ordinal) => {
                now.left.lapses -= 1;
                Self::lose(&mut now);
                put(&mut now, ordinal, State::Lapsed);
            }
            Event::Edit(spec) => {
                now.left.edits -= 1;
                now.spec = spec;
                if self.generation {
                    for leader in [&mut now.fresh, &mut now.stale] {
                        leader.sent.retain(|sent| matches!(sent.op, Op::Create { .. }));
                    }
                }
            }
            Event::Calm => now.left = Faults::default(),
        }
        for leader in [&mut now.fresh, &mut now.stale] {
            if leader.sent.is_empty() {
                *leader = Leader::default();
            }
        }
        let idle = now.fresh.sent.is_empty() && now.stale.sent.is_empty();
        now.most = if idle { 0 } else { now.most.max(self.ceiling(&now)) };
        Some(now)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("budgets, order, partition", |_, now: &Now| now.broken.is_none())]
    }
}

const BUDGETS: [(u32, u32); 3] = [(0, 1), (1, 0), (1, 1)];
const IDENTITIES: [Identity; 2] = [Identity::Ordinal, Identity::Any];

fn spec(identity: Identity, replicas: u32, (surge, unavailable): (u32, u32), target: Revision) -> SetSpec {
    SetSpec {
        replicas,
        budget: Budget { surge, unavailable },
        partition: 0,
        target,
        old: A,
        identity,
        noun: "group",
    }
}

fn world(specs: Vec<SetSpec>, faults: Faults) -> World {
    World { specs, bad: None, faults, version: true, generation: true, from_broken: false }
}

/// Explores, and first looks for a broken rule: the shortest history to one says more than a goal out of reach.
fn run(name: &str, world: World) -> usize {
    let specs = world.specs.clone();
    explore(name, world, move |now| matched(&specs[now.spec as usize], &now.units) || now.broken.is_some())
        .states
}

fn each(name: &str, make: impl Fn(Identity, (u32, u32)) -> World) {
    let mut states = 0;
    for identity in IDENTITIES {
        for budget in BUDGETS {
            states += run(
                &format!("{name}, {identity:?}, surge and unavailable {budget:?}"),
                make(identity, budget),
            );
        }
    }
    println!("{name}: {states} states in all");
}

#[test]
fn three_units_two_revisions_two_crashes_one_stale_read() {
    let faults = Faults { crashes: 2, stale_reads: 1, ..Faults::default() };
    each("crashes and a stale leader", |identity, budget| world(vec![spec(identity, 3, budget, B)], faults));
}

#[test]
fn a_unit_dies_or_lapses_while_a_stale_leader_acts() {
    let faults = Faults { stale_reads: 1, deaths: 1, lapses: 1, ..Faults::default() };
    each("losses", |identity, budget| world(vec![spec(identity, 3, budget, B)], faults));
}

#[test]
fn every_subset_of_broken_units_is_fixed_forward() {
    let faults = Faults { crashes: 2, stale_reads: 1, ..Faults::default() };
    each("broken at first", |identity, budget| World {
        from_broken: true,
        ..world(vec![spec(identity, 3, budget, B)], faults)
    });
}

#[test]
fn a_new_revision_or_the_old_one_pre_empts_one_that_never_gets_ready() {
    let faults = Faults { crashes: 2, lapses: 1, edits: 1, ..Faults::default() };
    each("stuck", |identity, budget| {
        let specs = [B, C, A].map(|target| spec(identity, 3, budget, target));
        World { bad: Some(B), ..world(specs.to_vec(), faults) }
    });
}

/// Up, down, to nothing, and a third revision, from two units on their way to B.
const EDITS: [(u32, Revision); 5] = [(2, B), (3, B), (1, B), (2, C), (0, B)];

fn edited(identity: Identity, budget: (u32, u32), faults: Faults) -> World {
    world(EDITS.map(|(replicas, target)| spec(identity, replicas, budget, target)).to_vec(), faults)
}

#[test]
fn people_scale_and_edit_twice_while_units_are_replaced() {
    let faults = Faults { edits: 2, ..Faults::default() };
    each("two edits", |identity, budget| edited(identity, budget, faults));
}

#[test]
fn people_scale_and_edit_while_a_stale_leader_acts() {
    let faults = Faults { stale_reads: 1, edits: 1, ..Faults::default() };
    each("an edit and a stale leader", |identity, budget| edited(identity, budget, faults));
}

#[test]
#[ignore = "minutes; run by hand: cargo test -p planner --release -- --ignored"]
fn people_scale_and_edit_twice_while_a_stale_leader_acts() {
    let faults = Faults { stale_reads: 1, edits: 2, ..Faults::default() };
    each("two edits and a stale leader", |identity, budget| edited(identity, budget, faults));
}

#[test]
fn below_the_partition_nothing_changes_and_the_lost_come_back_as_they_were() {
    let faults = Faults { crashes: 1, stale_reads: 1, deaths: 2, ..Faults::default() };
    each("partition", |identity, budget| {
        let spec = SetSpec { partition: 2, ..spec(identity, 3, budget, B) };
        world(vec![spec], faults)
    });
}

#[test]
#[should_panic(expected = "budgets, order, partition")]
fn a_uid_alone_does_not_protect_the_floor() {
    let faults = Faults { stale_reads: 1, ..Faults::default() };
    let spec = spec(Identity::Ordinal, 2, (0, 1), B);
    run("uid alone", World { version: false, from_broken: true, ..world(vec![spec], faults) });
}

#[test]
#[should_panic(expected = "budgets, order, partition")]
fn a_leader_with_an_old_spec_would_break_the_floor() {
    let faults = Faults { stale_reads: 1, edits: 1, ..Faults::default() };
    let specs = [B, A].map(|target| spec(Identity::Ordinal, 2, (0, 1), target)).to_vec();
    run("old spec", World { generation: false, ..world(specs, faults) });
}

#[test]
#[ignore = "minutes; run by hand: cargo test -p planner --release -- --ignored"]
fn three_units_under_every_fault_at_once() {
    let faults = Faults { crashes: 2, stale_reads: 1, deaths: 1, lapses: 1, edits: 0 };
    each("every fault", |identity, budget| world(vec![spec(identity, 3, budget, B)], faults));
}

#[test]
#[ignore = "minutes; run by hand: cargo test -p planner --release -- --ignored"]
fn two_units_under_every_fault_and_an_edit() {
    let faults = Faults { crashes: 1, stale_reads: 1, deaths: 1, lapses: 1, edits: 1 };
    each("every fault and an edit", |identity, budget| edited(identity, budget, faults));
}
