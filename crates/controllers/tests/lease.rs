//! One leader at a time, on the embedded API, in paused time.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use apiserver::{InProcess, Server, environment::SeededEnvironment, store};
use controllers::{Claim, End};
use kube::Client;
use tokio::{sync::watch, time::timeout};

/// Every reading is a little later than the one before.
fn clock() -> Duration {
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    Duration::from_secs(1_767_225_601) + Duration::from_millis(LOOKS.fetch_add(1, Relaxed))
}

async fn client() -> Client {
    let world = SeededEnvironment::new(1, "2026-01-01T00:00:00Z".parse().unwrap());
    let store = store::Store::memory(store::History::default());
    let server = Server::new(store, Arc::new(world), Vec::new());
    server.bootstrap().await.unwrap();
    Client::new(InProcess::new(server), "default")
}

#[tokio::test(start_paused = true)]
async fn another_leads_at_once_when_the_lease_is_given_back_and_late_when_its_holder_dies() {
    let client = client().await;
    let claim = |name: &str| Claim::new(client.clone(), "default", "lease", name, clock);
    let (_stop, mut never) = watch::channel(false);
    let (one, two, three) = (claim("one"), claim("two"), claim("three"));
    assert!(one.acquire(&mut never).await);

    // While it is kept, nobody else gets it.
    let (stop_one, mut told) = watch::channel(false);
    let keeping = tokio::spawn({
        let one = one.clone();
        async move { one.keep(&mut told).await }
    });
    let waited = timeout(Duration::from_mins(5), two.acquire(&mut never.clone())).await;
    assert!(waited.is_err(), "two leads beside one");

    // Given back, it is free at once.
    stop_one.send_replace(true);
    assert_eq!(keeping.await.unwrap(), End::Stopped);
    let free = timeout(Duration::from_secs(3), two.acquire(&mut never)).await;
    assert_eq!(free, Ok(true));

    // Nobody keeps it: a whole term passes first.
    let soon = timeout(Duration::from_secs(14), three.acquire(&mut never.clone())).await;
    assert!(soon.is_err(), "three leads before the term of two is over");
    assert_eq!(timeout(Duration::from_mins(1), three.acquire(&mut never)).await, Ok(true));

    // Unless it is known that the holder is no more.
    let four = claim("four").unless_gone(|holder| holder == "three");
    assert_eq!(timeout(Duration::from_secs(1), four.acquire(&mut never)).await, Ok(true));

    // Two comes back and finds that it has lost it.
    let (_stop_two, mut told) = watch::channel(false);
    assert_eq!(timeout(Duration::from_mins(1), two.keep(&mut told)).await, Ok(End::Lost));
}
