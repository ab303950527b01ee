//! A small world around the handover planner: versions whose units start, stop and die, a route that is confirmed late,
//! people who change their minds, and a controller whose view is old.

// Several test binaries include this file, and not each uses all of it.
#![allow(dead_code)]

use std::time::Duration;

use planner::{
    Budget,
    handover::{
        Action, Observed, OnFailure, Phase, Policy, Rollout, Verdict, Version, VersionId, Wanted, Weights,
        plan,
    },
};
use stateright::{Model, Property};

/// The one moment of this world; what is past is at nought.
const NOW: Duration = Duration::from_secs(1_000);

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct World {
    pub replicas: u32,
    pub budget: Budget,
    pub policy: Policy,
    /// Units that die.
    pub losses: u8,
    /// What people do, each once, in any order.
    pub edits: Vec<Edit>,
    /// Whether a second controller with an old view acts too.
    pub stale: bool,
}

/// What people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// Want another version.
    Target(u32),
    /// Want another number of units.
    Scale(u32),
    /// Call it off.
    Abort,
    /// Try again.
    Retry,
    /// A check fails.
    Fail,
}

/// A version's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Units {
    pub exists: bool,
    pub asked: u32,
    pub starting: u32,
    pub ready: u32,
    pub leaving: u32,
}

impl Units {
    pub fn live(self) -> u32 {
        self.starting + self.ready + self.leaving
    }

    /// Layer 1 does as it is asked: units that are not ready go first.
    fn ask(&mut self, units: u32) {
        self.exists = true;
        if units >= self.asked {
            self.starting += units - self.asked;
        } else {
            let going = self.asked - units;
            let unready = going.min(self.starting);
            self.starting -= unready;
            self.ready -= going - unready;
            self.leaving += going;
        }
        self.asked = units;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub versions: [Units; 3],
    pub route: Weights,
    pub applied: Option<Weights>,
    pub current: Option<VersionId>,
    pub target: VersionId,
    pub replicas: u32,
    pub phase: Phase,
    pub step: u32,
    pub verdict: Verdict,
    /// Traffic has moved, and whether its interval is over.
    pub moved: Option<bool>,
    /// Whether the time of the current step is over.
    pub step_over: bool,
    pub losses: u8,
    pub lost: bool,
    pub edits: Vec<Edit>,
    /// What a slow controller still sees.
    pub old_view: Option<Box<Self>>,
    /// Whether anybody decided or asked for anything since. Every write follows a compare-and-set on the service itself,
    /// so a controller with an old view acts only where nobody did.
    pub acted: bool,
    /// The first promise that was broken.
    pub broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    Plan,
    PlanOnOldView,
    Ready(usize),
    Gone(usize),
    Die(usize),
    Confirm,
    TimePasses,
    Edit(usize),
    RememberView,
}

impl World {
    pub fn new(replicas: u32, surge: u32, unavailable: u32, policy: Policy) -> Self {
        let budget = Budget { surge, unavailable };
        Self { replicas, budget, policy, losses: 0, edits: Vec::new(), stale: false }
    }

    /// The budget scales with the replicas no further than they do.
    pub fn wanted(&self, state: &State) -> Wanted {
        let unavailable = self.budget.unavailable.min(state.replicas);
        let surge = if self.policy_is_blue_green() { state.replicas } else { self.budget.surge };
        let budget = if surge == 0 && unavailable == 0 {
            Budget { surge, unavailable: 1 }
        } else {
            Budget { surge, unavailable }
        };
        Wanted {
            target: state.target,
            replicas: state.replicas,
            budget,
            policy: self.policy.clone(),
            progress_deadline: None,
            on_failure: OnFailure::RollBack,
        }
    }

    fn policy_is_blue_green(&self) -> bool {
        matches!(self.policy, Policy::BlueGreen { .. })
    }

    fn observed(state: &State) -> Observed {
        let at = |over: bool| if over { Duration::ZERO } else { NOW };
        let versions = state.versions.iter().zip(1..).filter(|(units, _)| units.exists);
        Observed {
            versions: versions
                .map(|(units, id)| Version {
                    id: VersionId(id),
                    asked: units.asked,
                    live: units.live(),
                    ready: units.ready,
                    proven: true,
                })
                .collect(),
            current: state.current,
            route: state.route.clone(),
            applied: state.applied.clone(),
            rollout: Rollout {
                phase: state.phase,
                step: state.step,
                step_since: at(state.step_over),
                moved_at: state.moved.map(at),
                progressed_at: NOW,
                verdict: state.verdict,
            },
            retained: None,
            in_place: None,
        }
    }

    pub fn decide(&self, state: &State) -> Action {
        plan(&self.wanted(state), &Self::observed(state), NOW).0
    }

    /// The same by somebody who lists the versions the other way round.
    pub fn decide_in_another_order(&self, state: &State) -> Action {
        let mut observed = Self::observed(state);
        observed.versions.reverse();
        plan(&self.wanted(state), &observed, NOW).0
    }

    fn floor(&self, state: &State) -> u32 {
        self.wanted(state).budget.floor(state.replicas)
    }

    /// Does what was decided, and notes the first promise that it breaks.
    pub fn act(&self, state: &mut State, action: &Action) {
        let before = state.clone();
        match action {
            Action::Scale(id, units) => state.versions[index(*id)].ask(*units),
            Action::SetWeights(weights, forward) => {
                state.route = weights.clone();
                if *forward {
                    state.moved = Some(false);
                }
            }
            Action::StartStep(step) => {
                state.step = *step;
                state.step_over = false;
            }
            Action::SetPhase(phase) => state.phase = *phase,
            Action::Promote(id) => {
                state.current = Some(*id);
                state.step = 0;
                state.moved = None;
            }
            Action::Retire(id) => state.versions[index(*id)] = Units::default(),
            Action::Install(_) | Action::Wait | Action::Done => {}
        }
        let broken = self.broken_promise(&before, state, action);
        state.broken = state.broken.or(broken);
    }

    fn broken_promise(&self, before: &State, after: &State, action: &Action) -> Option<&'static str> {
        let floor = self.floor(before);
        match action {
            Action::Scale(id, units) => {
                let (was, is) = (before.versions[index(*id)], after.versions[index(*id)]);
                if *units > was.asked {
                    let live: u32 = after.versions.iter().map(|v| v.live()).sum();
                    let ceiling = self.wanted(before).budget.ceiling(before.replicas);
                    return (live > ceiling).then_some("C2: more units than replicas and surge");
                }
                if self.policy == Policy::Recreate || is.ready == was.ready {
                    return None;
                }
                let needed = needed(before, *id, floor);
                let has_traffic = |s: &State, id: VersionId| {
                    s.route.of(id) > 0 || s.applied.as_ref().is_some_and(|w| w.of(id) > 0)
                };
                let serving = |s: &State| {
                    let versions =
                        s.versions.iter().zip(1..).filter(|(_, id)| has_traffic(s, VersionId(*id)));
                    versions.map(|(units, _)| units.ready).sum::<u32>()
                };
                let scaled_down = before.replicas <= is.asked;
                if is.ready < needed && !before.lost && !scaled_down {
                    return Some("T4: fewer units than the weight in force needs");
                }
                (serving(after) < floor.min(serving(before)))
                    .then_some("I1: fewer units serve than the floor")
            }
            Action::SetWeights(weights, forward) => {
                if weights.total() == 0 {
                    return Some("T1: no positive weight");
                }
                let is_paced = matches!(self.policy, Policy::Incremental { .. });
                if *forward && is_paced && before.moved == Some(false) {
                    return Some("T6: a step before its interval was over");
                }
                let overloaded = weights.versions().find(|id| {
                    let grew = u64::from(weights.of(*id)) * u64::from(before.route.total().max(1))
                        > u64::from(before.route.of(*id)) * u64::from(weights.total());
                    // Nothing with traffic is alive: then whoever is takes it, crowded or not.
                    let rescued = before.route.versions().all(|id| before.versions[index(id)].ready == 0);
                    grew && before.versions[index(*id)].ready < weights.units_needed(*id, floor) && !rescued
                });
                let unready = weights.versions().any(|id| {
                    before.versions[index(id)].ready == 0 && before.route.of(id) == 0 && before.replicas > 0
                });
                match (overloaded, unready) {
                    _ if before.lost => None,
                    (Some(_), _) => Some("T3: more weight than ready units carry"),
                    (_, true) => Some("T2: weight for a version without a ready unit"),
                    _ => None,
                }
            }
            Action::Retire(id) => {
                let traffic =
                    before.route.of(*id) > 0 || before.applied.as_ref().is_some_and(|w| w.of(*id) > 0);
                (traffic || before.versions[index(*id)].live() > 0)
                    .then_some("T8: a version in use was retired")
            }
            Action::Promote(id) => {
                let all = before.applied.as_ref().is_some_and(|w| w.is_all(*id));
                // A version that nobody wants may turn out to be what users have; the target is promoted going forward.
                let forward = before.phase == Phase::Forward || *id != before.target;
                (!(all && forward)).then_some("C10: promoted without all traffic, or while going back")
            }
            _ => None,
        }
    }

    /// Everything is as it should be.
    pub fn is_matched(state: &State) -> bool {
        let serving = match state.phase {
            Phase::RollingBack => state.current,
            Phase::Forward | Phase::Paused => Some(state.target),
        };
        let Some(serving) = serving else { return false };
        state.current == Some(serving)
            && state.route.is_all(serving)
            && state.applied.as_ref() == Some(&state.route)
            && state.versions.iter().enumerate().all(|(i, units)| {
                if i == index(serving) {
                    units.asked == state.replicas && units.ready == state.replicas && units.leaving == 0
                } else {
                    !units.exists
                }
            })
    }
}

fn index(id: VersionId) -> usize {
    id.0 as usize - 1
}

fn needed(state: &State, id: VersionId, floor: u32) -> u32 {
    let applied = state.applied.as_ref().map_or(0, |w| w.units_needed(id, floor));
    state.route.units_needed(id, floor).max(applied)
}

impl Model for World {
    type State = State;
    type Action = Happening;

    fn init_states(&self) -> Vec<State> {
        let mut versions = [Units::default(); 3];
        versions[0] = Units { exists: true, asked: self.replicas, ready: self.replicas, ..Units::default() };
        vec![State {
            versions,
            route: Weights::all(VersionId(1)),
            applied: Some(Weights::all(VersionId(1))),
            current: Some(VersionId(1)),
            target: VersionId(2),
            replicas: self.replicas,
            phase: Phase::Forward,
            step: 0,
            verdict: Verdict::Passed,
            moved: None,
            step_over: false,
            losses: self.losses,
            lost: false,
            edits: self.edits.clone(),
            old_view: None,
            acted: false,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Happening>) {
        actions.push(Happening::Plan);
        for (i, units) in state.versions.iter().enumerate() {
            if units.starting > 0 {
                actions.push(Happening::Ready(i));
            }
            if units.leaving > 0 {
                actions.push(Happening::Gone(i));
            }
            if units.ready > 0 && state.losses > 0 {
                actions.push(Happening::Die(i));
            }
        }
        if state.applied.as_ref() != Some(&state.route) {
            actions.push(Happening::Confirm);
        }
        if state.moved == Some(false) || !state.step_over {
            actions.push(Happening::TimePasses);
        }
        actions.extend((0..state.edits.len()).map(Happening::Edit));
        if self.stale {
            match &state.old_view {
                None => actions.push(Happening::RememberView),
                Some(view) if view.current.is_some() => actions.push(Happening::PlanOnOldView),
                Some(_) => {}
            }
        }
    }

    fn next_state(&self, last: &State, happening: Happening) -> Option<State> {
        let mut state = last.clone();
        match happening {
            Happening::Plan => {
                let action = self.decide(last);
                self.act(&mut state, &action);
                let decided = !matches!(action, Action::Wait | Action::Done);
                state.acted |= decided && state.old_view.is_some();
            }
            Happening::PlanOnOldView => {
                let view = state.old_view.take()?;
                let action = self.decide(&view);
                if !state.acted {
                    // What a decision promises, it promises of what it saw; the room it takes is real.
                    let mut seen = (*view).clone();
                    self.act(&mut seen, &action);
                    let broken = state.broken.or(seen.broken);
                    self.act(&mut state, &action);
                    state.broken =
                        broken.or_else(|| state.broken.filter(|promise| promise.starts_with("C2")));
                }
                // One old view in a life: it is used up.
                state.old_view = Some(Box::new(spent()));
                state.acted = false;
            }
            Happening::RememberView => {
                state.old_view = Some(Box::new(State { old_view: None, ..last.clone() }));
            }
            Happening::Ready(i) => {
                state.versions[i].starting -= 1;
                state.versions[i].ready += 1;
            }
            Happening::Gone(i) => state.versions[i].leaving -= 1,
            Happening::Die(i) => {
                state.versions[i].ready -= 1;
                state.versions[i].starting += 1;
                state.losses -= 1;
                state.lost = true;
            }
            Happening::Confirm => state.applied = Some(state.route.clone()),
            Happening::TimePasses => {
                state.moved = state.moved.map(|_| true);
                state.step_over = true;
            }
            Happening::Edit(i) => {
                let edit = state.edits.remove(i);
                Self::edit(&mut state, edit);
                state.acted |= state.old_view.is_some();
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("every promise is kept", |_, state: &State| state.broken.is_none())]
    }
}

/// A view that was used.
fn spent() -> State {
    State {
        versions: [Units::default(); 3],
        route: Weights::default(),
        applied: None,
        current: None,
        target: VersionId(1),
        replicas: 0,
        phase: Phase::Paused,
        step: 0,
        verdict: Verdict::Open,
        moved: None,
        step_over: true,
        losses: 0,
        lost: false,
        edits: Vec::new(),
        old_view: None,
        acted: false,
        broken: None,
    }
}

impl World {
    fn edit(state: &mut State, edit: Edit) {
        match edit {
            Edit::Target(id) => {
                state.target = VersionId(id);
                state.phase = Phase::Forward;
                state.step = 0;
                state.moved = None;
                state.step_over = false;
                state.verdict = Verdict::Passed;
            }
            Edit::Scale(replicas) => state.replicas = replicas,
            Edit::Abort => state.phase = Phase::RollingBack,
            Edit::Retry => {
                state.phase = Phase::Forward;
                state.step = 0;
                state.step_over = false;
            }
            Edit::Fail => state.verdict = Verdict::Failed,
        }
    }
}
