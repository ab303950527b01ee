//! What stays while nodes are drained.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    kit::{self, serving, settled},
    stage::Stage,
};

/// Prefills of one pod, decodes of two; of each group at least two decodes and half of the prefills stay.
fn protected(groups: u32, image: &str) -> Value {
    let mut serving = serving(groups, &[("prefill", 2, 0, image), ("decode", 3, 1, image)]);
    serving["spec"]["rolloutStrategy"] = json!({
        "type": "RoleRollingUpdate",
        "evictionStrategy": {"protectionLevel": "Role", "roleMinAvailable": {"decode": 2, "prefill": "50%"}},
    });
    serving
}

/// How many pods each budget keeps.
async fn kept(stage: &Stage) -> BTreeMap<String, i64> {
    let budgets = stage.list("PodDisruptionBudget").await.into_iter();
    budgets.map(|it| (it.metadata.name.unwrap(), it.data["spec"]["minAvailable"].as_i64().unwrap())).collect()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn is_called(object: &Value, name: &str) -> bool {
    object["metadata"]["name"] == name
}

#[tokio::test(start_paused = true)]
async fn as_many_pods_may_go_as_replicas_of_a_role_and_budgets_come_and_go_with_their_groups() {
    let stage = Stage::start().await;
    let (budgets, pods) = (stage.record("PodDisruptionBudget").await, stage.record("Pod").await);
    stage.apply(&protected(2, "one")).await;
    let status = settled(&stage, 2).await;
    assert_eq!(kit::condition(&status, "NotActedOn"), "absent", "{status}");
    let both = [("pd-0-decode-eviction", 5), ("pd-0-prefill-eviction", 1)];
    let more = [("pd-1-decode-eviction", 5), ("pd-1-prefill-eviction", 1)];
    let named = |all: &[(&str, i64)]| {
        all.iter().map(|(name, it)| ((*name).to_owned(), *it)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(kept(&stage).await, named(&[both, more].concat()));
    let (budgets, pods) = (budgets.end().await, pods.end().await);
    let first =
        |all: &[Value], name: &str| all.iter().filter(|it| is_called(it, name)).map(version).min().unwrap();
    assert!(
        first(&budgets, "pd-1-decode-eviction") < first(&pods, "pd-1-decode-0-0"),
        "the budget comes first"
    );
    let spec = &budgets.iter().find(|it| is_called(it, "pd-1-decode-eviction")).unwrap()["spec"];
    assert_eq!(
        spec["selector"],
        json!({"matchLabels": {"modelserving.volcano.sh/name": "pd",
            "modelserving.volcano.sh/group-name": "pd-1", "modelserving.volcano.sh/role": "decode"}})
    );
    assert_eq!(spec["unhealthyPodEvictionPolicy"], "AlwaysAllow");

    stage.apply(&protected(1, "one")).await;
    settled(&stage, 1).await;
    stage
        .eventually("the budgets of the group that is gone are gone", || async {
            (kept(&stage).await == named(&both)).then_some(())
        })
        .await;
    stage.quiet().await;

    kit::patch(&stage, &json!([{"op": "remove", "path": "/spec/rolloutStrategy/evictionStrategy"}])).await;
    stage.eventually("nothing is protected", || async { kept(&stage).await.is_empty().then_some(()) }).await;
}

/// Kubernetes takes any pod that a budget covers for any other. One more replica would let two more pods go.
#[tokio::test(start_paused = true)]
async fn a_replica_in_excess_is_counted_before_it_is_made() {
    let surging = |image: &str| {
        let mut serving = protected(1, image);
        let decode = &mut serving["spec"]["template"]["roles"][1];
        decode["maxSurge"] = json!(1);
        decode["maxUnavailable"] = json!(0);
        serving
    };
    let stage = Stage::start().await;
    stage.apply(&surging("one")).await;
    settled(&stage, 1).await;
    let (budgets, pods) = (stage.record("PodDisruptionBudget").await, stage.record("Pod").await);
    stage.apply(&surging("two")).await;
    settled(&stage, 1).await;
    stage
        .eventually("the budget is as before", || async {
            (kept(&stage).await["pd-0-decode-eviction"] == 5).then_some(())
        })
        .await;
    let (budgets, pods) = (budgets.end().await, pods.end().await);
    let mut minima: Vec<(u64, i64)> = budgets
        .iter()
        .filter(|it| is_called(it, "pd-0-decode-eviction"))
        .map(|it| (version(it), it["spec"]["minAvailable"].as_i64().unwrap()))
        .collect();
    minima.dedup_by_key(|(_, least)| *least);
    // Four replicas of two pods, of which two may go.
    let (raised, least) = minima[0];
    assert_eq!((least, minima.last().unwrap().1), (6, 5), "{minima:?}");
    let excess = pods.iter().find(|it| is_called(it, "pd-0-decode-3-0")).unwrap();
    assert!(raised < version(excess), "{minima:?}");
}

#[tokio::test(start_paused = true)]
async fn whole_groups_are_kept_by_one_budget() {
    let stage = Stage::start().await;
    let mut wanted = protected(3, "one");
    wanted["spec"]["rolloutStrategy"] = json!({"evictionStrategy": {"minAvailable": "50%"}});
    stage.apply(&wanted).await;
    settled(&stage, 3).await;
    // Two of three groups stay, so one pod of all 24 may go.
    assert_eq!(kept(&stage).await, BTreeMap::from([("pd-eviction".to_owned(), 23)]));
    let spec = stage.get("PodDisruptionBudget", "pd-eviction").await.unwrap()["spec"].clone();
    assert_eq!(spec["selector"], json!({"matchLabels": {"modelserving.volcano.sh/name": "pd"}}));
}

/// What a group will never have as long as it stays as it is must not be waited for, else nothing could ever be
/// drained.
#[tokio::test(start_paused = true)]
async fn a_group_below_the_partition_has_no_pods_of_a_new_role() {
    let stage = Stage::start().await;
    let wanted = |roles: &[(&str, u32, u32, &str)]| {
        let mut serving = serving(2, roles);
        serving["spec"]["rolloutStrategy"] = json!({
            "evictionStrategy": {"minAvailable": 1}, "rollingUpdateConfiguration": {"partition": 1},
        });
        serving
    };
    stage.apply(&wanted(&[("decode", 2, 0, "one")])).await;
    settled(&stage, 2).await;
    assert_eq!(kept(&stage).await["pd-eviction"], 3);
    stage.apply(&wanted(&[("decode", 2, 0, "two"), ("prefill", 3, 0, "two")])).await;
    stage
        .eventually("one group of two pods, one of five, and one pod of them may go", || async {
            (kit::names(&stage).await.len() == 7 && kept(&stage).await["pd-eviction"] == 6).then_some(())
        })
        .await;
}
