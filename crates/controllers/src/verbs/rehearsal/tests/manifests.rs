//! Manifests as people write them: defaults spelt out or left away, one quantity in several spellings.

use serde_json::{Value, json};

/// A manifest is a function of what was chosen; another one that differs little is one with a few other choices.
pub(super) struct Choices {
    picks: Vec<usize>,
    at: usize,
}

/// More choices than any manifest has.
const MOST: usize = 256;

/// Manifests of a family.
const FAMILY: usize = 6;

impl Choices {
    /// Manifests of which each has up to three choices other than the first.
    pub(super) fn family(seed: u64, manifest: fn(&mut Self) -> Value) -> Vec<Value> {
        let mut random = fastrand::Rng::with_seed(seed);
        let picks: Vec<usize> = (0..MOST).map(|_| random.usize(..)).collect();
        let mut first = Self { picks: picks.clone(), at: 0 };
        let mut family = vec![manifest(&mut first)];
        family.extend((1..FAMILY).map(|_| {
            let mut picks = picks.clone();
            for _ in 0..random.usize(..4) {
                picks[random.usize(..first.at)] = random.usize(..);
            }
            manifest(&mut Self { picks, at: 0 })
        }));
        family
    }

    fn below(&mut self, many: usize) -> usize {
        self.at += 1;
        self.picks[self.at - 1] % many
    }

    /// One of these.
    fn one(&mut self, of: &[Value]) -> Value {
        of[self.below(of.len())].clone()
    }

    /// Sets a field to one of these, or leaves it away.
    fn maybe(&mut self, object: &mut Value, field: &str, of: &[Value]) {
        if let Some(value) = of.get(self.below(of.len() + 1)) {
            object[field] = value.clone();
        }
    }

    fn is_so(&mut self) -> bool {
        self.below(2) == 0
    }

    fn amount(&mut self) -> Value {
        self.one(&[json!(0), json!(1), json!(2), json!("25%"), json!("50%"), json!("100%")])
    }
}

fn pod(choices: &mut Choices) -> Value {
    let mut container = json!({"name": "main", "image": choices.one(&[json!("m:1"), json!("m:2")])});
    if choices.is_so() {
        let mut limits = json!({"cpu": choices.one(&[json!("0.5"), json!("500m"), json!("1"), json!(1)])});
        choices.maybe(&mut limits, "memory", &[json!("1Gi"), json!("1024Mi"), json!("2Gi")]);
        choices.maybe(&mut limits, "nvidia.com/gpu", &[json!(1), json!("1"), json!(2)]);
        container["resources"] = json!({"limits": limits});
    }
    choices.maybe(&mut container, "resources", &[json!({})]);
    if choices.is_so() {
        let mut port = json!({"containerPort": 8080});
        choices.maybe(&mut port, "protocol", &[json!("TCP"), json!("UDP")]);
        container["ports"] = json!([port]);
    }
    if choices.is_so() {
        let mut probe = json!({"httpGet": {"path": "/", "port": choices.one(&[json!(8080), json!("http")])}});
        choices.maybe(&mut probe, "timeoutSeconds", &[json!(1), json!(5)]);
        choices.maybe(&mut probe, "periodSeconds", &[json!(10)]);
        container["readinessProbe"] = probe;
    }
    choices.maybe(&mut container, "env", &[json!([]), json!([{"name": "A", "value": "1"}])]);
    let mut spec = json!({"containers": [container]});
    choices.maybe(&mut spec, "terminationGracePeriodSeconds", &[json!(30), json!(60)]);
    choices.maybe(&mut spec, "restartPolicy", &[json!("Always")]);
    choices.maybe(&mut spec, "nodeSelector", &[json!({}), json!({"gpu": "a"})]);
    let mut template = json!({"spec": spec});
    let metadata =
        [json!({}), json!({"creationTimestamp": null}), json!({"labels": {"a": "b"}}), json!({"labels": {}})];
    choices.maybe(&mut template, "metadata", &metadata);
    template
}

pub(super) fn leader_worker_set(choices: &mut Choices) -> Value {
    let mut template =
        json!({"size": choices.one(&[json!(1), json!(2), json!(3)]), "workerTemplate": pod(choices)});
    if choices.is_so() {
        template["leaderTemplate"] = pod(choices);
    }
    let restarts = [json!("None"), json!("RecreateGroupOnPodRestart"), json!("RecreateGroupAfterStart")];
    choices.maybe(&mut template, "restartPolicy", &restarts);
    let mut spec = json!({"leaderWorkerTemplate": template});
    choices.maybe(&mut spec, "replicas", &[json!(0), json!(1), json!(3), json!(4)]);
    let startups = [json!("LeaderCreated"), json!("LeaderReady"), json!("LeaderHasAddress")];
    choices.maybe(&mut spec, "startupPolicy", &startups);
    let network = [json!({"subdomainPolicy": "Shared"}), json!({"subdomainPolicy": "UniquePerReplica"})];
    choices.maybe(&mut spec, "networkConfig", &network);
    if choices.is_so() {
        let mut rolling = json!({"maxSurge": choices.amount(), "maxUnavailable": choices.amount()});
        choices.maybe(&mut rolling, "partition", &[json!(0), json!(1), json!(9)]);
        spec["rolloutStrategy"] = json!({"type": "RollingUpdate", "rollingUpdateConfiguration": rolling});
    }
    object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", &spec)
}

pub(super) fn model_serving(choices: &mut Choices) -> Value {
    let names: &[&str] =
        [&["prefill", "decode"][..], &["decode", "prefill"], &["all"], &["prefill"]][choices.below(4)];
    let (strategy, by_roles) = serving_strategy(choices, names);
    let roles: Vec<Value> = names.iter().map(|name| role(choices, name, by_roles)).collect();
    let mut template = json!({"roles": roles});
    choices.maybe(&mut template, "restartGracePeriodSeconds", &[json!(0), json!(5)]);
    let mut spec = json!({"template": template, "schedulerName": "default-scheduler"});
    choices.maybe(&mut spec, "replicas", &[json!(0), json!(1), json!(2), json!(3)]);
    let recoveries = [json!("ServingGroupRecreate"), json!("RoleRecreate"), json!("None")];
    choices.maybe(&mut spec, "recoveryPolicy", &recoveries);
    choices.maybe(&mut spec, "rolloutStrategy", &[strategy.clone(), strategy]);
    object("workload.serving.volcano.sh/v1alpha1", "ModelServing", &spec)
}

/// A strategy, and whether it replaces roles by themselves.
fn serving_strategy(choices: &mut Choices, names: &[&str]) -> (Value, bool) {
    let mut rolling = json!({});
    let amounts = [json!(0), json!(1), json!("50%")];
    choices.maybe(&mut rolling, "maxUnavailable", &[json!(1), json!(2), json!("50%")]);
    choices.maybe(&mut rolling, "partition", &amounts);
    match choices.below(3) {
        0 => (json!({"type": "RoleRollingUpdate"}), true),
        1 => {
            let half = choices.one(&[json!(1), json!("50%")]);
            let to = |name: &str, share: &Value| json!({"role": name, "updateTo": share});
            let steps = names.iter().flat_map(|name| [to(name, &half), to(name, &json!("100%"))]);
            rolling["roleUpgrade"] = json!({"steps": steps.collect::<Vec<_>>()});
            (json!({"type": "ServingGroupRollingUpdate", "rollingUpdateConfiguration": rolling}), false)
        }
        _ => {
            choices.maybe(&mut rolling, "maxSurge", &amounts);
            (json!({"type": "ServingGroupRollingUpdate", "rollingUpdateConfiguration": rolling}), false)
        }
    }
}

fn role(choices: &mut Choices, name: &str, by_itself: bool) -> Value {
    let mut role = json!({"name": name, "entryTemplate": pod(choices)});
    choices.maybe(&mut role, "replicas", &[json!(0), json!(1), json!(2), json!(4)]);
    if choices.is_so() {
        role["workerReplicas"] = choices.one(&[json!(1), json!(2)]);
        role["workerTemplate"] = pod(choices);
    }
    choices.maybe(&mut role, "maxUnavailable", &[json!(1), json!("100%")]);
    if by_itself {
        choices.maybe(&mut role, "maxSurge", &[json!(0), json!(1)]);
        choices.maybe(&mut role, "partition", &[json!(0), json!(1)]);
    }
    role
}

pub(super) fn model_deployment(choices: &mut Choices) -> Value {
    let workload = match choices.below(8) {
        0..4 => json!({"type": "Pod", "pod": pod(choices)}),
        4..7 => {
            let mut unit =
                json!({"size": choices.one(&[json!(1), json!(2)]), "workerTemplate": pod(choices)});
            choices.maybe(&mut unit, "startupPolicy", &[json!("LeaderCreated"), json!("LeaderReady")]);
            choices.maybe(&mut unit, "restartPolicy", &[json!("RecreateGroupOnPodRestart"), json!("None")]);
            json!({"type": "LeaderWorker", "leaderWorker": unit})
        }
        _ => {
            json!({"type": "Roles", "roles": {"roles": [{"name": "all", "replicas": 1, "entryTemplate": pod(choices)}]}})
        }
    };
    let strategy = match choices.below(6) {
        0 => json!({"type": "Recreate"}),
        1 => json!({"type": "BlueGreen", "blueGreen": {
            "promoteDelaySeconds": choices.one(&[json!(0), json!(30)]),
            "previewReplicas": choices.one(&[json!(1), json!("100%")]),
            "retainSeconds": choices.one(&[json!(0), json!(60)]),
            "autoPromote": choices.one(&[json!(true), json!(false)]),
        }}),
        2 => json!({"type": "Canary", "canary": {
            "maxSurge": choices.amount(),
            "steps": [{"weight": choices.one(&[json!(10), json!(30)])}, {"pause": {"seconds": 30}}, {"weight": 100}],
        }}),
        3 => json!({"type": "Incremental", "incremental": {
            "maxSurgePercent": 50, "stepSizePercent": choices.one(&[json!(25), json!(50)]), "intervalSeconds": 10,
        }}),
        4 => json!({"type": "InPlace"}),
        _ => {
            json!({"type": "Rolling", "rolling": {"maxSurge": choices.amount(), "maxUnavailable": choices.amount()}})
        }
    };
    let mut spec = json!({
        "workload": workload,
        "strategy": strategy,
        "traffic": {"ports": [{"name": "http", "port": 8080}]},
    });
    choices.maybe(&mut spec, "replicas", &[json!(0), json!(1), json!(3), json!(4)]);
    choices.maybe(&mut spec, "version", &[json!("v1"), json!("v2")]);
    choices.maybe(&mut spec, "env", &[json!([]), json!([{"name": "A", "value": "2"}])]);
    object("segue.dev/v1alpha1", "ModelDeployment", &spec)
}

pub(super) fn ray_cluster(choices: &mut Choices) -> Value {
    let mut spec = cluster_config(choices);
    choices.maybe(
        &mut spec,
        "upgradeStrategy",
        &[json!({"type": "Recreate"}), json!({"type": "None"}), json!({})],
    );
    if choices.below(8) == 0 {
        spec["suspend"] = json!(true);
    }
    object("ray.io/v1", "RayCluster", &spec)
}

fn cluster_config(choices: &mut Choices) -> Value {
    let mut head = json!({"template": pod(choices)});
    choices.maybe(&mut head, "rayStartParams", &[json!({}), json!({"num-cpus": "0"})]);
    let mut spec = json!({"headGroupSpec": head, "enableInTreeAutoscaling": choices.is_so()});
    let group = |choices: &mut Choices, name: &str| {
        let mut group = json!({"groupName": name, "template": pod(choices)});
        choices.maybe(&mut group, "replicas", &[json!(0), json!(1), json!(2)]);
        choices.maybe(&mut group, "minReplicas", &[json!(0), json!(1)]);
        choices.maybe(&mut group, "maxReplicas", &[json!(2), json!(4)]);
        choices.maybe(&mut group, "numOfHosts", &[json!(1), json!(2)]);
        group
    };
    let names: &[&str] = [&["a"][..], &["a", "b"], &[]][choices.below(3)];
    spec["workerGroupSpecs"] = names.iter().map(|name| group(choices, name)).collect();
    choices.maybe(&mut spec, "rayVersion", &[json!("2.52.0"), json!("2.53.0")]);
    if choices.below(8) == 0 {
        spec["authOptions"] =
            json!({"mode": choices.one(&[json!("token"), json!("token"), json!("disabled")])});
    }
    if choices.below(6) == 0 {
        let backends = [json!({"backend": "rocksdb"}), json!({"redisAddress": "redis:6379"})];
        spec["gcsFaultToleranceOptions"] = choices.one(&backends);
    }
    spec
}

pub(super) fn ray_service(choices: &mut Choices) -> Value {
    let mut spec = json!({"rayClusterConfig": cluster_config(choices)});
    let steps = |choices: &mut Choices| {
        let mut steps = json!({
            "stepSizePercent": choices.one(&[json!(5), json!(50), json!(100)]),
            "intervalSeconds": choices.one(&[json!(0), json!(10)]),
            "gatewayClassName": "segue",
        });
        choices.maybe(&mut steps, "maxSurgePercent", &[json!(20), json!(100)]);
        steps
    };
    let strategy = match choices.below(5) {
        0 => json!({}),
        1 => json!({"type": "NewCluster"}),
        2 => json!({"type": "None"}),
        3 => json!({"type": "IncrementalUpgrade", "incrementalUpgradeOptions": steps(choices)}),
        _ => json!({"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": steps(choices)}),
    };
    choices.maybe(&mut spec, "upgradeStrategy", &[strategy.clone(), strategy]);
    choices.maybe(&mut spec, "serveConfigV2", &[json!("applications: []"), json!("applications: [] # two")]);
    choices.maybe(&mut spec, "rayClusterDeletionDelaySeconds", &[json!(0), json!(60)]);
    if choices.below(8) == 0 {
        spec["suspend"] = json!(true);
    }
    object("ray.io/v1", "RayService", &spec)
}

fn object(version: &str, kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "x", "namespace": "default"},
        "spec": spec,
    })
}
