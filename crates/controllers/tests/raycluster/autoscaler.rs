//! Ray's autoscaler beside the head.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{cluster, ready, stage::Stage, uids};

fn autoscaled(replicas: u32) -> Value {
    let mut cluster = cluster(replicas);
    cluster["spec"]["enableInTreeAutoscaling"] = json!(true);
    cluster["spec"]["workerGroupSpecs"][0]["maxReplicas"] = json!(5);
    cluster
}

#[tokio::test(start_paused = true)]
async fn the_autoscaler_runs_beside_the_head_with_exactly_its_rights() {
    let stage = Stage::start().await;
    stage.apply(&autoscaled(1)).await;
    ready(&stage, 1).await;
    let heads = uids(&stage, "head").await;
    let head = stage.get("Pod", heads.keys().next().unwrap()).await.unwrap();
    assert_eq!(head["spec"]["serviceAccountName"], "c");
    let containers = head["spec"]["containers"].as_array().unwrap();
    assert_eq!((containers.len(), &containers[1]["name"]), (2, &json!("autoscaler")));
    let start = containers[0]["args"][0].as_str().unwrap();
    assert!(start.contains(" --no-monitor"), "{start}");
    assert!(stage.get("ServiceAccount", "c").await.is_some());
    let role = stage.get("Role", "c").await.unwrap();
    let granted: Vec<String> = role["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| format!("{} {}", rule["resources"][0].as_str().unwrap(), rule["verbs"]))
        .collect();
    assert_eq!(
        granted,
        [
            r#"pods ["get","list","watch","patch"]"#,
            r#"pods/resize ["patch"]"#,
            r#"rayclusters ["get","patch"]"#,
        ]
    );
    let binding = stage.get("RoleBinding", "c").await.unwrap();
    assert_eq!(binding["subjects"][0]["name"], "c");
    for (kind, field) in [("Role", "rules"), ("RoleBinding", "subjects")] {
        let before = stage.get(kind, "c").await.unwrap();
        let edit = Patch::Merge(json!({field: null}));
        stage.api(&before).patch("c", &PatchParams::default(), &edit).await.unwrap();
        stage
            .eventually(&format!("the {kind} is set back"), || async {
                (stage.get(kind, "c").await?[field] == before[field]).then_some(())
            })
            .await;
    }
    stage.delete("RayCluster", "c").await;
    stage
        .eventually("its rights go with it", || async {
            stage.get("Role", "c").await.is_none().then_some(())
        })
        .await;
}

/// A `ServiceAccount` that the template names is the user's.
#[tokio::test(start_paused = true)]
async fn a_service_account_of_the_template_gets_the_rights() {
    let stage = Stage::start().await;
    let mut cluster = autoscaled(0);
    cluster["spec"]["headGroupSpec"]["template"]["spec"]["serviceAccountName"] = json!("mine");
    stage.apply(&cluster).await;
    ready(&stage, 0).await;
    assert!(stage.get("ServiceAccount", "c").await.is_none());
    assert_eq!(stage.get("RoleBinding", "c").await.unwrap()["subjects"][0]["name"], "mine");
}

/// Only Ray knows which worker is idle: fewer replicas alone take none away, a name does.
#[tokio::test(start_paused = true)]
async fn the_autoscaler_chooses_which_worker_goes() {
    let stage = Stage::start().await;
    stage.apply(&autoscaled(3)).await;
    ready(&stage, 3).await;
    let before = uids(&stage, "worker").await;
    let mut fewer = autoscaled(2);
    stage.apply(&fewer).await;
    stage.quiet().await;
    assert_eq!(uids(&stage, "worker").await, before);
    let chosen = before.keys().next().unwrap();
    fewer["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = json!({"workersToDelete": [chosen]});
    stage.apply(&fewer).await;
    ready(&stage, 2).await;
    let after = uids(&stage, "worker").await;
    assert!(!after.contains_key(chosen) && after.iter().all(|(name, uid)| before.get(name) == Some(uid)));
}
