//! The kinds on a real kube-apiserver, with no webhook running: what `validate` says is what a cluster does.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

#[path = "../../api/tests/tables/mod.rs"]
mod tables;

use std::time::Duration;

use api::{KINDS, Kind, defaulted};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tables::Table;
use testbed::{Cluster, eventually};
use tokio::sync::OnceCell;

const SOON: Duration = Duration::from_mins(1);

/// The cluster with our CRDs in it.
async fn cluster() -> &'static Cluster {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let cluster = Cluster::shared().await;
    INSTALLED.get_or_init(|| async { install(&cluster.client()).await }).await;
    cluster
}

async fn install(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in KINDS {
        let apply = PatchParams::apply("testbed").force();
        crds.patch(&kind.crd_name(), &apply, &Patch::Apply(kind.crd())).await.unwrap();
        eventually(&format!("{} served", kind.name), SOON, async || {
            let crd = crds.get(&kind.crd_name()).await.ok()?;
            holds(&crd, "Established").then_some(())
        })
        .await
        .unwrap();
    }
}

fn holds(crd: &CustomResourceDefinition, condition: &str) -> bool {
    let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == condition && c.status == "True")
}

fn objects(client: Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.name);
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk_with_plural(&gvk, kind.plural))
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// The sentences of a refusal.
fn refusal(error: &kube::Error) -> Vec<String> {
    let kube::Error::Api(status) = error else { panic!("not an answer of the API: {error}") };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes = causes.map(|cause| format!("{}: {}", cause.field, cause.message));
    causes.chain([status.message.clone()]).collect()
}

fn object(manifest: &Value) -> DynamicObject {
    serde_json::from_value(manifest.clone()).unwrap()
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn every_crd_is_established_and_structural() {
    let cluster = cluster().await;
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    for kind in KINDS {
        let crd = crds.get(&kind.crd_name()).await.unwrap();
        assert!(holds(&crd, "Established") && holds(&crd, "NamesAccepted"), "{}", kind.name);
        assert!(!holds(&crd, "NonStructuralSchema"), "{}", kind.name);
    }
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn bad_manifests_are_refused_with_the_field_and_the_value() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("bad").await.unwrap();
    for kind in KINDS {
        let (table, api) = (Table::of(kind), objects(cluster.client(), kind, &namespace));
        let mut refused = 0;
        for row in &table.bad {
            // A manifest without a spec is no DynamicObject to kube either: it goes out as it is.
            let answer = api.create(&dry_run(), &object(&table.manifest(&row.patch))).await;
            match (answer, row.needs_webhook()) {
                (Ok(_), true) => {}
                (Ok(_), false) => panic!("{}: {}: accepted", kind.name, row.name),
                (Err(error), true) => panic!("{}: {} needs no webhook: {error}", kind.name, row.name),
                (Err(error), false) => {
                    let said = refusal(&error);
                    assert!(row.is_answered_by(&said), "{}: {}: got {said:#?}", kind.name, row.name);
                    refused += 1;
                }
            }
        }
        println!("{}: {refused} bad manifests refused by the CRD alone", kind.name);
        assert!(refused >= 30, "{}", kind.name);
    }
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn good_manifests_are_stored_and_read_back_identical() {
    let cluster = cluster().await;
    for kind in KINDS {
        let namespace = cluster.namespace("good").await.unwrap();
        let (table, api) = (Table::of(kind), objects(cluster.client(), kind, &namespace));
        for (place, row) in table.good.iter().enumerate() {
            let mut manifest = table.manifest(&row.patch);
            manifest["metadata"]["name"] = json!(format!("good-{place}"));
            manifest["metadata"]["namespace"] = json!(namespace);
            let stored = api.create(&PostParams::default(), &object(&manifest)).await;
            let stored = stored.unwrap_or_else(|error| panic!("{}: {}: {error}", kind.name, row.name));
            let read = api.get(stored.metadata.name.as_deref().unwrap()).await.unwrap();
            let read = without_server_fields(serde_json::to_value(read).unwrap());
            let wanted = without_server_fields(defaulted(&manifest).unwrap());
            assert_eq!(read, wanted, "{}: {}", kind.name, row.name);
        }
        println!("{}: {} good manifests read back identical", kind.name, table.good.len());
    }
}

/// The object without what is the server's: its part of the metadata, and the status, which a create drops.
fn without_server_fields(mut object: Value) -> Value {
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"] {
        metadata.remove(field);
    }
    object
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn updates_are_judged_against_what_was_there() {
    let cluster = cluster().await;
    for kind in KINDS {
        let namespace = cluster.namespace("update").await.unwrap();
        let (table, api) = (Table::of(kind), objects(cluster.client(), kind, &namespace));
        for (place, row) in table.updates.iter().enumerate() {
            let name = format!("update-{place}");
            let mut old = table.manifest(&row.from);
            old["metadata"]["name"] = json!(name);
            let stored = api.create(&PostParams::default(), &object(&old)).await;
            let stored = stored.unwrap_or_else(|error| panic!("{}: {}: {error}", kind.name, row.name));
            let mut new = Table::changed(&old, &row.patch);
            new["metadata"]["resourceVersion"] = json!(stored.metadata.resource_version);
            let answer = api.replace(&name, &dry_run(), &object(&new)).await;
            match (&row.field, answer) {
                (None, answer) => {
                    answer.unwrap_or_else(|error| panic!("{}: {}: {error}", kind.name, row.name));
                }
                (Some(_), Ok(_)) => assert!(row.needs_webhook(), "{}: {}: accepted", kind.name, row.name),
                (Some(_), Err(error)) => {
                    let said = refusal(&error);
                    assert!(row.is_answered_by(&said), "{}: {}: got {said:#?}", kind.name, row.name);
                }
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn scale_and_status_are_sub_resources() {
    let cluster = cluster().await;
    for kind in KINDS.iter().filter(|kind| kind.scale.is_some()) {
        let namespace = cluster.namespace("scale").await.unwrap();
        let (table, api) = (Table::of(kind), objects(cluster.client(), kind, &namespace));
        let stored = api.create(&PostParams::default(), &object(&table.base)).await.unwrap();
        let name = stored.metadata.name.unwrap();
        let merge = PatchParams::default();
        let scale =
            api.patch_scale(&name, &merge, &Patch::Merge(json!({"spec": {"replicas": 7}}))).await.unwrap();
        assert_eq!(scale.spec.unwrap().replicas, Some(7), "{}", kind.name);
        let status = json!({"status": {"replicas": 3}, "spec": {"replicas": 1}});
        api.patch_status(&name, &merge, &Patch::Merge(status)).await.unwrap();
        let scale = api.get_scale(&name).await.unwrap();
        assert_eq!(scale.spec.unwrap().replicas, Some(7), "{}: status writes change no spec", kind.name);
        assert_eq!(scale.status.unwrap().replicas, 3, "{}", kind.name);
        let negative = api.patch_scale(&name, &merge, &Patch::Merge(json!({"spec": {"replicas": -1}}))).await;
        assert!(
            refusal(&negative.unwrap_err()).iter().any(|said| said.contains("spec.replicas")),
            "{}",
            kind.name
        );
    }
}
