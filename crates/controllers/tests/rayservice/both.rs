//! Both kinds of Ray at work: the clusters of a service have the pods that the controller of RayClusters makes, and a scripted
//! autoscaler gives each replica of Serve a worker, as Ray's does.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use controllers::{Outside, Settings, kind};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    kit::{active, clusters, pending, service, settled, until},
    serve::{Pods, Serve, Window},
    stage::{self, Stage},
};

/// How long replicas take to start, once they have a worker.
const START: Duration = Duration::from_secs(3);

async fn stage() -> (Stage, Arc<Serve>) {
    let serve = Serve::start(START);
    let kinds = ["RayCluster", "RayService"].into_iter().filter_map(kind::named).collect();
    let window: Arc<dyn Outside> = Arc::new(Window(Arc::clone(&serve)));
    let stage = Stage::with(window, Settings { kinds, ..stage::settings() }).await;
    stage.route().await;
    tokio::spawn(scale(stage.client.clone(), Arc::clone(&serve)));
    (stage, serve)
}

/// Gives every cluster as many workers as its Serve has replicas, by the fields that Ray's autoscaler writes.
async fn scale(client: Client, serve: Arc<Serve>) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayCluster"));
    let clusters: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    loop {
        let (workers, ready) = pods(&client).await;
        serve.see(ready);
        for cluster in clusters.list(&ListParams::default()).await.map(|it| it.items).unwrap_or_default() {
            let name = cluster.name_any();
            let group = &cluster.data["spec"]["workerGroupSpecs"][0];
            let wanted = serve.aims_for(&name);
            if group["replicas"].as_u64() == Some(wanted) || cluster.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let mut there = workers.get(&name).cloned().unwrap_or_default();
            let leaving = there.split_off(there.len().min(usize::try_from(wanted).unwrap()));
            let mut group = group.clone();
            group["replicas"] = wanted.into();
            group["scaleStrategy"] = json!({"workersToDelete": leaving});
            let patch = Patch::Merge(json!({"spec": {"workerGroupSpecs": [group]}}));
            drop(clusters.patch(&name, &PatchParams::default(), &patch).await);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The workers of every cluster, and its pods that are ready.
async fn pods(client: &Client) -> (BTreeMap<String, Vec<String>>, BTreeMap<String, Pods>) {
    let (mut workers, mut ready) = (BTreeMap::<String, Vec<String>>::new(), BTreeMap::<String, Pods>::new());
    let all: Api<Pod> = Api::namespaced(client.clone(), "default");
    for pod in all.list(&ListParams::default()).await.map(|it| it.items).unwrap_or_default() {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
        let name = pod.name_any();
        let label = |label: &str| pod.labels().get(label).cloned().unwrap_or_default();
        let (cluster, is_head) = (label("ray.io/cluster"), label("ray.io/node-type") == "head");
        if !is_head {
            workers.entry(cluster.clone()).or_default().push(name.clone());
        }
        if is_ready {
            let of_it = ready.entry(cluster).or_default();
            if is_head { of_it.head = Some(name) } else { of_it.workers.push(name) }
        }
    }
    (workers, ready)
}

fn incremental(surge: u32, step: u32) -> Value {
    json!({"type": "IncrementalUpgrade", "incrementalUpgradeOptions": {
        "maxSurgePercent": surge, "stepSizePercent": step, "intervalSeconds": 1, "gatewayClassName": "segue",
    }})
}

/// A service with room for so many workers. There is no scheduler: the template names the node.
fn sized(image: &str, replicas: u32, strategy: &Value) -> Value {
    let mut chat = service(image, replicas, strategy);
    let config = &mut chat["spec"]["rayClusterConfig"];
    config["workerGroupSpecs"][0]["maxReplicas"] = replicas.into();
    for group in ["/headGroupSpec", "/workerGroupSpecs/0"] {
        config.pointer_mut(group).unwrap()["template"]["spec"]["nodeName"] = "node".into();
    }
    chat
}

/// A service that runs, with a worker for each replica.
async fn running(replicas: u32, strategy: &Value) -> (Stage, Arc<Serve>, String) {
    let (stage, serve) = stage().await;
    stage.apply(&sized("one", replicas, strategy)).await;
    let cluster = active(&settled(&stage).await);
    assert_eq!(pods(&stage.client).await.0[&cluster].len(), replicas as usize);
    (stage, serve, cluster)
}

/// Follows the workers of both clusters until this is so of the status; returns the numbers of old and new ones that were
/// there.
async fn followed(stage: &Stage, old: &str, is_so: impl Fn(&Value) -> bool) -> Vec<(usize, usize)> {
    let mut numbers = Vec::new();
    for _ in 0..2_000 {
        let (workers, _) = pods(&stage.client).await;
        let count = |is_old: bool| {
            let of = workers.iter().filter(|(cluster, _)| (cluster.as_str() == old) == is_old);
            of.map(|(_, pods)| pods.len()).sum::<usize>()
        };
        numbers.push((count(true), count(false)));
        if stage.observed("RayService", "chat").await.is_some_and(|status| is_so(&status)) {
            numbers.dedup();
            return numbers;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("in vain: {:#}", stage.get("RayService", "chat").await.unwrap()["status"]);
}

fn is_over(status: &Value) -> bool {
    pending(status).is_none() && status["waitingFor"].is_null()
}

/// What an incremental upgrade is for: the second cluster never needs twice the accelerators.
#[tokio::test(start_paused = true)]
async fn old_workers_fall_as_new_ones_rise_and_the_sum_stays_in_bound() {
    let (stage, _, old) = running(10, &incremental(20, 10)).await;
    stage.apply(&sized("two", 10, &incremental(20, 10))).await;
    let numbers =
        followed(&stage, &old, |it| is_over(it) && active(it) != old && it["retiring"].is_null()).await;
    assert!(numbers.iter().all(|(old, new)| old + new <= 12), "{numbers:?}");
    assert_eq!((numbers[0], *numbers.last().unwrap()), ((10, 0), (0, 10)));
    for steps in numbers.windows(2) {
        assert!(steps[1].0 <= steps[0].0 && steps[1].1 >= steps[0].1, "it never goes back: {numbers:?}");
    }
    assert!(numbers.contains(&(6, 6)) || numbers.contains(&(6, 4)), "it goes little by little: {numbers:?}");
    assert_eq!(clusters(&stage).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_midway_gives_the_old_cluster_its_workers_back() {
    let (stage, serve, old) = running(4, &incremental(50, 25)).await;
    stage.apply(&sized("two", 4, &incremental(50, 25))).await;
    until(&stage, "half-way", |it| it["activeServiceStatus"]["targetCapacity"] == 50).await;
    stage.apply(&sized("one", 4, &incremental(50, 25))).await;
    let numbers =
        followed(&stage, &old, |it| is_over(it) && active(it) == old && it["retiring"].is_null()).await;
    assert!(numbers.iter().all(|(old, new)| old + new <= 6), "{numbers:?}");
    assert_eq!(numbers.last(), Some(&(4, 0)), "{numbers:?}");
    assert_eq!(serve.granted(&old), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn a_third_version_and_a_new_cluster_of_everything_go_through() {
    let (stage, _, old) = running(4, &incremental(50, 25)).await;
    stage.apply(&sized("two", 4, &incremental(50, 25))).await;
    until(&stage, "half-way", |it| it["activeServiceStatus"]["targetCapacity"] == 50).await;
    stage.apply(&sized("three", 4, &incremental(50, 25))).await;
    let numbers =
        followed(&stage, &old, |it| is_over(it) && active(it) != old && it["retiring"].is_null()).await;
    assert_eq!(numbers.last(), Some(&(0, 4)), "{numbers:?}");
    let third = active(&settled(&stage).await);
    let object = stage.get("RayCluster", &third).await.unwrap();
    let image = &object["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "three");
    let blue_green = json!({"type": "NewCluster"});
    stage.apply(&sized("four", 4, &blue_green)).await;
    let numbers =
        followed(&stage, &third, |it| is_over(it) && active(it) != third && it["retiring"].is_null()).await;
    assert!(numbers.contains(&(4, 4)), "{numbers:?}");
}

/// Two controllers write to the same pods and clusters, and neither undoes what the other wrote.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_changes() {
    for strategy in [incremental(50, 25), json!({"type": "NewCluster"})] {
        let (stage, _, _) = running(3, &strategy).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let before = stage.revision().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(stage.changed_since(before).await, Vec::<String>::new());
    }
}

/// The pods of a cluster that is gone are gone, too, and the next one has their names anew.
#[tokio::test(start_paused = true)]
async fn a_service_is_suspended_resumed_and_deleted_with_all_its_pods() {
    let strategy = incremental(50, 25);
    let (stage, _, _) = running(3, &strategy).await;
    let mut chat = sized("one", 3, &strategy);
    chat["spec"]["suspend"] = true.into();
    stage.apply(&chat).await;
    until(&stage, "it is suspended", |it| crate::kit::condition(it, "Suspended").0 == "True").await;
    let gone = async || pods(&stage.client).await.0.is_empty().then_some(());
    stage.eventually("no worker is left", gone).await;
    chat["spec"]["suspend"] = false.into();
    stage.apply(&chat).await;
    let cluster = active(&settled(&stage).await);
    assert_eq!(pods(&stage.client).await.0[&cluster].len(), 3);
    stage.delete("RayService", "chat").await;
    stage.eventually("all is gone", async || stage.list("Pod").await.is_empty().then_some(())).await;
    assert!(clusters(&stage).await.is_empty());
}

/// The head of the new cluster never becomes ready: the old cluster serves on, and the next config is made.
#[tokio::test(start_paused = true)]
async fn a_head_that_never_gets_ready_costs_nothing_but_itself() {
    let strategy = incremental(50, 25);
    let (stage, _, old) = running(3, &strategy).await;
    stage.kubelet.ready_if(|pod| {
        pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() != Some("bad"))
    });
    stage.apply(&sized("bad", 3, &strategy)).await;
    let waits = until(&stage, "it waits for the head", |it| {
        it["waitingFor"]["subject"].as_str().is_some_and(|it| it.contains("is not Ready"))
    })
    .await;
    assert_eq!(
        (active(&waits), &waits["activeServiceStatus"]["trafficRoutedPercent"]),
        (old.clone(), &json!(100))
    );
    stage.apply(&sized("two", 3, &strategy)).await;
    let numbers =
        followed(&stage, &old, |it| is_over(it) && active(it) != old && it["retiring"].is_null()).await;
    assert_eq!(numbers.last(), Some(&(0, 3)), "{numbers:?}");
}
