//! Requests to scale versions, where another process may still carry out the last one.

use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{deployment, idle};
use crate::stage::Stage;

/// A process that is slow has written to the status that it scales the first version up, and has not done so yet. The room
/// that it takes is not given to the next version before that write can no longer succeed.
#[tokio::test(start_paused = true)]
async fn a_request_that_may_be_on_its_way_is_withdrawn_before_others_get_room() {
    let mut stage = Stage::start().await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    stage.quiet().await;
    stage.kill().await;
    let set = stage.list("LeaderWorkerSet").await.remove(0);
    let version = set.labels()["segue.dev/version"].clone();
    let last = json!({"version": version, "replicas": 5, "resourceVersion": set.resource_version()});
    let chat = stage.get("ModelDeployment", "chat").await.unwrap();
    let status = Patch::Merge(json!({"status": {"lastScale": last}}));
    stage.api(&chat).patch_status("chat", &PatchParams::default(), &status).await.unwrap();
    stage.apply(&deployment("two", &rolling, false)).await;
    let record = stage.record("LeaderWorkerSet").await;
    stage.run();
    idle(&stage, "r2").await;
    let recorded = record.end().await;
    let withdrawn = recorded.iter().position(|state| {
        state["metadata"]["annotations"]["segue.dev/withdrawn-scale"] == json!(set.resource_version())
    });
    let other = recorded.iter().position(|state| state["metadata"]["name"] != json!(set.name_any()));
    assert!(withdrawn.is_some() && withdrawn < other, "withdrawn: {withdrawn:?}, next version: {other:?}");
}

/// A create has no precondition: one that comes late takes no room.
#[tokio::test(start_paused = true)]
async fn a_version_is_made_without_replicas() {
    let stage = Stage::start().await;
    let record = stage.record("LeaderWorkerSet").await;
    stage.apply(&deployment("one", &json!({"type": "Rolling"}), false)).await;
    let status = idle(&stage, "r1").await;
    let recorded = record.end().await;
    assert_eq!((&recorded[0]["spec"]["replicas"], &status["lastScale"]["replicas"]), (&json!(0), &json!(4)));
}
