//! Sequences of requests, made from a seed.
use std::fmt;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bodies::Pipe;

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
pub(super) struct Kind {
    pub(super) base: &'static str,
    pub(super) api_version: &'static str,
    pub(super) name: &'static str,
    pub(super) plural: &'static str,
    pub(super) status: bool,
    pub(super) scale: bool,
    pub(super) custom: bool,
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

pub(super) struct Maker(pub(super) Rng, Generated);

/// Whether a name was generated: two would be listed in any order.
#[derive(Default)]
struct Generated(bool);

impl Maker {
    pub(super) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.0.usize(..list.len())]
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
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
}

fn key(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.plural)
}
