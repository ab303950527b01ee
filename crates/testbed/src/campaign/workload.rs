//! What is asked of the controllers in a run.

use std::time::Duration;

use serde_json::{Value, json};

use super::clusters::Befalls;

/// One thing that happens to the objects.
#[derive(Clone, Debug)]
pub enum Step {
    /// A person applies this.
    Apply(Value),
    /// Time passes until the set is as wanted.
    Settle,
    /// Time passes until the controllers have made so many more writes.
    After(u64),
    /// Time passes until the controllers have begun with what is wanted.
    Begun,
    /// A container of this pod restarts.
    Restart(&'static str),
    /// Another operator has made this, before ours begins.
    Inherit(Value),
    /// A person adopts what another operator made.
    Adopt,
    /// The node of this pod is off for good.
    LoseNode(&'static str),
    /// A person deletes this pod.
    DeletePod(&'static str),
    /// A person deletes the set.
    Delete,
    /// So much time passes.
    Wait(Duration),
    /// Something befalls a RayCluster.
    OfCluster(Befalls),
}

/// A story.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What it is called.
    pub name: &'static str,
    pub(super) steps: Vec<Step>,
}

/// The kind that a story is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Set,
    Serving,
    Deployment,
    Cluster,
}

impl Workload {
    /// What it begins with says this.
    pub(super) fn says(&self, pointer: &str, value: &str) -> bool {
        self.field(pointer).is_some_and(|it| it == value)
    }

    pub(super) fn has(&self, pointer: &str) -> bool {
        self.field(pointer).is_some_and(|it| !it.is_null())
    }

    fn field(&self, pointer: &str) -> Option<&Value> {
        let Some(Step::Apply(object)) = self.steps.first() else { return None };
        object.pointer(pointer)
    }

    pub(super) fn subject(&self) -> Subject {
        let Some(Step::Apply(object)) = self.steps.first() else { return Subject::Set };
        match object["kind"].as_str() {
            Some("ModelDeployment") => Subject::Deployment,
            Some("ModelServing") => Subject::Serving,
            Some("RayCluster") => Subject::Cluster,
            _ => Subject::Set,
        }
    }
}

/// What is said of a set besides its image.
#[derive(Clone, Copy)]
struct Shape {
    replicas: u32,
    size: u32,
    unavailable: u32,
    surge: u32,
    partition: u32,
    startup: &'static str,
    restart: &'static str,
    claims: bool,
}

const PLAIN: Shape = Shape {
    replicas: 3,
    size: 2,
    unavailable: 1,
    surge: 0,
    partition: 0,
    startup: "LeaderCreated",
    restart: "RecreateGroupOnPodRestart",
    claims: false,
};

fn set(image: &str, shape: Shape) -> Step {
    Step::Apply(manifest(image, shape))
}

fn manifest(image: &str, shape: Shape) -> Value {
    let Shape { replicas, size, unavailable, surge, partition, startup, restart, claims } = shape;
    let mut set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "x", "annotations": {"segue.dev/settle-seconds": "1", "segue.dev/drain-seconds": "1"}},
        "spec": {
            "replicas": replicas,
            "startupPolicy": startup,
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {
                "maxUnavailable": unavailable, "maxSurge": surge, "partition": partition,
            }},
            "leaderWorkerTemplate": {
                "size": size,
                "restartPolicy": restart,
                "workerTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}},
            },
        },
    });
    if claims {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let template = &mut set["spec"]["leaderWorkerTemplate"];
        template["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": spec}]);
        template["persistentVolumeClaimRetentionPolicy"] =
            json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
        set["spec"]["networkConfig"] = json!({"subdomainPolicy": "UniquePerReplica"});
    }
    set
}

/// Every story of a kind.
pub fn workloads(kind: &str) -> Vec<Workload> {
    match kind {
        "lws" => sets(),
        "raycluster" => super::clusters::clusters(),
        "modelserving" => super::servings::servings(),
        "modeldeployment" => deployments(),
        _ => Vec::new(),
    }
}

fn deployment(image: &str, replicas: u32, strategy: &Value) -> Step {
    Step::Apply(json!({
        "apiVersion": "segue.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "chat"},
        "spec": {
            "replicas": replicas,
            "workload": {"type": "Pod", "pod": {"spec": {"containers": [{"name": "c", "image": image}]}}},
            "traffic": {
                "ports": [{"name": "http", "port": 8000}],
                "drainSeconds": 1,
                "settleSeconds": 1,
                "gateway": {"className": "other"},
            },
            "strategy": strategy,
        },
    }))
}

fn deployments() -> Vec<Workload> {
    let story = |name, steps: Vec<Step>| Workload { name, steps };
    let rolling = json!({"type": "Rolling", "rolling": {"maxSurge": 1, "maxUnavailable": 0}});
    let incremental = json!({"type": "Incremental", "incremental": {
        "maxSurgePercent": 25, "stepSizePercent": 25, "intervalSeconds": 2,
    }});
    // The version before goes while it is waited that nothing happens any more.
    let kept = json!({"type": "BlueGreen", "blueGreen": {"promoteDelaySeconds": 2, "retainSeconds": 20}});
    let one = |strategy: &Value| deployment("one", 3, strategy);
    let two = |strategy: &Value| deployment("two", 3, strategy);
    vec![
        story("deploy", vec![one(&rolling), Step::Settle]),
        story("hand over, rolling", vec![one(&rolling), Step::Settle, two(&rolling), Step::Settle]),
        story(
            "hand over, incremental",
            vec![one(&incremental), Step::Settle, two(&incremental), Step::Settle],
        ),
        story("hand over, blue-green", vec![one(&kept), Step::Settle, two(&kept), Step::Settle]),
        story(
            "hand back midway",
            vec![one(&rolling), Step::Settle, two(&rolling), Step::After(25), one(&rolling), Step::Settle],
        ),
        story(
            "a third version midway",
            vec![
                one(&rolling),
                Step::Settle,
                two(&rolling),
                Step::After(25),
                // A version without a rollout has no number.
                Step::Begun,
                deployment("three", 3, &rolling),
                Step::Settle,
            ],
        ),
        story(
            "scale midway",
            vec![
                one(&incremental),
                Step::Settle,
                two(&incremental),
                Step::After(25),
                deployment("two", 4, &incremental),
                Step::Settle,
            ],
        ),
        story("scale", vec![one(&rolling), Step::Settle, deployment("one", 1, &rolling), Step::Settle]),
        story(
            "delete a deployment",
            vec![one(&rolling), Step::Settle, two(&rolling), Step::After(25), Step::Delete, Step::Settle],
        ),
    ]
}

fn sets() -> Vec<Workload> {
    let story = |name, steps: Vec<Step>| Workload { name, steps };
    let one = set("one", PLAIN);
    let rolls = |name, shape: Shape| {
        story(name, vec![set("one", shape), Step::Settle, set("two", shape), Step::Settle])
    };
    let surge = Shape { unavailable: 0, surge: 1, ..PLAIN };
    vec![
        story("create", vec![one.clone(), Step::Settle]),
        story(
            "create, leader first",
            vec![set("one", Shape { startup: "LeaderReady", ..PLAIN }), Step::Settle],
        ),
        story(
            "scale up",
            vec![one.clone(), Step::Settle, set("one", Shape { replicas: 5, ..PLAIN }), Step::Settle],
        ),
        story(
            "scale down",
            vec![one.clone(), Step::Settle, set("one", Shape { replicas: 1, ..PLAIN }), Step::Settle],
        ),
        rolls("roll, one missing", PLAIN),
        rolls("roll, one more", surge),
        rolls("roll, one missing and one more", Shape { surge: 1, ..PLAIN }),
        rolls("roll, two missing", Shape { unavailable: 2, ..PLAIN }),
        rolls("roll, single pods", Shape { size: 1, ..surge }),
        rolls("roll, leader first", Shape { startup: "LeaderReady", ..surge }),
        rolls("roll to a partition", Shape { partition: 2, ..PLAIN }),
        story(
            "roll back midway",
            vec![one.clone(), Step::Settle, set("two", PLAIN), Step::After(6), one.clone(), Step::Settle],
        ),
        story(
            "a third template midway",
            vec![
                set("one", surge),
                Step::Settle,
                set("two", surge),
                Step::After(6),
                set("three", surge),
                Step::Settle,
            ],
        ),
        story(
            "resize",
            vec![one.clone(), Step::Settle, set("one", Shape { size: 3, ..PLAIN }), Step::Settle],
        ),
        story(
            "scale while rolling",
            vec![
                set("one", surge),
                Step::Settle,
                set("two", surge),
                Step::After(6),
                set("two", Shape { replicas: 2, ..surge }),
                Step::Settle,
            ],
        ),
        story(
            "claims and names of their own",
            vec![
                set("one", Shape { claims: true, ..surge }),
                Step::Settle,
                set("two", Shape { claims: true, ..surge }),
                Step::Settle,
                set("two", Shape { claims: true, replicas: 1, ..surge }),
                Step::Settle,
            ],
        ),
        story("restart of a worker", vec![one.clone(), Step::Settle, Step::Restart("x-1-1"), Step::Settle]),
        story("loss of a leader", vec![one.clone(), Step::Settle, Step::DeletePod("x-1"), Step::Settle]),
        story(
            "a pod for itself",
            vec![
                set("one", Shape { restart: "None", ..PLAIN }),
                Step::Settle,
                Step::DeletePod("x-1-1"),
                Step::Settle,
            ],
        ),
        story("loss of a node", vec![one.clone(), Step::Settle, Step::LoseNode("x-1-1"), Step::Settle]),
        story(
            "adopt, then roll",
            vec![
                Step::Inherit(manifest("one", PLAIN)),
                Step::Adopt,
                Step::Settle,
                set("two", PLAIN),
                Step::Settle,
            ],
        ),
        story("delete", vec![one.clone(), Step::Settle, Step::Delete, Step::Settle]),
        story(
            "delete while rolling",
            vec![one, Step::Settle, set("two", PLAIN), Step::After(4), Step::Delete, Step::Settle],
        ),
    ]
}
