//! What the operator asked for, what it was granted, and a life in which it needs all of that.

use std::time::Duration;

use serde_json::{Value, json};
use testbed::{eventually, pod_groups};

use crate::{
    ray,
    site::{Operator, Site, set},
};

pub const LONG: Duration = Duration::from_mins(3);

/// A request of the operator.
#[derive(Debug)]
pub struct Request {
    pub namespace: String,
    group: String,
    resource: String,
    name: String,
    verb: String,
}

/// Everything that the operator asked for.
#[derive(Debug)]
pub struct Asked {
    pub all: Vec<Request>,
    /// What it was not allowed.
    pub refused: Vec<String>,
}

impl Asked {
    pub fn read(site: &Site) -> Self {
        let events = site.cluster.audit().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (mut all, mut refused) = (Vec::new(), Vec::new());
        for event in events {
            if event["user"]["username"] != "system:serviceaccount:segue-system:segue" {
                continue;
            }
            let about = &event["objectRef"];
            let sub = text(&about["subresource"]);
            let resource = text(&about["resource"]);
            all.push(Request {
                namespace: text(&about["namespace"]),
                group: text(&about["apiGroup"]),
                resource: if sub.is_empty() { resource } else { format!("{resource}/{sub}") },
                name: text(&about["name"]),
                verb: text(&event["verb"]),
            });
            if event["annotations"]["authorization.k8s.io/decision"] != "allow" {
                refused.push(format!("{} {}", text(&event["verb"]), text(&event["requestURI"])));
            }
        }
        assert!(!all.is_empty(), "nobody asked for anything");
        Self { all, refused }
    }
}

/// One verb of one rule.
#[derive(Debug)]
struct Grant {
    /// Empty for the whole cluster.
    namespace: String,
    group: String,
    resource: String,
    names: Vec<String>,
    verb: String,
}

impl Grant {
    fn covers(&self, request: &Request) -> bool {
        (self.namespace.is_empty() || self.namespace == request.namespace)
            && self.group == request.group
            && self.resource == request.resource
            && self.verb == request.verb
            && (self.names.is_empty() || self.names.contains(&request.name))
    }
}

/// Everything that the manifests grant.
#[derive(Debug)]
pub struct Granted(Vec<Grant>);

impl Granted {
    pub fn read(manifests: &[Value]) -> Self {
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_owned()).collect()
        };
        let mut all = Vec::new();
        for role in manifests.iter().filter(|object| !object["rules"].is_null()) {
            let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            for rule in role["rules"].as_array().unwrap() {
                for verb in texts(&rule["verbs"]) {
                    let (group, resource) = (texts(&rule["apiGroups"]), texts(&rule["resources"]));
                    all.push(Grant {
                        namespace: namespace.clone(),
                        group: group.concat(),
                        resource: resource.concat(),
                        names: texts(&rule["resourceNames"]),
                        verb,
                    });
                }
            }
        }
        Self(all)
    }

    pub fn rules(&self) -> usize {
        self.0.len()
    }

    /// What was granted and never needed.
    pub fn unused(&self, asked: &Asked) -> Vec<String> {
        let unused = self.0.iter().filter(|grant| !asked.all.iter().any(|request| grant.covers(request)));
        unused.map(|grant| format!("{grant:?}")).collect()
    }
}

/// Everything that an operator does for sets, and for itself.
pub async fn live_the_life_of_sets(site: &Site, flags: &[&str]) {
    site.apply(&leftover());
    // What is not installed yet is waited for.
    let crd = "leaderworkersets.leaderworkerset.x-k8s.io";
    site.kubectl(&["delete", "crd", crd]);
    let operator = site.operate(flags);
    operator.says(&["note: the webhook mpod.kb.io", "lws-system/lws-webhook-service is gone"]).await;
    operator.says(&["note: the webhook vpod.kb.io", "127.0.0.1:1 takes no connection"]).await;
    is_asked(site, "customresourcedefinitions", "watch").await;
    site.apply(&api::leaderworkerset::KIND.crd());
    // `kubectl wait` fails on a definition that has no conditions yet.
    eventually("the definition is served", LONG, async || {
        let definition = site.get(&["crd", crd]);
        let mut conditions = definition["status"]["conditions"].as_array()?.iter();
        conditions.any(|it| it["type"] == "Established" && it["status"] == "True").then_some(())
    })
    .await
    .unwrap();
    site.apply(&set("x", 3, "one"));
    site.ready("x", 3, "one").await;
    site.apply(&set("x", 3, "two"));
    site.ready("x", 3, "two").await;
    // Going back makes an older revision the newest again.
    site.apply(&set("x", 3, "one"));
    site.ready("x", 3, "one").await;
    is_asked(site, "controllerrevisions", "patch").await;
    // Somebody changes what is ours: it is changed back.
    site.kubectl(&[
        "-n",
        "default",
        "patch",
        "service",
        "x",
        "-p",
        r#"{"spec":{"publishNotReadyAddresses":false}}"#,
    ]);
    eventually("its Service is as it was", LONG, async || {
        let service = site.get(&["-n", "default", "service", "x"]);
        (service["spec"]["publishNotReadyAddresses"] == true).then_some(())
    })
    .await
    .unwrap();
    // What is refused for a while is looked at again before it is tried again.
    refuse_for_a_while(site, "leaderworkersets", async || site.apply(&set("x", 3, "three"))).await;
    site.ready("x", 3, "three").await;
    // Revisions beyond those that are kept are forgotten.
    for number in 0..13 {
        let image = format!("image{number}");
        site.apply(&set("many", 0, &image));
        site.ready("many", 0, &image).await;
    }
    eventually("a revision is forgotten", LONG, async || {
        let list = site.get(&[
            "-n",
            "default",
            "controllerrevisions",
            "-l",
            "leaderworkerset.sigs.k8s.io/name=many",
        ]);
        (list["items"].as_array().unwrap().len() < 13).then_some(())
    })
    .await
    .unwrap();
    claims_and_names_come_and_go(site).await;
    a_request_is_answered(site, "leaderworkerset/x").await;
    // What stands in the way is looked at, and left alone.
    let stranger = |version: &str, kind: &str, name: &str, rest: Value| {
        let mut object =
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    let spec = json!({"spec": {"containers": [{"name": "c", "image": "theirs"}]}});
    site.apply(&stranger("v1", "Pod", "taken-pod-0", spec));
    let spec = json!({"spec": {"ports": [{"port": 80}]}});
    site.apply(&stranger("v1", "Service", "taken-service", spec));
    let revision = revision_of(site, "x");
    let name = format!("taken-revision-{revision}");
    site.apply(&stranger("apps/v1", "ControllerRevision", &name, json!({"revision": 1, "data": {}})));
    for name in ["taken-pod", "taken-service", "taken-revision"] {
        site.apply(&set(name, 1, "three"));
    }
    for (name, taken) in [
        ("taken-pod", "Pod default/taken-pod-0"),
        ("taken-service", "Service default/taken-service"),
        ("taken-revision", "ControllerRevision default/taken-revision"),
    ] {
        names_the_taken(site, &format!("leaderworkerset/{name}"), taken, &operator).await;
    }
    operator.stop().await;
    // A Service that is there and has nothing behind it answers as little as one that is gone.
    site.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lws-system"}}));
    site.apply(&json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "lws-webhook-service", "namespace": "lws-system"},
        "spec": {"selector": {"nobody": "has-this"}, "ports": [{"port": 443}]},
    }));
    let operator = site.operate(flags);
    let empty = "nothing is ready behind its Service lws-system/lws-webhook-service";
    operator.says(&["note: the webhook mpod.kb.io", empty]).await;
    operator.stop().await;
}

/// Waits until an object says that a name is somebody else's.
pub async fn names_the_taken(site: &Site, object: &str, taken: &str, operator: &Operator) {
    eventually(&format!("{object} names {taken}"), LONG, async || {
        let object = site.get(&["-n", "default", object]);
        let mut conditions = object["status"]["conditions"].as_array()?.iter();
        let named = conditions.find(|it| it["type"] == "NamesTaken" && it["status"] == "True")?;
        named["message"].as_str()?.contains(taken).then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {}", operator.said()));
}

/// Each group has a claim and a name: both go when it is scaled away, and a claim that is there already is used.
async fn claims_and_names_come_and_go(site: &Site) {
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    site.apply(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-claims-0", "namespace": "default"},
        "spec": claim,
    }));
    let mut claims = set("claims", 2, "one");
    claims["spec"]["networkConfig"] = json!({"subdomainPolicy": "UniquePerReplica"});
    let template = &mut claims["spec"]["leaderWorkerTemplate"];
    template["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": claim}]);
    template["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": "Retain", "whenScaled": "Delete"});
    site.apply(&claims);
    site.ready("claims", 2, "one").await;
    claims["spec"]["leaderWorkerTemplate"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] =
        "Delete".into();
    site.apply(&claims);
    eventually("a claim goes with its set", LONG, async || {
        let claim = site.get(&["-n", "default", "pvc/data-claims-1"]);
        (claim["metadata"]["ownerReferences"][0]["name"] == "claims").then_some(())
    })
    .await
    .unwrap();
    claims["spec"]["replicas"] = 1.into();
    site.apply(&claims);
    eventually("what belonged to the second group goes", LONG, async || {
        let names = site.kubectl(&["-n", "default", "get", "pvc,services", "-o", "name"]);
        let gone = ["/data-claims-1\n", "/claims-1\n"].iter().all(|name| !names.contains(name));
        gone.then_some(())
    })
    .await
    .unwrap();
    assert!(!site.get(&["-n", "default", "pvc/data-claims-0"]).is_null());
}

pub async fn a_request_is_answered(site: &Site, object: &str) {
    let request = r#"segue.dev/request={"id": "1", "verb": "retry"}"#;
    site.kubectl(&["-n", "default", "annotate", object, request]);
    eventually(&format!("{object} is answered"), LONG, async || {
        let object = site.get(&["-n", "default", object]);
        object["metadata"]["annotations"]["segue.dev/response"].as_str().map(drop)
    })
    .await
    .unwrap();
}

async fn servings_are_updated(site: &Site) {
    let serving = |groups: u32, image: &str, least: u32| {
        let pods = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        json!({
            "apiVersion": "workload.serving.volcano.sh/v1alpha1",
            "kind": "ModelServing",
            "metadata": {
                "name": "pair",
                "namespace": "default",
                "annotations": {"segue.dev/settle-seconds": "0", "segue.dev/drain-seconds": "0"},
            },
            "spec": {
                "replicas": groups,
                "schedulerName": "volcano",
                "rolloutStrategy": {"evictionStrategy": {
                    "protectionLevel": "Role", "roleMinAvailable": {"decode": least},
                }},
                "template": {"roles": [
                    {"name": "decode", "replicas": 2, "workerReplicas": 0, "entryTemplate": pods},
                ]},
            },
        })
    };
    let available = async |image: &str| {
        eventually(&format!("a pair of {image}"), LONG, async || {
            let object = site.get(&["-n", "default", "modelserving/pair"]);
            let pods = site.get(&["-n", "default", "pods"]);
            let pods = pods["items"].as_array()?;
            let of = |pod: &&Value| {
                pod["metadata"]["name"].as_str().unwrap().starts_with("pair-")
                    && pod["spec"]["containers"][0]["image"] == image
            };
            let all = pods.iter().filter(of).count() == 2;
            (all && object["status"]["availableReplicas"] == 1).then_some(())
        })
        .await
        .unwrap();
    };
    site.apply(&pod_groups(true));
    // What is somebody else's is looked at and left alone; when it is gone there is room for ours.
    site.apply(&json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "pair-0-decode-eviction", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"is": "theirs"}}},
    }));
    let foreign = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "pair-0", "namespace": "default"},
        "spec": {"minMember": 9},
    });
    eventually("PodGroups can be made", LONG, async || {
        site.try_create(&foreign, &[]).is_empty().then_some(())
    })
    .await
    .unwrap();
    site.apply(&foreign);
    site.apply(&serving(1, "one", 1));
    is_asked(site, "poddisruptionbudgets", "get").await;
    site.kubectl(&["-n", "default", "delete", "poddisruptionbudget", "pair-0-decode-eviction"]);
    is_asked(site, "podgroups", "get").await;
    site.kubectl(&["-n", "default", "delete", "podgroup", "pair-0"]);
    available("one").await;
    refuse_for_a_while(site, "modelservings", async || site.apply(&serving(1, "two", 1))).await;
    available("two").await;
    a_request_is_answered(site, "modelserving/pair").await;
    site.kubectl(&[
        "-n",
        "default",
        "annotate",
        "modelserving",
        "pair",
        "scheduling.volcano.sh/queue-name=q",
    ]);
    is_asked(site, "podgroups", "patch").await;
    site.apply(&serving(1, "two", 2));
    is_asked(site, "poddisruptionbudgets", "patch").await;
    site.apply(&serving(0, "two", 2));
    is_asked(site, "podgroups", "delete").await;
    is_asked(site, "poddisruptionbudgets", "delete").await;
}

/// Waits until the operator has asked this of the API.
pub async fn is_asked(site: &Site, resource: &str, verb: &str) {
    eventually(&format!("{verb} {resource}"), LONG, async || {
        let asked = Asked::read(site);
        asked.all.iter().any(|it| it.resource == resource && it.verb == verb).then_some(())
    })
    .await
    .unwrap();
}

/// Numbers are given to those who may read them.
async fn numbers_are_told(site: &Site, operator: &Operator) {
    operator.is_ready().await;
    site.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reads-metrics"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }));
    for name in ["reader", "stranger"] {
        site.kubectl(&["-n", "default", "create", "serviceaccount", name]);
    }
    site.kubectl(&[
        "create",
        "clusterrolebinding",
        "reads-metrics",
        "--clusterrole=reads-metrics",
        "--serviceaccount=default:reader",
    ]);
    let token = |name: &str| site.kubectl(&["-n", "default", "create", "token", name]).trim().to_owned();
    let (reader, stranger) = (token("reader"), token("stranger"));
    eventually("the reader may read", LONG, async || {
        let output = site.metrics(operator, &reader);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.contains("segue_api_writes_total{verb=\"create\",kind=\"Pod\"}").then_some(())
    })
    .await
    .unwrap();
    for wrong in [stranger.as_str(), "nobodys"] {
        let output = site.metrics(operator, wrong);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    }
}

/// The key of the revision that a set has now: the end of its name.
fn revision_of(site: &Site, set: &str) -> String {
    let list = site.get(&[
        "-n",
        "default",
        "controllerrevisions",
        "-l",
        &format!("leaderworkerset.sigs.k8s.io/name={set}"),
    ]);
    let newest =
        list["items"].as_array().unwrap().iter().max_by_key(|it| it["revision"].as_i64()).unwrap().clone();
    let name = newest["metadata"]["name"].as_str().unwrap().to_owned();
    name.strip_prefix(&format!("{set}-")).unwrap().to_owned()
}

/// The same, and everything that it does for deployments and webhooks.
pub async fn live_a_full_life(site: &Site, flags: &[&str]) {
    live_the_life_of_sets(site, flags).await;
    // A certificate that cannot be read is made anew.
    site.kubectl(&["-n", "segue-system", "annotate", "secret", "segue-webhook", "segue.dev/expires-"]);
    let operator = site.operate(flags);
    let first = deployment("plain", "v1", None);
    refuse_for_a_while(site, "modeldeployments", async || site.apply(&first)).await;
    hand_over(site, "plain").await;
    a_request_is_answered(site, "modeldeployment/plain").await;
    servings_are_updated(site).await;
    ray::clusters_and_services_live(site, &operator).await;
    numbers_are_told(site, &operator).await;
    let class = json!({"className": "nobodys", "hostnames": ["one.example"]});
    site.apply(&deployment("routed", "v1", Some(&class)));
    for kind in ["gateway/routed", "httproute/routed-http", "grpcroute/routed-grpc"] {
        exists(site, kind).await;
    }
    let mut changed =
        deployment("routed", "v1", Some(&json!({"className": "somebodys", "hostnames": ["two.example"]})));
    site.apply(&changed);
    for (kind, path, value) in [
        ("gateway/routed", "/spec/gatewayClassName", "somebodys"),
        ("httproute/routed-http", "/spec/hostnames/0", "two.example"),
        ("grpcroute/routed-grpc", "/spec/hostnames/0", "two.example"),
    ] {
        eventually(&format!("{kind} says {value}"), LONG, async || {
            let object = site.get(&["-n", "default", kind]);
            (object.pointer(path).unwrap() == value).then_some(())
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", operator.said()));
    }
    // A service that wants no Gateway any more has none.
    site.apply(&deployment("routed", "v1", None));
    for kind in ["gateway", "httproute", "grpcroute"] {
        eventually(&format!("no {kind} is left"), LONG, async || {
            let list = site.get(&["-n", "default", kind]);
            list["items"].as_array().unwrap().is_empty().then_some(())
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", operator.said()));
    }
    for (kind, name) in [("Gateway", "one"), ("HTTPRoute", "two-http"), ("GRPCRoute", "three-grpc")] {
        site.apply(&json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "default"},
            "spec": match kind {
                "Gateway" => json!({"gatewayClassName": "theirs", "listeners": [{"name": "a", "port": 1, "protocol": "HTTP"}]}),
                _ => json!({"hostnames": ["theirs.example"]}),
            },
        }));
        let deployment_name = name.split('-').next().unwrap();
        changed = deployment(deployment_name, "v1", Some(&class));
        site.apply(&changed);
        let taken = format!("{kind} default/{name}");
        names_the_taken(site, &format!("modeldeployment/{deployment_name}"), &taken, &operator).await;
    }
    operator.stop().await;
}

/// Does something while a policy of the cluster's owner refuses what the operator would do about it, until it has asked
/// for the object once more.
pub async fn refuse_for_a_while(site: &Site, resource: &str, doing: impl AsyncFnOnce()) {
    let name = "not-now.segue.test";
    let rule = |group: &str, operations: &[&str], resource: &str| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": [resource]});
    let us = "request.userInfo.username == 'system:serviceaccount:segue-system:segue'";
    let version = "admissionregistration.k8s.io/v1";
    site.apply(&json!({
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [
                rule("", &["UPDATE"], "pods/status"),
                rule("", &["DELETE"], "pods"),
                rule("leaderworkerset.x-k8s.io", &["CREATE"], "leaderworkersets"),
                rule("ray.io", &["DELETE"], "rayclusters"),
                // Nobody misses them; by these it is seen that the policy is heeded.
                rule("events.k8s.io", &["CREATE"], "events"),
            ]},
            "validations": [{"expression": format!("!({us})"), "message": "not now"}],
        },
    }));
    site.apply(&json!({
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }));
    let probe = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "probe", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Probe",
        "reason": "Probe",
        "type": "Normal",
        "reportingController": "test",
        "reportingInstance": "test",
        "regarding": {"kind": "Pod", "name": "x-0", "namespace": "default"},
    });
    // It takes the API a moment to heed it.
    eventually("the policy", LONG, async || {
        let us = ["--as", "system:serviceaccount:segue-system:segue"];
        site.try_create(&probe, &us).contains("not now").then_some(())
    })
    .await
    .unwrap();
    doing().await;
    is_asked(site, resource, "get").await;
    site.kubectl(&["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name]);
}

pub async fn exists(site: &Site, object: &str) {
    eventually(object, LONG, async || {
        let (kind, name) = object.split_once('/').unwrap();
        let list = site.get(&["-n", "default", kind]);
        let named = |item: &Value| item["metadata"]["name"] == name;
        list["items"].as_array().unwrap().iter().any(named).then_some(())
    })
    .await
    .unwrap();
}

/// From v1 to v2, by Services alone.
async fn hand_over(site: &Site, name: &str) {
    for version in ["v1", "v2"] {
        site.apply(&deployment(name, version, None));
        eventually(&format!("{name} is {version}"), LONG, async || {
            let status = site.get(&["-n", "default", "modeldeployment", name])["status"].clone();
            let idle = status["phase"] == "Idle" && status["currentVersion"] == version;
            (idle && status["readyReplicas"] == 2).then_some(())
        })
        .await
        .unwrap();
    }
    // What is left of v1 goes.
    eventually("one set is left", LONG, async || {
        let sets = site.get(&[
            "-n",
            "default",
            "leaderworkersets",
            "-l",
            &format!("segue.dev/model-deployment={name}"),
        ]);
        (sets["items"].as_array().unwrap().len() == 1).then_some(())
    })
    .await
    .unwrap();
}

fn deployment(name: &str, version: &str, gateway: Option<&Value>) -> Value {
    let mut ports = vec![json!({"name": "http", "port": 8000})];
    let mut traffic = json!({"settleSeconds": 0, "drainSeconds": 0});
    if let Some(gateway) = gateway {
        ports.push(json!({"name": "grpc", "port": 8001, "protocol": "GRPC"}));
        traffic["gateway"] = gateway.clone();
    }
    traffic["ports"] = json!(ports);
    json!({
        "apiVersion": "segue.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 2,
            "version": version,
            "workload": {"type": "Pod", "pod": {"spec": {"containers": [{"name": "model", "image": version}]}}},
            "traffic": traffic,
            "strategy": {"type": "Rolling", "rolling": {"maxSurge": 1, "maxUnavailable": 0}},
        },
    })
}

/// Webhooks of an operator that is gone. They are asked about nothing that is here.
fn leftover() -> Value {
    let pods =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let hook = |name: &str, server: &Value| {
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "objectSelector": {"matchLabels": {"nobody": "has-this"}},
            "rules": [pods],
            "clientConfig": server,
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "lws-mutating-webhook-configuration"},
        "webhooks": [
            hook("mpod.kb.io", &json!({"service": {
                "name": "lws-webhook-service", "namespace": "lws-system", "path": "/mutate--v1-pod",
            }})),
            hook("vpod.kb.io", &json!({"url": "https://127.0.0.1:1/mutate"})),
        ],
    })
}
