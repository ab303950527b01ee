//! 100,000 services planned in one pass, each in the middle of a rolling update.
//!
//!     cargo run --release -p bench --bin planner
//!
//! The peer is a copy of what is observed: the least that anything which looks at every service must do. Allocations are
//! counted, so they are the same on every machine; the counter is there while time is taken, for both alike.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::{
    alloc::System,
    hint::black_box,
    time::{Duration, Instant},
};

use planner::{
    Budget,
    handover::{
        Observed, OnFailure, Phase, Policy, Rollout, Verdict, Version, VersionId, Wanted, Weights, plan,
    },
};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SERVICES: u32 = 100_000;

fn main() {
    let services: Vec<(Wanted, Observed)> = (0..SERVICES).map(service).collect();
    let plan_all =
        || services.iter().for_each(|(wanted, observed)| drop(black_box(plan(wanted, observed, NOW))));
    let copy_all = || services.iter().for_each(|(_, observed)| drop(black_box(observed.clone())));
    let (planned, copied) = (time(plan_all), time(copy_all));
    let result = json!({
        "benchmark": "planner",
        "services": SERVICES,
        "decisionsPerSecond": (f64::from(SERVICES) / planned.as_secs_f64()).round(),
        "timesACopy": (planned.as_secs_f64() / copied.as_secs_f64() * 10.0).round() / 10.0,
        "allocationsPerDecision": allocations(plan_all),
        "allocationsPerCopy": allocations(copy_all),
    });
    println!("{result}");
}

const NOW: Duration = Duration::from_hours(1);

/// The shortest of five runs: the others were disturbed.
fn time(mut run: impl FnMut()) -> Duration {
    let once = |_| {
        let began = Instant::now();
        run();
        began.elapsed()
    };
    (0..5).map(once).min().unwrap_or_default()
}

/// Allocations of one run for each service, to two places. What grows counts each time.
fn allocations(run: impl FnOnce()) -> f64 {
    let region = Region::new(ALLOCATOR);
    run();
    let change = region.change();
    let count = u32::try_from(change.allocations + change.reallocations).unwrap_or(u32::MAX);
    (f64::from(count) / f64::from(SERVICES) * 100.0).round() / 100.0
}

/// A service with 4 to 20 units, some way through its update.
fn service(number: u32) -> (Wanted, Observed) {
    let replicas = 4 + number % 17;
    let new = number % replicas;
    let version = |id: u32, units: u32| Version {
        id: VersionId(id),
        asked: units,
        live: units,
        ready: units,
        proven: true,
    };
    let route = Weights::split((VersionId(1), replicas - new), (VersionId(2), new));
    let wanted = Wanted {
        target: VersionId(2),
        replicas,
        budget: Budget { surge: 1, unavailable: 0 },
        policy: Policy::Rolling,
        progress_deadline: Some(Duration::from_mins(15)),
        on_failure: OnFailure::RollBack,
    };
    let observed = Observed {
        versions: vec![version(1, replicas - new), version(2, new)],
        current: Some(VersionId(1)),
        applied: Some(route.clone()),
        route,
        rollout: Rollout {
            phase: Phase::Forward,
            step: 0,
            step_since: NOW,
            moved_at: None,
            progressed_at: NOW,
            verdict: Verdict::Open,
        },
        retained: None,
        in_place: None,
    };
    (wanted, observed)
}
