//! Going back, beginning anew, holding and going on, against a `segue up`, as a person does it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::process::Command;

use serde_json::Value;
use testbed::{Embedded, inherited};

use self::support::up::Up;

fn set(image: &str, command: &str) -> String {
    format!(
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\n\
         metadata: {{name: x, annotations: {{segue.dev/settle-seconds: '0', segue.dev/drain-seconds: '0'}}}}\n\
         spec:\n  replicas: 2\n  leaderWorkerTemplate:\n    size: 1\n    workerTemplate:\n      spec:\n        \
         terminationGracePeriodSeconds: 1\n        \
         containers: [{{name: c, image: {image}, command: [sh, -c, {command:?}]}}]\n"
    )
}

const RUNS: &str = "exec sleep 1000";

fn json(up: &Up, arguments: &[&str]) -> Value {
    serde_json::from_str(&up.says(arguments)).unwrap()
}

fn images(up: &Up) -> Vec<String> {
    let pods = json(up, &["get", "pods", "-o", "json"]);
    let pods = pods["items"].as_array().unwrap().clone();
    pods.iter().map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()).collect()
}

/// All groups are ready, and of this image.
async fn serves(up: &Up, image: &str) {
    let lists = ["get", "lws", "x", "-o", "json"];
    up.see(&format!("two groups of {image}"), &lists, |said| {
        let set: Value = serde_json::from_str(said).unwrap();
        let status = &set["status"];
        status["observedGeneration"] == set["metadata"]["generation"]
            && status["readyReplicas"] == 2
            && status["updatedReplicas"] == 2
            && status["currentRevision"] == status["updateRevision"]
            && images(up) == [image, image]
    })
    .await;
}

#[tokio::test]
async fn a_set_goes_back_begins_anew_and_is_held() {
    let up = Up::start();
    for image in ["one", "two"] {
        up.says(&["apply", "-f", &up.file("x.yaml", &set(image, RUNS))]);
        serves(&up, image).await;
    }
    let history = json(&up, &["history", "lws/x", "-o", "json"]);
    assert_eq!((&history[0]["images"], &history[0]["is"][0]), (&"two".into(), &"wanted".into()), "{history}");
    assert_eq!((&history[1]["images"], &history[1]["revision"]), (&"one".into(), &1.into()), "{history}");

    assert_eq!(up.says(&["undo", "lws/x"]), "leaderworkerset/x is set back to revision 1\n");
    serves(&up, "one").await;
    // What is gone back to is the newest again.
    let refused = up.run(&["undo", "lws/x", "--to", "3"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(support::stderr(&refused).contains("the spec asks for revision 3 already"), "{refused:?}");
    let refused = up.run(&["undo", "lws/x", "--to", "9"]);
    assert!(support::stderr(&refused).contains("revision 9 not found; allowed are: 3, 2"), "{refused:?}");

    let names = |up: &Up| -> Vec<String> {
        let pods = json(up, &["get", "pods", "-o", "json"]);
        pods["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["uid"].to_string()).collect()
    };
    let before = names(&up);
    up.says(&["restart", "lws/x"]);
    up.see("every pod is another one", &["get", "lws", "x"], |_| {
        let now = names(&up);
        now.len() == 2 && now.iter().all(|uid| !before.contains(uid))
    })
    .await;
    serves(&up, "one").await;

    up.says(&["pause", "lws/x"]);
    assert_eq!(up.run(&["pause", "lws/x"]).status.code(), Some(1));
    let said = up.says(&["restart", "lws/x"]);
    assert!(said.contains("restarts once it is resumed"), "{said}");
    // Whoever applies says what the partition is, as long as it is held.
    let held = set("two", RUNS).replacen(
        "  replicas: 2\n",
        "  replicas: 2\n  rolloutStrategy: {type: RollingUpdate, rollingUpdateConfiguration: {partition: 2}}\n",
        1,
    );
    // The fields that going back has changed are taken back.
    let refused = up.run(&["apply", "-f", &up.file("x.yaml", &held)]);
    assert!(support::stderr(&refused).contains("segue-rollout"), "{refused:?}");
    up.says(&["apply", "--force-conflicts", "-f", &up.file("x.yaml", &held)]);
    up.see("the controllers have seen it", &["get", "lws", "x", "-o", "json"], |said| {
        let set: Value = serde_json::from_str(said).unwrap();
        set["status"]["observedGeneration"] == set["metadata"]["generation"]
    })
    .await;
    assert_eq!(images(&up), ["one", "one"]);
    up.says(&["resume", "lws/x"]);
    serves(&up, "two").await;
    assert_eq!(up.run(&["resume", "lws/x"]).status.code(), Some(1));
}

/// Two roles, the second of which goes first.
fn serving(image: &str, decodes: u32) -> String {
    let role = |name: &str, replicas: u32| {
        format!(
            "    - {{name: {name}, replicas: {replicas}, workerReplicas: 0, entryTemplate: {{spec: {{\
             terminationGracePeriodSeconds: 1, \
             containers: [{{name: c, image: {image}, command: [sh, -c, {RUNS:?}]}}]}}}}}}\n"
        )
    };
    format!(
        "apiVersion: workload.serving.volcano.sh/v1alpha1\nkind: ModelServing\n\
         metadata: {{name: pd, annotations: {{segue.dev/settle-seconds: '0', segue.dev/drain-seconds: '0'}}}}\n\
         spec:\n  replicas: 1\n  schedulerName: default-scheduler\n  template:\n    roles:\n{}{}  \
         rolloutStrategy:\n    type: ServingGroupRollingUpdate\n    rollingUpdateConfiguration:\n      \
         roleUpgrade: {{steps: [{{role: decode, updateTo: 1}}]}}\n",
        role("prefill", 1),
        role("decode", decodes)
    )
}

/// So many pods run this image, and nothing is left to do.
async fn settles(up: &Up, image: &str, pods: usize) {
    testbed::eventually(image, std::time::Duration::from_mins(1), async || {
        let settled = up.run(&["why", "modelserving/pd"]).status.success();
        let images = images(up);
        (settled && images.len() == pods && images.iter().all(|it| it == image)).then_some(())
    })
    .await
    .unwrap_or_else(|late| panic!("{late}: {}", support::stdout(&up.run(&["why", "modelserving/pd"]))));
}

#[tokio::test]
async fn a_model_serving_goes_back_begins_anew_and_is_held() {
    let up = Up::start();
    for image in ["one", "two"] {
        up.says(&["apply", "-f", &up.file("pd.yaml", &serving(image, 1))]);
        settles(&up, image, 2).await;
    }
    up.says(&["apply", "-f", &up.file("pd.yaml", &serving("two", 2))]);
    settles(&up, "two", 3).await;
    // What we made is ours; nobody else's objects are there.
    let adopts = up.says(&["adopt", "modelserving/pd", "--dry-run"]);
    assert_eq!(adopts, "modelserving/pd is adopted already\n");
    let refused = up.run(&["adopt", "lws/pd"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(support::stderr(&refused).contains("lws/pd: not found in namespace default"), "{refused:?}");
    let history = json(&up, &["history", "modelserving/pd", "-o", "json"]);
    assert_eq!(history.as_array().unwrap().len(), 2, "a number is no revision: {history}");
    assert_eq!((&history[0]["images"], &history[0]["is"][0]), (&"two".into(), &"wanted".into()), "{history}");
    assert_eq!((&history[1]["images"], &history[1]["revision"]), (&"one".into(), &1.into()), "{history}");

    assert_eq!(up.says(&["undo", "modelserving/pd"]), "modelserving/pd is set back to revision 1\n");
    // The second decode stays: it is not what the older revision is about.
    settles(&up, "one", 3).await;
    // What is wanted again is the newest again, as `kubectl rollout undo` has it.
    let refused = up.run(&["undo", "modelserving/pd", "--to", "3"]);
    assert!(support::stderr(&refused).contains("the spec asks for revision 3 already"), "{refused:?}");

    let uids = |up: &Up| -> Vec<String> {
        let pods = json(up, &["get", "pods", "-o", "json"]);
        pods["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["uid"].to_string()).collect()
    };
    let before = uids(&up);
    up.says(&["pause", "modelserving/pd"]);
    up.says(&["restart", "modelserving/pd"]);
    let why = testbed::eventually("it is held", std::time::Duration::from_mins(1), async || {
        let output = up.run(&["why", "modelserving/pd", "-o", "json"]);
        let why: Value = serde_json::from_str(&support::stdout(&output)).ok()?;
        (why["state"] == "Paused").then_some(why)
    });
    let why = why.await.unwrap();
    assert_eq!(why["next"][0], "segue resume modelserving/pd", "{why}");
    assert_eq!(uids(&up), before, "nothing is replaced while it is held");
    up.says(&["resume", "modelserving/pd"]);
    up.see("every pod is another one", &["get", "pods"], |_| {
        let now = uids(&up);
        now.len() == 3 && now.iter().all(|uid| !before.contains(uid))
    })
    .await;
    settles(&up, "one", 3).await;
}

#[tokio::test]
async fn a_request_is_answered() {
    let up = Up::start();
    up.says(&["apply", "-f", &up.file("x.yaml", &set("one", RUNS))]);
    serves(&up, "one").await;
    let said = up.says(&["retry", "lws/x", "--reason", "a test"]);
    assert_eq!(said, "leaderworkerset/x: groups in back-off are recreated at once\n");
    let refused = up.run(&["retry", "lws/y"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(support::stderr(&refused).contains("not found in namespace default"), "{refused:?}");
    let refused = up.run(&["retry", "pod/x-0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(support::stderr(&refused).contains("LeaderWorkerSet"), "{refused:?}");
}

/// Nothing answers for a set of another operator, so nothing is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_set_that_is_not_adopted_says_how_to_adopt_it() {
    let api = Embedded::start().await.unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.args(arguments).env("KUBECONFIG", api.kubeconfig()).output().unwrap()
    };
    let directory = tempfile::tempdir().unwrap();
    let crds = directory.path().join("crds.yaml");
    std::fs::write(&crds, support::stdout(&support::segue(&["crds"]))).unwrap();
    let applied = run(&["apply", "-f", crds.to_str().unwrap()]);
    assert!(applied.status.success(), "{}", support::stderr(&applied));
    let set = serde_saphyr::from_str(&set("one", RUNS)).unwrap();
    inherited::inherit(&api.client(), "default", &set).await.unwrap();

    let refused = run(&["retry", "lws/x"]);
    assert_eq!(refused.status.code(), Some(1));
    let told = support::stderr(&refused);
    assert!(told.contains("segue adopt leaderworkerset/x -n default"), "{told}");
    let set = run(&["get", "lws", "x", "-o", "json"]);
    let set: Value = serde_json::from_slice(&set.stdout).unwrap();
    assert!(set["metadata"]["annotations"]["segue.dev/request"].is_null(), "{set}");

    // What is said is what helps: then it is ours, and asked.
    let adopted = run(&["adopt", "leaderworkerset/x", "-n", "default"]);
    assert!(adopted.status.success(), "{}", support::stderr(&adopted));
    let mut asks = Command::new(env!("CARGO_BIN_EXE_segue"));
    let asks = asks.args(["retry", "lws/x"]).env("KUBECONFIG", api.kubeconfig());
    let mut asks = asks.stderr(std::process::Stdio::null()).spawn().unwrap();
    let asked = testbed::eventually("it is asked", std::time::Duration::from_mins(1), async || {
        let set = run(&["get", "lws", "x", "-o", "json"]);
        let set: Value = serde_json::from_slice(&set.stdout).ok()?;
        set["metadata"]["annotations"]["segue.dev/request"].is_string().then_some(())
    });
    let asked = asked.await;
    asks.kill().unwrap();
    asks.wait().unwrap();
    asked.unwrap();
}

fn deployment(image: &str, cpu: u32, extra: &str) -> String {
    format!(
        "apiVersion: segue.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {{name: chat}}\nspec:\n  replicas: 2\n  workload:\n    \
         type: Pod\n    pod:\n      spec:\n        terminationGracePeriodSeconds: 1\n        \
         containers: [{{name: c, image: {image}, command: [sh, -c, {RUNS:?}], resources: {{requests: {{cpu: {cpu}m}}}}}}]\n  \
         traffic: {{ports: [{{name: http, port: 8000}}], drainSeconds: 0, settleSeconds: 0}}\n{extra}"
    )
}

async fn is_current(up: &Up, version: &str) {
    up.see(&format!("version {version}"), &["get", "mdep", "chat", "-o", "json"], |said| {
        let chat: Value = serde_json::from_str(said).unwrap();
        let status = &chat["status"];
        status["observedGeneration"] == chat["metadata"]["generation"]
            && status["currentVersion"] == version
            && status["phase"] == "Idle"
    })
    .await;
}

/// What the nodes have no room for is refused before anything is written, and by the plan.
#[tokio::test]
async fn a_deployment_without_room_is_refused_before_it_is_written() {
    let up = Up::start();
    let large = up.file("large.yaml", &deployment("two", 100_000_000, ""));
    let refused = up.run(&["apply", "-f", &large]);
    let why = support::stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("the rollout needs 2 more replicas at its peak, and none fits"), "{why}");
    assert!(why.contains("no object was written"), "{why}");
    assert!(!up.run(&["get", "mdep", "chat"]).status.success());
    up.says(&["apply", "-f", &up.file("one.yaml", &deployment("one", 1, ""))]);
    is_current(&up, "r1").await;
    let planned = up.run(&["plan", "-f", &large, "--live"]);
    let why = support::stderr(&planned);
    assert_eq!(planned.status.code(), Some(1), "{why}");
    assert!(why.contains("refused: ModelDeployment chat: the rollout needs 1 more replica"), "{why}");
    assert!(support::stdout(&planned).contains("Rolling, 2 replicas"), "the steps are shown nevertheless");
    let warned = up.file("warned.yaml", &deployment("two", 100_000_000, "  capacity: Warn\n"));
    up.says(&["apply", "-f", &warned]);
    up.see("a rollout that began", &["get", "mdep", "chat", "-o", "json"], |said| {
        let chat: Value = serde_json::from_str(said).unwrap();
        chat["status"]["rollout"]["capacity"]["needed"] == 1 && chat["status"]["rollout"]["outcome"].is_null()
    })
    .await;
}

/// A blue-green update is started by an apply, held with its preview, and promoted by a verb.
#[tokio::test]
async fn a_blue_green_update_is_started_and_promoted_from_the_command_line() {
    let up = Up::start();
    let strategy = "  strategy: {type: BlueGreen, blueGreen: {autoPromote: false, retainSeconds: 0}}\n";
    up.says(&["apply", "-f", &up.file("one.yaml", &deployment("one", 1, strategy))]);
    is_current(&up, "r1").await;
    up.says(&["apply", "-f", &up.file("two.yaml", &deployment("two", 1, strategy))]);
    up.see("a preview that waits", &["get", "mdep", "chat", "-o", "json"], |said| {
        let chat: Value = serde_json::from_str(said).unwrap();
        chat["status"]["rollout"]["waitingFor"]["reason"] == "Previewing"
    })
    .await;
    let said = up.says(&["promote", "mdep/chat"]);
    assert!(said.contains("version r2 is promoted"), "{said}");
    is_current(&up, "r2").await;
}
