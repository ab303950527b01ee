//! Clocks step while a group drains: the drain takes the time that it takes on a clock that does not.

use std::{cell::Cell, sync::Arc, time::Duration};

use controllers::{Calls, Clock, Settings};
use kube::ResourceExt;
use serde_json::json;
use testbed::virtual_time;
use tokio::time::Instant;

use crate::{
    set,
    stage::{self, Stage, ready_groups},
};

const TWO_HOURS: i64 = 7_200;
/// What the set asks for: 5 s until gateways have noticed, then 60 s for the requests.
const DRAIN: Duration = Duration::from_secs(65);

thread_local! {
    /// How far the wall clock of the controllers is ahead of the time of the test, in seconds.
    static AHEAD: Cell<i64> = const { Cell::new(0) };
}

fn wall() -> Duration {
    let (now, ahead) = (virtual_time::now(), Duration::from_secs(AHEAD.get().unsigned_abs()));
    if AHEAD.get() < 0 { now.saturating_sub(ahead) } else { now + ahead }
}

/// Returns how long group 1 of two drains if the wall clock of the controllers steps by so many seconds in the middle.
async fn drain_with_a_step_of(seconds: i64) -> Duration {
    AHEAD.set(0);
    let settings = Settings { clock: Clock { wall, monotonic: virtual_time::now }, ..stage::settings() };
    let stage = Stage::with(Arc::new(Calls::default()), settings).await;
    let mut chat = set("x", 2, 2, "one");
    chat["metadata"]["annotations"] =
        json!({"segue.dev/settle-seconds": "5", "segue.dev/drain-seconds": "60"});
    stage.apply(&chat).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    stage.scale_to("x", 1).await;
    stage
        .eventually("the leader of group 1 is out of service", || async {
            let leader = stage.get("Pod", "x-1").await?;
            let mut conditions = leader["status"]["conditions"].as_array()?.iter();
            conditions.find(|it| it["type"] == "segue.dev/in-service" && it["status"] == "False").map(drop)
        })
        .await;
    let left = Instant::now();
    tokio::time::sleep(Duration::from_secs(20)).await;
    AHEAD.set(seconds);
    // A pass on the clock that has stepped.
    chat["metadata"]["annotations"]["test/step"] = json!("noticed");
    stage.apply(&chat).await;
    stage
        .eventually("group 1 is deleted", || async {
            let pods = stage.all_pods("x").await;
            let lives = |name: &str| {
                pods.iter().any(|it| it.name_any() == name && it.metadata.deletion_timestamp.is_none())
            };
            (!lives("x-1")).then_some(())
        })
        .await;
    left.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_neither_shortens_nor_prolongs_a_drain() {
    for step in [0, TWO_HOURS, -TWO_HOURS] {
        let drained = drain_with_a_step_of(step).await;
        // The API has whole seconds, and rounds no wait down.
        let expected = DRAIN..=DRAIN + Duration::from_secs(3);
        assert!(expected.contains(&drained), "{drained:?} with a step of {step} s");
    }
}
