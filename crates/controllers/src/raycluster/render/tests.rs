use planner::ray::Template;
use serde_json::{Value, json};

use super::*;

fn cluster(change: impl FnOnce(&mut Value)) -> RayCluster {
    let container = |name: &str| json!({"name": name, "image": "ray", "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}});
    let template = |name: &str| json!({"spec": {"containers": [container(name)]}});
    let mut cluster = json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
        "spec": {
            "headGroupSpec": {"template": template("head")},
            "workerGroupSpecs": [{"groupName": "Big", "replicas": 1, "template": template("worker")}],
        },
    });
    change(&mut cluster);
    serde_json::from_value(cluster).unwrap()
}

fn head(cluster: &RayCluster) -> Value {
    pod(cluster, Template(10), &Op::CreateHead, "c-head").unwrap()
}

fn worker(cluster: &RayCluster) -> Value {
    let op = Op::CreateWorker { group: "Big".to_owned(), replica: 3, host: 1, incarnation: 2 };
    pod(cluster, Template(10), &op, "c-big").unwrap()
}

fn args(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["args"][0].as_str().unwrap()
}

fn variable<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    pod["spec"]["containers"][0]["env"].as_array()?.iter().find(|it| it["name"] == name)
}

fn value<'a>(pod: &'a Value, name: &str) -> &'a str {
    variable(pod, name).map_or("absent", |it| it["value"].as_str().unwrap())
}

/// The contract of 3.2: what other tools read off pods.
#[test]
fn pods_have_the_labels_and_commands_of_the_public_operator() {
    let cluster = cluster(|_| {});
    let (head, worker) = (head(&cluster), worker(&cluster));
    assert_eq!(
        head["metadata"]["labels"],
        json!({
            "ray.io/is-ray-node": "yes", "ray.io/cluster": "c", "ray.io/node-type": "head",
            "ray.io/group": "headgroup", "ray.io/identifier": "c-head", "app.kubernetes.io/name": "kuberay",
            "app.kubernetes.io/created-by": "kuberay-operator",
        })
    );
    let labels = &worker["metadata"]["labels"];
    let told =
        ["ray.io/node-type", "ray.io/group", "ray.io/identifier"].map(|name| labels[name].as_str().unwrap());
    assert_eq!(told, ["worker", "Big", "c-worker"]);
    assert_eq!(
        (&labels["ray.io/worker-group-replica-index"], &labels["ray.io/replica-host-index"]),
        (&json!("3"), &json!("1"))
    );
    assert_eq!(
        args(&head),
        "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start --head --block \
         --dashboard-agent-listen-port=52365 --dashboard-host=0.0.0.0 --memory=2147483648 \
         --metrics-export-port=8080 --num-cpus=2"
    );
    assert_eq!(
        args(&worker),
        "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start \
         --address=c-head-svc.ns.svc.cluster.local:6379 --block --dashboard-agent-listen-port=52365 \
         --memory=2147483648 --metrics-export-port=8080 --num-cpus=2"
    );
    assert_eq!(value(&head, "RAY_ADDRESS"), "127.0.0.1:6379");
    assert_eq!(value(&worker, "RAY_ADDRESS"), "c-head-svc.ns.svc.cluster.local:6379");
    assert_eq!(
        (value(&worker, "FQ_RAY_IP"), value(&head, "FQ_RAY_IP")),
        ("c-head-svc.ns.svc.cluster.local", "absent")
    );
    let path = "metadata.labels['ray.io/cluster']";
    assert_eq!(variable(&head, "RAY_CLUSTER_NAME").unwrap()["valueFrom"]["fieldRef"]["fieldPath"], path);
    let waits = &worker["spec"]["initContainers"][0];
    assert_eq!(waits["name"], "wait-gcs-ready");
    assert!(waits["args"][0].as_str().unwrap().contains("--address c-head-svc.ns.svc.cluster.local:6379"));
    assert!(head["spec"]["initContainers"].is_null());
    let shared = json!({"name": "shared-mem", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}});
    assert_eq!(head["spec"]["volumes"], json!([shared]));
}

#[test]
fn what_the_spec_says_counts() {
    let cluster = cluster(|cluster| {
        let spec = &mut cluster["spec"];
        spec["headGroupSpec"]["rayStartParams"] =
            json!({"num-cpus": "0", "port": "7000", "block": "false", "include-dashboard": "false"});
        spec["headGroupSpec"]["headService"] = json!({"metadata": {"name": "mine"}});
        let container = &mut spec["workerGroupSpecs"][0]["template"]["spec"]["containers"][0];
        container["args"] = json!(["echo", "hello"]);
        container["env"] = json!([{"name": "RAY_PORT", "value": "1"}]);
        container["readinessProbe"] = json!({"tcpSocket": {"port": 1}});
        container["resources"]["limits"]["google.com/tpu"] = json!("4");
        container["resources"]["limits"]["nvidia.com/gpu"] = json!(2);
        spec["workerGroupSpecs"][0]["labels"] = json!({"b": "2", "a": "1"});
    });
    let (head, worker) = (head(&cluster), worker(&cluster));
    assert!(args(&head).contains(" --include-dashboard=false") && args(&head).contains(" --num-cpus=0"));
    assert!(args(&head).contains(" --port=7000") && !args(&head).contains("block"));
    let args = args(&worker);
    assert!(args.starts_with("echo hello && ulimit -n "), "{args}");
    assert!(args.contains("--address=mine.ns.svc.cluster.local:7000 "), "{args}");
    assert!(args.contains("--labels=a=1,b=2 ") && args.contains("--num-gpus=2 "), "{args}");
    assert!(args.ends_with(r#"--resources='{"TPU":4}'"#), "{args}");
    assert_eq!(value(&worker, "RAY_PORT"), "1");
    assert_eq!(worker["metadata"]["labels"]["a"], "1");
    assert_eq!(worker["spec"]["containers"][0]["readinessProbe"], json!({"tcpSocket": {"port": 1}}));
}

#[test]
fn a_command_that_starts_ray_itself_stays() {
    let own = cluster(|cluster| {
        let spec = &mut cluster["spec"]["headGroupSpec"]["template"]["spec"];
        spec["containers"][0]["command"] = json!(["bash", "-c", "ray start --head --block"]);
    });
    assert_eq!(
        head(&own)["spec"]["containers"][0]["command"],
        json!(["bash", "-c", "ray start --head --block"])
    );
    let annotated = cluster(|cluster| {
        cluster["metadata"]["annotations"] = json!({"ray.io/overwrite-container-cmd": "true"});
        cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["args"] = json!(["mine"]);
    });
    let pod = head(&annotated);
    assert_eq!(pod["spec"]["containers"][0]["args"], json!(["mine"]));
    assert!(value(&pod, "KUBERAY_GEN_RAY_START_CMD").starts_with("ray start --head "));
}

fn probe_of(pod: &Value, name: &str) -> Value {
    pod["spec"]["containers"][0][name].clone()
}

#[test]
fn head_and_workers_are_checked_by_their_raylet_and_the_head_by_gcs_too() {
    let cluster = cluster(|cluster| cluster["spec"]["rayVersion"] = json!("2.52.0"));
    let (head, worker) = (head(&cluster), worker(&cluster));
    for (pod, asks_gcs, timeout) in [(&head, true, 5), (&worker, false, 2)] {
        let (ready, live) = (probe_of(pod, "readinessProbe"), probe_of(pod, "livenessProbe"));
        assert_eq!(ready["exec"], live["exec"], "both ask the same");
        let command = ready["exec"]["command"][2].as_str().unwrap();
        assert!(command.contains("http://localhost:52365/api/local_raylet_healthz"), "{command}");
        assert_eq!(command.contains("http://localhost:8265/api/gcs_healthz"), asks_gcs, "{command}");
        assert!(!command.contains("/-/healthz"), "never the proxy of Serve: {command}");
        assert_eq!(
            (ready["timeoutSeconds"].as_u64(), ready["failureThreshold"].as_u64()),
            (Some(timeout), Some(10))
        );
        let acts_at = |probe: &Value| {
            let number = |field: &str| probe[field].as_u64().unwrap();
            number("initialDelaySeconds") + number("periodSeconds") * number("failureThreshold")
        };
        assert!(acts_at(&live) > acts_at(&ready), "the liveness probe acts later");
    }
}

#[test]
fn newer_rays_are_asked_by_one_request() {
    for (version, unified) in [("2.53.0", true), ("v3.0", true), ("2.52.1", false), ("nightly", false)] {
        let cluster = cluster(|cluster| cluster["spec"]["rayVersion"] = json!(version));
        for pod in [head(&cluster), worker(&cluster)] {
            let get = probe_of(&pod, "readinessProbe")["httpGet"].clone();
            let wanted = json!({"path": "/api/healthz", "port": 52365});
            assert_eq!(get == wanted, unified, "{version}: {get}");
        }
    }
}

#[test]
fn every_pod_of_a_fault_tolerant_cluster_says_so_and_knows_its_storage() {
    for annotation in ["ray.io/ha-enabled", "ray.io/ft-enabled"] {
        let cluster = cluster(|cluster| cluster["metadata"]["annotations"] = json!({annotation: "true"}));
        for pod in [head(&cluster), worker(&cluster)] {
            let notes = &pod["metadata"]["annotations"];
            assert_eq!(
                (&notes["ray.io/ha-enabled"], &notes["ray.io/ft-enabled"]),
                (&json!("true"), &json!("true"))
            );
            assert_eq!(notes["ray.io/external-storage-namespace"], "u", "the UID of the cluster");
            assert_eq!(value(&pod, "RAY_external_storage_namespace"), "u");
        }
        assert_eq!(value(&worker(&cluster), "RAY_gcs_rpc_server_reconnect_timeout_s"), "600");
        assert_eq!(value(&head(&cluster), "RAY_gcs_rpc_server_reconnect_timeout_s"), "absent");
        for name in ["RAY_SERVE_SLOW_STARTUP_WARNING_S", "SERVE_SLOW_STARTUP_WARNING_S"] {
            assert_eq!((value(&head(&cluster), name), value(&worker(&cluster), name)), ("300", "absent"));
        }
    }
    let off = cluster(|cluster| cluster["metadata"]["annotations"] = json!({"ray.io/ha-enabled": "false"}));
    for pod in [head(&off), worker(&off)] {
        assert!(pod["metadata"]["annotations"]["ray.io/ha-enabled"].is_null());
        assert_eq!(value(&pod, "RAY_external_storage_namespace"), "absent");
    }
}

#[test]
fn the_storage_namespace_may_be_chosen() {
    let by_annotation = cluster(|cluster| {
        cluster["metadata"]["annotations"] =
            json!({"ray.io/ha-enabled": "true", "ray.io/external-storage-namespace": "mine"});
    });
    let by_options = cluster(|cluster| {
        cluster["spec"]["gcsFaultToleranceOptions"] = json!({"externalStorageNamespace": "mine"});
    });
    for cluster in [by_annotation, by_options] {
        for pod in [head(&cluster), worker(&cluster)] {
            assert_eq!(value(&pod, "RAY_external_storage_namespace"), "mine");
        }
    }
}

#[test]
fn redis_is_told_to_the_head_alone_and_its_password_comes_from_a_secret() {
    let from = json!({"secretKeyRef": {"name": "redis", "key": "password"}});
    let cluster = cluster(|cluster| {
        cluster["spec"]["gcsFaultToleranceOptions"] = json!({
            "redisAddress": "redis:6379", "redisUsername": {"value": "ray"}, "redisPassword": {"valueFrom": from},
        });
    });
    let (head, worker) = (head(&cluster), worker(&cluster));
    assert_eq!((value(&head, "RAY_REDIS_ADDRESS"), value(&head, "REDIS_USERNAME")), ("redis:6379", "ray"));
    assert_eq!(variable(&head, "REDIS_PASSWORD").unwrap()["valueFrom"], from);
    assert!(args(&head).contains("--redis-password=$REDIS_PASSWORD --redis-username=$REDIS_USERNAME"));
    for name in ["RAY_REDIS_ADDRESS", "REDIS_USERNAME", "REDIS_PASSWORD"] {
        assert_eq!(variable(&worker, name), None);
    }
}
