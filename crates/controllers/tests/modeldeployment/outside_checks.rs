//! Checks that something outside judges: before a version gets traffic, and while it does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use controllers::{Answer, Call, DataPlane, Expects, Key, ObjectId, Outside};
use serde_json::{Value, json};
use testbed::virtual_time;
use tokio::sync::{broadcast, watch};

use super::{deployment, idle};
use crate::stage::{self, Stage};

type Opinion = Box<dyn Fn(&Call) -> Result<Value, String> + Send + Sync>;

/// What answers calls, in a moment.
struct Judge {
    says: Mutex<Opinion>,
    called: Mutex<Vec<Call>>,
    told: Mutex<BTreeMap<(ObjectId, String), String>>,
    heard: Mutex<BTreeMap<ObjectId, BTreeMap<String, Answer>>>,
    answers: broadcast::Sender<ObjectId>,
    changes: watch::Sender<u64>,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

#[derive(Clone, Debug)]
struct Window(Arc<Judge>);

impl Judge {
    fn new(says: impl Fn(&Call) -> Result<Value, String> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            says: Mutex::new(Box::new(says)),
            called: Mutex::default(),
            told: Mutex::default(),
            heard: Mutex::default(),
            answers: broadcast::channel(64).0,
            changes: watch::channel(0).0,
        })
    }

    fn says(&self, says: impl Fn(&Call) -> Result<Value, String> + Send + Sync + 'static) {
        *self.says.lock().unwrap() = Box::new(says);
    }

    fn urls(&self) -> Vec<String> {
        self.called.lock().unwrap().iter().map(|call| call.url.clone()).collect()
    }
}

impl Outside for Window {
    fn data_plane(&self) -> Option<DataPlane> {
        None
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn tell(&self, object: &ObjectId, calls: &[Call]) {
        for call in calls {
            let place = (object.clone(), call.target.clone());
            if self.0.told.lock().unwrap().insert(place, call.id.clone()).as_ref() == Some(&call.id) {
                continue;
            }
            let (judge, object, call) = (Arc::clone(&self.0), object.clone(), call.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let result = (judge.says.lock().unwrap())(&call);
                let (target, id) = (call.target.clone(), call.id.clone());
                let answer = Answer { target: target.clone(), id, at: virtual_time::now(), result };
                judge.called.lock().unwrap().push(call);
                judge.heard.lock().unwrap().entry(object.clone()).or_default().insert(target, answer);
                drop(judge.answers.send(object));
            });
        }
    }

    fn forget(&self, _: &'static str, _: &Key) {}

    fn heard(&self, object: &ObjectId) -> Vec<Answer> {
        self.0.heard.lock().unwrap().get(object).into_iter().flat_map(|all| all.values().cloned()).collect()
    }

    fn answers(&self) -> Option<broadcast::Receiver<ObjectId>> {
        Some(self.0.answers.subscribe())
    }
}

async fn stage(judge: &Arc<Judge>) -> Stage {
    let stage = Stage::with(Arc::new(Window(Arc::clone(judge))), stage::settings()).await;
    stage.route().await;
    stage
}

fn golden(image: &str, strategy: &Value, check: &Value) -> Value {
    let mut golden = deployment(image, strategy, true);
    golden["spec"]["analysis"] = json!({"checks": [check]});
    golden
}

fn before_traffic() -> Value {
    json!({"name": "golden", "when": "BeforeTraffic", "windowSeconds": 5, "failures": 2,
        "http": {"url": "{{preview}}/check?version={{version}}"}})
}

async fn ended(stage: &Stage, outcome: &str) -> Value {
    stage
        .eventually(outcome, || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            let ended = status["history"][0]["outcome"] == outcome && status["phase"] == "Idle";
            (ended && status["history"].as_array()?.len() >= 2).then_some(status)
        })
        .await
}

/// The most traffic that routes ever gave a second version.
fn most_of_two(states: &[Value]) -> usize {
    let backends = |route: &Value| route["spec"]["rules"][0]["backendRefs"].as_array().map_or(0, Vec::len);
    states.iter().map(backends).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_version_that_a_check_rejects_never_gets_traffic() {
    for strategy in [json!({"type": "BlueGreen"}), json!({"type": "Rolling"})] {
        let judge = Judge::new(|_| Ok(json!({"ok": true})));
        let stage = stage(&judge).await;
        stage.apply(&golden("one", &strategy, &before_traffic())).await;
        idle(&stage, "r1").await;
        let routes = stage.record("HTTPRoute").await;
        judge.says(|_| Ok(json!({"ok": false, "message": "two of ten answers differ"})));
        let calls = judge.urls().len();
        stage.apply(&golden("two", &strategy, &before_traffic())).await;
        let status = ended(&stage, "RolledBack").await;
        assert_eq!(judge.urls().len() - calls, 2, "twice in a row: {:?}", judge.urls());
        let asked = judge.urls().pop().unwrap();
        let hash = status["rollout"]["to"].as_str().unwrap();
        assert!(
            asked.starts_with("http://10.") && asked.ends_with(&format!(":8000/check?version={hash}")),
            "{asked}"
        );
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("check golden: it answered not ok: two of ten answers differ"), "{message}");
        assert_eq!(status["rollout"]["failure"]["reason"], "CheckFailed");
        assert!(most_of_two(&routes.end().await) <= 1, "{strategy}");
        judge.says(|_| Ok(json!({"ok": true})));
        stage.apply(&golden("three", &strategy, &before_traffic())).await;
        let status = idle(&stage, "r3").await;
        assert_eq!(status["rollout"]["checks"][0]["verdict"], "Passed", "{status}");
    }
}

/// A check that does not answer is no verdict: it is asked again, also after a restart, and the version waits.
#[tokio::test(start_paused = true)]
async fn a_version_waits_for_the_verdict_of_a_check_that_does_not_answer() {
    let judge = Judge::new(|_| Ok(json!({"ok": true})));
    let mut stage = stage(&judge).await;
    let strategy = json!({"type": "BlueGreen"});
    stage.apply(&golden("one", &strategy, &before_traffic())).await;
    idle(&stage, "r1").await;
    judge.says(|_| Err("connection refused".to_owned()));
    let calls = judge.urls().len();
    stage.apply(&golden("two", &strategy, &before_traffic())).await;
    let waits = || async {
        let status = stage.observed("ModelDeployment", "chat").await?;
        let is_asked = judge.urls().len() > calls + 2;
        (is_asked && status["rollout"]["waitingFor"]["reason"] == "WaitingForProbe").then_some(status)
    };
    let status = stage.eventually("a wait", waits).await;
    assert!(
        status["rollout"]["checks"][0]["message"].as_str().unwrap().contains("connection refused"),
        "{status}"
    );
    assert_eq!(status["currentVersion"], "r1");
    stage.kill().await;
    judge.says(|_| Ok(json!({"ok": true})));
    stage.run();
    idle(&stage, "r2").await;
}

#[tokio::test(start_paused = true)]
async fn a_version_gets_no_traffic_until_its_probe_answers() {
    let judge = Judge::new(|_| Err("it answered 503 Service Unavailable: loading".to_owned()));
    let stage = stage(&judge).await;
    let mut probed = deployment("one", &json!({"type": "Rolling"}), true);
    probed["spec"]["health"] = json!({"probe": {"http": {
        "path": "/v1/completions", "method": "POST", "body": "{\"prompt\": \"hi\"}", "expectStatus": 201}}});
    stage.apply(&probed).await;
    let status = stage
        .eventually("a first version that waits", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            let told = status["rollout"]["checks"][0]["message"].as_str()?.contains("503");
            (told && status["rollout"]["waitingFor"]["reason"] == "WaitingForProbe").then_some(status)
        })
        .await;
    assert!(status["currentVersion"].is_null(), "{status}");
    {
        let called = judge.called.lock().unwrap();
        let Call { url, method, body, expects, .. } = called.last().unwrap();
        assert!(url.ends_with(":8000/v1/completions"), "{url}");
        assert_eq!(
            (*method, body, *expects),
            ("POST", &Some(json!("{\"prompt\": \"hi\"}")), Expects::Status(201))
        );
    }
    judge.says(|_| Ok(Value::Null));
    idle(&stage, "r1").await;
}

/// All replicas are ready and the probe never passes: what it was answered is the cause that is told.
#[tokio::test(start_paused = true)]
async fn a_probe_that_never_passes_is_told_with_its_answer_when_the_rollout_fails() {
    let judge = Judge::new(|_| Ok(Value::Null));
    let stage = stage(&judge).await;
    let probed = |image: &str| {
        let mut probed = deployment(image, &json!({"type": "BlueGreen"}), true);
        probed["spec"]["health"] =
            json!({"readyDeadlineSeconds": 1, "probe": {"http": {"path": "/gen", "expectStatus": 200}}});
        probed["spec"]["rollback"] = json!({"progressDeadlineSeconds": 30});
        probed
    };
    stage.apply(&probed("one")).await;
    idle(&stage, "r1").await;
    judge.says(|_| Err("it answered 500 Internal Server Error".to_owned()));
    stage.apply(&probed("two")).await;
    let status = ended(&stage, "RolledBack").await;
    assert_eq!(status["rollout"]["failure"]["reason"], "ProgressDeadlineExceeded", "{status}");
    for told in [&status["rollout"]["failure"]["message"], &status["history"][0]["evidence"]] {
        assert!(told.as_str().unwrap().contains("500 Internal Server Error"), "{status}");
    }
}

/// A query judges the version while it gets traffic, and an analysis step waits for its word.
#[tokio::test(start_paused = true)]
async fn a_query_beyond_its_bound_takes_a_canary_back() {
    let steps = json!([{"weight": 25}, {"analysis": {"checks": ["ttft"], "seconds": 10}}, {"weight": 100}]);
    let canary = json!({"type": "Canary", "canary": {"maxSurge": 1, "steps": steps}});
    let check = json!({"name": "ttft", "windowSeconds": 5, "max": "500m",
        "prometheus": {"address": "http://prom:9090/", "query": "ttft{version=\"{{version}}\"}"}});
    for (value, outcome) in [("0.51", "RolledBack"), ("0.5", "Promoted")] {
        let judge = Judge::new(move |_| {
            Ok(json!({"data": {"resultType": "vector", "result": [{"value": [1, value]}]}}))
        });
        let stage = stage(&judge).await;
        stage.apply(&golden("one", &canary, &check)).await;
        idle(&stage, "r1").await;
        assert!(judge.urls().is_empty(), "a first version has no check during a rollout");
        stage.apply(&golden("two", &canary, &check)).await;
        let status = ended(&stage, outcome).await;
        let hash = status["rollout"]["to"].as_str().unwrap();
        let asked = judge.urls().pop().unwrap();
        let query = format!("http://prom:9090/api/v1/query?query=ttft%7Bversion%3D%22{hash}%22%7D");
        assert_eq!(asked, query);
        if outcome == "RolledBack" {
            assert!(status["message"].as_str().unwrap().contains("0.51 is more than 0.5"), "{status}");
        }
    }
}
