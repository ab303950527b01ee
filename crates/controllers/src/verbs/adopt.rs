//! Adoption: the writes by which objects that another operator made become ours. No pod restarts, and an adoption that
//! stopped in the middle is begun again: what is left to do is seen from what is there.

use std::fmt;

use api::Kind;
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet},
        core::v1::{Pod, Service},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::FIELD_MANAGER;

/// An object that another operator may have made.
#[derive(Debug)]
pub struct Adoptable {
    /// Its kind.
    pub kind: &'static Kind,
    /// Its name.
    pub name: String,
    /// What is left to write, nothing if all of it is ours; or which objects have an unknown owner or cannot be read.
    pub steps: Result<Vec<Step>, String>,
    /// Pods that are replaced when they are ours.
    pub outdated: Vec<String>,
}

/// One write of an adoption.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A `StatefulSet` is deleted without its pods.
    Release {
        /// Its name.
        name: String,
        /// Which one of that name.
        uid: String,
    },
    /// What pods are made from is stored, because the other operator did not.
    Store {
        /// The name of the revision.
        name: String,
        /// All of it.
        body: Value,
    },
    /// A Service becomes ours, by this merge patch.
    Name {
        /// Its name.
        name: String,
        /// The patch; it names the uid that it is meant for.
        patch: Value,
    },
    /// A pod becomes ours, by this merge patch.
    Own {
        /// Its name.
        name: String,
        /// The patch; it names the uid that it is meant for.
        patch: Value,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release { name, .. } => write!(f, "delete StatefulSet {name} without its pods"),
            Self::Store { name, .. } => write!(f, "store ControllerRevision {name}"),
            Self::Name { name, .. } => write!(f, "own Service {name}"),
            Self::Own { name, .. } => write!(f, "own Pod {name}"),
        }
    }
}

/// Carries a step out, and returns when it is done: a `StatefulSet` that is let go of is gone.
pub async fn carry_out(client: &Client, namespace: &str, step: &Step) -> Result<(), kube::Error> {
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match step {
        Step::Release { name, uid } => release(client, namespace, name, uid).await,
        Step::Store { body, .. } => {
            let api: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
            let revision = serde_json::from_value(body.clone()).map_err(kube::Error::SerdeError)?;
            api.create(&PostParams::default(), &revision).await.map(drop)
        }
        Step::Name { name, patch } => {
            let api: Api<Service> = Api::namespaced(client.clone(), namespace);
            api.patch(name, &parameters, &Patch::Merge(patch)).await.map(drop)
        }
        Step::Own { name, patch } => {
            let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
            api.patch(name, &parameters, &Patch::Merge(patch)).await.map(drop)
        }
    }
}

async fn release(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), kube::Error> {
    let api: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let parameters = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(name, &parameters).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error),
    }
    // The garbage collector takes its name off the pods first. A watch that fails is begun again by itself.
    drop(await_condition(api, name, is_deleted(uid)).await);
    Ok(())
}

/// All of a kind; none where it is not served.
pub(crate) async fn list<K>(
    client: &Client,
    namespace: &str,
    label: Option<&str>,
) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + fmt::Debug + DeserializeOwned,
{
    let parameters = ListParams { label_selector: label.map(ToOwned::to_owned), ..ListParams::default() };
    match Api::<K>::namespaced(client.clone(), namespace).list(&parameters).await {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Who controls an object.
pub(crate) fn controller(object: &impl Resource) -> Option<&OwnerReference> {
    let owners = object.meta().owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true))
}
