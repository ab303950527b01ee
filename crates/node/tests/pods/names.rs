use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{Bed, container, is, shell};

/// The Service `x` with the pod `x-0` at this address.
async fn place(bed: &Bed, address: &str) {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "x-1", "labels": {"kubernetes.io/service-name": "x"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "hostname": "x-0"}],
    });
    let slices: Api<EndpointSlice> = Api::default_namespaced(bed.client.clone());
    slices.patch("x-1", &PatchParams::apply("test"), &Patch::Apply(slice)).await.unwrap();
}

/// Looks for the names until each is at this address, says so, and goes on.
fn finds(names: &[&str], address: &str, out: &str) -> String {
    let found =
        |name: &&str| format!("until getent ahostsv4 {name} | grep -q '^{address} '; do sleep 0.02; done; ");
    names.iter().map(found).chain([format!("echo {address} > {out}; ")]).collect()
}

fn named(container: &Value) -> Value {
    json!({"hostname": "x-1", "subdomain": "x", "containers": [container]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_finds_pods_and_services_by_name_and_again_when_they_have_moved() {
    let bed = Bed::new().await;
    let all =
        ["x-0.x.default", "x-0.x", "x-0.x.default.svc", "x-0.x.default.svc.cluster.local", "x", "x.default"];
    let script =
        finds(&all, "127.64.9.1", &bed.path("first")) + &finds(&all, "127.64.9.2", &bed.path("second"));
    bed.create("x-1", named(&shell(&format!("{script} exec sleep 1000")))).await;
    bed.see("x-1", "running", is("Ready", "True")).await;
    place(&bed, "127.64.9.1").await;
    assert_eq!(bed.file("first").await, "127.64.9.1\n");
    place(&bed, "127.64.9.2").await;
    assert_eq!(bed.file("second").await, "127.64.9.2\n");
    let machine = fs::read_to_string("/etc/hosts").unwrap();
    assert!(!machine.contains("127.64.9."), "the machine's own file was written to");
}

/// A shim on a machine that lets no process have mounts of its own, in front of one that works.
fn forbids_mounts(directory: &Path, shim: &Path) -> PathBuf {
    let program = directory.join("shim");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pods/shim-without-mounts");
    // A program that was just written cannot be run while another test starts a process.
    symlink(script, &program).unwrap();
    symlink(shim, directory.join("shim-that-works")).unwrap();
    program
}

#[tokio::test(flavor = "multi_thread")]
async fn where_names_are_impossible_a_pod_that_needs_them_says_so_and_others_run() {
    let elsewhere = tempfile::tempdir().unwrap();
    let bed = Bed::with(|settings| {
        settings.shim.program = forbids_mounts(elsewhere.path(), &settings.shim.program);
    })
    .await;
    bed.create("x-1", named(&shell("exec sleep 1000"))).await;
    bed.create("plain", json!({"containers": [shell("exec sleep 1000")]})).await;
    let why = bed
        .see("x-1", "waiting", |pod| {
            let waiting = container(pod)?.state?.waiting?;
            (waiting.reason.as_deref() == Some("CreateContainerConfigError")).then_some(waiting.message?)
        })
        .await;
    assert!(
        why.contains("the subdomain x needs a hosts file") && why.contains("(Operation not permitted)"),
        "{why}"
    );
    assert!(why.contains("run segue as root, or allow user namespaces"), "{why}");
    assert!(bed.event("x-1", "Failed").await.message.unwrap().contains("subdomain"));
    bed.see("plain", "running", is("Ready", "True")).await;
}
