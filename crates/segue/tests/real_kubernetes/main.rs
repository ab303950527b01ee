//! A `ModelDeployment` goes from one version to the next on a real control plane, under load, by `segue operator`; once
//! behind our gateway and once behind one of others. Nothing is dropped, and where something must be, it is counted.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

mod handover;
mod namespace;
mod site;

use handover::{Service, Strategy};
use namespace::inside;
use site::{
    Class,
    Operator::{Killed, Steady},
};

#[test]
#[ignore = "needs a control plane, root and ip"]
fn a_rolling_handover_drops_nothing_behind_our_gateway() {
    inside("a_rolling_handover_drops_nothing_behind_our_gateway", Steady, async |site| {
        Service::new("rolling", Class::Segue, 8001, Strategy::Rolling).drops_nothing(site).await;
    });
}

#[test]
#[ignore = "needs a control plane, root and ip"]
fn an_incremental_handover_drops_nothing_behind_our_gateway() {
    inside("an_incremental_handover_drops_nothing_behind_our_gateway", Steady, async |site| {
        Service::new("incremental", Class::Segue, 8002, Strategy::Incremental).drops_nothing(site).await;
    });
}

#[test]
#[ignore = "needs a control plane, root and ip"]
fn a_rolling_handover_drops_nothing_behind_traefik() {
    inside("a_rolling_handover_drops_nothing_behind_traefik", Steady, async |site| {
        Service::new("rolling", Class::Traefik, 8101, Strategy::Rolling).drops_nothing(site).await;
    });
}

#[test]
#[ignore = "needs a control plane, root and ip"]
fn an_incremental_handover_drops_nothing_behind_traefik() {
    inside("an_incremental_handover_drops_nothing_behind_traefik", Steady, async |site| {
        Service::new("incremental", Class::Traefik, 8102, Strategy::Incremental).drops_nothing(site).await;
    });
}

#[test]
#[ignore = "needs a control plane, root and ip"]
fn pods_that_are_killed_are_counted_behind_our_gateway() {
    inside("pods_that_are_killed_are_counted_behind_our_gateway", Steady, async |site| {
        Service::new("killed", Class::Segue, 8003, Strategy::Rolling).counts_what_is_killed(site).await;
    });
}

#[test]
#[ignore = "needs a control plane, root and ip"]
fn pods_that_are_killed_are_counted_behind_traefik() {
    inside("pods_that_are_killed_are_counted_behind_traefik", Steady, async |site| {
        Service::new("killed", Class::Traefik, 8103, Strategy::Rolling).counts_what_is_killed(site).await;
    });
}

#[test]
#[ignore = "needs a control plane, root and ip"]
fn a_handover_that_waits_for_nobody_is_counted_behind_our_gateway() {
    inside("a_handover_that_waits_for_nobody_is_counted_behind_our_gateway", Steady, async |site| {
        Service::new("hasty", Class::Segue, 8004, Strategy::Rolling).drops_something(site).await;
    });
}

#[test]
#[ignore = "needs a control plane, root and ip"]
fn a_handover_that_waits_for_nobody_is_counted_behind_traefik() {
    inside("a_handover_that_waits_for_nobody_is_counted_behind_traefik", Steady, async |site| {
        Service::new("hasty", Class::Traefik, 8104, Strategy::Rolling).drops_something(site).await;
    });
}

#[test]
#[ignore = "needs a control plane, root and ip"]
fn a_handover_drops_nothing_behind_our_gateway_though_its_operator_is_killed() {
    inside(
        "a_handover_drops_nothing_behind_our_gateway_though_its_operator_is_killed",
        Killed,
        async |site| {
            Service::new("orphan", Class::Segue, 8005, Strategy::Rolling).drops_nothing(site).await;
            assert!(site.operators() > 5, "it was killed only {} times", site.operators() - 1);
        },
    );
}

#[test]
#[ignore = "needs a control plane, root and ip"]
fn a_handover_drops_nothing_behind_traefik_though_its_operator_is_killed() {
    inside("a_handover_drops_nothing_behind_traefik_though_its_operator_is_killed", Killed, async |site| {
        Service::new("orphan", Class::Traefik, 8105, Strategy::Rolling).drops_nothing(site).await;
        assert!(site.operators() > 5, "it was killed only {} times", site.operators() - 1);
    });
}
