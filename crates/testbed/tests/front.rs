//! What our controllers are written with works on the embedded API: kube's clients, watchers, finalizers and events.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]
use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use apiserver::{
    Limits,
    store::{History, Store},
};
use futures_util::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{
        DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchEvent,
        WatchParams,
    },
    core::{GroupVersionKind, PartialObjectMeta},
    discovery,
    runtime::{
        WatchStreamExt,
        events::{Event, EventType, Recorder, Reporter},
        finalizer::{Event as Finalizer, finalizer},
        watcher,
    },
};
use serde_json::{Value, json};
use testbed::Embedded;

const SOON: Duration = Duration::from_secs(30);

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name, "labels": {"of": "test"}}, "data": {"k": "v"}}))
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("{other}"),
    }
}

/// Both fronts, one after the other: what holds in process holds over TLS.
async fn on_both(test: impl AsyncFn(Client)) {
    let embedded = Embedded::start().await.unwrap();
    test(embedded.client()).await;
    let embedded = Embedded::start().await.unwrap();
    test(embedded.client_over_tls().await.unwrap()).await;
}

#[tokio::test]
async fn an_object_is_made_read_changed_and_deleted() {
    on_both(async |client| {
        let (api, options) = (maps(&client), PostParams::default());
        let made = api.create(&options, &map("a")).await.unwrap();
        assert_eq!(refused(api.create(&options, &map("a")).await), (409, "AlreadyExists".to_owned()));
        assert_eq!(api.get("a").await.unwrap(), made);
        let mut changed = made.clone();
        changed.data.as_mut().unwrap().insert("k".to_owned(), "w".to_owned());
        let new = api.replace("a", &options, &changed).await.unwrap();
        assert_ne!(new.resource_version(), made.resource_version());
        // From an older version: nobody's change is lost.
        assert_eq!(refused(api.replace("a", &options, &changed).await), (409, "Conflict".to_owned()));
        assert_eq!(api.list(&ListParams::default().labels("of=test")).await.unwrap().items.len(), 1);
        assert!(api.delete("a", &DeleteParams::default()).await.unwrap().is_right());
        assert_eq!(refused(api.get("a").await), (404, "NotFound".to_owned()));
        let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client.clone(), "default");
        api.create(&options, &map("b")).await.unwrap();
        assert_eq!(metadata.get("b").await.unwrap().name_any(), "b");
        let many = api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        assert_eq!(many.unwrap_left().items.len(), 1);
        assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    })
    .await;
}

#[tokio::test]
async fn pages_are_of_one_moment_and_leave_nothing_out() {
    on_both(async |client| {
        let api = maps(&client);
        for number in 0..7 {
            api.create(&PostParams::default(), &map(&format!("m-{number}"))).await.unwrap();
        }
        let (mut names, mut token, mut remaining) = (Vec::new(), None, Vec::new());
        loop {
            let mut page = ListParams::default().limit(3);
            page.continue_token = token;
            let list = api.list(&page).await.unwrap();
            // What comes in between is not of that moment.
            api.create(&PostParams::default(), &map(&format!("m-{}-late", names.len()))).await.unwrap();
            names.extend(list.items.iter().map(ResourceExt::name_any));
            remaining.push(list.metadata.remaining_item_count);
            token = list.metadata.continue_.filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        assert_eq!(names, (0..7).map(|number| format!("m-{number}")).collect::<Vec<_>>());
        assert_eq!(remaining, [Some(4), Some(1), None]);
        let wrong = ListParams { continue_token: Some("wrong".to_owned()), ..ListParams::default() };
        assert_eq!(refused(api.list(&wrong).await).0, 400);
    })
    .await;
}

/// Reads a watcher until it has told of all these names.
async fn expect_events(
    stream: impl Stream<Item = watcher::Result<watcher::Event<ConfigMap>>>,
    names: &[&str],
) {
    let wanted: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let (mut stream, mut seen) = (pin!(stream), BTreeSet::new());
    let read = async {
        while seen != wanted {
            match stream.next().await.unwrap() {
                // It lists or watches again by itself.
                Err(_) | Ok(watcher::Event::InitDone) => {}
                Ok(watcher::Event::Init) => seen.clear(),
                Ok(watcher::Event::InitApply(map) | watcher::Event::Apply(map)) => {
                    seen.insert(map.name_any());
                }
                Ok(watcher::Event::Delete(map)) => drop(seen.remove(&map.name_any())),
            }
        }
    };
    tokio::time::timeout(SOON, read).await.unwrap_or_else(|_| panic!("it did not tell of {wanted:?}"));
}

#[tokio::test]
async fn a_watcher_gets_every_event_whichever_way_it_begins() {
    let ways = [
        watcher::Config::default(),
        watcher::Config::default().page_size(1),
        watcher::Config::default().streaming_lists(),
        watcher::Config::default().any_semantic(),
        watcher::Config::default().labels("of=test"),
    ];
    on_both(async |client| {
        let api = maps(&client);
        for way in ways.clone() {
            api.create(&PostParams::default(), &map("a")).await.unwrap();
            api.create(&PostParams::default(), &map("b")).await.unwrap();
            let mut stream = pin!(watcher(api.clone(), way));
            expect_events(&mut stream, &["a", "b"]).await;
            api.create(&PostParams::default(), &map("c")).await.unwrap();
            expect_events(&mut stream, &["c"]).await;
            for name in ["a", "b", "c"] {
                api.delete(name, &DeleteParams::default()).await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_watcher_that_slept_too_long_begins_again_and_misses_nothing() {
    for way in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let short = History { events: 5, bytes: 1 << 20 };
        let embedded = Embedded::over(Store::memory(short), Limits::default()).await.unwrap();
        let api = maps(&embedded.client());
        api.create(&PostParams::default(), &map("a")).await.unwrap();
        let mut stream = pin!(watcher(api.clone(), way).default_backoff());
        expect_events(&mut stream, &["a"]).await;
        // Nobody reads the stream meanwhile.
        for number in 0..20 {
            let patch = Patch::Merge(json!({"data": {"k": number.to_string()}}));
            api.patch("a", &PatchParams::default(), &patch).await.unwrap();
        }
        api.delete("a", &DeleteParams::default()).await.unwrap();
        api.create(&PostParams::default(), &map("b")).await.unwrap();
        let mut again = false;
        let read = async {
            loop {
                match stream.next().await.unwrap() {
                    Ok(watcher::Event::InitApply(map)) if map.name_any() == "b" => return true,
                    Ok(watcher::Event::Apply(map)) if map.name_any() == "b" => return again,
                    Ok(watcher::Event::Init) => again = true,
                    _ => {}
                }
            }
        };
        assert!(tokio::time::timeout(SOON, read).await.unwrap(), "it must list again");
    }
}

#[tokio::test]
async fn a_watch_from_before_the_history_says_expired_in_the_stream() {
    let short = History { events: 5, bytes: 1 << 20 };
    let embedded = Embedded::over(Store::memory(short), Limits::default()).await.unwrap();
    let api = maps(&embedded.client());
    for number in 0..20 {
        api.create(&PostParams::default(), &map(&format!("m-{number}"))).await.unwrap();
    }
    let events: Vec<_> = api.watch(&WatchParams::default(), "1").await.unwrap().try_collect().await.unwrap();
    let [WatchEvent::Error(status)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}

#[tokio::test]
async fn a_finalizer_is_set_first_and_the_object_stays_until_it_has_run() {
    on_both(async |client| {
        let api = maps(&client);
        let made = api.create(&PostParams::default(), &map("a")).await.unwrap();
        let step = async |object: ConfigMap| {
            finalizer(&api, "segue.test/cleanup", Arc::new(object), |event| async move {
                match event {
                    Finalizer::Apply(_) => Err(std::io::Error::other("applied")),
                    Finalizer::Cleanup(_) => Ok(kube::runtime::controller::Action::await_change()),
                }
            })
            .await
        };
        // An object without finalizers: the patch tests that the field is null.
        step(made).await.unwrap();
        let held = api.get("a").await.unwrap();
        assert_eq!(held.finalizers(), ["segue.test/cleanup"]);
        assert!(step(held).await.unwrap_err().to_string().contains("apply"), "set, so it applies");
        api.delete("a", &DeleteParams::default()).await.unwrap();
        let leaving = api.get("a").await.unwrap();
        assert!(leaving.metadata.deletion_timestamp.is_some());
        step(leaving).await.unwrap();
        assert_eq!(refused(api.get("a").await).0, 404);
    })
    .await;
}

#[tokio::test]
async fn events_that_a_controller_records_are_read_as_kubectl_reads_them() {
    on_both(async |client| {
        let made = maps(&client).create(&PostParams::default(), &map("a")).await.unwrap();
        let reference = kube::Resource::object_ref(&made, &());
        let reporter = Reporter { controller: "segue.test/me".to_owned(), instance: None };
        let recorder = Recorder::new(client.clone(), reporter);
        let event = Event {
            type_: EventType::Normal,
            reason: "Scaled".to_owned(),
            note: Some("to three".to_owned()),
            action: "Scale".to_owned(),
            secondary: None,
        };
        recorder.publish(&event, &reference).await.unwrap();
        recorder.publish(&event, &reference).await.unwrap();
        let events: Api<CoreEvent> = Api::namespaced(client.clone(), "default");
        let of = ListParams::default().fields("involvedObject.name=a,reason=Scaled");
        let found = events.list(&of).await.unwrap().items;
        let [event] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(event.message.as_deref(), Some("to three"));
        assert_eq!(event.involved_object.uid, made.uid());
        assert_eq!(event.reporting_component.as_deref(), Some("segue.test/me"));
        assert_eq!(event.series.as_ref().unwrap().count, Some(2), "the second is counted");
    })
    .await;
}

#[tokio::test]
async fn what_another_manager_owns_is_taken_by_force_alone() {
    on_both(async |client| {
        let api = maps(&client);
        let config = |value: &str, more: bool| {
            let mut data = json!({"k": value});
            if more {
                data["more"] = json!("x");
            }
            Patch::Apply(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}),
            )
        };
        api.patch("a", &PatchParams::apply("one"), &config("1", true)).await.unwrap();
        let other = PatchParams::apply("two");
        let conflict = api.patch("a", &other, &config("2", false)).await.unwrap_err();
        let kube::Error::Api(status) = conflict else { panic!("{conflict}") };
        assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
        let causes = &status.details.as_ref().unwrap().causes;
        assert_eq!(
            (causes[0].reason.as_str(), causes[0].field.as_str()),
            ("FieldManagerConflict", ".data.k")
        );
        let taken = api.patch("a", &other.clone().force(), &config("2", false)).await.unwrap();
        assert_eq!(taken.data.as_ref().unwrap()["k"], "2");
        assert_eq!(taken.data.as_ref().unwrap()["more"], "x", "what nobody contests stays");
        // What a manager no longer applies goes, unless somebody else owns it.
        let bare = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
        let left = api.patch("a", &PatchParams::apply("one"), &bare).await.unwrap();
        assert_eq!(left.data.unwrap().into_keys().collect::<Vec<_>>(), ["k"]);
    })
    .await;
}

#[tokio::test]
async fn kinds_that_are_defined_later_are_found_and_served() {
    on_both(async |client| {
        let definitions: Api<DynamicObject> = {
            let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
            Api::all_with(client.clone(), &discovery::pinned_kind(&client, &gvk).await.unwrap().0)
        };
        for kind in api::KINDS {
            let definition = object::<DynamicObject>(kind.crd());
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        let gvk = GroupVersionKind::gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet");
        let (kind, capabilities) = discovery::pinned_kind(&client, &gvk).await.unwrap();
        assert!(capabilities.supports_operation(discovery::verbs::WATCH));
        let sets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
        let set: DynamicObject = object(json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "a"},
            "spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {
                "containers": [{"name": "c", "image": "i"}],
            }}}},
        }));
        let made = sets.create(&PostParams::default(), &set).await.unwrap();
        assert_eq!(made.data["spec"]["replicas"], 1, "defaults of the definition");
        let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
        let scaled = sets.patch_scale("a", &PatchParams::default(), &scale).await.unwrap();
        assert_eq!(scaled.spec.unwrap().replicas, Some(3));
        let status = Patch::Merge(json!({"status": {"replicas": 2}, "spec": {"replicas": 9}}));
        let with_status = sets.patch_status("a", &PatchParams::default(), &status).await.unwrap();
        assert_eq!(
            (&with_status.data["status"]["replicas"], &with_status.data["spec"]["replicas"]),
            (&json!(2), &json!(3))
        );
        assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_pod_is_evicted_unless_a_budget_says_no() {
    // In process: over the wire the client takes the refusal for load, and asks again every ten seconds.
    let embedded = Embedded::start().await.unwrap();
    let client = embedded.client();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = |name: &str| {
        object::<Pod>(json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }))
    };
    for name in ["free", "kept"] {
        pods.create(&PostParams::default(), &pod(name)).await.unwrap();
    }
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(client.clone(), "default");
    let budget = json!({
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    });
    budgets.create(&PostParams::default(), &object(budget)).await.unwrap();
    pods.evict("free", &EvictParams::default()).await.unwrap();
    assert_eq!(refused(pods.get("free").await).0, 404);
    assert_eq!(refused(pods.evict("kept", &EvictParams::default()).await).0, 429);
    assert_eq!(refused(pods.evict("none", &EvictParams::default()).await).0, 404);
    pods.get("kept").await.unwrap();
}
