//! When workers start.

use serde_json::json;

use crate::{
    set,
    stage::{Stage, ready_groups},
};

#[tokio::test(start_paused = true)]
async fn without_a_policy_workers_are_made_with_their_leader_ready_or_not() {
    for policy in [None, Some("LeaderCreated")] {
        let stage = Stage::start().await;
        // A worker that is ready before its leader is as good as one that is ready after.
        stage.kubelet.ready_if(|pod| pod.metadata.name.as_deref() != Some("x-0"));
        let mut set = set("x", 1, 3, "one");
        if let Some(policy) = policy {
            set["spec"]["startupPolicy"] = json!(policy);
        }
        stage.apply(&set).await;
        stage
            .eventually("every pod is made", || async {
                (stage.pods("x").await == ["x-0", "x-0-1", "x-0-2"]).then_some(())
            })
            .await;
        stage.kubelet.ready_if(|_| true);
        stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_unready_later_costs_no_worker() {
    let stage = Stage::start().await;
    let mut set = set("x", 1, 3, "one");
    set["spec"]["startupPolicy"] = json!("LeaderReady");
    stage.apply(&set).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    stage.quiet().await;
    let before = stage.uids("Pod").await;
    stage.kubelet.ready_if(|pod| pod.metadata.name.as_deref() != Some("x-0"));
    stage.eventually("the group does not serve", ready_groups(&stage, "x", 0)).await;
    stage.quiet().await;
    assert_eq!(stage.uids("Pod").await, before);
    stage.kubelet.ready_if(|_| true);
    stage.eventually("it serves again", ready_groups(&stage, "x", 1)).await;
    assert_eq!(stage.uids("Pod").await, before);
}
