//! What others do to objects of a deployment: what is ours is set back, and what is theirs is left alone and told.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{condition, deployment, idle, notes};
use crate::stage::Stage;

/// Somebody else changes an object.
async fn meddle(stage: &Stage, object: &Value, patch: &Value) {
    let by = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    let name = object["metadata"]["name"].as_str().unwrap();
    stage.api(object).patch(name, &by, &Patch::Merge(patch)).await.unwrap();
}

/// Meddles with an object, and waits until its spec is what it was.
async fn is_set_back(stage: &Stage, kind: &str, name: &str, patch: &Value) {
    let before = stage.get(kind, name).await.unwrap();
    meddle(stage, &before, patch).await;
    stage
        .eventually(&format!("{kind} {name} is set back after {patch}"), || async {
            (stage.get(kind, name).await?["spec"] == before["spec"]).then_some(())
        })
        .await;
    let note = format!("{kind} {name} was changed by another client and is set back");
    stage
        .eventually("it is told", || async { notes(stage, "Repaired").await.contains(&note).then_some(()) })
        .await;
}

/// A selector with one key more selects nothing: what we own we own exactly.
#[tokio::test(start_paused = true)]
async fn additions_to_our_fields_are_removed() {
    let stage = Stage::start().await;
    stage.route().await;
    stage.apply(&deployment("one", &json!({"type": "Rolling"}), true)).await;
    idle(&stage, "r1").await;
    let services = stage.names("Service").await;
    let ours: Vec<&String> = services.iter().filter(|name| name.starts_with("chat")).collect();
    assert!(ours.len() >= 2, "the stable one and one of the version: {services:?}");
    let (mut selectors, more) = (0, json!({"selector": {"more": "than-ours"}}));
    for service in ours {
        let live = stage.get("Service", service).await.unwrap();
        // The others belong to the set of a version.
        if live["metadata"]["labels"]["segue.dev/model-deployment"].is_string() {
            is_set_back(&stage, "Service", service, &json!({"spec": more})).await;
            let mut ports = live["spec"]["ports"].as_array().unwrap().clone();
            ports.push(json!({"name": "more", "port": 1, "targetPort": 1, "protocol": "TCP"}));
            is_set_back(&stage, "Service", service, &json!({"spec": {"ports": ports}})).await;
            let unready = json!({"publishNotReadyAddresses": true});
            is_set_back(&stage, "Service", service, &json!({"spec": unready})).await;
            let sticky = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 9}}});
            is_set_back(&stage, "Service", service, &json!({"spec": sticky})).await;
            selectors += 1;
        }
    }
    assert_eq!(selectors, 2, "the stable one and that of the version");
    let gateway = stage.get("Gateway", "chat").await.unwrap();
    let mut listeners = gateway["spec"]["listeners"].as_array().unwrap().clone();
    listeners.push(json!({"name": "more", "port": 1, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}));
    is_set_back(&stage, "Gateway", "chat", &json!({"spec": {"listeners": listeners}})).await;
    let elsewhere = json!([{"backendRefs": [{"name": "elsewhere", "port": 80}]}]);
    for patch in [json!({"hostnames": ["elsewhere.example"]}), json!({"rules": elsewhere})] {
        is_set_back(&stage, "HTTPRoute", "chat-http", &json!({"spec": patch})).await;
    }
    stage.quiet().await;
    let version = stage.revision().await;
    stage.quiet().await;
    assert_eq!(stage.changed_since(version).await, Vec::<String>::new(), "nobody fights");
}

/// A version is what its deployment says, whatever somebody makes of the set that realises it.
#[tokio::test(start_paused = true)]
async fn a_child_is_set_back_to_what_its_version_says() {
    let stage = Stage::start().await;
    stage.apply(&deployment("one", &json!({"type": "Rolling"}), false)).await;
    idle(&stage, "r1").await;
    let set = stage.names("LeaderWorkerSet").await.remove(0);
    let template = json!({"spec": {"containers": [{"name": "c", "image": "broken"}], "hostNetwork": true}});
    let patch = json!({"spec": {"leaderWorkerTemplate": {"workerTemplate": template}}});
    is_set_back(&stage, "LeaderWorkerSet", &set, &patch).await;
    stage
        .eventually("every pod is of the version", || async {
            let pods = stage.all_pods(&set).await;
            let image = |pod: &k8s_openapi::api::core::v1::Pod| {
                pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some("one"))
            };
            (pods.len() == 4 && pods.iter().all(image)).then_some(())
        })
        .await;
    idle(&stage, "r1").await;
}

/// The version that serves during a rollout is not the wanted one, and users have it all the same.
#[tokio::test(start_paused = true)]
async fn the_child_of_the_version_that_serves_is_set_back_during_a_rollout() {
    let stage = Stage::start().await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    let set = stage.names("LeaderWorkerSet").await.remove(0);
    super::broken(&stage, "two");
    stage.apply(&deployment("two", &rolling, false)).await;
    super::waits_for_units(&stage).await;
    stage.quiet().await;
    let template = json!({"spec": {"containers": [{"name": "c", "image": "broken"}], "hostNetwork": true}});
    let patch = json!({"spec": {"leaderWorkerTemplate": {"workerTemplate": template}}});
    let before = stage.get("LeaderWorkerSet", &set).await.unwrap();
    meddle(&stage, &before, &patch).await;
    // What is stored of a template is written as the API writes it: the same in other words.
    stage
        .eventually("it is set back", || async {
            let live = stage.get("LeaderWorkerSet", &set).await?;
            let pod = &live["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"];
            (pod["containers"][0]["image"] == "one" && pod["hostNetwork"].is_null()).then_some(())
        })
        .await;
    let note = format!("LeaderWorkerSet {set} was changed by another client and is set back");
    stage
        .eventually("it is told", || async { notes(&stage, "Repaired").await.contains(&note).then_some(()) })
        .await;
    stage.quiet().await;
    let version = stage.revision().await;
    stage.quiet().await;
    assert_eq!(stage.changed_since(version).await, Vec::<String>::new(), "nobody fights");
    stage.kubelet.ready_if(|_| true);
    idle(&stage, "r2").await;
}

/// What an admission webhook makes of our own write is no change by somebody else: undoing it would roll what serves.
#[tokio::test(start_paused = true)]
async fn what_admission_makes_of_a_child_stays() {
    let stage = Stage::start().await;
    stage.apply(&deployment("one", &json!({"type": "Rolling"}), false)).await;
    idle(&stage, "r1").await;
    let name = stage.names("LeaderWorkerSet").await.remove(0);
    let set = stage.get("LeaderWorkerSet", &name).await.unwrap();
    let writers = set["metadata"]["managedFields"].as_array().unwrap();
    assert!(writers.iter().all(|it| it["manager"] == "segue"), "what we make is ours by name: {writers:?}");
    let template = json!({"metadata": {"annotations": {"injected": "yes"}}});
    let patch = json!({"spec": {"leaderWorkerTemplate": {"workerTemplate": template}}});
    let by = PatchParams { field_manager: Some("segue".to_owned()), ..PatchParams::default() };
    stage.api(&set).patch(&name, &by, &Patch::Merge(&patch)).await.unwrap();
    stage.quiet().await;
    let set = stage.get("LeaderWorkerSet", &name).await.unwrap();
    assert_eq!(
        set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"]["injected"],
        "yes"
    );
    assert_eq!(notes(&stage, "Repaired").await, Vec::<String>::new());
}

fn foreign(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"theirs": "yes"}, "ports": [{"port": 80}]},
    })
}

/// The preview is for people: that its name is taken is told, and holds no rollout up.
#[tokio::test(start_paused = true)]
async fn a_preview_whose_name_is_taken_is_reported_and_holds_nothing_up() {
    let stage = Stage::start().await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    stage.apply(&foreign("chat-preview")).await;
    let theirs = stage.get("Service", "chat-preview").await.unwrap();
    super::broken(&stage, "two");
    stage.apply(&deployment("two", &rolling, false)).await;
    let taken = condition(&stage, "NamesTaken").await;
    assert!(taken["message"].as_str().unwrap().contains("Service default/chat-preview"), "{taken}");
    stage.kubelet.ready_if(|_| true);
    idle(&stage, "r2").await;
    assert_eq!(stage.get("Service", "chat-preview").await.unwrap(), theirs, "it is left alone");
    stage
        .eventually("it is no matter any more", || async {
            let status = stage.get("ModelDeployment", "chat").await?["status"].clone();
            let conditions = status["conditions"].as_array()?.clone();
            conditions.iter().all(|it| it["type"] != "NamesTaken" || it["status"] != "True").then_some(())
        })
        .await;
}

/// A version whose Service is somebody else's can get no traffic: the rollout says so, its deadline comes, and it goes
/// back. What is tried again and again is no progress.
#[tokio::test(start_paused = true)]
async fn a_version_whose_service_is_taken_gets_no_traffic_and_ends_at_its_deadline() {
    let stage = Stage::start().await;
    stage.route().await;
    let rolling = json!({"type": "Rolling"});
    // The name follows from the version.
    stage.apply(&deployment("two", &rolling, true)).await;
    idle(&stage, "r1").await;
    let route = stage.get("HTTPRoute", "chat-http").await.unwrap();
    let taken = route["spec"]["rules"][0]["backendRefs"][0]["name"].as_str().unwrap().to_owned();
    stage.delete("ModelDeployment", "chat").await;
    stage
        .eventually("it is gone", || async {
            let services = stage.list("Service").await;
            services.iter().all(|it| it.name_any() != taken).then_some(())
        })
        .await;
    stage.apply(&foreign(&taken)).await;
    stage.apply(&deployment("one", &rolling, true)).await;
    idle(&stage, "r1").await;
    let routes = stage.record("HTTPRoute").await;
    let mut second = deployment("two", &rolling, true);
    second["spec"]["rollback"] = json!({"progressDeadlineSeconds": 3});
    second["spec"]["health"] = json!({"readyDeadlineSeconds": 1});
    stage.apply(&second).await;
    let said = condition(&stage, "NamesTaken").await;
    assert!(said["message"].as_str().unwrap().contains(&taken), "{said}");
    let status = stage
        .eventually("the way back", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["history"][0]["outcome"] == "RolledBack" && status["phase"] == "Idle").then_some(status)
        })
        .await;
    assert_eq!(status["currentVersion"], "r1");
    for route in routes.end().await {
        assert!(!route["spec"].to_string().contains(&taken), "traffic to somebody else's Service: {route}");
    }
}

/// A quota for Services refuses those of the new version: it gets no traffic, and the way back is not held up by it.
#[tokio::test(start_paused = true)]
async fn services_that_are_refused_hold_no_way_back_up() {
    let mut stage = Stage::start().await;
    stage.route().await;
    stage.apply(&deployment("one", &json!({"type": "Rolling"}), true)).await;
    idle(&stage, "r1").await;
    let _refusal =
        stage.refuse(|method, path| *method == http::Method::POST && path.contains("/services?")).await;
    let mut second = deployment("two", &json!({"type": "Rolling"}), true);
    second["spec"]["health"] = json!({"readyDeadlineSeconds": 1});
    second["spec"]["traffic"]["drainSeconds"] = json!(1);
    second["spec"]["rollback"] = json!({"progressDeadlineSeconds": 60});
    stage.apply(&second).await;
    let refused = condition(&stage, "WritesRefused").await;
    assert!(refused["message"].as_str().unwrap().contains("Service"), "{refused}");
    stage
        .eventually("the way back", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["history"][0]["outcome"] == "RolledBack" && status["phase"] == "Idle").then_some(())
        })
        .await;
    let pods = stage.list("Pod").await;
    let images: Vec<&Value> = pods.iter().map(|pod| &pod.data["spec"]["containers"][0]["image"]).collect();
    assert!(images.iter().all(|image| **image == "one"), "{images:?}");
}

/// The status says which version serves. Where another client erases it in the middle of a rollout, what serves is found
/// by its replicas and its traffic, and not taken for replicas that are left over.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_lost_in_a_rollout_takes_nothing_away_that_serves() {
    for gateway in [true, false] {
        let stage = Stage::start().await;
        if gateway {
            stage.route().await;
        }
        let rolling = json!({"type": "Rolling"});
        stage.apply(&deployment("one", &rolling, gateway)).await;
        idle(&stage, "r1").await;
        let set = stage.names("LeaderWorkerSet").await.remove(0);
        super::broken(&stage, "two");
        stage.apply(&deployment("two", &rolling, gateway)).await;
        super::waits_for_units(&stage).await;
        stage.quiet().await;
        let before = stage.pods(&set).await;
        assert_eq!(before.len(), 4, "none goes before another is ready");
        let chat = stage.get("ModelDeployment", "chat").await.unwrap();
        let erase = Patch::Merge(json!({"status": null}));
        stage.api(&chat).patch_status("chat", &PatchParams::default(), &erase).await.unwrap();
        stage
            .eventually("the version that serves is found again", || async {
                let status = stage.get("ModelDeployment", "chat").await?["status"].clone();
                (status["currentVersion"] == "r1").then_some(())
            })
            .await;
        stage.quiet().await;
        assert_eq!(stage.pods(&set).await, before, "with a gateway: {gateway}");
        stage.kubelet.ready_if(|_| true);
        idle(&stage, "r2").await;
    }
}

/// An event that says that traffic has moved is believed. A route of another owner says what it said.
#[tokio::test(start_paused = true)]
async fn no_traffic_is_told_to_have_moved_that_a_route_of_another_owner_does_not_say() {
    let stage = Stage::start().await;
    stage.route().await;
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "chat-http"},
        "spec": {"rules": [{"backendRefs": [{"name": "elsewhere", "port": 80}]}]},
    });
    stage.apply(&route).await;
    stage.apply(&deployment("one", &json!({"type": "Rolling"}), true)).await;
    condition(&stage, "NamesTaken").await;
    stage.quiet().await;
    assert_eq!(notes(&stage, "TrafficMoved").await, Vec::<String>::new());
    let version = stage.revision().await;
    stage.quiet().await;
    assert_eq!(stage.changed_since(version).await, Vec::<String>::new(), "it waits, and writes nothing");
}

/// A Service that another client has taken from its owner is left alone and named, and what is still ours is healed.
#[tokio::test(start_paused = true)]
async fn a_service_that_lost_its_owner_is_named_and_holds_nothing_up() {
    for controller in [json!(null), json!([{"controller": false}])] {
        let stage = Stage::start().await;
        stage.route().await;
        let rolling = json!({"type": "Rolling"});
        stage.apply(&deployment("one", &rolling, true)).await;
        idle(&stage, "r1").await;
        for name in stage.names("Service").await.into_iter().filter(|name| !name.ends_with("-preview")) {
            let service = stage.get("Service", &name).await.unwrap();
            let mut owners = controller.clone();
            if let Some(owner) = owners.get_mut(0) {
                *owner = service["metadata"]["ownerReferences"][0].clone();
                owner["controller"] = json!(false);
            }
            meddle(&stage, &service, &json!({"metadata": {"ownerReferences": owners}})).await;
        }
        let route = stage.get("HTTPRoute", "chat-http").await.unwrap();
        meddle(&stage, &route, &json!({"spec": {"hostnames": ["elsewhere.example"]}})).await;
        stage
            .eventually(
                &format!("the route is healed beside Services with the owners {controller}"),
                || async {
                    (stage.get("HTTPRoute", "chat-http").await?["spec"] == route["spec"]).then_some(())
                },
            )
            .await;
        let taken = condition(&stage, "NamesTaken").await;
        assert!(taken["message"].as_str().unwrap().contains("Service default/chat"), "{taken}");
        stage.apply(&deployment("two", &rolling, true)).await;
        idle(&stage, "r2").await;
    }
}

/// Traffic that cannot be moved is waited for. What is decided again and again is written once: each write of a status is
/// an event of its own, and brings the next pass.
#[tokio::test(start_paused = true)]
async fn a_route_that_loses_its_owner_in_a_rollout_is_named_and_waited_for() {
    for strategy in [
        json!({"type": "Rolling"}),
        json!({"type": "Canary", "canary": {"steps": [{"weight": 50}, {"weight": 100}]}}),
        json!({"type": "Incremental", "incremental": {"stepSizePercent": 25, "intervalSeconds": 1}}),
    ] {
        let stage = Stage::start().await;
        stage.route().await;
        stage.apply(&deployment("one", &strategy, true)).await;
        idle(&stage, "r1").await;
        let is_first = |pod: &Pod| pod.name_any().ends_with("-0");
        stage.kubelet.ready_if(move |pod| !super::is_of(pod, "two") || is_first(pod));
        stage.apply(&deployment("two", &strategy, true)).await;
        stage
            .eventually("a share of the new version, and a replica that is not ready", || async {
                let status = stage.observed("ModelDeployment", "chat").await?;
                let new = status["versions"].as_array()?.iter().find(|it| it["name"] == "r2")?.clone();
                let (asked, ready) = (new["capacity"]["asked"].as_i64()?, new["capacity"]["ready"].as_i64()?);
                (asked > 1 && ready == 1 && new["traffic"]["applied"] == 25).then_some(())
            })
            .await;
        let route = stage.get("HTTPRoute", "chat-http").await.unwrap();
        meddle(&stage, &route, &json!({"metadata": {"ownerReferences": null}})).await;
        stage.kubelet.ready_if(|_| true);
        let taken = condition(&stage, "NamesTaken").await;
        assert!(taken["message"].as_str().unwrap().contains("HTTPRoute default/chat-http"), "{taken}");
        let written = stage.record("ModelDeployment").await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let written = written.end().await;
        assert!(written.len() < 20, "{strategy}: {} states in a minute", written.len());
        let status = stage.observed("ModelDeployment", "chat").await.unwrap();
        assert_eq!(
            (&status["currentVersion"], &status["phase"], &status["rollout"]["waitingFor"]["reason"]),
            (&json!("r1"), &json!("Waiting"), &json!("WaitingForRoute")),
            "{strategy}: {status}"
        );
        let now = stage.get("HTTPRoute", "chat-http").await.unwrap();
        assert_eq!(now["spec"], route["spec"], "it is left alone");
        let owners = json!({"metadata": {"ownerReferences": route["metadata"]["ownerReferences"]}});
        meddle(&stage, &now, &owners).await;
        idle(&stage, "r2").await;
    }
}

/// A route that somebody deletes in a rollout is made again as it was: the rollout goes on from there.
#[tokio::test(start_paused = true)]
async fn a_route_that_is_deleted_in_a_rollout_gets_its_weights_back() {
    let stage = Stage::start().await;
    stage.route().await;
    let canary =
        json!({"type": "Canary", "canary": {"steps": [{"weight": 25}, {"pause": {}}, {"weight": 100}]}});
    stage.apply(&deployment("one", &canary, true)).await;
    idle(&stage, "r1").await;
    stage.apply(&deployment("two", &canary, true)).await;
    stage
        .eventually("the pause", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["rollout"]["waitingFor"]["reason"] == "Paused").then_some(())
        })
        .await;
    let before = stage.get("HTTPRoute", "chat-http").await.unwrap();
    stage.delete("HTTPRoute", "chat-http").await;
    stage
        .eventually("the same route", || async {
            let now = stage.get("HTTPRoute", "chat-http").await?;
            (now["spec"] == before["spec"] && now["metadata"]["uid"] != before["metadata"]["uid"])
                .then_some(())
        })
        .await;
}

/// The same without a Gateway, where the stable Service is what splits traffic.
#[tokio::test(start_paused = true)]
async fn a_stable_service_that_loses_its_owner_in_a_rollout_is_named_and_waited_for() {
    let stage = Stage::start().await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    let is_first = |pod: &Pod| pod.name_any().ends_with("-0");
    stage.kubelet.ready_if(move |pod| !super::is_of(pod, "two") || is_first(pod));
    stage.apply(&deployment("two", &rolling, false)).await;
    stage
        .eventually("a share of the new version", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            let new = status["versions"].as_array()?.iter().find(|it| it["name"] == "r2")?.clone();
            (new["capacity"]["asked"].as_i64()? > 1 && new["traffic"]["applied"] == 25).then_some(())
        })
        .await;
    let service = stage.get("Service", "chat").await.unwrap();
    meddle(&stage, &service, &json!({"metadata": {"ownerReferences": null}})).await;
    stage.kubelet.ready_if(|_| true);
    condition(&stage, "NamesTaken").await;
    let written = stage.record("ModelDeployment").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let written = written.end().await;
    assert!(written.len() < 20, "{} states in a minute", written.len());
    let now = stage.get("Service", "chat").await.unwrap();
    let owners = json!({"metadata": {"ownerReferences": service["metadata"]["ownerReferences"]}});
    meddle(&stage, &now, &owners).await;
    idle(&stage, "r2").await;
}
