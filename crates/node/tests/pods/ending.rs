use kube::api::DeleteParams;
use serde_json::json;

use crate::support::{Bed, container, dead, is_alive, phase, shell};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_its_hook_then_its_grace_and_is_then_killed_with_all_its_children() {
    let bed = Bed::new().await;
    let (told, pids) = (bed.path("told"), bed.path("pids"));
    let script = format!(
        "trap 'echo term >> {told}' TERM; sleep 1000 & one=$!; setsid sleep 1000 & two=$!; \
         echo $$ $one $two > {pids}; while true; do wait; done"
    );
    let mut hooked = shell(&script);
    hooked["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sh", "-c", format!("echo hook $POD_IP >> {told}")]}}});
    let spec = json!({"containers": [hooked], "terminationGracePeriodSeconds": 1});
    let pod = bed.create("p", spec).await;
    let pids = bed.file("pids").await;
    let address = bed.see("p", "running", phase("Running")).await.status.unwrap().pod_ip.unwrap();
    assert!(pids.split_whitespace().all(is_alive));
    bed.delete("p").await;
    bed.gone("p").await;
    assert_eq!(
        pids.split_whitespace().filter(|pid| is_alive(pid)).count(),
        0,
        "a pod goes after its processes"
    );
    assert_eq!(bed.file("told").await, format!("hook {address}\nterm\n"));
    let directory = bed.directory.path().join("node/pods").join(pod.metadata.uid.unwrap());
    testbed::eventually("its directory gone", crate::support::SOON, async || {
        (!directory.exists()).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_pod_ends_before_its_grace_is_over() {
    let bed = Bed::new().await;
    let script = "trap 'exit 0' TERM; while true; do sleep 0.02; done";
    bed.create("p", json!({"containers": [shell(script)], "terminationGracePeriodSeconds": 3600})).await;
    bed.see("p", "running", phase("Running")).await;
    bed.delete("p").await;
    bed.gone("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_forced_out_of_the_api_is_killed() {
    let bed = Bed::new().await;
    let pids = bed.path("pids");
    bed.create(
        "p",
        json!({"containers": [shell(&format!("trap '' TERM; echo $$ > {pids}; exec sleep 1000"))]}),
    )
    .await;
    let pids = bed.file("pids").await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    bed.pods().delete("p", &now).await.unwrap();
    dead(&pids).await;
}

/// Where its policy says so, what a container wrote last is kept of a run that failed.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_lines_of_a_container_that_fails_are_kept_where_its_policy_says_so() {
    let bed = Bed::new().await;
    let kept = Some("loading\nno such model".to_owned());
    for (name, policy, expected) in [("p", "FallbackToLogsOnError", kept), ("q", "File", None)] {
        let mut fails = shell("echo loading; echo no such model; exit 3");
        fails["terminationMessagePolicy"] = policy.into();
        bed.create(name, json!({"restartPolicy": "Never", "containers": [fails]})).await;
        let ended = bed.see(name, "an end", |pod| container(pod)?.state?.terminated).await;
        assert_eq!((ended.exit_code, ended.message), (3, expected), "{policy}");
    }
}
