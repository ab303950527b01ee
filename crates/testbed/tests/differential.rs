//! The embedded API answers as a kube-apiserver does.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod recordings;

use std::{env, fs, sync::Arc};

use testbed::{
    Cluster, Embedded,
    differential::{Recording, Runner, Sequence, compare, compare_both, prepare},
};
use tokio::{sync::Semaphore, task::JoinSet};

/// A campaign has thousands: `cargo run -p testbed --bin differential -- 5000 100`.
const SEQUENCES: u64 = 200;
const LENGTH: usize = 40;
/// Most of the time a sequence waits for its watches to end.
const AT_ONCE: usize = 64;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn random_requests_are_answered_alike() {
    let embedded = Embedded::start().await.unwrap();
    let (real, ours) = (Cluster::shared().await.client(), embedded.client());
    prepare(&real).await.unwrap();
    prepare(&ours).await.unwrap();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for seed in 0..SEQUENCES {
        let (real, ours, places) = (real.clone(), ours.clone(), Arc::clone(&places));
        running.spawn(async move {
            let _place = places.acquire_owned().await;
            let sequence = Sequence::random(seed, LENGTH);
            let name = format!("differential-{seed}");
            let differences = compare_both(&sequence, &name, &real, &ours).await.unwrap();
            (seed, sequence.steps.len(), differences)
        });
    }
    let (mut requests, mut differing) = (0, Vec::new());
    while let Some(done) = running.join_next().await {
        let (seed, sent, differences) = done.unwrap();
        requests += sent;
        differing.extend(differences.into_iter().next().map(|first| (seed, first)));
    }
    println!("{SEQUENCES} sequences, {requests} requests, {} differ", differing.len());
    assert!(differing.is_empty(), "{:#?}", differing.first());
}

/// With `SEGUE_UPDATE=1` the recordings are made anew.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn the_recordings_are_what_a_kube_apiserver_answers() {
    let real = Cluster::shared().await.client();
    prepare(&real).await.unwrap();
    for (name, recording) in recordings::all() {
        let mut runner = Runner::new(real.clone(), &format!("recorded-{name}")).await.unwrap();
        let answers = runner.run(&recording.sequence).await.unwrap();
        if env::var_os("SEGUE_UPDATE").is_some() {
            let text = Recording { sequence: recording.sequence, answers }.text();
            fs::write(recordings::folder().join(format!("{name}.json")), text).unwrap();
        } else {
            let differences = compare(&recording.sequence, &recording.answers, &answers);
            assert!(differences.is_empty(), "{name}: {:#?}", differences.first());
        }
    }
}
