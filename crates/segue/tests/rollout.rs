//! Going back, beginning anew, holding and going on, against a `segue up`, as a person does it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::Value;

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

    assert_eq!(up.says(&["undo", "lws/x"]), "leaderworkerset/x goes back to revision 1\n");
    serves(&up, "one").await;
    // What is gone back to is the newest again.
    let refused = up.run(&["undo", "lws/x", "--to", "3"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(support::stderr(&refused).contains("revision 3 is what its spec asks for"), "{refused:?}");
    let refused = up.run(&["undo", "lws/x", "--to", "9"]);
    assert!(support::stderr(&refused).contains("there is no revision 9; there are: 3, 2"), "{refused:?}");

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
    assert_eq!(adopts, "modelserving/pd is ours already\n");
    let refused = up.run(&["adopt", "lws/pd"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(support::stderr(&refused).contains("lws/pd: there is none in namespace default"), "{refused:?}");
    let history = json(&up, &["history", "modelserving/pd", "-o", "json"]);
    assert_eq!(history.as_array().unwrap().len(), 2, "a number is no revision: {history}");
    assert_eq!((&history[0]["images"], &history[0]["is"][0]), (&"two".into(), &"wanted".into()), "{history}");
    assert_eq!((&history[1]["images"], &history[1]["revision"]), (&"one".into(), &1.into()), "{history}");

    assert_eq!(up.says(&["undo", "modelserving/pd"]), "modelserving/pd goes back to revision 1\n");
    // The second decode stays: it is not what the older revision is about.
    settles(&up, "one", 3).await;
    let refused = up.run(&["undo", "modelserving/pd", "--to", "1"]);
    assert!(support::stderr(&refused).contains("revision 1 is what its spec asks for"), "{refused:?}");

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
    assert_eq!(said, "leaderworkerset/x groups that failed do not wait any longer\n");
    let refused = up.run(&["retry", "lws/y"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(support::stderr(&refused).contains("there is none in namespace default"), "{refused:?}");
    let refused = up.run(&["retry", "pod/x-0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(support::stderr(&refused).contains("LeaderWorkerSet"), "{refused:?}");
}
