//! Pods that fail, are unhealthy or are lost.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::json;

use crate::{cluster, condition, fault_tolerant, mark, pods, ready, stage::Stage, uids};

/// Ends a pod.
async fn end(stage: &Stage, pod: &str, phase: &str) {
    let api: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let mut pod = api.get(pod).await.unwrap();
    pod.status.as_mut().unwrap().phase = Some(phase.to_owned());
    api.replace_status(&pod.name_any(), &PostParams::default(), &pod).await.unwrap();
}

/// HA-12: what is lost of the head costs no worker.
#[tokio::test(start_paused = true)]
async fn a_head_that_ends_is_made_again_and_no_worker_is_touched() {
    for phase in ["Failed", "Succeeded"] {
        let stage = Stage::start().await;
        stage.apply(&fault_tolerant(3)).await;
        ready(&stage, 3).await;
        let (heads, workers) = (uids(&stage, "head").await, uids(&stage, "worker").await);
        end(&stage, heads.keys().next().unwrap(), phase).await;
        stage
            .eventually("there is another head", || async {
                let now = uids(&stage, "head").await;
                (now.len() == 1 && now != heads).then_some(())
            })
            .await;
        ready(&stage, 3).await;
        assert_eq!(uids(&stage, "worker").await, workers, "{phase}");
    }
}

/// Without external storage the next head knows no worker of the last one.
#[tokio::test(start_paused = true)]
async fn without_fault_tolerance_workers_go_with_their_head() {
    let stage = Stage::start().await;
    stage.apply(&cluster(2)).await;
    ready(&stage, 2).await;
    let (heads, workers) = (uids(&stage, "head").await, uids(&stage, "worker").await);
    end(&stage, heads.keys().next().unwrap(), "Failed").await;
    stage
        .eventually("all pods are others", || async {
            let now = uids(&stage, "worker").await;
            (now.len() == 2 && workers.keys().all(|name| !now.contains_key(name))).then_some(())
        })
        .await;
    ready(&stage, 2).await;
}

/// A head that exits on start is made again and again, each time later, and never given up.
#[tokio::test(start_paused = true)]
async fn a_head_that_exits_on_start_is_retried_with_a_back_off() {
    let stage = Stage::start().await;
    stage.apply(&fault_tolerant(1)).await;
    ready(&stage, 1).await;
    let mut times = Vec::new();
    for _ in 0..5 {
        let before = uids(&stage, "head").await;
        end(&stage, before.keys().next().unwrap(), "Failed").await;
        stage
            .eventually("there is another head", || async {
                let now = uids(&stage, "head").await;
                (now.len() == 1 && now != before).then_some(())
            })
            .await;
        times.push(tokio::time::Instant::now());
    }
    let waits: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "each later than the last: {waits:?}");
    end(&stage, uids(&stage, "head").await.keys().next().unwrap(), "Failed").await;
    let said = stage.eventually("it is said", || async {
        condition(&stage.observed("RayCluster", "c").await?, "Degraded")
    });
    let said = said.await["message"].clone();
    assert!(said.as_str().unwrap().starts_with("the head was replaced "), "{said}");
    ready(&stage, 1).await;
}

/// HA-22 to HA-24: also a mark of anyone else, and only the pods that have it.
#[tokio::test(start_paused = true)]
async fn a_pod_that_anyone_marks_as_unhealthy_is_replaced() {
    let stage = Stage::start().await;
    stage.apply(&fault_tolerant(3)).await;
    ready(&stage, 3).await;
    let before = pods(&stage).await;
    for ty in ["worker", "head"] {
        let all = uids(&stage, ty).await;
        let (name, uid) = all.iter().next().unwrap();
        mark(&stage, name, "Healthy").await;
        stage.quiet().await;
        assert_eq!(uids(&stage, ty).await, all, "no other value counts");
        mark(&stage, name, "Unhealthy").await;
        stage
            .eventually("it is replaced", || async {
                (!uids(&stage, ty).await.values().any(|now| now == uid)).then_some(())
            })
            .await;
        ready(&stage, 3).await;
    }
    let after = pods(&stage).await;
    let kept = before.values().filter(|pod| after.values().any(|now| now.uid() == pod.uid())).count();
    assert_eq!(kept, 2, "the head and one worker of three are others");
}

/// HA-11: a raylet that fails its check past the threshold.
#[tokio::test(start_paused = true)]
async fn a_worker_whose_raylet_fails_is_marked_after_the_threshold_and_then_replaced() {
    let stage = Stage::start().await;
    stage.apply(&fault_tolerant(3)).await;
    ready(&stage, 3).await;
    // Whole seconds: it was ready for longer than it took to start.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let workers = uids(&stage, "worker").await;
    let (sick, uid) = workers.iter().next().map(|(name, uid)| (name.clone(), uid.clone())).unwrap();
    let record = stage.record("Pod").await;
    let fails = uid.clone();
    let began = tokio::time::Instant::now();
    stage.kubelet.ready_if(move |pod| pod.uid().as_deref() != Some(&fails));
    stage
        .eventually("it is replaced", || async {
            (!uids(&stage, "worker").await.contains_key(&sick)).then_some(())
        })
        .await;
    assert!(began.elapsed() >= Duration::from_secs(59), "not before the threshold: {:?}", began.elapsed());
    let seen = record.end().await;
    let marked = |pod: &&serde_json::Value| {
        pod["metadata"]["uid"] == uid && pod["metadata"]["annotations"]["ray.io/health-state"] == "Unhealthy"
    };
    assert!(seen.iter().any(|pod| marked(&pod)), "everyone can see why it goes");
    ready(&stage, 3).await;
    let after = uids(&stage, "worker").await;
    assert_eq!(workers.iter().filter(|(name, uid)| after.get(*name) == Some(uid)).count(), 2);
}

/// HA-21, and a check that recovers in time.
#[tokio::test(start_paused = true)]
async fn a_failing_check_is_no_verdict_without_fault_tolerance_nor_before_the_threshold() {
    for (cluster, lasts) in
        [(cluster(2), Duration::from_mins(30)), (fault_tolerant(2), Duration::from_secs(45))]
    {
        let stage = Stage::start().await;
        stage.apply(&cluster).await;
        ready(&stage, 2).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = stage.uids("Pod").await;
        let sick = uids(&stage, "worker").await.into_values().next().unwrap();
        stage.kubelet.ready_if(move |pod| pod.uid().as_deref() != Some(&sick));
        tokio::time::sleep(lasts).await;
        stage.kubelet.ready_if(|_| true);
        ready(&stage, 2).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(stage.uids("Pod").await, before);
    }
}

/// Weakness: what hits all workers at once is not in the workers.
#[tokio::test(start_paused = true)]
async fn a_failure_of_all_workers_together_replaces_none() {
    let stage = Stage::start().await;
    stage.apply(&fault_tolerant(4)).await;
    ready(&stage, 4).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = stage.uids("Pod").await;
    stage.kubelet.ready_if(|pod| pod.labels().get("ray.io/node-type").is_none_or(|ty| ty == "head"));
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(stage.uids("Pod").await, before);
    let status = stage.observed("RayCluster", "c").await.unwrap();
    assert_eq!(status["waitingFor"]["reason"], "EvictionStoppedCorrelated");
}

/// Where the user's own probe, or that of Serve's proxy, fails, nothing is replaced: kuberay#4994.
#[tokio::test(start_paused = true)]
async fn a_probe_that_asks_something_else_is_no_reason_to_replace_a_pod() {
    let stage = Stage::start().await;
    let mut own = fault_tolerant(3);
    let worker = &mut own["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0];
    let command =
        "wget -q -O- localhost:52365/api/local_raylet_healthz && wget -q -O- localhost:8000/-/healthz";
    worker["readinessProbe"] = json!({"exec": {"command": ["bash", "-c", command]}});
    stage.apply(&own).await;
    ready(&stage, 3).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = stage.uids("Pod").await;
    let idle = uids(&stage, "worker").await.into_values().next().unwrap();
    stage.kubelet.ready_if(move |pod| pod.uid().as_deref() != Some(&idle));
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(stage.uids("Pod").await, before);
}

/// The head's node is off: its pod never says that it is gone, and blocks the next one in the public operator.
#[tokio::test(start_paused = true)]
async fn a_head_on_a_node_that_is_off_is_replaced_and_its_workers_stay() {
    let stage = Stage::start().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    stage.apply(&node).await;
    let mut placed = fault_tolerant(2);
    placed["spec"]["headGroupSpec"]["template"]["spec"]["nodeName"] = json!("n");
    stage.apply(&placed).await;
    ready(&stage, 2).await;
    let (heads, workers) = (uids(&stage, "head").await, uids(&stage, "worker").await);
    let lost = heads.values().next().unwrap().clone();
    stage.kubelet.gone_if(move |pod| pod.uid().as_deref() != Some(&lost));
    let off = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": [
        {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"},
    ]}});
    stage.apply(&off).await;
    stage
        .eventually("there is another head", || async {
            let now = uids(&stage, "head").await;
            (now.len() == 1 && now != heads).then_some(())
        })
        .await;
    assert_eq!(uids(&stage, "worker").await, workers);
}
