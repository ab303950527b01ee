//! What another operator made of a ModelServing, on the embedded API.

use controllers::adopt::Step;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    kit::{self, serving, settled},
    stage::Stage,
};

/// The hash of the other operator. It is a name and nothing more.
const KEY: &str = "6f7d8";

/// A stage on which another operator has made a group of two decodes, of which one restarted, and ours has not begun.
async fn inherited(stores_its_revision: bool) -> Stage {
    let mut stage = Stage::start().await;
    stage.kill().await;
    stage.apply(&serving(1, &[("decode", 2, 0, "d")])).await;
    let live = stage.get("ModelServing", "pd").await.unwrap();
    let owner = json!([{
        "apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "name": "pd",
        "uid": live["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    if stores_its_revision {
        // As Go prints what it has read: nobody wrote that.
        let mut roles = live["spec"]["template"]["roles"].clone();
        roles[0]["entryTemplate"]["metadata"] = json!({});
        roles[0]["entryTemplate"]["spec"]["containers"][0]["resources"] = json!({});
        let revision = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
            "metadata": {"name": format!("pd-{KEY}"), "ownerReferences": owner, "labels": {
                "modelserving.volcano.sh/name": "pd", "modelserving.volcano.sh/revision": KEY}},
            "data": {"data": roles},
        });
        stage.apply(&revision).await;
    } else {
        let said =
            json!({"status": {"observedGeneration": live["metadata"]["generation"], "updateRevision": KEY}});
        let servings =
            stage.api(&json!({"apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing"}));
        servings.patch_status("pd", &PatchParams::default(), &Patch::Merge(said)).await.unwrap();
    }
    for ordinal in 0..2 {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pd-0-decode-{ordinal}-0"), "ownerReferences": owner, "labels": {
                "modelserving.volcano.sh/name": "pd", "modelserving.volcano.sh/group-name": "pd-0",
                "modelserving.volcano.sh/role": "decode", "modelserving.volcano.sh/entry": "true",
                "modelserving.volcano.sh/role-id": format!("decode-{ordinal}"),
                "modelserving.volcano.sh/revision": KEY,
                "modelserving.volcano.sh/role-template-hash": "c4b5d",
            }},
            "spec": {"containers": [{"name": "c", "image": "d"}]},
        });
        stage.apply(&pod).await;
    }
    stage
        .eventually("the pods run", || async {
            let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.container_statuses.is_some());
            kit::pods(&stage).await.iter().all(runs).then_some(())
        })
        .await;
    stage.fail("pd-0-decode-1-0").await;
    stage
}

async fn writes(stage: &Stage) -> Vec<Step> {
    stage.adoption("ModelServing").await
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_for_what_another_operator_made() {
    let mut stage = inherited(true).await;
    let version = stage.revision().await;
    stage.run();
    stage
        .eventually("it is said", || async {
            let events = kit::events(&stage).await;
            events
                .iter()
                .any(|(reason, note)| reason == "NotAdopted" && note.contains("segue adopt pd"))
                .then_some(())
        })
        .await;
    stage.quiet().await;
    assert!(!stage.changed_since(version).await.iter().any(|name| name.contains("ModelServing")));
}

/// Whoever takes over may stop after any write, with our controllers at work: no pod is ever made again. Its hashes are not
/// ours, so what its revision has in it counts; and where it stored none, what it says of the spec.
#[tokio::test(start_paused = true)]
async fn adoption_keeps_every_pod_wherever_it_stops() {
    for (stores_its_revision, all) in [(true, 2), (false, 3)] {
        for stop in 0..=all {
            let mut stage = inherited(stores_its_revision).await;
            let before = kit::uids(&stage).await;
            assert_eq!(writes(&stage).await.len(), all);
            stage.run();
            for write in writes(&stage).await.iter().take(stop) {
                stage.adopt(write).await;
            }
            stage.quiet().await;
            assert_eq!(kit::uids(&stage).await, before, "stopped after {stop} writes");
            for write in &writes(&stage).await {
                stage.adopt(write).await;
            }
            let told = settled(&stage, 1).await;
            stage.quiet().await;
            assert_eq!(
                (kit::uids(&stage).await, &told["updateRevision"]),
                (before, &json!(KEY)),
                "after {stop}"
            );
            assert_eq!(writes(&stage).await, []);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_adopted_model_serving_is_updated_as_any_other() {
    let mut stage = inherited(true).await;
    stage.run();
    for write in &writes(&stage).await {
        stage.adopt(write).await;
    }
    settled(&stage, 1).await;
    let changed: Value = serving(1, &[("decode", 2, 0, "e")]);
    stage.apply(&changed).await;
    stage
        .eventually("every pod is of the new template", || async {
            let images = kit::images(&stage).await;
            (images.len() == 2 && images.values().all(|image| image == "e")).then_some(())
        })
        .await;
    settled(&stage, 1).await;
}
