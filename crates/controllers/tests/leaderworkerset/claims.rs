//! Claims: made before their pods, kept while groups come and go, deleted only when the set says so.

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    set,
    stage::{Stage, ready_groups, updated_groups},
};

const CLAIM: &str = "PersistentVolumeClaim";

fn with_claims(replicas: u32, size: u32, image: &str, retention: &Value) -> Value {
    let mut set = set("x", replicas, size, image);
    let template = &mut set["spec"]["leaderWorkerTemplate"];
    template["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data", "labels": {"mine": "kept"}, "annotations": {"mine": "kept"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "selector": {"matchLabels": {"disk": "fast"}},
            "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "weights"},
            "volumeAttributesClassName": "gold",
        },
    }]);
    if !retention.is_null() {
        template["persistentVolumeClaimRetentionPolicy"] = retention.clone();
    }
    set
}

fn retention(when_deleted: &str, when_scaled: &str) -> Value {
    json!({"whenDeleted": when_deleted, "whenScaled": when_scaled})
}

/// Bug 6.14: templates of claims lose what is in them.
#[tokio::test(start_paused = true)]
async fn every_pod_gets_its_claim_with_all_that_the_template_says() {
    let stage = Stage::start().await;
    stage.apply(&with_claims(1, 2, "one", &Value::Null)).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    assert_eq!(stage.names(CLAIM).await, ["data-x-0", "data-x-0-1"]);
    for pod in stage.all_pods("x").await {
        let name = pod.name_any();
        let volumes = serde_json::to_value(&pod.spec.unwrap().volumes).unwrap();
        let claim = format!("data-{name}");
        assert_eq!(volumes, json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]));
        let claim = stage.get(CLAIM, &claim).await.unwrap();
        let labels = &claim["metadata"]["labels"];
        assert_eq!(
            (&labels["mine"], &labels["leaderworkerset.sigs.k8s.io/name"]),
            (&json!("kept"), &json!("x"))
        );
        assert_eq!(claim["metadata"]["annotations"]["mine"], "kept");
        assert_eq!(claim["spec"]["selector"]["matchLabels"]["disk"], "fast");
        assert_eq!(claim["spec"]["dataSource"]["name"], "weights");
        assert_eq!(claim["spec"]["volumeAttributesClassName"], "gold");
        assert_eq!(claim["metadata"]["ownerReferences"], Value::Null, "what is retained is nobody's");
    }
}

#[tokio::test(start_paused = true)]
async fn claims_stay_when_groups_are_scaled_away_and_when_the_set_goes() {
    let stage = Stage::start().await;
    stage.apply(&with_claims(2, 1, "one", &Value::Null)).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    stage.apply(&with_claims(1, 1, "one", &Value::Null)).await;
    stage.eventually("one is left", || async { (stage.pods("x").await == ["x-0"]).then_some(()) }).await;
    stage.delete("LeaderWorkerSet", "x").await;
    stage.eventually("no pod is left", || async { stage.pods("x").await.is_empty().then_some(()) }).await;
    stage.quiet().await;
    assert_eq!(stage.names(CLAIM).await, ["data-x-0", "data-x-1"]);
}

/// Row 2.7: `whenDeleted: Delete` costs the public operator's workers their claims at every restart of a group.
#[tokio::test(start_paused = true)]
async fn a_group_that_is_made_again_or_replaced_keeps_its_claims() {
    let stage = Stage::start().await;
    let both = retention("Delete", "Delete");
    stage.apply(&with_claims(2, 2, "one", &both)).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    let before = stage.uids(CLAIM).await;
    stage.fail("x-1-1").await;
    stage
        .eventually("the group is made again", || async {
            let status = stage.get("LeaderWorkerSet", "x").await?["status"].clone();
            (status["groups"][0]["restarts"] == 1 && status["readyReplicas"] == 2).then_some(())
        })
        .await;
    stage.apply(&with_claims(2, 2, "two", &both)).await;
    stage.eventually("both are of the new template", updated_groups(&stage, "x", 2)).await;
    stage.quiet().await;
    assert_eq!(stage.uids(CLAIM).await, before);
}

#[tokio::test(start_paused = true)]
async fn claims_of_groups_that_are_scaled_away_go_where_the_set_says_so() {
    let stage = Stage::start().await;
    let scaled = retention("Retain", "Delete");
    stage.apply(&with_claims(3, 2, "one", &scaled)).await;
    stage.eventually("three groups are ready", ready_groups(&stage, "x", 3)).await;
    let mut theirs = stage.get(CLAIM, "data-x-2").await.unwrap();
    theirs["metadata"] = json!({"name": "data-x-7", "labels": {"leaderworkerset.sigs.k8s.io/name": "x"}});
    theirs["apiVersion"] = json!("v1");
    theirs["kind"] = json!(CLAIM);
    theirs.as_object_mut().unwrap().remove("status");
    stage.apply(&theirs).await;
    stage.apply(&with_claims(1, 2, "one", &scaled)).await;
    stage
        .eventually("their claims are gone, and that of somebody else is not", || async {
            (stage.names(CLAIM).await == ["data-x-0", "data-x-0-1", "data-x-7"]).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn claims_go_with_their_set_where_it_says_so_and_not_those_of_others() {
    let stage = Stage::start().await;
    let theirs = json!({
        "apiVersion": "v1", "kind": CLAIM, "metadata": {"name": "data-x-0"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}},
    });
    stage.apply(&theirs).await;
    stage.apply(&with_claims(2, 1, "one", &retention("Retain", "Retain"))).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    let used = stage.get(CLAIM, "data-x-0").await.unwrap();
    assert_eq!(used["spec"]["resources"]["requests"]["storage"], "5Gi", "it is used as it is");
    // The policy may change while the set lives.
    stage.apply(&with_claims(2, 1, "one", &retention("Delete", "Retain"))).await;
    stage
        .eventually("the claim of ours refers to its set", || async {
            let claim = stage.get(CLAIM, "data-x-1").await?;
            (claim["metadata"]["ownerReferences"][0]["name"] == "x").then_some(())
        })
        .await;
    stage.eventually("both groups are back", updated_groups(&stage, "x", 2)).await;
    stage.delete("LeaderWorkerSet", "x").await;
    stage
        .eventually("what is ours goes with the set", || async {
            (stage.names(CLAIM).await == ["data-x-0"]).then_some(())
        })
        .await;
}

/// Bugs 6.1 and 6.12: a changed template of claims wedges the set, and every retry stores one more revision.
#[tokio::test(start_paused = true)]
async fn changed_claim_templates_roll_out_and_hold_for_new_claims_only() {
    let stage = Stage::start().await;
    stage.apply(&with_claims(1, 1, "one", &Value::Null)).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    let mut larger = with_claims(2, 1, "one", &Value::Null);
    larger["spec"]["leaderWorkerTemplate"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] =
        json!("9Gi");
    stage.apply(&larger).await;
    stage.eventually("both groups are of the new template", updated_groups(&stage, "x", 2)).await;
    for (claim, storage) in [("data-x-0", "1Gi"), ("data-x-1", "9Gi")] {
        let claim = stage.get(CLAIM, claim).await.unwrap();
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], storage);
    }
    assert_eq!(stage.names("ControllerRevision").await.len(), 2);
}
