//! Clocks step: a machine wakes up, or somebody sets its time. Time that did not pass is no time without progress.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use controllers::Clock;
use serde_json::{Value, json};
use testbed::virtual_time;

use crate::kit::{active, blue_green, pending, service, settled, stage_at, until};

const TWO_HOURS: u64 = 7_200;

/// A second version whose upgrade goes back when nothing has moved for ten minutes.
fn second() -> Value {
    let mut second = service("two", 3, &blue_green());
    second["metadata"]["annotations"] = json!({"segue.dev/rollback-after-seconds": "600"});
    second
}

/// What a process has noticed of a step is in the status: the next process has not seen it.
#[tokio::test(start_paused = true)]
async fn a_step_forward_and_then_another_process_give_no_upgrade_up() {
    static AHEAD: AtomicU64 = AtomicU64::new(0);
    let wall = || virtual_time::now() + Duration::from_secs(AHEAD.load(Ordering::SeqCst));
    let (mut stage, serve) = stage_at(Clock { wall, monotonic: virtual_time::now }).await;
    stage.apply(&service("one", 3, &blue_green())).await;
    let old = active(&settled(&stage).await);
    stage.apply(&second()).await;
    let begun = until(&stage, "it begins", |it| pending(it).is_some()).await;
    let new = pending(&begun).unwrap();
    serve.mute(&new, true);
    until(&stage, "it waits", |it| it["waitingFor"]["deadline"].is_string()).await;
    stage.quiet().await;
    let before = crate::kit::status(&stage).await["upgrade"]["progressedAt"].clone();
    AHEAD.store(TWO_HOURS, Ordering::SeqCst);
    until(&stage, "the step is written down", |it| it["upgrade"]["progressedAt"] != before).await;
    stage.kill().await;
    stage.run();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let status = crate::kit::status(&stage).await;
    assert!(status["givenUp"].is_null() && pending(&status) == Some(new.clone()), "{status:#}");
    serve.mute(&new, false);
    let status = settled(&stage).await;
    assert_eq!((active(&status), &status["upgrade"]), (new, &Value::Null), "from {old}");
}
