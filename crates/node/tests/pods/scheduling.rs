use serde_json::json;

use crate::support::{Bed, condition, is, phase, shell};

fn with_gpus(script: &str, gpus: u32) -> serde_json::Value {
    let mut container = shell(script);
    container["resources"] = json!({"limits": {"nvidia.com/gpu": gpus}});
    json!({"containers": [container], "terminationGracePeriodSeconds": 30})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_fit_says_so_in_numbers_and_fits_when_others_are_gone() {
    let bed = Bed::new().await;
    bed.create("large", with_gpus("exec sleep 1000", 7)).await;
    bed.see("large", "running", phase("Running")).await;
    bed.create("more", with_gpus("exec sleep 1000", 4)).await;
    let pod = bed.see("more", "unscheduled", is("PodScheduled", "False")).await;
    let why = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu: asked 4, free 1 of 8";
    let wanted = ("False".to_owned(), "Unschedulable".to_owned(), why.to_owned());
    assert_eq!(condition(&pod, "PodScheduled"), Some(wanted));
    assert_eq!(bed.event("more", "FailedScheduling").await.message.as_deref(), Some(why));
    bed.event("large", "Scheduled").await;
    bed.delete("large").await;
    bed.see("more", "running", phase("Running")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_takes_is_free_only_when_its_processes_have_ended() {
    let bed = Bed::new().await;
    let go = bed.path("go");
    // Ends when the test says so, not when it is asked to.
    let stubborn = format!("trap 'echo asked >> {go}.asked' TERM; while [ ! -e {go} ]; do sleep 0.02; done");
    bed.create("stubborn", with_gpus(&stubborn, 8)).await;
    bed.see("stubborn", "running", phase("Running")).await;
    bed.create("next", with_gpus("exec sleep 1000", 8)).await;
    bed.delete("stubborn").await;
    bed.file("go.asked").await;
    let pod = bed.see("next", "unscheduled", is("PodScheduled", "False")).await;
    assert!(condition(&pod, "PodScheduled").unwrap().2.ends_with("asked 8, free 0 of 8"));
    std::fs::write(&go, "\n").unwrap();
    bed.gone("stubborn").await;
    bed.see("next", "running", phase("Running")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gated_pod_waits_for_its_gates() {
    let bed = Bed::new().await;
    let mut spec = with_gpus("exec sleep 1000", 1);
    spec["schedulingGates"] = json!([{"name": "segue.dev/gang"}]);
    bed.create("gated", spec).await;
    let pod = bed.see("gated", "gated", is("PodScheduled", "False")).await;
    assert_eq!(condition(&pod, "PodScheduled").unwrap().1, "SchedulingGated");
    let open = kube::api::Patch::Merge(json!({"spec": {"schedulingGates": []}}));
    bed.pods().patch("gated", &kube::api::PatchParams::default(), &open).await.unwrap();
    bed.see("gated", "running", phase("Running")).await;
}
