//! The commands in the documents that need a cluster, as they are written there.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

mod support;

use std::process::{Command, Stdio};

use api::KINDS;
use testbed::Cluster;

/// `segue crds | kubectl apply ...`: what kubectl said.
fn crds_into(mut kubectl: Command) -> String {
    let mut segue = Command::new(env!("CARGO_BIN_EXE_segue"));
    let mut crds = segue.arg("crds").stdout(Stdio::piped()).spawn().unwrap();
    let output = kubectl.stdin(crds.stdout.take().unwrap()).output().unwrap();
    assert!(crds.wait().unwrap().success());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The README: `segue crds | kubectl apply -f -`, and the same with server-side apply.
#[tokio::test]
#[ignore = "needs a control plane"]
async fn crds_install_by_plain_and_by_server_side_apply() {
    let cluster = Cluster::shared().await;
    for how in [&["apply", "-f", "-"][..], &["apply", "--server-side", "--force-conflicts", "-f", "-"]] {
        let mut kubectl = cluster.kubectl();
        kubectl.args(how);
        let said = crds_into(kubectl);
        for kind in KINDS {
            assert!(said.contains(&kind.crd_name()), "{how:?}: {said}");
        }
    }
    let mut kubectl = cluster.kubectl();
    kubectl.args(["wait", "--for=condition=Established", "--timeout=60s", "crd"]);
    kubectl.args(KINDS.iter().map(|kind| kind.crd_name()));
    assert!(kubectl.output().unwrap().status.success());

    // Every example is taken as it is, and listed with the columns of its kind.
    for file in std::fs::read_dir(support::root().join("examples")).unwrap() {
        let output = cluster.kubectl().args(["apply", "-f"]).arg(file.unwrap().path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for kind in KINDS {
        let output = cluster.kubectl().args(["get", kind.plural]).output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        for column in kind.columns.iter().filter(|column| !column.wide) {
            assert!(listed.to_lowercase().contains(&column.name.to_lowercase()), "{}: {listed}", kind.name);
        }
    }
}
