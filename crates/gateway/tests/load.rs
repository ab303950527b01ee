//! What the load tells of the answers that it gets.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod support;

use gateway::load::{Client, Outcome, Target};
use support::{Rig, SOON, echo::Echo};
use testbed::eventually;
use tokio::sync::oneshot;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_its_end_is_truncated_unless_it_is_an_error() {
    let rig = Rig::new().await;
    let one = Echo::new("first last", rig.endpoint(1, 0)).await;
    let outcome = async |path: &str, ending| {
        let target =
            Target { address: one.address, host: "x".to_owned(), path: path.to_owned(), fresh: false };
        Client::of_streams(target, ending).request().await.0
    };
    assert_eq!(outcome("/?stream=3", "last").await, Outcome::Ok);
    assert_eq!(outcome("/", "first").await, Outcome::Truncated);
    assert_eq!(outcome("/error", "last").await, Outcome::AppError);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_are_asked_at_any_time_until_the_stop_and_the_last_are_waited_for() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.routed(&[("one", 1)]).await;
    let client = rig.load("/stream").await;
    let (stop, stopped) = oneshot::channel::<()>();
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.closed_loop_until(3, async { drop(stopped.await) }).await }
    });
    rig.in_flight(one.address, 3).await;
    // Whoever is asked anew may take chunks that the others wait for, so there are more until three have ended.
    let again = eventually("three more", SOON, async || {
        one.let_chunks_go(10);
        (client.totals().ok >= 3).then_some(())
    });
    again.await.unwrap();
    rig.in_flight(one.address, 3).await;
    stop.send(()).unwrap();
    // They may ask again before they hear of it; there are chunks for those too.
    one.let_chunks_go(10_000);
    asking.await.unwrap();
    let totals = client.totals();
    assert_eq!((totals.failed, totals.truncated, totals.app_errors), (0, 0, 0));
    assert_eq!(totals.requests(), one.served());
    rig.idle(one.address).await;
    rig.stop().await;
}
