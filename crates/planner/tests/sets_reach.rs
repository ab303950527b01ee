//! From one unit to twenty, with every surge and every unavailable: the end stays in reach of every state.

mod explore;
mod sets_rules;

use explore::quietly;
use planner::Code;
use planner::sets::{Identity, Op, SetSpec, State, Unit};
use sets_rules::{A, B, checked, matched, mk_spec, mk_unit};
use stateright::Model;

/// A coarse world without faults: units get ready one by one or all at once, and go together; the planner is faster
/// than all of them.
#[derive(Clone)]
struct World {
    spec: SetSpec,
    start: State,
    /// Units may also get ready one by one; otherwise all that start do at once.
    one_by_one: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Now {
    units: Vec<Unit>,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    FirstReady,
    AllReady,
    Leave,
}

impl World {
    fn act(&self, now: &mut Now) {
        let (made, broken) = checked(&self.spec, &now.units);
        now.broken = now.broken.or(broken);
        made.ops.iter().for_each(|op| apply(&mut now.units, op));
    }
}

impl Model for World {
    type State = Now;
    type Action = Event;

    fn init_states(&self) -> Vec<Now> {
        let units = (0..self.spec.replicas).map(|ordinal| mk_unit(ordinal, A, self.start)).collect();
        let mut now = Now { units, broken: None };
        self.act(&mut now);
        vec![now]
    }

    // A broken rule is a dead end, and the exploration fails there with the way to it.
    fn actions(&self, now: &Now, actions: &mut Vec<Event>) {
        if now.broken.is_some() {
            return;
        }
        actions.extend([Event::AllReady, Event::Leave]);
        if self.one_by_one {
            actions.push(Event::FirstReady);
        }
    }

    fn next_state(&self, before: &Now, event: Event) -> Option<Now> {
        let mut now = before.clone();
        match event {
            Event::FirstReady => {
                if let Some(unit) =
                    now.units.iter_mut().find(|unit| matches!(unit.state, State::Starting | State::Lapsed))
                {
                    unit.state = State::Ready;
                }
            }
            Event::AllReady => {
                let starting =
                    now.units.iter_mut().filter(|unit| matches!(unit.state, State::Starting | State::Lapsed));
                starting.for_each(|unit| unit.state = State::Ready);
            }
            Event::Leave => {
                now.units.retain(|unit| unit.state != State::Terminating);
                let leaving = now.units.iter_mut().filter(|unit| matches!(unit.state, State::Leaving { .. }));
                leaving.for_each(|unit| unit.state = State::Leaving { done: true });
            }
        }
        self.act(&mut now);
        Some(now)
    }
}

fn apply(units: &mut Vec<Unit>, op: &Op) {
    let state = match op {
        Op::Create { ordinal, revision } => {
            units.push(mk_unit(*ordinal, *revision, State::Starting));
            units.sort_by_key(|unit| unit.ordinal);
            return;
        }
        Op::TakeOut { .. } => State::Leaving { done: false },
        Op::Delete { .. } => State::Terminating,
    };
    units.iter_mut().filter(|unit| unit.ordinal == op.ordinal()).for_each(|unit| unit.state = state);
}

fn reach(identity: Identity, start: State, replicas: u32, one_by_one: bool) -> (usize, usize) {
    let (mut worlds, mut states) = (0, 0);
    let most = if one_by_one && replicas > 5 { 2 } else { replicas };
    for surge in 0..=most {
        for unavailable in u32::from(surge == 0)..=most {
            let spec = mk_spec(identity, replicas, surge, unavailable);
            let name = format!("{identity:?} {replicas}, {surge}/{unavailable}");
            let world = World { spec, start, one_by_one };
            states += quietly(&name, world, |now| now.broken.is_none() && matched(&spec, &now.units)).states;
            worlds += 1;
        }
    }
    (worlds, states)
}

#[test]
fn from_one_to_twenty_units_with_any_budget_the_end_stays_in_reach() {
    for identity in [Identity::Ordinal, Identity::Any] {
        for start in [State::Ready, State::Starting, State::Lapsed] {
            for one_by_one in [false, true] {
                let each = (1..=20).map(|replicas| reach(identity, start, replicas, one_by_one));
                let (worlds, states) = each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                println!(
                    "{identity:?} from {start:?}, one by one {one_by_one}: {worlds} worlds, {states} states"
                );
            }
        }
    }
}

#[test]
fn without_any_room_the_plan_says_so() {
    let spec = mk_spec(Identity::Ordinal, 2, 0, 0);
    let units = [mk_unit(0, A, State::Ready), mk_unit(1, A, State::Ready)];
    let made = planner::sets::plan(&spec, &units, std::time::Duration::ZERO);
    assert_eq!((made.ops.len(), made.reason.code, spec.target), (0, Code::NoRoom, B));
}
