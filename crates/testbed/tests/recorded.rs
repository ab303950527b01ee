//! What a kube-apiserver answered once is what the embedded API answers, without one at hand.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod recordings;

use testbed::{
    Embedded,
    differential::{Runner, compare, prepare},
};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_are_answered_as_they_were() {
    let embedded = Embedded::start().await.unwrap();
    let ours = embedded.client();
    prepare(&ours).await.unwrap();
    let recordings = recordings::all();
    assert!(!recordings.is_empty());
    // At once: each waits for its watches to end.
    let mut running = JoinSet::new();
    for (name, recording) in recordings {
        let ours = ours.clone();
        running.spawn(async move {
            let mut runner = Runner::new(ours, &format!("recorded-{name}")).await.unwrap();
            let found = runner.run(&recording.sequence).await.unwrap();
            assert_eq!(found.len(), recording.answers.len(), "{name}");
            let differences = compare(&recording.sequence, &recording.answers, &found);
            assert!(differences.is_empty(), "{name}: {:#?}", differences.first());
        });
    }
    running.join_all().await;
}

/// The meter works: an answer that is changed is noticed.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_answer_is_a_difference() {
    let (_, mut recording) = recordings::all().swap_remove(0);
    let expected = recording.answers.clone();
    recording.answers[0].code += 1;
    assert_eq!(compare(&recording.sequence, &expected, &recording.answers).len(), 1);
}
