use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::support::{Bed, address, container, is, phase, shell};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_to_its_end_with_all_that_it_was_given() {
    let bed = Bed::new().await;
    let map = json!({"metadata": {"name": "config"}, "data": {"mode": "fast"}});
    let maps: Api<ConfigMap> = Api::default_namespaced(bed.client.clone());
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let out = bed.path("out");
    let script =
        format!("cat $SEGUE_ROOT/etc/config/mode $SEGUE_VOLUME_SHARED/made; echo \" $URL $0 $1\" > {out}");
    let mut main = shell(&script);
    main["args"] = json!(["$(MODE)", "$$(MODE)"]);
    main["env"] = json!([
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "mode"}}},
        {"name": "URL", "value": "http://$(POD_IP)/"},
    ]);
    main["volumeMounts"] =
        json!([{"name": "config", "mountPath": "/etc/config"}, {"name": "shared", "mountPath": "/shared"}]);
    let first = json!({
        "name": "first", "image": "none", "command": ["sh", "-c", "echo made > $SEGUE_ROOT/shared/made"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    });
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [first],
        "containers": [main],
        "volumes": [{"name": "config", "configMap": {"name": "config"}}, {"name": "shared", "emptyDir": {}}],
    });
    bed.create("p", spec).await;
    let pod = bed.see("p", "succeeded", phase("Succeeded")).await;
    let ended = container(&pod).unwrap().state.unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (0, Some("Completed")));
    assert!(ended.started_at.is_some() && ended.finished_at.is_some());
    let address = address(&pod).unwrap();
    assert!(address.starts_with("127.64."), "{address}");
    assert_eq!(bed.file("out").await, format!(" http://{address}/ fast $(MODE)\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_says_what_it_has() {
    let bed = Bed::new().await;
    let nodes: Api<Node> = Api::all(bed.client.clone());
    let status = testbed::eventually("the node", crate::support::SOON, async || {
        nodes.get_opt("here").await.unwrap()?.status.filter(|status| status.capacity.is_some())
    });
    let status = status.await.unwrap();
    assert_eq!(status.allocatable.unwrap()["nvidia.com/gpu"].0, "8");
    assert!(status.conditions.unwrap().iter().any(|c| c.type_ == "Ready" && c.status == "True"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_command_learns_what_to_do() {
    let bed = Bed::new().await;
    bed.create("image", json!({"containers": [{"name": "c", "image": "vllm"}]})).await;
    let status = bed.see("image", "failed", phase("Failed")).await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("ImageNotRunnable"));
    assert!(status.message.unwrap().contains("set `command`"));
    bed.event("image", "ImageNotRunnable").await;
    bed.delete("image").await;
    bed.gone("image").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_exist_is_named() {
    let bed = Bed::new().await;
    let missing = json!({"name": "c", "image": "none", "command": ["/no/such/program"]});
    bed.create("p", json!({"restartPolicy": "Never", "containers": [missing]})).await;
    let pod = bed.see("p", "failed", phase("Failed")).await;
    let ended = container(&pod).unwrap().state.unwrap().terminated.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("StartError"));
    assert!(ended.message.unwrap().contains("cannot run /no/such/program: No such file"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_backs_off_and_counts() {
    let bed = Bed::with(|settings| settings.backoff.longest = std::time::Duration::from_mins(1)).await;
    bed.create("p", json!({"containers": [shell("kill -9 $$")]})).await;
    let status = bed
        .see("p", "in back-off for the third time", |pod| {
            let status = container(pod)?;
            let reason = status.state.as_ref()?.waiting.as_ref()?.reason.clone()?;
            (reason == "CrashLoopBackOff" && status.restart_count >= 3).then_some(status)
        })
        .await;
    let last = status.last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.signal), (137, Some(9)));
    bed.see("p", "running, as the kubelet has it", phase("Running")).await;
    let event = bed.event("p", "BackOff").await;
    assert!(event.count.unwrap() >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_probes_is_ready_when_it_runs_and_not_when_it_has_ended() {
    let bed = Bed::new().await;
    let go = bed.path("go");
    let script = format!("while [ ! -e {go} ]; do sleep 0.02; done; exit 3");
    bed.create("p", json!({"restartPolicy": "Never", "containers": [shell(&script)]})).await;
    bed.see("p", "ready", is("Ready", "True")).await;
    std::fs::write(go, "").unwrap();
    let pod = bed.see("p", "failed", phase("Failed")).await;
    assert!(is("Ready", "False")(&pod).is_some());
    assert_eq!(container(&pod).unwrap().state.unwrap().terminated.unwrap().exit_code, 3);
}
