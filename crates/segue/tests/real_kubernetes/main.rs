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
use site::Class;

#[test]
fn a_rolling_handover_drops_nothing_behind_our_gateway() {
    inside("a_rolling_handover_drops_nothing_behind_our_gateway", async |site| {
        Service::new("rolling", Class::Segue, 8001, Strategy::Rolling).drops_nothing(site).await;
    });
}

#[test]
fn an_incremental_handover_drops_nothing_behind_our_gateway() {
    inside("an_incremental_handover_drops_nothing_behind_our_gateway", async |site| {
        Service::new("incremental", Class::Segue, 8002, Strategy::Incremental).drops_nothing(site).await;
    });
}

#[test]
fn a_rolling_handover_drops_nothing_behind_traefik() {
    inside("a_rolling_handover_drops_nothing_behind_traefik", async |site| {
        Service::new("rolling", Class::Traefik, 8101, Strategy::Rolling).drops_nothing(site).await;
    });
}

#[test]
fn an_incremental_handover_drops_nothing_behind_traefik() {
    inside("an_incremental_handover_drops_nothing_behind_traefik", async |site| {
        Service::new("incremental", Class::Traefik, 8102, Strategy::Incremental).drops_nothing(site).await;
    });
}

#[test]
fn pods_that_are_killed_are_counted_behind_our_gateway() {
    inside("pods_that_are_killed_are_counted_behind_our_gateway", async |site| {
        Service::new("killed", Class::Segue, 8003, Strategy::Rolling).counts_what_is_killed(site).await;
    });
}

#[test]
fn pods_that_are_killed_are_counted_behind_traefik() {
    inside("pods_that_are_killed_are_counted_behind_traefik", async |site| {
        Service::new("killed", Class::Traefik, 8103, Strategy::Rolling).counts_what_is_killed(site).await;
    });
}

#[test]
fn a_handover_that_waits_for_nobody_is_counted_behind_our_gateway() {
    inside("a_handover_that_waits_for_nobody_is_counted_behind_our_gateway", async |site| {
        Service::new("hasty", Class::Segue, 8004, Strategy::Rolling).drops_something(site).await;
    });
}

#[test]
fn a_handover_that_waits_for_nobody_is_counted_behind_traefik() {
    inside("a_handover_that_waits_for_nobody_is_counted_behind_traefik", async |site| {
        Service::new("hasty", Class::Traefik, 8104, Strategy::Rolling).drops_something(site).await;
    });
}
