//! Groups, roles, names, and their numbers.

use k8s_openapi::api::core::v1::{Container, Pod, Service};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use crate::{
    kit::{self, names, pods, serving, settled},
    stage::Stage,
};

#[tokio::test(start_paused = true)]
async fn groups_of_roles_are_made_named_and_counted() {
    let stage = Stage::start().await;
    stage.apply(&serving(2, &[("prefill", 1, 0, "p"), ("decode", 2, 1, "d")])).await;
    let status = settled(&stage, 2).await;
    let expected = [
        "pd-0-decode-0-0",
        "pd-0-decode-0-1",
        "pd-0-decode-1-0",
        "pd-0-decode-1-1",
        "pd-0-prefill-0-0",
        "pd-1-decode-0-0",
        "pd-1-decode-0-1",
        "pd-1-decode-1-0",
        "pd-1-decode-1-1",
        "pd-1-prefill-0-0",
    ];
    assert_eq!(names(&stage).await, expected);
    assert_eq!((&status["updatedReplicas"], &status["currentReplicas"]), (&json!(2), &json!(2)));
    let decode = json!({
        "name": "decode", "replicas": 4, "readyReplicas": 4, "updatedReplicas": 4, "updatedReadyReplicas": 4,
    });
    assert_eq!(status["roles"][1], decode);
    assert_eq!(
        status["labelSelector"],
        "modelserving.volcano.sh/entry=true,modelserving.volcano.sh/name=pd,segue.dev/counts-group=true"
    );
    assert_eq!(kit::condition(&status, "Available"), "True");
}

#[tokio::test(start_paused = true)]
async fn pods_carry_the_labels_of_the_router_and_the_autoscaler() {
    let stage = Stage::start().await;
    let mut serving = serving(1, &[("decode", 1, 1, "d")]);
    serving["spec"]["schedulerName"] = json!("mine");
    let template = &mut serving["spec"]["template"]["roles"][0]["entryTemplate"];
    template["spec"]["schedulerName"] = json!("theirs");
    template["spec"]["containers"][0]["env"] = json!([{"name": "GROUP_SIZE", "value": "9"}]);
    template["spec"]["initContainers"] = json!([{"name": "first", "image": "i"}]);
    // A label that the controllers find pods by is theirs, whatever a template says.
    template["metadata"]["labels"] = json!({"modelserving.volcano.sh/group-name": "mine", "app": "x"});
    stage.apply(&serving).await;
    settled(&stage, 1).await;
    let pods = pods(&stage).await;
    let (entry, worker) = (&pods[0], &pods[1]);
    for (name, value) in [("name", "pd"), ("group-name", "pd-0"), ("role", "decode"), ("role-id", "decode-0")]
    {
        assert_eq!((kit::label(entry, name), kit::label(worker, name)), (value.to_owned(), value.to_owned()));
    }
    assert_eq!((kit::label(entry, "entry"), kit::label(worker, "entry")), ("true".to_owned(), String::new()));
    assert_eq!(entry.labels()["app"], "x");
    let spec = entry.spec.as_ref().unwrap();
    assert_eq!(spec.scheduler_name.as_deref(), Some("mine"));
    let variables = |container: &Container| -> Vec<(String, String)> {
        let env = container.env.clone().unwrap();
        env.into_iter().map(|it| (it.name, it.value.unwrap())).collect()
    };
    let expected = |index: &str| {
        [("GROUP_SIZE", "2"), ("ENTRY_ADDRESS", "pd-0-decode-0-0.default"), ("WORKER_INDEX", index)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    };
    let env = |pod: &Pod| variables(&pod.spec.as_ref().unwrap().containers[0]);
    assert_eq!((env(entry), env(worker)), (expected("0"), expected("1")));
    assert_eq!(variables(&spec.init_containers.as_ref().unwrap()[0]), expected("0"));
}

#[tokio::test(start_paused = true)]
async fn an_entry_with_workers_has_a_name_and_one_without_has_none() {
    let stage = Stage::start().await;
    stage.apply(&serving(1, &[("prefill", 1, 0, "p"), ("decode", 2, 1, "d")])).await;
    settled(&stage, 1).await;
    let api: Api<Service> = Api::default_namespaced(stage.client.clone());
    let ours = ListParams::default().labels("modelserving.volcano.sh/name=pd");
    let list = || async { api.list(&ours).await.unwrap().items };
    let services = list().await;
    let names: Vec<String> = services.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["pd-0-decode-0-0", "pd-0-decode-1-0"]);
    let spec = services[0].spec.as_ref().unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
    assert_eq!(spec.publish_not_ready_addresses, Some(true));
    let selector = spec.selector.as_ref().unwrap();
    assert_eq!(selector["modelserving.volcano.sh/entry"], "true");
    assert_eq!(selector["modelserving.volcano.sh/role-id"], "decode-0");
    // A replica that goes takes its name with it.
    stage.apply(&serving(1, &[("prefill", 1, 0, "p"), ("decode", 1, 1, "d")])).await;
    settled(&stage, 1).await;
    stage.eventually("one Service is left", || async { (list().await.len() == 1).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn groups_and_roles_scale_without_a_restart() {
    let stage = Stage::start().await;
    stage.apply(&serving(2, &[("prefill", 1, 0, "p"), ("decode", 1, 0, "d")])).await;
    settled(&stage, 2).await;
    let before = kit::uids(&stage).await;
    let scale = |groups: u32, decode: u32| {
        json!([
            {"op": "replace", "path": "/spec/replicas", "value": groups},
            {"op": "replace", "path": "/spec/template/roles/1/replicas", "value": decode},
        ])
    };
    kit::patch(&stage, &scale(3, 2)).await;
    settled(&stage, 3).await;
    let grown = kit::uids(&stage).await;
    assert_eq!(grown.len(), 9);
    assert!(before.iter().all(|(name, uid)| grown[name] == *uid), "nothing that was there is restarted");
    kit::patch(&stage, &scale(1, 1)).await;
    settled(&stage, 1).await;
    assert_eq!(names(&stage).await, ["pd-0-decode-0-0", "pd-0-prefill-0-0"]);
    let shrunk = kit::uids(&stage).await;
    assert!(shrunk.iter().all(|(name, uid)| before[name] == *uid));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_a_size_as_well() {
    let stage = Stage::start().await;
    stage.apply(&serving(1, &[("decode", 1, 0, "d")])).await;
    settled(&stage, 1).await;
    stage.apply(&serving(0, &[("decode", 1, 0, "d")])).await;
    let status = settled(&stage, 0).await;
    assert!(status["labelSelector"].is_string(), "published also at no groups");
    assert_eq!(names(&stage).await.len(), 0);
    // Groups whose roles have no replicas are there, with nothing in them.
    stage.apply(&serving(1, &[("decode", 0, 0, "d")])).await;
    settled(&stage, 1).await;
    assert_eq!(names(&stage).await.len(), 0);
    stage.apply(&serving(1, &[("decode", 2, 0, "d")])).await;
    settled(&stage, 1).await;
    assert_eq!(names(&stage).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_where_nothing_changes() {
    let mut stage = Stage::start().await;
    stage.apply(&serving(2, &[("prefill", 1, 0, "p"), ("decode", 2, 1, "d")])).await;
    settled(&stage, 2).await;
    stage.quiet().await;
    let before = stage.revision().await;
    stage.kill().await;
    stage.run();
    let mut other = serving(1, &[("decode", 1, 0, "d")]);
    other["metadata"]["name"] = json!("other");
    stage.apply(&other).await;
    stage
        .eventually("the other one serves", || async {
            let status = stage.observed("ModelServing", "other").await?;
            (status["availableReplicas"] == 1).then_some(())
        })
        .await;
    let changed = stage.changed_since(before).await;
    assert!(changed.iter().all(|name| name.starts_with("other")), "{changed:?}");
}

#[tokio::test(start_paused = true)]
async fn plugins_change_the_pods_that_they_are_for() {
    let stage = Stage::start().await;
    let mut serving = serving(1, &[("decode", 1, 1, "d"), ("prefill", 1, 0, "p")]);
    serving["spec"]["plugins"] = json!([
        {"name": "demo-pod-tweaks", "config": {"annotations": {"a": "b"}, "env": [{"name": "X", "value": "y"}]},
         "scope": {"target": "Worker"}},
        {"name": "demo-pod-tweaks", "config": {"runtimeClassName": "fast"}, "scope": {"roles": ["prefill"]}},
        {"name": "lws-standard-labels"},
        {"name": "nobody-knows"},
    ]);
    stage.apply(&serving).await;
    let status = settled(&stage, 1).await;
    let pods = pods(&stage).await;
    let (entry, worker) = (&pods[0], &pods[1]);
    assert_eq!((entry.annotations().get("a"), worker.annotations()["a"].as_str()), (None, "b"));
    let env = worker.spec.as_ref().unwrap().containers[0].env.clone().unwrap();
    assert!(env.iter().any(|it| it.name == "X" && it.value.as_deref() == Some("y")));
    assert_eq!(worker.labels()["leaderworkerset.sigs.k8s.io/worker-index"], "1");
    let class = |pod: &Pod| pod.spec.as_ref().unwrap().runtime_class_name.clone();
    assert_eq!((class(entry), class(&pods[2])), (None, Some("fast".to_owned())));
    assert_eq!(kit::condition(&status, "NotActedOn"), "True", "{status}");
}
