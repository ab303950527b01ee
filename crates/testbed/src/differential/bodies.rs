//! What sequences send: objects as clients write them, sometimes wrong ones.
use serde_json::{Value, json};

use super::generate::{Kind, Maker};

impl Maker {
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
    pub(super) fn object(&mut self, kind: Kind, name: &str) -> Value {
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
    pub(super) fn edit(&mut self, kind: Kind, below: &str) -> Value {
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

/// Lets a choice be made where it is used.
pub(super) trait Pipe: Sized {
    fn pipe<T>(self, f: impl FnOnce(Self) -> T) -> T {
        f(self)
    }
}

impl Pipe for i32 {}
