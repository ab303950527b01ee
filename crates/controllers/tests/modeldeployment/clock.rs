//! Clocks step: a machine wakes up, or somebody sets its time. Time that did not pass is no waiting.

use std::{
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use controllers::{Calls, Clock, Settings};
use serde_json::json;
use testbed::virtual_time;

use super::{broken, deployment, idle, waits_for_units};
use crate::stage::{self, Stage};

const TWO_HOURS: u64 = 7_200;

async fn stage(wall: fn() -> Duration) -> Stage {
    let clock = Clock { wall, monotonic: virtual_time::now };
    let settings = Settings { clock, ..stage::settings() };
    Stage::with(Arc::new(Calls::default()), settings).await
}

#[tokio::test(start_paused = true)]
async fn a_step_forward_gives_no_rollout_up() {
    static AHEAD: AtomicU64 = AtomicU64::new(0);
    let stage = stage(|| virtual_time::now() + Duration::from_secs(AHEAD.load(Ordering::SeqCst))).await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    broken(&stage, "two");
    stage.apply(&deployment("two", &rolling, false)).await;
    waits_for_units(&stage).await;
    AHEAD.store(TWO_HOURS, Ordering::SeqCst);
    // A pass after the step: the number of replicas changes.
    let mut more = deployment("two", &rolling, false);
    more["spec"]["replicas"] = json!(5);
    stage.apply(&more).await;
    stage.quiet().await;
    let status = waits_for_units(&stage).await;
    assert_eq!(status["rollout"]["direction"], "Forward", "{status}");
    stage.kubelet.ready_if(|_| true);
    idle(&stage, "r2").await;
}

#[tokio::test(start_paused = true)]
async fn a_step_back_of_the_clock_prolongs_no_wait() {
    static BEHIND: AtomicU64 = AtomicU64::new(0);
    let stage =
        stage(|| virtual_time::now().saturating_sub(Duration::from_secs(BEHIND.load(Ordering::SeqCst))))
            .await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    BEHIND.store(TWO_HOURS, Ordering::SeqCst);
    stage.apply(&deployment("two", &rolling, false)).await;
    idle(&stage, "r2").await;
    // What fails after the step still has its deadline.
    broken(&stage, "three");
    let mut third = deployment("three", &rolling, false);
    third["spec"]["rollback"] = json!({"progressDeadlineSeconds": 2});
    third["spec"]["health"] = json!({"readyDeadlineSeconds": 1});
    stage.apply(&third).await;
    stage
        .eventually("the way back", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["history"][0]["outcome"] == "RolledBack" && status["phase"] == "Idle").then_some(())
        })
        .await;
}

/// What a process has noticed of a step is in the status: the next process has not seen it.
#[tokio::test(start_paused = true)]
async fn a_step_forward_and_then_another_process_give_no_rollout_up() {
    static AHEAD: AtomicU64 = AtomicU64::new(0);
    let mut stage = stage(|| virtual_time::now() + Duration::from_secs(AHEAD.load(Ordering::SeqCst))).await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    broken(&stage, "two");
    stage.apply(&deployment("two", &rolling, false)).await;
    let before = waits_for_units(&stage).await["rollout"]["progressedAt"].clone();
    AHEAD.store(TWO_HOURS, Ordering::SeqCst);
    let mut more = deployment("two", &rolling, false);
    more["spec"]["replicas"] = json!(5);
    stage.apply(&more).await;
    stage
        .eventually("the step is written down", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["rollout"]["progressedAt"] != before).then_some(())
        })
        .await;
    stage.kill().await;
    stage.run();
    more["spec"]["replicas"] = json!(6);
    stage.apply(&more).await;
    stage.quiet().await;
    let status = waits_for_units(&stage).await;
    assert_eq!(status["rollout"]["direction"], "Forward", "{status}");
    stage.kubelet.ready_if(|_| true);
    idle(&stage, "r2").await;
}
