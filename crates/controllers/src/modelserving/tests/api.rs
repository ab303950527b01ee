//! As much of an API as the controller of this kind asks for: small enough to be asked millions of times.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::modelserving::ModelServing;
use http::{Method, Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Pod, Service},
};
use kube::{Client, client::Body};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::runtime::Context;

/// Where an object is: its plural and its name.
pub(super) type Place = (String, String);

/// Every object, every write of the controller, and what a watch would tell.
#[derive(Debug, Default)]
pub(super) struct Api {
    pub(super) objects: BTreeMap<Place, Value>,
    /// What the controller wrote at this look.
    pub(super) written: Vec<String>,
    /// The same objects, as the controller reads them.
    pub(super) read: BTreeMap<Place, Object>,
    /// Objects that changed since the last read, and whether they are gone.
    pub(super) news: Vec<(Object, bool)>,
    pub(super) now: u64,
    version: u64,
    /// How often each name was given.
    made: BTreeMap<Place, u64>,
}

/// An object, as a watch hands it over. Read once: reading takes longer than deciding.
#[derive(Clone, Debug)]
pub(super) enum Object {
    Pod(Box<Pod>),
    Service(Box<Service>),
    Revision(Box<ControllerRevision>),
    Serving(Box<ModelServing>),
}

impl Object {
    fn read(plural: &str, object: &Value) -> Self {
        match plural {
            "pods" => Self::Pod(Box::deserialize(object).unwrap()),
            "services" => Self::Service(Box::deserialize(object).unwrap()),
            "controllerrevisions" => Self::Revision(Box::deserialize(object).unwrap()),
            _ => Self::Serving(Box::deserialize(object).unwrap()),
        }
    }

    /// The controller hears of it.
    pub(super) fn reach(self, context: &Context, gone: bool) {
        match self {
            Self::Pod(pod) => context.hear(*pod, gone),
            Self::Service(service) => context.hear(*service, gone),
            Self::Revision(revision) => context.hear(*revision, gone),
            Self::Serving(serving) => context.hear(*serving, gone),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Api>>);

impl Shared {
    pub(super) fn api(&self) -> MutexGuard<'_, Api> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn client(&self) -> Client {
        let shared = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let shared = shared.clone();
            async move {
                let (head, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let (code, answer) = shared.api().answer(&head.method, &head.uri, &bytes);
                let answer = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        Client::new(service, "default")
    }
}

/// A second as the API writes it.
pub(super) fn second(at: u64) -> Value {
    json!(Timestamp::from_second(i64::try_from(at).unwrap()).unwrap())
}

impl Api {
    /// Makes an object, as the API does.
    pub(super) fn create(&mut self, plural: &str, mut object: Value) -> Value {
        let metadata = &mut object["metadata"];
        let name = metadata["name"].as_str().unwrap().to_owned();
        let uid = format!("{plural}-{name}");
        let made = self.made.entry((plural.to_owned(), name)).or_default();
        *made += 1;
        metadata["namespace"] = "default".into();
        // The same for the same object, whatever else was made before it.
        metadata["uid"] = format!("{uid}-{made}").into();
        metadata["creationTimestamp"] = second(self.now);
        if plural == "modelservings" {
            metadata["generation"] = 1.into();
        }
        self.put(plural, object)
    }

    /// Stores an object in its next version.
    pub(super) fn put(&mut self, plural: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let (place, read) = ((plural.to_owned(), name), Object::read(plural, &object));
        self.read.insert(place.clone(), read.clone());
        self.news.push((read, false));
        self.objects.insert(place, object.clone());
        object
    }

    pub(super) fn remove(&mut self, place: &Place) {
        if let Some(mut object) = self.objects.remove(place) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
            self.read.remove(place);
            self.news.push((Object::read(&place.0, &object), true));
        }
    }

    fn answer(&mut self, method: &Method, uri: &http::Uri, body: &[u8]) -> (u16, Value) {
        let path: Vec<&str> = uri.path().split('/').collect();
        let at = path.iter().position(|part| *part == "namespaces").unwrap();
        let plural = path[at + 2];
        if plural == "events" {
            // What people are told is no decision.
            return (201, serde_json::from_slice(body).unwrap());
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if *method != Method::GET {
            self.written.push(summary(method, uri.path(), body.clone()));
        }
        let Some(name) = path.get(at + 3) else {
            return match *method {
                Method::POST => self.post(plural, body),
                _ => (200, self.list(plural, uri.query().unwrap_or_default())),
            };
        };
        let place = (plural.to_owned(), (*name).to_owned());
        let Some(live) = self.objects.get(&place).cloned() else { return refused(404, "NotFound") };
        let meant = if *method == Method::DELETE { &body["preconditions"] } else { &body["metadata"] };
        let differs = |field: &str| !meant[field].is_null() && meant[field] != live["metadata"][field];
        if differs("uid") || differs("resourceVersion") {
            return refused(409, "Conflict");
        }
        match *method {
            Method::GET => (200, live),
            Method::DELETE => (200, self.delete(&place, live, &body)),
            _ => {
                let mut next = live;
                // A status is replaced, and everything else merged: what the controller asks for.
                if *method == Method::PUT {
                    next["status"] = body["status"].clone();
                } else {
                    merge(&mut next, body);
                }
                (200, self.put(plural, next))
            }
        }
    }

    fn post(&mut self, plural: &str, body: Value) -> (u16, Value) {
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        if self.objects.contains_key(&(plural.to_owned(), name)) {
            return refused(409, "AlreadyExists");
        }
        (201, self.create(plural, body))
    }

    /// The pods of a group: the only list that is asked for.
    fn list(&self, plural: &str, query: &str) -> Value {
        let group = query.rsplit_once("group-name%3D").map(|(_, rest)| rest.split('&').next().unwrap());
        let is_it = |object: &Value| {
            group.is_none_or(|group| object["metadata"]["labels"][crate::labels::SERVING_GROUP] == group)
        };
        let all = self.objects.iter().filter(|((of, _), object)| of == plural && is_it(object));
        let items: Vec<&Value> = all.map(|(_, object)| object).collect();
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items})
    }

    /// A pod goes when its node says so; everything else goes at once.
    fn delete(&mut self, place: &Place, mut live: Value, body: &Value) -> Value {
        if place.0 != "pods" || body["gracePeriodSeconds"] == 0 {
            self.remove(place);
            return json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
        }
        if live["metadata"]["deletionTimestamp"].is_null() {
            live["metadata"]["deletionTimestamp"] = second(self.now);
            return self.put(&place.0, live);
        }
        live
    }
}

/// A write without the versions that it names: those count the writes before it, and writes of one look are done
/// together.
fn summary(method: &Method, path: &str, mut body: Value) -> String {
    for part in ["metadata", "preconditions"] {
        body.get_mut(part).and_then(Value::as_object_mut).map(|part| part.remove("resourceVersion"));
    }
    format!("{method} {path} {body}")
}

fn refused(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}

/// Lays a patch over an object. Conditions are known by their type.
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    for (name, value) in patch {
        match (name.as_str(), value) {
            ("conditions", Value::Array(said)) => {
                for condition in said {
                    set_condition(object, condition);
                }
            }
            (name, Value::Null) => drop(object.as_object_mut().map(|object| object.remove(name))),
            (name, value) => merge(&mut object[name], value),
        }
    }
}

/// Says something of an object, in place of what was said of the same.
pub(super) fn set_condition(status: &mut Value, condition: Value) {
    let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
    match all.iter_mut().find(|it| it["type"] == condition["type"]) {
        Some(it) => *it = condition,
        None => all.push(condition),
    }
    status["conditions"] = all.into();
}
