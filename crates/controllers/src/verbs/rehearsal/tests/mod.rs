//! A plan reads a spec as the controller does. Random pairs of manifests are given to both sides, to the plan as people
//! write them and to the controller as the API stored them, and every difference is a defect. What this proves, and what
//! it does not, stands in docs/planning.md.

mod manifests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::Object;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use planner::Time;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use self::manifests::Choices;
use super::{Assumptions, NoPlan, Row};
use crate::{
    kind::Served,
    leaderworkerset::{self, Sets},
    modeldeployment::{self, Deployments},
    modelserving::{self, Servings},
    pipeline::{Controller, Found, Inputs},
    raycluster::{self, Clusters},
    rayservice::{self, Services},
    revisions::NewRevision,
    runtime::Cache,
};

/// Pairs that are compared for each kind. More of them are for a command (docs/planning.md).
fn pairs() -> u64 {
    std::env::var("SEGUE_PAIRS").map_or(PAIRS, |text| text.parse().unwrap())
}

const PAIRS: u64 = 2_000;

const ASSUMPTIONS: Assumptions =
    Assumptions { start: Duration::from_mins(1), stop: Duration::from_secs(10), called_off: None };

/// What a controller makes of a change, in the words of a rehearsal.
pub(crate) trait Acts: Controller {
    /// Adds what exists of the version that was asked for before, beside revisions.
    fn exists(_before: &Self::Observed, cache: Cache) -> Cache {
        cache
    }

    /// What its decisions come to. A revision is new where it had to be stored for what is asked for now.
    fn comes_to(
        before: &Self::Observed,
        after: Self::Observed,
        is_new: bool,
        assumptions: &Assumptions,
    ) -> Answer;
}

/// What one side says of a pair.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Rolls(Vec<Row>),
    RollsNothing,
    AtOnce,
    NotServed,
}

impl Answer {
    /// Step by step, where anything is to be done.
    pub(crate) fn of(rolls: bool, rows: impl FnOnce() -> Vec<Row>) -> Self {
        if rolls { Self::Rolls(rows()) } else { Self::RollsNothing }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Rolls(_) => "rolls",
            Self::RollsNothing => "rolls nothing",
            Self::AtOnce => "at once",
            Self::NotServed => "not served",
        }
    }
}

/// What the plan says, which has manifests alone.
fn planned(served: &Served, old: &Value, new: &Value) -> Answer {
    match (served.plan)(new, Some(old), &ASSUMPTIONS) {
        Ok(rehearsal) => Answer::Rolls(rehearsal.rows),
        Err(NoPlan::NotServed(_)) => Answer::NotServed,
        Err(NoPlan::Nothing(_)) => Answer::RollsNothing,
        Err(NoPlan::AtOnce(_)) => Answer::AtOnce,
        Err(NoPlan::Unsupported(why)) => panic!("{why}: {new}"),
    }
}

/// What the controller does about an object that was stored, and then changed. Nothing is known to run of one that was
/// not served before.
fn acted<C: Acts>(old: &Arc<C::Object>, new: &Arc<C::Object>) -> Option<Answer> {
    let mut stored = Vec::new();
    let (before, _) = settled::<C>(old, &mut stored, |cache| cache)?;
    let exists = |cache| C::exists(&before, cache);
    let Some((after, is_stored)) = settled::<C>(new, &mut stored, exists) else {
        return Some(Answer::NotServed);
    };
    Some(C::comes_to(&before, after, is_stored, &ASSUMPTIONS))
}

/// What is observed of an object when its revision is stored, and whether that had to be done.
fn settled<C: Controller>(
    object: &Arc<C::Object>,
    stored: &mut Vec<ControllerRevision>,
    exists: impl Fn(Cache) -> Cache,
) -> Option<(C::Observed, bool)> {
    if !C::acts_on(object) {
        return None;
    }
    let look = |stored: &[ControllerRevision]| {
        let cache = exists(Cache::with(stored.to_vec()));
        Inputs::at(&cache, Time::ZERO, |inputs| C::observe(inputs, object).unwrap())
    };
    match look(stored) {
        Found::Observed(observed) => Some((observed, false)),
        Found::NewRevision(new) => {
            stored.push(revision(&new, object.as_ref(), stored.len()));
            let Found::Observed(observed) = look(stored) else { panic!("a revision is stored once") };
            Some((observed, true))
        }
        Found::NotServed(_) => None,
        Found::NotAdopted(made) => panic!("there is no {made}"),
    }
}

fn revision<K: Object + crate::Watched>(new: &NewRevision, object: &K, many: usize) -> ControllerRevision {
    let key = (new.key)(&new.data, 0);
    let mut body = new.body(object, &key, i64::try_from(many).unwrap() + 1);
    body["metadata"]["resourceVersion"] = json!(many.to_string());
    ControllerRevision::deserialize(body).unwrap()
}

/// The API, and what it stores.
struct Stored {
    client: Client,
    _api: testbed::Embedded,
}

impl Stored {
    async fn start() -> Self {
        let api = testbed::Embedded::start().await.unwrap();
        let client = api.client();
        let crds: Api<DynamicObject> = Api::all_with(
            client.clone(),
            &ApiResource::from_gvk(&GroupVersionKind::gvk(
                "apiextensions.k8s.io",
                "v1",
                "CustomResourceDefinition",
            )),
        );
        for kind in api::KINDS {
            let crd = serde_json::from_value(kind.crd()).unwrap();
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        Self { client, _api: api }
    }

    /// Manifests as they are stored: the first, and each of the others over it. What is not accepted is left out.
    async fn all<K: DeserializeOwned>(&self, manifests: &[Value]) -> Vec<(Value, Arc<K>)> {
        let (first, others) = manifests.split_first().unwrap();
        if !api::validate(first, None).accepted() {
            return Vec::new();
        }
        let (group, version) = first["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        let gvk = GroupVersionKind::gvk(group, version, first["kind"].as_str().unwrap());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "default", &ApiResource::from_gvk(&gvk));
        let object =
            |manifest: &Value| -> DynamicObject { serde_json::from_value(manifest.clone()).unwrap() };
        let typed = |object: &DynamicObject| Arc::new(K::deserialize(json!(object)).unwrap());
        let created = api.create(&PostParams::default(), &object(first)).await;
        let mut live = created.unwrap_or_else(|error| panic!("{error}: {first}"));
        let mut stored = vec![(first.clone(), typed(&live))];
        let name = live.metadata.name.clone().unwrap();
        for manifest in others.iter().filter(|it| api::validate(it, Some(first)).accepted()) {
            let mut changed = object(manifest);
            changed.metadata.resource_version.clone_from(&live.metadata.resource_version);
            let replaced = api.replace(&name, &PostParams::default(), &changed).await;
            live = replaced.unwrap_or_else(|error| panic!("{error}: {manifest}"));
            stored.push((manifest.clone(), typed(&live)));
        }
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        stored
    }
}

/// Compares what both sides say of many pairs. Returns how often each answer came.
async fn compare<C: Acts>(served: &Served, manifest: fn(&mut Choices) -> Value) -> BTreeMap<&'static str, u64>
where
    C::Object: DeserializeOwned,
{
    let stored = Stored::start().await;
    let mut seen = BTreeMap::new();
    let mut manifests = 0;
    let enough = |seen: &BTreeMap<_, u64>| seen.values().sum::<u64>() >= pairs();
    for seed in 0.. {
        if enough(&seen) {
            break;
        }
        // Every one of a family with every other one: storing them is what takes the time.
        let family = stored.all::<C::Object>(&Choices::family(seed, manifest)).await;
        manifests += family.len();
        let pairs = family.iter().enumerate().flat_map(|(at, old)| {
            let others = family.iter().enumerate().filter(move |(other, _)| *other != at);
            others.map(move |(_, new)| (old, new))
        });
        for ((old, before), (new, after)) in pairs {
            let Some(act) = acted::<C>(before, after) else { continue };
            let plan = planned(served, old, new);
            assert!(plan == act, "seed {seed}: {old}\nto {new}\nthe plan: {plan:?}\nthe controller: {act:?}");
            *seen.entry(plan.name()).or_default() += 1;
        }
    }
    let many: u64 = seen.values().sum();
    println!("{}: {many} pairs of {manifests} manifests compared, 0 differences: {seen:?}", served.kind.name);
    seen
}

/// A comparison in which one answer never comes would compare half.
fn each_comes(answers: &[&str], seen: &BTreeMap<&'static str, u64>) {
    for answer in answers.iter().copied() {
        assert!(seen.get(answer).is_some_and(|many| *many > pairs() / 100), "{answer}: {seen:?}");
    }
}

#[tokio::test]
async fn a_set_is_planned_as_it_is_acted_on() {
    each_comes(
        &["rolls", "rolls nothing"],
        &compare::<Sets>(&leaderworkerset::SERVED, manifests::leader_worker_set).await,
    );
}

#[tokio::test]
async fn a_model_serving_is_planned_as_it_is_acted_on() {
    each_comes(
        &["rolls", "rolls nothing"],
        &compare::<Servings>(&modelserving::SERVED, manifests::model_serving).await,
    );
}

#[tokio::test]
async fn a_model_deployment_is_planned_as_it_is_acted_on() {
    each_comes(
        &["rolls", "rolls nothing"],
        &compare::<Deployments>(&modeldeployment::SERVED, manifests::model_deployment).await,
    );
}

#[tokio::test]
async fn a_ray_service_is_planned_as_it_is_acted_on() {
    let answers = ["rolls", "rolls nothing", "at once", "not served"];
    each_comes(&answers, &compare::<Services>(&rayservice::SERVED, manifests::ray_service).await);
}

/// It has no steps: what is compared is whether its pods are deleted.
#[tokio::test]
async fn a_ray_cluster_is_planned_as_it_is_acted_on() {
    let answers = ["rolls nothing", "at once", "not served"];
    each_comes(&answers, &compare::<Clusters>(&raycluster::SERVED, manifests::ray_cluster).await);
}
