//! Checks of a canary, by answers that are counted.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use controllers::{Answers, DataPlane, Key, Outside};
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{deployment, idle};
use crate::stage::{self, Stage};

/// A data plane that counts what it is told.
#[derive(Debug)]
struct Counting(Mutex<DataPlane>, watch::Sender<u64>);

impl Counting {
    fn new() -> Arc<Self> {
        let controller = gateway::Settings::default().controller;
        let plane = DataPlane { controller, ..DataPlane::default() };
        Arc::new(Self(Mutex::new(plane), watch::channel(0).0))
    }
}

impl Outside for Counting {
    fn data_plane(&self) -> Option<DataPlane> {
        Some(self.0.lock().unwrap().clone())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.1.subscribe()
    }
}

fn canary(image: &str) -> Value {
    let steps = json!([{"weight": 25}, {"analysis": {"checks": ["errors"], "seconds": 10}}, {"weight": 100}]);
    let strategy = json!({"type": "Canary", "canary": {"maxSurge": 1, "steps": steps}});
    let mut canary = deployment(image, &strategy, true);
    canary["spec"]["analysis"] = json!({"checks": [
        {"name": "errors", "maxErrorPercent": 1, "windowSeconds": 5, "minRequests": 20},
    ]});
    canary
}

/// Requests to both versions, of which the newer one answers so many in a hundred with errors.
async fn load(stage: &Stage, plane: &Counting, errors: u64) {
    loop {
        let sets = stage.list("LeaderWorkerSet").await;
        for set in sets {
            let service = Key::new("default", format!("{}-serving", set.name_any()));
            let is_new = set.data["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]
                ["image"]
                == "two";
            let mut plane = plane.0.lock().unwrap();
            plane.ready.insert(service.clone(), 100);
            let answers: &mut Answers = plane.answers.entry(service).or_default();
            answers.all += 100;
            answers.errors += if is_new { errors } else { 0 };
        }
        plane.1.send_modify(|count| *count += 1);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// What became of the rollout of a version that answers so many requests in a hundred with errors.
async fn outcome(errors: u64) -> Value {
    let plane = Counting::new();
    let stage = Stage::with(Arc::clone(&plane) as Arc<dyn Outside>, stage::settings()).await;
    stage.route().await;
    let ends = async {
        stage.apply(&canary("one")).await;
        idle(&stage, "r1").await;
        stage.apply(&canary("two")).await;
        stage
            .eventually("an outcome", || async {
                let status = stage.observed("ModelDeployment", "chat").await?;
                let ended = status["history"].as_array()?.len() == 2 && status["phase"] == "Idle";
                ended.then_some(status)
            })
            .await
    };
    tokio::select! {
        status = ends => status,
        () = load(&stage, &plane, errors) => unreachable!("load goes on"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_answers_errors_is_rolled_back_with_the_numbers() {
    let status = outcome(100).await;
    let record = &status["history"][0];
    assert_eq!(
        (&record["outcome"], &status["currentVersion"]),
        (&json!("RolledBack"), &json!("r1")),
        "{status}"
    );
    let evidence = record["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("check errors: ") && evidence.ends_with("and 1% may be"), "{evidence}");
    assert_eq!(status["rollout"]["failure"]["reason"], "CheckFailed");
    let check = &status["rollout"]["checks"][0];
    assert_eq!((&check["name"], &check["verdict"]), (&json!("errors"), &json!("Failed")), "{check}");
    assert!(status["message"].as_str().unwrap().contains(evidence), "{status}");
}

#[tokio::test(start_paused = true)]
async fn a_canary_within_its_limit_is_promoted() {
    let status = outcome(1).await;
    assert_eq!(status["history"][0]["outcome"], "Promoted", "{status}");
    assert_eq!(status["currentVersion"], "r2");
    assert_eq!(status["rollout"]["checks"][0]["verdict"], "Passed", "{status}");
}
