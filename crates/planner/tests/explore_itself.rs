//! The explorer finds what it is for: dead ends and traps.

mod explore;

use explore::explore;
use stateright::{Model, Property};

/// Counts to three; may fall into a trap at two, where it circles for ever.
#[derive(Clone)]
struct Counter {
    trap: bool,
}

impl Model for Counter {
    type State = u8;
    type Action = u8;

    fn init_states(&self) -> Vec<u8> {
        vec![0]
    }

    fn actions(&self, state: &u8, actions: &mut Vec<u8>) {
        match state {
            0..=2 => actions.push(state + 1),
            10 => actions.push(11),
            11 => actions.push(10),
            _ => {}
        }
        if self.trap && *state == 2 {
            actions.push(10);
        }
    }

    fn next_state(&self, _: &u8, action: u8) -> Option<u8> {
        Some(action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("small", |_, state| *state < 20)]
    }
}

#[test]
fn a_world_that_ends_well_is_explored_whole() {
    assert_eq!(explore("counter", Counter { trap: false }, |state| *state == 3).states, 4);
}

#[test]
#[should_panic(expected = "the goal is out of reach")]
fn a_cycle_that_never_ends_is_found() {
    explore("trap", Counter { trap: true }, |state| *state == 3);
}

#[test]
#[should_panic(expected = "nothing can happen, and the goal is not reached")]
fn a_dead_end_is_found() {
    explore("dead end", Counter { trap: false }, |state| *state == 4);
}
