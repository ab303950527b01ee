use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use apiserver::store::Store;
use node::NodeError;
use serde_json::json;

use crate::support::{
    Bed, container, create, dead, file, is, is_alive, phase, see, serve, settings, shell, start,
};

const DIRECTORY: &str = "SEGUE_TEST_DIRECTORY";

fn pod_with_children(directory: &Path) -> serde_json::Value {
    let pids = directory.join("pids");
    let script = format!(
        "sleep 1000 & one=$!; setsid sleep 1000 & echo $$ $one $! >> {}; trap '' TERM; while true; do wait; done",
        pids.display()
    );
    json!({"containers": [shell(&script)], "terminationGracePeriodSeconds": 1})
}

/// A test that fails leaves nothing behind either.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn store(directory: &Path) -> Store {
    Store::open(&directory.join("api"), apiserver::store::Settings::default()).unwrap().store
}

/// Not a test but an agent with an API of its own, to be killed.
#[tokio::test(flavor = "multi_thread")]
async fn runs_an_agent_when_it_is_told_to() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let client = serve(store(directory)).await;
    let agent = start(&client, settings(directory));
    create(&client, "p", pod_with_children(directory)).await;
    see(&client, "p", "running", phase("Running")).await;
    std::fs::write(directory.join("up"), "\n").unwrap();
    std::future::pending::<()>().await;
    drop(agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_an_agent_that_was_killed_and_nothing_is_doubled_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = KilledOnDrop(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "restart::runs_an_agent_when_it_is_told_to"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    file(&directory.path().join("up")).await;
    let pids = file(&directory.path().join("pids")).await;
    assert!(pids.split_whitespace().all(is_alive));
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    dead(&pids).await;

    let client = serve(store(directory.path())).await;
    let agent = start(&client, settings(directory.path()));
    let pod = see(&client, "p", "restarted", |pod| {
        let status = container(pod)?;
        (status.restart_count == 1 && status.state?.running.is_some()).then(|| pod.clone())
    })
    .await;
    let last = container(&pod).unwrap().last_state.unwrap().terminated.unwrap();
    assert_eq!(last.message.as_deref(), Some("the node agent was restarted"));
    let lines = testbed::eventually("a second start", crate::support::SOON, async || {
        let text = std::fs::read_to_string(directory.path().join("pids")).unwrap();
        (text.lines().count() == 2).then_some(text)
    });
    let second = lines.await.unwrap().lines().last().unwrap().to_owned();
    assert!(second.split_whitespace().all(is_alive));
    drop(agent);
    dead(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_stopped_ends_its_pods_and_the_next_one_starts_them_again() {
    let mut bed = Bed::new().await;
    bed.create("p", pod_with_children(bed.directory.path())).await;
    let pids = bed.file("pids").await;
    let before = bed.see("p", "ready", is("Ready", "True")).await;
    let kept = bed.directory.path().join("node/pods").join(before.metadata.uid.clone().unwrap()).join("kept");
    std::fs::write(&kept, "").unwrap();
    bed.agent.stop.send_replace(true);
    (&mut bed.agent.task).await.unwrap().unwrap();
    assert_eq!(pids.split_whitespace().filter(|pid| is_alive(pid)).count(), 0);
    bed.see("p", "not ready", is("Ready", "False")).await;
    bed.agent = start(&bed.client, settings(bed.directory.path()));
    let after = bed.see("p", "ready again", is("Ready", "True")).await;
    assert_eq!(container(&after).unwrap().restart_count, 1);
    let address = |pod: &k8s_openapi::api::core::v1::Pod| pod.status.as_ref()?.pod_ip.clone();
    assert_eq!(address(&after), address(&before), "a pod keeps its address");
    assert!(kept.exists(), "a pod keeps its directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_shim_takes_its_container_with_it_and_a_new_one_starts() {
    let bed = Bed::new().await;
    bed.create("p", pod_with_children(bed.directory.path())).await;
    let pids = bed.file("pids").await;
    let first = pids.split_whitespace().next().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
    let shim = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().to_owned();
    assert!(Command::new("kill").args(["-9", &shim]).status().unwrap().success());
    dead(&pids).await;
    bed.see("p", "restarted", |pod| container(pod).filter(|c| c.restart_count == 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_do_not_share_a_directory() {
    let bed = Bed::new().await;
    bed.create("p", json!({"containers": [shell("exec sleep 1000")]})).await;
    bed.see("p", "running", phase("Running")).await;
    let mut second = start(&bed.client, settings(bed.directory.path()));
    assert!(matches!((&mut second.task).await.unwrap(), Err(NodeError::Busy(_))));
}
