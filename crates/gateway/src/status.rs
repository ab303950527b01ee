//! What is written to the status of the objects: pure, and nothing when nothing changed.
use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::{
    kinds::GROUP,
    listeners::Bindings,
    routes::{Condition, GatewayStatus, ListenerStatus, RouteStatus},
};

/// The time of conditions that change now, and who says so.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    pub controller: &'a str,
    pub now: Timestamp,
}

impl Writer<'_> {
    pub fn class(&self, object: &DynamicObject, generation: i64) -> Option<Value> {
        let accepted = Condition::yes("Accepted", "Accepted", "this class is served by the embedded gateway");
        let old = object.data.get("status").unwrap_or(&Value::Null);
        let mut status = old.clone();
        put(&mut status, "conditions", self.conditions(&old["conditions"], &[accepted], generation));
        changed(old, status)
    }

    pub fn gateway(
        &self,
        object: &DynamicObject,
        gateway: &GatewayStatus,
        bindings: &Bindings,
    ) -> Option<Value> {
        let old = object.data.get("status").unwrap_or(&Value::Null);
        let mut status = old.clone();
        let served = gateway.listeners.iter().filter(|listener| is_open(listener, bindings)).count();
        let of_all = format!("{served} of {} listeners are served", gateway.listeners.len());
        let accepted = match &gateway.address {
            Err(why) => Condition::no("Accepted", "UnsupportedAddress", why),
            Ok(_) if gateway.listeners.iter().all(|listener| !listener.accepted.holds) => {
                Condition::no("Accepted", "ListenersNotValid", "no listener is valid")
            }
            Ok(_) if gateway.listeners.iter().any(|listener| !listener.accepted.holds) => {
                Condition::yes("Accepted", "ListenersNotValid", &of_all)
            }
            Ok(_) => Condition::yes("Accepted", "Accepted", "this Gateway is served"),
        };
        let programmed = match &gateway.address {
            Err(why) => Condition::no("Programmed", "AddressNotUsable", why),
            Ok(_) if served == 0 => Condition::no("Programmed", "Invalid", &of_all),
            Ok(_) => Condition::yes("Programmed", "Programmed", &of_all),
        };
        let conditions = self.conditions(&old["conditions"], &[accepted, programmed], gateway.generation);
        put(&mut status, "conditions", conditions);
        let addresses =
            gateway.address.iter().map(|address| json!({"type": "IPAddress", "value": address.to_string()}));
        put(&mut status, "addresses", addresses.collect());
        let before = by_name(&old["listeners"]);
        let listeners = gateway.listeners.iter().map(|listener| {
            let old = before.get(listener.name.as_str()).copied().unwrap_or(&Value::Null);
            self.listener(old, listener, gateway.generation, bindings)
        });
        put(&mut status, "listeners", listeners.collect());
        changed(old, status)
    }

    fn listener(
        &self,
        old: &Value,
        listener: &ListenerStatus,
        generation: i64,
        bindings: &Bindings,
    ) -> Value {
        let programmed = match listener.frontend.map(|frontend| (frontend, bindings.get(&frontend))) {
            Some((frontend, Some(Ok(at)))) if frontend == *at => {
                Condition::yes("Programmed", "Programmed", format!("listens on {at}"))
            }
            Some((frontend, Some(Ok(at)))) => {
                let why = format!(
                    "listens on {at}: port {} needs privileges that this process has not",
                    frontend.port()
                );
                Condition::yes("Programmed", "Programmed", why)
            }
            Some((_, Some(Err(why)))) => Condition::no("Programmed", "Invalid", why),
            Some((_, None)) | None => Condition::no("Programmed", "Invalid", "not served"),
        };
        let conditions = [listener.accepted.clone(), listener.resolved.clone(), programmed];
        let kinds = listener.kinds.iter().map(|kind| json!({"group": GROUP, "kind": kind}));
        json!({
            "name": listener.name,
            "attachedRoutes": listener.attached,
            "supportedKinds": kinds.collect::<Vec<_>>(),
            "conditions": self.conditions(&old["conditions"], &conditions, generation),
        })
    }

    /// The parents that are ours, between those of others, which stay as they are.
    pub fn route(&self, object: &DynamicObject, route: &RouteStatus) -> Option<Value> {
        let old = object.data.get("status").unwrap_or(&Value::Null);
        let parents = old["parents"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (mine, others): (Vec<&Value>, Vec<&Value>) =
            parents.iter().partition(|parent| parent["controllerName"] == self.controller);
        if mine.is_empty() && route.parents.is_empty() {
            return None;
        }
        let ours = route.parents.iter().map(|parent| {
            let before = mine.iter().find(|old| old["parentRef"] == parent.parent);
            let before = before.map_or(&Value::Null, |old| &old["conditions"]);
            let conditions = [parent.accepted.clone(), parent.resolved.clone()];
            json!({
                "parentRef": parent.parent,
                "controllerName": self.controller,
                "conditions": self.conditions(before, &conditions, route.generation),
            })
        });
        let mut status = old.clone();
        put(&mut status, "parents", others.into_iter().cloned().chain(ours).collect());
        changed(old, status)
    }

    /// Ours, after those of other types. A transition is a change of status; a new message is none.
    fn conditions(&self, old: &Value, ours: &[Condition], generation: i64) -> Value {
        let old = old.as_array().map(Vec::as_slice).unwrap_or_default();
        let others = old.iter().filter(|old| ours.iter().all(|condition| old["type"] != condition.kind));
        let ours = ours.iter().map(|condition| {
            let status = if condition.holds { "True" } else { "False" };
            let same = old.iter().find(|old| old["type"] == condition.kind && old["status"] == status);
            let since =
                same.map_or_else(|| json!(rfc3339(self.now)), |same| same["lastTransitionTime"].clone());
            json!({
                "type": condition.kind,
                "status": status,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": since,
            })
        });
        others.cloned().chain(ours).collect()
    }
}

/// As Kubernetes writes times: whole seconds.
fn rfc3339(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

fn is_open(listener: &ListenerStatus, bindings: &Bindings) -> bool {
    listener.frontend.and_then(|frontend| bindings.get(&frontend)).is_some_and(Result::is_ok)
}

fn by_name(listeners: &Value) -> BTreeMap<&str, &Value> {
    let listeners = listeners.as_array().map(Vec::as_slice).unwrap_or_default();
    listeners.iter().filter_map(|listener| Some((listener["name"].as_str()?, listener))).collect()
}

fn put(status: &mut Value, name: &str, value: Value) {
    if !status.is_object() {
        *status = json!({});
    }
    status[name] = value;
}

fn changed(old: &Value, new: Value) -> Option<Value> {
    (*old != new).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_needs_privileges_is_noted_with_the_one_that_serves_it() {
        let frontend = "127.80.0.1:80".parse().unwrap();
        let yes = Condition::yes("Accepted", "Accepted", "");
        let resolved = Condition::yes("ResolvedRefs", "ResolvedRefs", "");
        let (name, kinds) = ("http".to_owned(), vec!["HTTPRoute"]);
        let listener =
            ListenerStatus { name, frontend: Some(frontend), attached: 0, accepted: yes, resolved, kinds };
        let writer = Writer { controller: "segue.dev/gateway", now: Timestamp::UNIX_EPOCH };
        let programmed = |at: Result<_, String>| {
            let bindings = Bindings::from([(frontend, at)]);
            let condition = writer.listener(&Value::Null, &listener, 1, &bindings)["conditions"][2].clone();
            (condition["status"].clone(), condition["message"].as_str().unwrap().to_owned())
        };
        let (status, message) = programmed(Ok("127.80.0.1:8080".parse().unwrap()));
        assert_eq!(status, "True");
        assert_eq!(message, "listens on 127.80.0.1:8080: port 80 needs privileges that this process has not");
        assert_eq!(programmed(Err("taken".to_owned())), (json!("False"), "taken".to_owned()));
    }
}
