//! What an object waits for, asked of a `segue up`, as a person does it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::Value;

use self::support::up::Up;

/// Two roles and a canary of each; a decode that is not ready never is.
fn serving(image: &str, ready: bool, patience: u32) -> String {
    let pod = |image: &str, ready: bool| {
        let probe = if ready { "\"true\"" } else { "\"false\"" };
        format!(
            "{{spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: c, image: {image}, \
             command: [sh, -c, exec sleep 1000], \
             readinessProbe: {{periodSeconds: 1, exec: {{command: [{probe}]}}}}}}]}}}}"
        )
    };
    format!(
        "apiVersion: workload.serving.volcano.sh/v1alpha1\nkind: ModelServing\n\
         metadata: {{name: pd, annotations: {{segue.dev/settle-seconds: '0', segue.dev/drain-seconds: '0', \
         segue.dev/progress-seconds: '{patience}'}}}}\n\
         spec:\n  replicas: 1\n  schedulerName: default-scheduler\n  template:\n    roles:\n    \
         - {{name: prefill, replicas: 1, workerReplicas: 0, entryTemplate: {}}}\n    \
         - {{name: decode, replicas: 2, workerReplicas: 0, entryTemplate: {}}}\n  \
         rolloutStrategy:\n    type: ServingGroupRollingUpdate\n    rollingUpdateConfiguration:\n      \
         roleUpgrade: {{steps: [{{role: decode, updateTo: 1}}, {{role: prefill, updateTo: 100%}}]}}\n",
        pod(image, true),
        pod(image, ready)
    )
}

/// Asks until the answer is of this state, and says this of what it waits for.
async fn ask(up: &Up, what: &str, state: &str, waits_for: &str) -> Value {
    testbed::eventually(state, std::time::Duration::from_mins(3), async || {
        let output = up.run(&["why", what, "-o", "json"]);
        let why: Value = serde_json::from_str(&support::stdout(&output)).ok()?;
        assert_eq!(output.status.code(), Some(i32::from(why["state"] != "Idle")), "{why}");
        let told = why["waits"][0]["for"].as_str().unwrap_or_default();
        assert!(!told.contains("exited with code"), "what is replaced is not waited for: {why}");
        let is_it = told == waits_for;
        (why["state"] == state && is_it).then_some(why)
    })
    .await
    .unwrap_or_else(|late| panic!("{late}: {}", support::stdout(&up.run(&["why", what]))))
}

#[tokio::test]
async fn a_broken_canary_is_told_with_its_pod_its_step_and_what_to_do() {
    let up = Up::start();
    up.says(&["apply", "-f", &up.file("pd.yaml", &serving("one", true, 600))]);
    ask(&up, "modelserving/pd", "Idle", "").await;
    assert_eq!(up.says(&["why", "modelserving/pd"]), "modelserving/pd is up to date\n");

    up.says(&["apply", "-f", &up.file("pd.yaml", &serving("two", false, 600))]);
    let blocked = "pod pd-0-decode-1-0: container c is not ready";
    let why = ask(&up, "modelserving/pd", "Working", blocked).await;
    let wait = &why["waits"][0];
    assert!(wait["until"].is_string(), "it may still load: {why}");
    assert_eq!(wait["then"], "the step counts as stalled; nothing else is replaced", "{why}");

    up.says(&["apply", "-f", &up.file("pd.yaml", &serving("two", false, 1))]);
    let why = ask(&up, "modelserving/pd", "Stalled", blocked).await;
    let wait = &why["waits"][0];
    assert_eq!(wait["what"], "group 0, step 1 of 2: 0 of 1 decode updated and Ready", "{why}");
    assert_eq!(wait["pod"], "pd-0-decode-1-0", "{why}");
    assert!(wait["since"].is_string() && wait["then"].is_string() && wait["until"].is_null(), "{why}");
    assert_eq!(why["conditions"][0]["type"], "Stalled", "{why}");
    let reasons: Vec<&Value> = why["events"].as_array().unwrap().iter().map(|it| &it["reason"]).collect();
    assert!(reasons.contains(&&"StepEntered".into()), "{why}");

    let output = up.run(&["why", "modelserving/pd"]);
    assert_eq!(output.status.code(), Some(1));
    let said = support::stdout(&output);
    let expected = [
        "modelserving/pd is stalled\n",
        "waits for pod pd-0-decode-1-0: container c is not ready",
        "Pods that are not ready",
        "segue logs pd-0-decode-1-0",
    ];
    for line in expected {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// A service of two pods; a version that is not ready never is.
fn deployment(version: &str, ready: bool) -> String {
    format!(
        "apiVersion: segue.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {{name: chat}}\nspec:\n  replicas: 2\n  \
         workload:\n    type: Pod\n    pod: {{spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: c, \
         image: {version}, command: [sh, -c, exec sleep 1000], \
         readinessProbe: {{periodSeconds: 1, exec: {{command: [\"{ready}\"]}}}}}}]}}}}\n  \
         traffic: {{ports: [{{name: http, port: 8000}}], drainSeconds: 1, settleSeconds: 1}}\n  \
         strategy: {{type: Rolling, rolling: {{maxSurge: 1, maxUnavailable: 0}}}}\n"
    )
}

#[tokio::test]
async fn a_rollout_that_waits_for_a_broken_version_is_told_with_its_deadline() {
    let up = Up::start();
    up.says(&["apply", "-f", &up.file("chat.yaml", &deployment("one", true))]);
    testbed::eventually("it is made", std::time::Duration::from_mins(3), async || {
        let said = support::stdout(&up.run(&["why", "modeldeployment/chat", "-o", "json"]));
        let why: Value = serde_json::from_str(&said).ok()?;
        assert_ne!(why["state"], "Stalled", "it is only being made: {why}");
        (why["state"] == "Idle").then_some(())
    })
    .await
    .unwrap();
    up.says(&["apply", "-f", &up.file("chat.yaml", &deployment("two", false))]);
    let why = testbed::eventually("it waits", std::time::Duration::from_mins(1), async || {
        let output = up.run(&["why", "modeldeployment/chat", "-o", "json"]);
        let why: Value = serde_json::from_str(&support::stdout(&output)).ok()?;
        assert_eq!(output.status.code(), Some(i32::from(why["state"] != "Idle")), "{why}");
        let told = !why["pods"].as_array()?.is_empty() && why["waits"][0]["until"].is_string();
        (why["state"] == "Working" && told).then_some(why)
    });
    let why = why.await.unwrap();
    let wait = &why["waits"][0];
    assert!(wait["since"].is_string() && wait["then"].is_string(), "{why}");
    assert_eq!(why["pods"][0]["why"], "container c is not ready", "{why}");
}

#[tokio::test]
async fn a_set_is_asked_in_the_same_way_and_what_cannot_be_asked_is_said() {
    let up = Up::start();
    up.says(&["apply", "-f", "examples/lws-startup-policy/processes.yaml"]);
    let why = ask(&up, "lws/chat", "Working", "").await;
    assert!(!why["waits"][0]["what"].as_str().unwrap().is_empty(), "{why}");
    ask(&up, "lws/chat", "Idle", "").await;

    let refused = up.run(&["why", "modelserving/none"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(support::stderr(&refused).contains("not found in namespace default"), "{refused:?}");
    let refused = up.run(&["why", "pod/chat-0"]);
    assert_eq!(refused.status.code(), Some(2));
    let told = support::stderr(&refused);
    assert!(told.contains("LeaderWorkerSet, ModelServing, ModelDeployment"), "{told}");
}

/// The set of a version says that its names are taken, and nobody knows of that set.
#[tokio::test]
async fn what_stands_in_the_way_of_a_version_is_told_of_its_deployment() {
    let up = Up::start();
    up.says(&["apply", "-f", &up.file("chat.yaml", &deployment("one", true))]);
    ask(&up, "modeldeployment/chat", "Idle", "").await;
    let sets = up.says(&["get", "leaderworkersets", "-o", "json"]);
    let sets: Value = serde_json::from_str(&sets).unwrap();
    let set = sets["items"][0]["metadata"]["name"].as_str().unwrap_or_else(|| panic!("{sets}"));
    // One more replica than now, whose name somebody has taken.
    let taken = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {set}-2}}\nspec: {{containers: [{{name: c, image: theirs, \
         command: [sh, -c, exec sleep 1000]}}]}}\n"
    );
    up.says(&["apply", "-f", &up.file("taken.yaml", &taken)]);
    let more = deployment("one", true).replace("replicas: 2", "replicas: 3");
    up.says(&["apply", "-f", &up.file("chat.yaml", &more)]);
    let why = testbed::eventually("it is told", std::time::Duration::from_mins(1), async || {
        let said = support::stdout(&up.run(&["why", "modeldeployment/chat", "-o", "json"]));
        let why: Value = serde_json::from_str(&said).ok()?;
        (why["state"] == "Stalled").then_some(why)
    });
    let why = why.await.unwrap_or_else(|late| {
        panic!("{late}: {}", support::stdout(&up.run(&["why", "modeldeployment/chat", "-o", "json"])))
    });
    let mut conditions = why["conditions"].as_array().unwrap().iter();
    let told = conditions.find(|it| it["type"] == "NamesTaken").unwrap_or_else(|| panic!("{why}"));
    assert_eq!(told["of"], format!("leaderworkerset/{set}"), "{why}");
}
