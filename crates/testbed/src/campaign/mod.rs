//! Controllers on the embedded API, in virtual time, with faults: every write can fail in every way, the process can
//! die before and after each, what it sees can be late or old, and there can be two of it. Whatever happens, the
//! promises hold on every event and the end is the same.
//!
//! A run is a function of a workload, a plan and a seed. The same three give the same run.

mod checker;
mod clusters;
mod end;
mod evictions;
mod fault;
mod handover;
mod phases;
mod run;
mod servings;
mod workload;

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use serde_json::{Value, json};

pub use self::{
    fault::{Fault, Plan, Seeing, What},
    run::{Outcome, run},
    workload::{Workload, workloads},
};

/// What a campaign found.
#[derive(Debug, Default)]
pub struct Report {
    runs: u64,
    /// What was violated, with the run that did it; the first ones.
    violations: Vec<String>,
    violated: u64,
    /// How often each fault was reached, and each thing happened.
    reached: BTreeMap<String, u64>,
    writes: u64,
}

/// So many violations are told; the others are counted.
const MOST_REPORTED: usize = 20;

impl Report {
    /// Takes in what became of a run.
    pub fn add(&mut self, what: &str, outcome: &Outcome, reference: Option<&Outcome>) {
        self.runs += 1;
        self.writes += outcome.writes;
        for (thing, times) in &outcome.reached {
            *self.reached.entry(thing.clone()).or_default() += times;
        }
        let differs = reference.and_then(|reference| outcome.differs_from(reference));
        for violation in outcome.violations.iter().chain(&differs) {
            self.violated += 1;
            if self.violations.len() < MOST_REPORTED {
                self.violations.push(format!("{what}: {violation}"));
            }
        }
    }

    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        self.violated == 0
    }

    /// What was violated; the first ones.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// How often something was reached.
    pub fn reached(&self, thing: &str) -> u64 {
        self.reached.get(thing).copied().unwrap_or_default()
    }

    /// The report for programs.
    pub fn json(&self) -> Value {
        json!({
            "runs": self.runs,
            "writes": self.writes,
            "violations": self.violated,
            "first": self.violations,
            "reached": self.reached,
        })
    }
}

/// Every plan with one fault, for a run that makes so many writes.
pub fn single_faults(writes: u64) -> impl Iterator<Item = Plan> {
    (1..=writes).flat_map(|at| What::ALL.into_iter().map(move |what| Plan::one(Fault { at, what })))
}

/// Runs every story without a fault, with every single fault if asked, and with random plans, on every core.
pub fn campaign(stories: &[Workload], singles: bool, seeds: &Range<u64>) -> Report {
    let report = Mutex::new(Report::default());
    for story in stories {
        let reference = run(story, &Plan::default(), 0);
        let mut plans: Vec<(Plan, u64)> = Vec::new();
        if singles {
            plans.extend(single_faults(reference.writes).map(|plan| (plan, 0)));
        }
        plans.extend(seeds.clone().map(|seed| (Plan::random(seed, reference.writes), seed)));
        let add = |what: String, outcome: &Outcome, reference| {
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.add(&what, outcome, reference);
        };
        add(format!("{} without a fault", story.name), &reference, None);
        each(&plans, |(plan, seed)| {
            let outcome = run(story, plan, *seed);
            add(format!("{} with {plan} and seed {seed}", story.name), &outcome, Some(&reference));
        });
    }
    report.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Does this for each, on every core. A run has a thread to itself: its time is the thread's.
fn each<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Relaxed)) {
                    work(item);
                }
            });
        }
    });
}
