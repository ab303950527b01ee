//! The promises of the store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "store/commits.rs"]
mod commits;
#[path = "store/crash.rs"]
mod crash;
#[path = "store/damage.rs"]
mod damage;
#[path = "store/disk.rs"]
mod disk;
#[path = "store/durable.rs"]
mod durable;
#[path = "store/model.rs"]
mod model;
#[path = "store/support.rs"]
mod support;
#[path = "store/watches.rs"]
mod watches;
