//! Exploring a world to its end.
//!
//! A world is a [`stateright::Model`]: what the planner decides, what the world does with it, and what goes wrong. Its
//! safety properties are stateright's. Liveness is not: stateright's `eventually` cannot tell a cycle from two paths
//! that meet. So the graph is walked once more, with the same model:
//!
//! - **quiescent implies matched**: where nothing can happen any more, the goal is reached;
//! - **AG EF**: from every state, however bad, the goal can still be reached.
//!
//! The last is convergence under a fair world, on a finite graph; a dead end of budgets or weights fails it.

// Several test binaries include this file, and not each uses all of it.
#![allow(dead_code, clippy::panic)]

use std::{
    collections::{HashMap, VecDeque},
    fmt::Debug,
    hash::Hash,
};

use stateright::{Checker, Model};

/// How much was explored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    pub states: usize,
    pub transitions: usize,
}

/// Explores `model`, fails with a path to the first broken property, and returns how much there was.
pub fn explore<M>(name: &str, model: M, goal: impl Fn(&M::State) -> bool) -> Explored
where
    M: Model + Send + Sync + Clone + 'static,
    M::State: Clone + Debug + Eq + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let explored = quietly(name, model, goal);
    println!("{name}: {} states, {} transitions", explored.states, explored.transitions);
    explored
}

/// The same without a word, for one of many worlds.
pub fn quietly<M>(name: &str, model: M, goal: impl Fn(&M::State) -> bool) -> Explored
where
    M: Model + Send + Sync + Clone + 'static,
    M::State: Clone + Debug + Eq + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let explored = converges(name, &model, goal);
    if !model.properties().is_empty() {
        model.checker().spawn_bfs().join().assert_properties();
    }
    explored
}

/// Walks every state, and fails where the goal is out of reach.
fn converges<M>(name: &str, model: &M, goal: impl Fn(&M::State) -> bool) -> Explored
where
    M: Model,
    M::State: Clone + Debug + Eq + Hash,
    M::Action: Debug,
{
    let graph = Graph::of(model);
    for (index, next) in graph.next.iter().enumerate() {
        let state = &graph.states[index];
        assert!(
            !next.is_empty() || goal(state),
            "{name}: nothing can happen, and the goal is not reached\n{}",
            graph.path_to(model, index)
        );
    }
    let reaches = graph.reaching(&goal);
    if let Some(lost) = reaches.iter().position(|reaches| !reaches) {
        panic!("{name}: the goal is out of reach\n{}", graph.path_to(model, lost));
    }
    Explored { states: graph.states.len(), transitions: graph.next.iter().map(Vec::len).sum() }
}

struct Graph<S> {
    states: Vec<S>,
    next: Vec<Vec<u32>>,
    /// The state from which each was first seen.
    from: Vec<Option<u32>>,
}

impl<S: Clone + Debug + Eq + Hash> Graph<S> {
    fn of<M: Model<State = S>>(model: &M) -> Self {
        let mut graph = Self { states: Vec::new(), next: Vec::new(), from: Vec::new() };
        let mut seen: HashMap<S, u32> = HashMap::new();
        let mut queue = VecDeque::new();
        for state in model.init_states() {
            graph.add(state, None, &mut seen, &mut queue);
        }
        let mut actions = Vec::new();
        while let Some(index) = queue.pop_front() {
            let state = graph.states[index as usize].clone();
            actions.clear();
            model.actions(&state, &mut actions);
            let mut next = Vec::new();
            for action in actions.drain(..) {
                let Some(after) = model.next_state(&state, action) else { continue };
                if after == state || !model.within_boundary(&after) {
                    continue;
                }
                next.push(graph.add(after, Some(index), &mut seen, &mut queue));
            }
            graph.next[index as usize] = next;
        }
        graph
    }

    fn add(
        &mut self,
        state: S,
        from: Option<u32>,
        seen: &mut HashMap<S, u32>,
        queue: &mut VecDeque<u32>,
    ) -> u32 {
        if let Some(index) = seen.get(&state) {
            return *index;
        }
        let index =
            u32::try_from(self.states.len()).expect("should be fewer than four thousand million states");
        seen.insert(state.clone(), index);
        self.states.push(state);
        self.next.push(Vec::new());
        self.from.push(from);
        queue.push_back(index);
        index
    }

    /// Which states have a way to one that satisfies the goal.
    fn reaching(&self, goal: impl Fn(&S) -> bool) -> Vec<bool> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.states.len()];
        for (index, next) in self.next.iter().enumerate() {
            for after in next {
                before[*after as usize].push(u32::try_from(index).expect("should be an index"));
            }
        }
        let mut reaches: Vec<bool> = self.states.iter().map(goal).collect();
        let found = reaches.iter().enumerate().filter(|(_, r)| **r);
        let mut queue: VecDeque<u32> =
            found.map(|(index, _)| u32::try_from(index).expect("should be an index")).collect();
        while let Some(index) = queue.pop_front() {
            for previous in &before[index as usize] {
                if !std::mem::replace(&mut reaches[*previous as usize], true) {
                    queue.push_back(*previous);
                }
            }
        }
        reaches
    }

    /// The way to a state, for people.
    fn path_to<M: Model<State = S>>(&self, model: &M, index: usize) -> String
    where
        M::Action: Debug,
    {
        let mut way = vec![index];
        while let Some(from) = self.from[way[way.len() - 1]] {
            way.push(from as usize);
        }
        way.reverse();
        let mut text = format!("  {:?}\n", self.states[way[0]]);
        for pair in way.windows(2) {
            let (before, after) = (&self.states[pair[0]], &self.states[pair[1]]);
            let taken = Self::taken(model, before, after);
            text += &format!("  -> {}\n  {after:?}\n", taken.unwrap_or_else(|| "?".to_owned()));
        }
        text
    }

    fn taken<M: Model<State = S>>(model: &M, before: &S, after: &S) -> Option<String>
    where
        M::Action: Debug,
    {
        let mut actions = Vec::new();
        model.actions(before, &mut actions);
        actions.into_iter().find_map(|action| {
            let name = format!("{action:?}");
            (model.next_state(before, action).as_ref() == Some(after)).then_some(name)
        })
    }
}
