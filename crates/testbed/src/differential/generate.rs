//! Sequences of requests, made from a seed.
use std::fmt;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The definition of the custom kind that sequences use: defaults, rules, every kind of list, status and scale.
pub const WIDGETS: &str = include_str!("widgets.json");

/// One request. In the path `{ns}` is the namespace, `{continue}` the last token of a list, `{began}` the revision
/// before the first request; in the body, names that begin with `$` stand for what only the server knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub method: String,
    pub path: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
    /// The form that is asked for; empty for plain JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub accept: String,
    /// Under which name the answer is remembered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub seen: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}{} {}", self.method, self.path, self.media, self.accept, self.body)
    }
}

/// Requests that are sent one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    /// In the order in which they are sent.
    pub steps: Vec<Step>,
}

/// A kind that sequences use.
#[derive(Clone, Copy)]
struct Kind {
    base: &'static str,
    api_version: &'static str,
    name: &'static str,
    plural: &'static str,
    status: bool,
    scale: bool,
    custom: bool,
}

const fn built_in(
    base: &'static str,
    api_version: &'static str,
    name: &'static str,
    plural: &'static str,
) -> Kind {
    Kind { base, api_version, name, plural, status: false, scale: false, custom: false }
}

const KINDS: [Kind; 7] = [
    built_in("/api/v1", "v1", "ConfigMap", "configmaps"),
    built_in("/api/v1", "v1", "Secret", "secrets"),
    built_in("/apis/coordination.k8s.io/v1", "coordination.k8s.io/v1", "Lease", "leases"),
    Kind { status: true, ..built_in("/api/v1", "v1", "Pod", "pods") },
    Kind { status: true, ..built_in("/api/v1", "v1", "Service", "services") },
    built_in("/apis/discovery.k8s.io/v1", "discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    Kind {
        status: true,
        scale: true,
        custom: true,
        ..built_in("/apis/segue.test/v1", "segue.test/v1", "Widget", "widgets")
    },
];

impl Sequence {
    /// `length` requests from a seed.
    pub fn random(seed: u64, length: usize) -> Self {
        let mut maker = Maker(Rng::with_seed(seed), Generated::default());
        // Few kinds and few names, so that requests meet.
        let first = maker.pick(&KINDS);
        let second = if maker.0.bool() { KINDS[6] } else { maker.pick(&KINDS) };
        // A cluster's controllers make slices for services.
        let meet = [first.plural, second.plural];
        let second =
            if meet.contains(&"services") && meet.contains(&"endpointslices") { KINDS[6] } else { second };
        let mut steps = Vec::with_capacity(length + 2);
        for _ in 0..length {
            let kind = if maker.one_in(3) { second } else { first };
            steps.push(maker.step(kind));
        }
        for kind in [first, second] {
            steps.extend(endings(kind));
        }
        Self { steps }
    }
}

/// At the end, everything is seen again as events: from the beginning, by a selector, and as a list that goes on.
fn endings(kind: Kind) -> impl Iterator<Item = Step> {
    const WATCHES: [&str; 3] = [
        "resourceVersion={began}",
        "resourceVersion={began}&labelSelector=app%3Dx",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    ];
    WATCHES.iter().map(move |query| {
        let Kind { base, plural, .. } = kind;
        let path = format!("{base}/namespaces/{{ns}}/{plural}?watch=true&timeoutSeconds=1&{query}");
        Step { method: "GET".into(), path, ..Step::default() }
    })
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

struct Maker(Rng, Generated);

/// Whether a name was generated: two would be listed in any order.
#[derive(Default)]
struct Generated(bool);

impl Maker {
    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.0.usize(..list.len())]
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.0.u32(..n) == 0
    }

    fn step(&mut self, kind: Kind) -> Step {
        let name = self.pick(&["a", "b", "c"]);
        match self.0.u32(..100) {
            0..18 => self.create(kind, name),
            18..26 => Self::plain("GET", kind, name, ""),
            26..34 => self.list(kind),
            34..50 => self.update(kind, name),
            50..70 => self.patch(kind, name),
            70..86 => self.apply(kind, name),
            86..96 => self.delete(kind, name),
            96 => Self::delete_collection(kind),
            97 => self.astray(kind, name),
            _ if kind.scale => self.scale(kind, name),
            _ => Self::plain("GET", kind, name, "/status"),
        }
    }

    fn plain(method: &str, kind: Kind, name: &str, below: &str) -> Step {
        let path = format!("{}/namespaces/{{ns}}/{}/{name}{below}", kind.base, kind.plural);
        let seen = if below.is_empty() || below == "/status" { key(kind, name) } else { String::new() };
        Step { method: method.into(), path, seen, ..Step::default() }
    }

    fn options(&mut self, manager: bool) -> String {
        let mut options = Vec::new();
        if self.one_in(8) {
            options.push("dryRun=All".to_owned());
        }
        if self.one_in(5) {
            options.push(format!("fieldValidation={}", self.pick(&["Strict", "Warn", "Ignore"])));
        }
        if manager || self.one_in(2) {
            options.push(format!("fieldManager={}", self.pick(&["one", "two", "three"])));
        }
        options.join("&")
    }

    fn create(&mut self, kind: Kind, name: &str) -> Step {
        let mut body = self.object(kind, name);
        let mut seen = key(kind, name);
        if self.one_in(12) && !std::mem::replace(&mut self.1.0, true) {
            body["metadata"] = json!({"generateName": "made-"});
            seen = String::new();
        }
        if self.one_in(20) {
            body["metadata"]["namespace"] = json!("elsewhere");
        }
        let options = self.options(false);
        if options.contains("dryRun") {
            seen = String::new();
        }
        let path = format!("{}/namespaces/{{ns}}/{}?{options}", kind.base, kind.plural);
        Step { method: "POST".into(), path, media: "application/json".into(), body, seen, ..Step::default() }
    }

    fn list(&mut self, kind: Kind) -> Step {
        let query = match self.0.u32(..8) {
            0 => "labelSelector=app%3Dx".to_owned(),
            1 => "labelSelector=app+in+(x,y),tier".to_owned(),
            2 => "labelSelector=!app".to_owned(),
            3 => format!("fieldSelector=metadata.name%3D{}", self.pick(&["a", "b"])),
            4 => "limit=1".to_owned(),
            5 => "limit=1&continue={continue}".to_owned(),
            6 => self
                .pick(&["fieldSelector=spec.color%3Dred", "fieldSelector=status.phase%3DPending"])
                .to_owned(),
            _ => String::new(),
        };
        let path = format!("{}/namespaces/{{ns}}/{}?{query}", kind.base, kind.plural);
        let accept = if self.one_in(4) { TABLE } else { "" };
        Step { method: "GET".into(), path, accept: accept.into(), ..Step::default() }
    }

    /// A whole object, or the last that was seen with a change.
    fn update(&mut self, kind: Kind, name: &str) -> Step {
        // A kube-apiserver creates a service that is put at its status, without an address.
        let below = if kind.status && kind.plural != "services" && self.one_in(3) { "/status" } else { "" };
        let whole = self.one_in(3);
        let body = if whole {
            let mut body = self.object(kind, name);
            match self.0.u32(..4) {
                0 => body["metadata"]["resourceVersion"] = json!(format!("$revision:{}", key(kind, name))),
                1 => body["metadata"]["resourceVersion"] = json!(format!("$stale:{}", key(kind, name))),
                2 => body["metadata"]["uid"] = json!(format!("$uid:{}", key(kind, name))),
                _ => {}
            }
            body
        } else {
            let mut edit = self.edit(kind, below);
            if self.one_in(6) {
                edit["metadata"]["resourceVersion"] = json!(format!("$stale:{}", key(kind, name)));
            }
            if self.one_in(6) {
                edit["metadata"]["resourceVersion"] = Value::Null;
            }
            json!({"$from": key(kind, name), "or": {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}}, "edit": edit})
        };
        let mut step = self.change("PUT", kind, name, below, "application/json", body);
        if whole || matches!(kind.plural, "leases" | "services") {
            // What a dry run creates keeps the revision that was sent.
            step.path = step.path.replace("dryRun=All", "pretty=false");
        }
        step
    }

    fn change(
        &mut self,
        method: &str,
        kind: Kind,
        name: &str,
        below: &str,
        media: &str,
        body: Value,
    ) -> Step {
        let options = self.options(media.contains("apply"));
        let force = if media.contains("apply") && self.one_in(3) { "&force=true" } else { "" };
        let mut step = Self::plain(method, kind, name, below);
        if options.contains("dryRun") {
            step.seen = String::new();
        }
        step.path = format!("{}?{options}{force}", step.path);
        media.clone_into(&mut step.media);
        step.body = body;
        step
    }

    fn patch(&mut self, kind: Kind, name: &str) -> Step {
        let below = if kind.status && self.one_in(3) { "/status" } else { "" };
        match self.0.u32(..5) {
            0 | 1 => {
                let mut edit = self.edit(kind, below);
                if self.one_in(10) {
                    edit["metadata"]["resourceVersion"] = json!(format!("$stale:{}", key(kind, name)));
                }
                self.change("PATCH", kind, name, below, "application/merge-patch+json", edit)
            }
            2 => {
                let body = self.strategic(kind);
                self.change("PATCH", kind, name, below, "application/strategic-merge-patch+json", body)
            }
            _ => {
                let body = self.json_patch(kind);
                self.change("PATCH", kind, name, below, "application/json-patch+json", body)
            }
        }
    }

    fn json_patch(&mut self, kind: Kind) -> Value {
        let one = |maker: &mut Self| match maker.0.u32(..8) {
            0 => json!({"op": "add", "path": "/metadata/labels", "value": {"app": "x"}}),
            1 => json!({"op": "add", "path": "/metadata/labels/tier", "value": "front"}),
            2 => json!({"op": "remove", "path": "/metadata/labels/app"}),
            3 => json!({"op": "test", "path": "/metadata/finalizers", "value": null}),
            4 if kind.plural != "pods" => {
                json!({"op": "add", "path": "/metadata/finalizers", "value": ["segue.test/hold"]})
            }
            5 => json!({"op": "remove", "path": "/metadata/finalizers"}),
            6 if kind.custom => json!({"op": "replace", "path": "/spec/replicas", "value": maker.0.u32(..5)}),
            6 => json!({"op": "replace", "path": "/data/k", "value": "v"}),
            _ if kind.custom => json!({"op": "add", "path": "/spec/tags/-", "value": "z"}),
            _ => json!({"op": "copy", "from": "/metadata/name", "path": "/metadata/annotations/copied"}),
        };
        let count = self.0.usize(1..3);
        (0..count).map(|_| one(self)).collect()
    }

    fn strategic(&mut self, kind: Kind) -> Value {
        match kind.plural {
            "pods" => self.pick(&[0, 1, 2]).pipe(|which| match which {
                0 => json!({"spec": {"containers": [{"name": "main", "image": "other:2"}]}}),
                1 => json!({"metadata": {"labels": {"app": null, "tier": "back"}}}),
                _ => json!({"spec": {"activeDeadlineSeconds": 100}}),
            }),
            "services" => {
                json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}, {"port": 81, "name": "other"}]}})
            }
            _ => {
                json!({"metadata": {"labels": {"app": "y"}, "finalizers": null}, "data": {"k": null, "m": "bmV3"}})
            }
        }
    }

    fn apply(&mut self, kind: Kind, name: &str) -> Step {
        let below = if kind.status && kind.custom && self.one_in(4) { "/status" } else { "" };
        let mut body = self.object(kind, name);
        if !below.is_empty() {
            body["status"] = json!({"phase": self.pick(&["Up", "Down"]), "conditions": [{"type": self.pick(&["A", "B"]), "status": "True"}]});
        }
        // Another manager, or the same one, leaves something out.
        for field in ["spec", "data", "metadata"] {
            let Some(fields) = body.get_mut(field).and_then(Value::as_object_mut) else { continue };
            let droppable: Vec<String> = fields
                .keys()
                .filter(|key| {
                    !matches!(
                        key.as_str(),
                        "name" | "containers" | "ports" | "selector" | "automountServiceAccountToken"
                    )
                })
                .cloned()
                .collect();
            if !droppable.is_empty() && self.0.bool() {
                fields.remove(&droppable[self.0.usize(..droppable.len())]);
            }
        }
        if kind.plural == "secrets" || kind.plural == "configmaps" {
            body.as_object_mut().map(|body| body.remove("immutable"));
        }
        self.change("PATCH", kind, name, below, "application/apply-patch+yaml", body)
    }

    fn delete(&mut self, kind: Kind, name: &str) -> Step {
        let mut step = Self::plain("DELETE", kind, name, "");
        step.seen = String::new();
        if self.one_in(3) {
            let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
            match self.0.u32(..4) {
                0 => body["preconditions"] = json!({"uid": format!("$uid:{}", key(kind, name))}),
                1 => {
                    body["preconditions"] = json!({"resourceVersion": format!("$stale:{}", key(kind, name))});
                }
                2 => body["dryRun"] = json!(["All"]),
                _ => body["propagationPolicy"] = json!(self.pick(&["Background", "Sideways"])),
            }
            step.media = "application/json".into();
            step.body = body;
        }
        step
    }

    fn delete_collection(kind: Kind) -> Step {
        let path = format!("{}/namespaces/{{ns}}/{}?labelSelector=app%3Dx", kind.base, kind.plural);
        Step { method: "DELETE".into(), path, ..Step::default() }
    }

    /// A request that leads nowhere.
    fn astray(&mut self, kind: Kind, name: &str) -> Step {
        let mut step = Self::plain(self.pick(&["GET", "DELETE"]), kind, name, "");
        step.seen = String::new();
        match self.0.u32(..4) {
            0 => step.path = step.path.replace("{ns}", "nowhere"),
            1 => step.path = step.path.replace(kind.plural, "gadgets"),
            2 => {
                step = self.create(kind, name);
                step.path = step.path.replace("{ns}", "nowhere");
                step.seen = String::new();
            }
            _ => step.path += "/nothing",
        }
        step
    }

    fn scale(&mut self, kind: Kind, name: &str) -> Step {
        if self.0.bool() {
            return Self::plain("GET", kind, name, "/scale");
        }
        // Never what it is already: a kube-apiserver then divides the owner of the number in two.
        let replicas = if self.one_in(5) { -1 } else { self.0.i32(40..120) };
        self.change(
            "PATCH",
            kind,
            name,
            "/scale",
            "application/merge-patch+json",
            json!({"spec": {"replicas": replicas}}),
        )
    }

    fn meta(&mut self, name: &str) -> Value {
        let mut meta = json!({"name": name});
        if self.0.bool() {
            meta["labels"] = json!({"app": self.pick(&["x", "y"])});
            if self.one_in(3) {
                meta["labels"]["tier"] = json!("front");
            }
        }
        if self.one_in(4) {
            meta["annotations"] = json!({"note": self.pick(&["1", "2"])});
        }
        if self.one_in(8) {
            meta["finalizers"] = json!([self.pick(&["segue.test/hold", "segue.test/keep"])]);
        }
        if self.one_in(30) {
            meta["labels"] = json!({"app": "not valid!"});
        }
        if self.one_in(30) {
            meta["labels"] = json!({});
        }
        meta
    }

    /// An object as a client would write it; sometimes a wrong one.
    fn object(&mut self, kind: Kind, name: &str) -> Value {
        let mut object =
            json!({"apiVersion": kind.api_version, "kind": kind.name, "metadata": self.meta(name)});
        if kind.plural == "pods" {
            // The garbage collector of pods ends those that hang.
            object["metadata"].as_object_mut().map(|meta| meta.remove("finalizers"));
        }
        match kind.plural {
            "configmaps" => {
                object["data"] = json!({"k": self.pick(&["1", "2"])});
                if self.one_in(3) {
                    object["data"]["m"] = json!("n");
                }
                if self.one_in(10) {
                    object["immutable"] = json!(true);
                }
                if self.one_in(12) {
                    object["data"] = json!({});
                }
            }
            "secrets" => {
                object["data"] = json!({"k": self.pick(&["YQ==", "Yg=="])});
                if self.one_in(3) {
                    object["stringData"] = json!({"m": "plain"});
                }
                if self.one_in(4) {
                    object["type"] = json!(self.pick(&["Opaque", "segue.test/other"]));
                }
            }
            "leases" => {
                object["spec"] = json!({"holderIdentity": self.pick(&["x", "y"]), "leaseDurationSeconds": self.pick(&[15, 30, 0])});
                if self.one_in(3) {
                    object["spec"]["renewTime"] = json!("2026-01-02T03:04:05.000006Z");
                }
            }
            "pods" => object["spec"] = self.pod(),
            "services" => object["spec"] = self.service(),
            "endpointslices" => {
                object["addressType"] = json!("IPv4");
                object["endpoints"] = json!([{"addresses": [self.pick(&["10.1.2.3", "10.1.2.4"])], "conditions": {"ready": self.0.bool()}}]);
                object["ports"] = json!([{"port": 80}]);
            }
            _ => {
                object["spec"] = self.widget();
                if self.one_in(5) {
                    object["status"] = json!({"phase": "Sent"});
                }
            }
        }
        if self.one_in(15) {
            let place =
                if object.get("spec").is_some() { &mut object["spec"] } else { &mut object["metadata"] };
            place["unknown"] = json!(1);
        }
        object
    }

    fn pod(&mut self) -> Value {
        let mut container = json!({"name": "main", "image": self.pick(&["app", "app:1", "app:latest"])});
        match self.0.u32(..8) {
            0 => container["ports"] = json!([{"containerPort": 80}, {"containerPort": 81, "name": "x"}]),
            1 => {
                container["resources"] =
                    json!({"limits": {"cpu": self.pick(&["1", "1500m", "0.5"]), "memory": "1Gi"}});
            }
            2 => {
                container["env"] = json!([{"name": "A", "value": "1"}, {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
            }
            3 => container["readinessProbe"] = json!({"httpGet": {"path": "/", "port": 80}}),
            4 => container["args"] = json!([]),
            _ => {}
        }
        let mut spec = json!({"containers": [container], "automountServiceAccountToken": false});
        match self.0.u32(..10) {
            0 => spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]),
            1 => spec["restartPolicy"] = json!(self.pick(&["Never", "Sometimes"])),
            2 => spec["terminationGracePeriodSeconds"] = json!(self.pick(&[0, 5])),
            3 => spec["containers"] = json!([]),
            4 => spec["nodeSelector"] = json!({"gpu": "yes"}),
            5 => spec["readinessGates"] = json!([{"conditionType": "segue.dev/in-service"}]),
            _ => {}
        }
        spec
    }

    fn service(&mut self) -> Value {
        let mut spec =
            json!({"selector": {"app": self.pick(&["x", "y"])}, "ports": [{"port": self.pick(&[80, 81])}]});
        match self.0.u32(..6) {
            0 => {
                spec["ports"] =
                    json!([{"port": 80, "name": "a", "targetPort": "http"}, {"port": 81, "name": "b"}]);
            }
            1 => spec["clusterIP"] = json!("None"),
            2 => spec["ports"] = json!([]),
            3 => spec["type"] = json!(self.pick(&["ClusterIP", "Sideways"])),
            _ => {}
        }
        spec
    }

    fn widget(&mut self) -> Value {
        let mut spec = json!({});
        if self.0.bool() {
            spec["replicas"] = json!(self.pick(&[0, 1, 2, 101]));
        }
        if self.0.bool() {
            spec["color"] = json!(self.pick(&["red", "green", "blue", "red", "green", "pink"]));
        }
        if self.one_in(4) {
            spec["min"] = json!(self.0.i32(0..3));
            spec["max"] = json!(self.0.i32(0..6));
        }
        if self.one_in(6) {
            spec["frozen"] = json!(self.pick(&["x", "x", "y"]));
        }
        if self.one_in(3) {
            spec["tags"] = self.pick(&[0, 1, 2, 3]).pipe(|n| match n {
                0 => json!(["a"]),
                1 => json!(["a", "b"]),
                2 => json!(["c"]),
                _ => json!(["a", "a"]),
            });
        }
        if self.one_in(4) {
            spec["plain"] = if self.0.bool() { json!(["x"]) } else { json!(["x", "y"]) };
        }
        if self.one_in(3) {
            spec["parts"] = self.pick(&[0, 1, 2, 3, 4]).pipe(|n| match n {
                0 => json!([{"name": "p"}]),
                1 => json!([{"name": "p", "size": 4}, {"name": "q", "note": "hi"}]),
                2 => json!([{"name": "q", "note": "too long"}]),
                3 => json!([{"size": 1}]),
                _ => json!([{"name": "r", "note": null}]),
            });
        }
        if self.one_in(4) {
            spec["labels"] = if self.0.bool() { json!({"k": "1"}) } else { json!({"k": "2", "m": "3"}) };
        }
        if self.one_in(5) {
            spec["whole"] = if self.0.bool() { json!({"a": "1"}) } else { json!({"a": "2", "b": "3"}) };
        }
        if self.one_in(5) {
            spec["open"] = json!({"any": {"deep": [1, "two", {"three": null}]}, "n": self.0.u32(..3)});
        }
        if self.one_in(6) {
            spec["limit"] = if self.0.bool() { json!(5) } else { json!("50%") };
        }
        if self.one_in(8) {
            spec["maybe"] = Value::Null;
        }
        if self.one_in(20) {
            spec["replicas"] = json!("three");
        }
        spec
    }

    /// A change to an object that exists, as a merge patch.
    fn edit(&mut self, kind: Kind, below: &str) -> Value {
        if !below.is_empty() {
            return if kind.custom {
                json!({"status": {"phase": self.pick(&["Up", "Down"]), "replicas": self.0.u32(..3), "selector": "app=x"}, "spec": {"replicas": 7}})
            } else {
                json!({"status": {"conditions": [{"type": "Ready", "status": self.pick(&["True", "False"])}]}})
            };
        }
        let mut edit = match self.0.u32(..7) {
            0 => json!({"metadata": {"labels": {"app": self.pick(&["x", "y"])}}}),
            1 => json!({"metadata": {"labels": null}}),
            2 if kind.plural != "pods" => {
                json!({"metadata": {"finalizers": [self.pick(&["segue.test/hold", "segue.test/keep", "not valid!"])]}})
            }
            3 => json!({"metadata": {"finalizers": null}}),
            4 => json!({"metadata": {"annotations": {"note": self.pick(&["1", "2", "3"])}}}),
            _ => json!({}),
        };
        if self.0.bool() {
            let object = self.object(kind, "a");
            for field in ["spec", "data"] {
                if let Some(value) = object.get(field) {
                    edit[field] = value.clone();
                }
            }
        }
        edit
    }
}

fn key(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.plural)
}

/// Lets a choice be made where it is used.
trait Pipe: Sized {
    fn pipe<T>(self, f: impl FnOnce(Self) -> T) -> T {
        f(self)
    }
}

impl Pipe for i32 {}
