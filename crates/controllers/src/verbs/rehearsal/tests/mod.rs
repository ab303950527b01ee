//! A plan is the controller's own reading. Random pairs of manifests are given to both sides, to the plan as people
//! write them and to the controller as the API stored them, and every difference is a defect.

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
    revisions::NewRevision,
    runtime::Cache,
};

/// Pairs that are compared for each of three kinds. More of them are for a command (docs/planning.md).
fn pairs() -> u64 {
    std::env::var("SEGUE_PAIRS").map_or(700, |text| text.parse().unwrap())
}

const ASSUMPTIONS: Assumptions =
    Assumptions { start: Duration::from_mins(1), stop: Duration::from_secs(10), called_off: None };

/// What a controller makes of a change, in the words of a rehearsal.
pub(crate) trait Acts: Controller {
    /// Adds what exists of the version that was asked for before, beside revisions.
    fn exists(_before: &Self::Observed, cache: Cache) -> Cache {
        cache
    }

    /// Whether something new is made though no revision is stored.
    fn is_new(_after: &Self::Observed) -> bool {
        false
    }

    /// What its decisions come to, step by step.
    fn rows(before: &Self::Observed, after: &Self::Observed, assumptions: &Assumptions) -> Vec<Row>;
}

/// What one side says of a pair.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Rolls(Vec<Row>),
    RollsNothing,
    NotServed,
}

/// What the plan says, which has manifests alone.
fn planned(served: &Served, old: &Value, new: &Value) -> Answer {
    match (served.plan)(new, Some(old), &ASSUMPTIONS) {
        Ok(rehearsal) => Answer::Rolls(rehearsal.rows),
        Err(NoPlan::NotServed(_)) => Answer::NotServed,
        Err(NoPlan::Nothing(_)) => Answer::RollsNothing,
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
    let rolls = is_stored || C::is_new(&after);
    let rows = rolls.then(|| C::rows(&before, &after, &ASSUMPTIONS));
    Some(rows.map_or(Answer::RollsNothing, Answer::Rolls))
}

/// What is observed of an object when its revision is stored, and whether that had to be done.
fn settled<C: Controller>(
    object: &Arc<C::Object>,
    stored: &mut Vec<ControllerRevision>,
    exists: impl Fn(Cache) -> Cache,
) -> Option<(C::Observed, bool)> {
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

    /// Two manifests as they are stored, one over the other.
    async fn pair<K: DeserializeOwned>(&self, old: &Value, new: &Value) -> (Arc<K>, Arc<K>) {
        let (group, version) = old["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        let gvk = GroupVersionKind::gvk(group, version, old["kind"].as_str().unwrap());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "default", &ApiResource::from_gvk(&gvk));
        let object = |manifest: &Value| serde_json::from_value(manifest.clone()).unwrap();
        let fail = |error: kube::Error, manifest: &Value| -> DynamicObject { panic!("{error}: {manifest}") };
        let before = api.create(&PostParams::default(), &object(old)).await;
        let before = before.unwrap_or_else(|error| fail(error, old));
        let mut changed: DynamicObject = object(new);
        changed.metadata.resource_version.clone_from(&before.metadata.resource_version);
        let name = before.metadata.name.clone().unwrap();
        let after = api.replace(&name, &PostParams::default(), &changed).await;
        let after = after.unwrap_or_else(|error| fail(error, new));
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        let typed = |object: DynamicObject| Arc::new(K::deserialize(json!(object)).unwrap());
        (typed(before), typed(after))
    }
}

/// Compares what both sides say of many pairs. Returns how often each answer came.
async fn compare<C: Acts>(served: &Served, manifest: fn(&mut Choices) -> Value) -> BTreeMap<&'static str, u64>
where
    C::Object: DeserializeOwned,
{
    let stored = Stored::start().await;
    let mut seen = BTreeMap::new();
    let mut number = 0;
    while seen.values().sum::<u64>() < pairs() {
        number += 1;
        let (old, new) = Choices::pair(number, manifest);
        // What admission refuses is neither stored nor planned.
        if !api::validate(&old, None).accepted() || !api::validate(&new, Some(&old)).accepted() {
            continue;
        }
        let (before, after) = stored.pair(&old, &new).await;
        let Some(act) = acted::<C>(&before, &after) else { continue };
        let plan = planned(served, &old, &new);
        assert!(plan == act, "seed {number}: {old}\nto {new}\nthe plan: {plan:?}\nthe controller: {act:?}");
        let answer = match plan {
            Answer::Rolls(_) => "rolls",
            Answer::RollsNothing => "rolls nothing",
            Answer::NotServed => "not served",
        };
        *seen.entry(answer).or_default() += 1;
    }
    println!("{}: {} pairs of {number} compared, 0 differences: {seen:?}", served.kind.name, pairs());
    seen
}

/// A comparison in which one answer never comes would compare half.
fn both_ways(seen: &BTreeMap<&'static str, u64>) {
    for answer in ["rolls", "rolls nothing"] {
        assert!(seen.get(answer).is_some_and(|many| *many > pairs() / 10), "{answer}: {seen:?}");
    }
}

#[tokio::test]
async fn a_set_is_planned_as_it_is_acted_on() {
    both_ways(&compare::<Sets>(&leaderworkerset::SERVED, manifests::leader_worker_set).await);
}

#[tokio::test]
async fn a_model_serving_is_planned_as_it_is_acted_on() {
    both_ways(&compare::<Servings>(&modelserving::SERVED, manifests::model_serving).await);
}

#[tokio::test]
async fn a_model_deployment_is_planned_as_it_is_acted_on() {
    both_ways(&compare::<Deployments>(&modeldeployment::SERVED, manifests::model_deployment).await);
}
