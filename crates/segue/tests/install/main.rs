//! Segue as a guest: on a real control plane that enforces access, `segue operator` runs with exactly the rights that
//! `segue manifests` grants, beside nobody, and leaves nothing behind.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

mod adoption;
mod ray;
mod rights;
mod site;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};

use crate::{
    rights::{Asked, Granted},
    site::{Site, set},
};

const ALL: &str = "--kinds=leaderworkerset,modeldeployment,modelserving,raycluster,rayservice";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn every_right_is_used_and_none_is_missing() {
    let site = Site::start().await;
    let objects = site.install(&[]);
    rights::live_a_full_life(&site, &[ALL]).await;
    let (asked, granted) = (Asked::read(&site), Granted::read(&objects));
    assert_eq!(asked.refused, Vec::<String>::new());
    let unused = granted.unused(&asked);
    // The API lets only those grant a right who have it: this one is the autoscaler's.
    let only_granted = |grant: &String| grant.contains("pods/resize");
    assert_eq!((unused.len(), unused.iter().all(only_granted)), (1, true), "{unused:?}");
    assert!(granted.rules() > 20, "{granted:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn every_right_is_used_and_none_is_missing_in_one_namespace() {
    let site = Site::start().await;
    let flags = ["--namespaces=default", "--kinds=leaderworkerset", "--without-webhooks"];
    let objects = site.install(&flags);
    rights::live_the_life_of_sets(&site, &flags[..2]).await;
    let (asked, granted) = (Asked::read(&site), Granted::read(&objects));
    assert_eq!(asked.refused, Vec::<String>::new());
    assert_eq!(granted.unused(&asked), Vec::<String>::new());
    // Another namespace is out of sight, and nothing was asked of it.
    assert!(asked.all.iter().all(|it| !["kube-system", "kube-public"].contains(&it.namespace.as_str())));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn without_a_right_an_update_stops_and_says_which_one() {
    let site = Site::start().await;
    let objects = site.install(&["--kinds=leaderworkerset", "--without-webhooks"]);
    let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap().clone();
    let operator = site.operate(&["--kinds=leaderworkerset"]);
    let missing = [
        ("pods", "delete"),
        ("pods", "create"),
        ("pods/status", "patch"),
        ("leaderworkersets/status", "update"),
        ("controllerrevisions", "create"),
    ];
    for (turn, (resource, verb)) in missing.into_iter().enumerate() {
        let name = format!("x{turn}");
        site.apply(&set(&name, 2, "one"));
        site.ready(&name, 2, "one").await;
        let mut less = role.clone();
        for rule in less["rules"].as_array_mut().unwrap() {
            if rule["resources"][0] == resource {
                rule["verbs"].as_array_mut().unwrap().retain(|it| it != verb);
            }
        }
        // A rule without verbs is none.
        less["rules"].as_array_mut().unwrap().retain(|rule| rule["verbs"] != json!([]));
        site.replace(&less);
        site.forbidden(resource, verb).await;
        site.apply(&set(&name, 2, "two"));
        operator.says(&["failed to", "forbidden", &format!("cannot {verb} resource \"{resource}\"")]).await;
        assert!(!site.is_ready(&name, 2, "two"), "done without the right to {verb} {resource}");
        site.replace(&role);
        site.ready(&name, 2, "two").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn every_replica_judges_objects_as_the_embedded_api_does() {
    let site = Site::start().await;
    site.install(&[]);
    let mut bad = set("x", 2, "one");
    let share = json!({"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": "25%"}});
    bad["spec"]["rolloutStrategy"] = share;
    assert_eq!(
        site.try_create(&bad, &[]),
        "",
        "the CRD cannot see it, and nobody is locked out when nobody answers"
    );
    let leading = site.operate(&[ALL]);
    leading.says(&["Reconciling"]).await;
    let waiting = site.operate(&[ALL]);
    for operator in [&leading, &waiting] {
        operator.is_ready().await;
        site.ask_webhooks_at(operator);
        let said = site.refused(&bad).await;
        let embedded = api::validate(&bad, None).violations;
        assert!(said.contains(&embedded[0].to_string()), "{said}");
    }
    assert!(!waiting.said().contains("Reconciling"), "it answers though it does not lead");
    drop((leading, waiting));
    assert_eq!(site.try_create(&bad, &[]), "", "nobody is locked out when nobody answers any more");
}

/// The Lease of the public operator.
fn lease(renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "b8b2488c.x-k8s.io", "namespace": "lws-system"},
        "spec": {"holderIdentity": "lws-manager-7", "leaseDurationSeconds": 15, "renewTime": renewed},
    })
}

/// The same, renewed at a second of a clock that is years behind.
fn renewed(second: u32) -> Value {
    lease(&format!("2020-01-01T00:00:{second:02}.000000Z"))
}

/// The public operator, which leads as long as this is polled.
async fn lead(site: &Site) -> std::convert::Infallible {
    let mut second = 1;
    loop {
        site.apply(&renewed(second % 60));
        second += 1;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn an_operator_of_the_same_kind_is_left_alone() {
    let site = Site::start().await;
    site.install(&["--without-webhooks"]);
    site.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lws-system"}}));
    site.apply(&renewed(0));
    let (code, said) = tokio::select! {
        ended = site.operate(&[ALL]).ended() => ended,
        never = lead(&site) => match never {},
    };
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("note: the Lease lws-system/b8b2488c.x-k8s.io"),
        "it says what it waits for: {said}"
    );
    let line = said.lines().find(|line| line.starts_with("error: ")).unwrap();
    for word in ["LeaderWorkerSet", "lws-system/b8b2488c.x-k8s.io", "lws-manager-7", "stop", "--namespaces"] {
        assert!(line.contains(word), "{word} is not in: {line}");
    }
    let split = site.operate(&[ALL, "--namespaces=default", "--split-with-others"]);
    split.says(&["Reconciling"]).await;
    split.stop().await;
    // It ended, and left a Lease that its clock dates into the future.
    site.apply(&lease("2099-01-01T00:00:00.000000Z"));
    let alone = site.operate(&[ALL]);
    alone.says(&["Reconciling"]).await;
    // It comes back while we lead.
    let (code, said) = tokio::select! {
        ended = alone.ended() => ended,
        never = lead(&site) => match never {},
    };
    assert_eq!(code, Some(1), "{said}");
}

/// A pod and what somebody would notice of a restart.
async fn pods(site: &Site) -> BTreeMap<String, (String, String)> {
    let pods: Api<Pod> = Api::namespaced(site.client(), "default");
    let pods = pods.list(&ListParams::default()).await.unwrap();
    pods.iter().map(|pod| (pod.name_any(), (pod.uid().unwrap(), pod.resource_version().unwrap()))).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn segue_is_replaced_and_removed_and_no_pod_notices() {
    let site = Site::start().await;
    let manifests = site.install(&[]);
    let first = site.operate(&[ALL]);
    let names: Vec<String> = (0..50).map(|number| format!("live{number}")).collect();
    for name in &names {
        site.apply(&set(name, 1, "one"));
    }
    for name in &names {
        site.ready(name, 1, "one").await;
    }
    first.stop().await;
    let before = pods(&site).await;
    assert_eq!(before.len(), 100);

    let second = site.operate(&[ALL]);
    site.apply(&set("new", 1, "one"));
    site.ready("new", 1, "one").await;
    let mut after = pods(&site).await;
    after.retain(|name, _| !name.starts_with("new-"));
    assert_eq!(after, before, "a pod was written to, or made again");
    second.stop().await;

    site.uninstall(&manifests);
    let mut after = pods(&site).await;
    after.retain(|name, _| !name.starts_with("new-"));
    assert_eq!(after, before, "a pod went with the operator");
    let namespaces: Api<Namespace> = Api::all(site.client());
    assert!(namespaces.get_opt("segue-system").await.unwrap().is_none());
    for kind in ["leaderworkersets", "pods", "services", "controllerrevisions.apps"] {
        let list: Value = site.get(&["-n", "default", kind]);
        let items = list["items"].as_array().unwrap();
        assert!(items.len() > 50, "{kind}");
        assert!(items.iter().all(|item| item["metadata"]["finalizers"].is_null()), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn a_set_of_another_operator_is_left_alone_until_it_is_adopted_and_no_pod_notices() {
    let site = Site::start().await;
    site.install(&["--without-webhooks"]);
    adoption::make_as_others_do(&site).await;
    let before = adoption::identities(&site);
    site.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lws-system"}}));
    let refused = std::thread::scope(|scope| {
        let asking = scope.spawn(|| adoption::try_to_adopt(&site, &[]));
        for second in (0..60).cycle() {
            if asking.is_finished() {
                break;
            }
            site.apply(&renewed(second));
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        asking.join().unwrap()
    });
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("lws-manager-7"), "{refused:?}");
    site.apply(&lease("2020-01-01T00:00:00.000000Z"));
    let operator = site.operate(&[ALL]);
    testbed::eventually("it says why it does nothing", std::time::Duration::from_mins(1), async || {
        let events = site.kubectl(&["-n", "default", "get", "events", "-o", "json"]);
        events.contains("NotAdopted").then_some(())
    })
    .await
    .unwrap();
    assert!(
        site.get(&["-n", "default", "leaderworkerset/x"])["status"].is_null(),
        "its status is not ours to write"
    );

    let said = adoption::adopt(&site, &["--dry-run"]);
    let writes: Vec<&str> = said.lines().collect();
    assert_eq!(
        writes,
        [
            "leaderworkerset/x would delete StatefulSet x without its pods",
            "leaderworkerset/x would delete StatefulSet x-0 without its pods",
            "leaderworkerset/x would own Service x",
            "leaderworkerset/x would own Pod x-0",
            "leaderworkerset/x would own Pod x-0-1",
        ]
    );
    assert_eq!(site.get(&["-n", "default", "statefulsets"])["items"].as_array().unwrap().len(), 2);

    adoption::adopt(&site, &[]);
    testbed::eventually("it is looked after", std::time::Duration::from_mins(1), async || {
        let status = site.get(&["-n", "default", "leaderworkerset/x"])["status"].clone();
        (status["readyReplicas"] == 1 && status["updatedReplicas"] == 1).then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {}", operator.said()));
    assert_eq!(adoption::identities(&site), before, "a pod was made again");
    assert_eq!(adoption::adopt(&site, &[]), "leaderworkerset/x is adopted already\n");
    site.apply(&set("x", 1, "two"));
    site.ready("x", 1, "two").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn a_model_serving_of_another_operator_is_adopted_and_no_pod_notices() {
    let site = Site::start().await;
    site.install(&["--without-webhooks"]);
    adoption::make_as_kthena_does(&site).await;
    let before = adoption::identities(&site);
    let operator = site.operate(&[ALL]);
    testbed::eventually("it says why it does nothing", std::time::Duration::from_mins(1), async || {
        let events = site.kubectl(&["-n", "default", "get", "events", "-o", "json"]);
        events.contains("nothing is done until it is adopted: segue adopt pd").then_some(())
    })
    .await
    .unwrap();

    let said = adoption::adopt(&site, &["modelserving/pd", "--dry-run"]);
    let pods = ["pd-0-decode-0-0", "pd-0-decode-0-1", "pd-0-decode-1-0", "pd-0-decode-1-1"];
    let writes: Vec<String> = pods.iter().map(|pod| format!("modelserving/pd would own Pod {pod}")).collect();
    assert_eq!(said.lines().collect::<Vec<_>>(), writes);
    adoption::adopt(&site, &["modelserving/pd"]);
    testbed::eventually("it is looked after", std::time::Duration::from_mins(1), async || {
        let status = site.get(&["-n", "default", "modelserving/pd"])["status"].clone();
        (status["availableReplicas"] == 1 && status["updateRevision"] == "6f7d8").then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {}", operator.said()));
    assert_eq!(adoption::identities(&site), before, "a pod was made again");
    assert_eq!(adoption::adopt(&site, &[]), "modelserving/pd is adopted already\n");
    site.apply(&adoption::serving("two"));
    adoption::all_run(&site, "two").await;
}
