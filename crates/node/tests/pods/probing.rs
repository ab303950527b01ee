use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::{Bed, SOON, condition, container, is, server, shell};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_ready_while_it_answers() {
    let bed = Bed::new().await;
    let ready = bed.path("ready");
    let mut container = server(&ready);
    let get =
        json!({"path": "/health", "port": "http", "httpHeaders": [{"name": "x-probe", "value": "yes"}]});
    container["readinessProbe"] = json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 1});
    bed.create("p", json!({"containers": [container]})).await;
    let event = bed.event("p", "Unhealthy").await;
    assert!(event.message.unwrap().starts_with("Readiness probe failed"));
    bed.see("p", "not ready", is("Ready", "False")).await;
    std::fs::write(&ready, "").unwrap();
    bed.see("p", "ready", is("Ready", "True")).await;
    std::fs::remove_file(&ready).unwrap();
    bed.see("p", "not ready again", is("Ready", "False")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_readiness_gate_holds_a_pod_back() {
    let bed = Bed::new().await;
    let spec = json!({
        "containers": [shell("exec sleep 1000")], "readinessGates": [{"conditionType": "segue.dev/in-service"}],
    });
    bed.create("p", spec).await;
    let pod = bed.see("p", "with ready containers", is("ContainersReady", "True")).await;
    assert_eq!(condition(&pod, "Ready").unwrap().1, "ReadinessGatesNotReady");
    let open = json!({"status": {"conditions": [{"type": "segue.dev/in-service", "status": "True"}]}});
    bed.pods().patch_status("p", &PatchParams::default(), &Patch::Strategic(open)).await.unwrap();
    let pod = bed.see("p", "ready", is("Ready", "True")).await;
    assert_eq!(condition(&pod, "segue.dev/in-service").unwrap().0, "True", "the gate is somebody else's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_stops_living_is_restarted() {
    let bed = Bed::new().await;
    let alive = bed.path("alive");
    let mut c = shell(&format!("touch {alive}; exec sleep 1000"));
    let command = json!({"command": ["test", "-e", alive]});
    c["livenessProbe"] = json!({"exec": command, "periodSeconds": 1, "failureThreshold": 1});
    c["startupProbe"] = json!({"exec": command, "periodSeconds": 1, "failureThreshold": 20});
    bed.create("p", json!({"containers": [c], "terminationGracePeriodSeconds": 1})).await;
    bed.see("p", "started", |pod| container(pod)?.started?.then_some(())).await;
    std::fs::remove_file(&alive).unwrap();
    let status = bed.see("p", "restarted", |pod| container(pod).filter(|c| c.restart_count == 1)).await;
    assert_eq!(status.last_state.unwrap().terminated.unwrap().signal, Some(15));
    let event = bed.event("p", "Killing").await;
    assert_eq!(event.message.as_deref(), Some("Container c failed liveness probe, will be restarted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_to_which_nothing_happens_is_not_written() {
    let bed = Bed::new().await;
    let asked = bed.path("asked");
    let mut c = shell("exec sleep 1000");
    let command = json!(["sh", "-c", format!("echo x >> {asked}")]);
    c["readinessProbe"] = json!({"exec": {"command": command}, "periodSeconds": 1});
    bed.create("p", json!({"containers": [c]})).await;
    let before = bed.see("p", "ready", is("Ready", "True")).await.metadata.resource_version;
    let times = || std::fs::read_to_string(&asked).unwrap().lines().count();
    let so_far = times();
    let more = async || (times() >= so_far + 2).then_some(());
    testbed::eventually("two more probes", SOON, more).await.unwrap();
    assert_eq!(bed.pods().get("p").await.unwrap().metadata.resource_version, before);
}
