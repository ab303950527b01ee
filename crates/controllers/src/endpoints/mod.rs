//! The endpoints of Services in the embedded mode: in the embedded mode there is no kube-controller-manager.
//!
//! `slices.rs` says which endpoints a Service has by its pods, `placement.rs` which slices they are in and what is to
//! be written for that. Both are pure.

mod placement;
mod slices;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::BoxFuture;
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use self::placement::Write;
use crate::runtime::{Cache, Context, Error, Key, Reconciler, Requeue, Select, Watches};

/// The Service whose endpoints a slice holds.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Who writes a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`]. What kube-controller-manager writes: one of them does, and readers look for this.
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// Of slices of Services without an address of their own.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// The slices that a Service has with these pods when it has none yet. Pods that it does not select do not count.
///
/// This is what a kube-controller-manager writes for it, but for the names, the order and the annotations; a test
/// compares the two.
pub fn wanted_slices(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSlice> {
    let selected: Vec<Arc<Pod>> = pods.iter().filter(|pod| selects(service, pod)).cloned().collect();
    let writes = placement::writes(service, &selected, &[], |_| false);
    let wanted = writes.into_iter().filter_map(|write| match write {
        Write::Create(slice) => Some(slice),
        Write::Change { .. } | Write::Delete(_) => None,
    });
    wanted.collect()
}

/// The controller of endpoints.
#[derive(Debug)]
pub(crate) struct Endpoints;

impl Reconciler for Endpoints {
    fn name(&self) -> &'static str {
        "Endpoints"
    }

    fn watches(&self, watches: &mut Watches<'_>) {
        watches.own::<Service>();
        watches.mapped::<Pod>(Select::all(), |pod, cache| {
            selecting(pod, cache).map(|service| Key::of(service.as_ref())).collect()
        });
        watches.mapped::<EndpointSlice>(Select::all(), |slice, _| service_of(slice).into_iter().collect());
    }

    fn keys(&self, cache: &Cache) -> Vec<Key> {
        cache.all::<Service>().map(|service| Key::of(service.as_ref())).collect()
    }

    fn reconcile<'a>(&'a self, context: &'a Context, key: &'a Key) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(reconcile(context, key))
    }
}

/// Makes the slices of a Service those of its pods. What goes out of service is written first.
async fn reconcile(context: &Context, key: &Key) -> Result<Requeue, Error> {
    let Some((service, writes)) = wanted(&context.cache(), key) else { return Ok(Requeue::default()) };
    let owner = service.uid().unwrap_or_default();
    let mut result = Ok(Requeue::default());
    for write in &writes {
        // A write that fails holds no other back.
        result = result.and(act(context, key, &owner, write).await.map(|()| Requeue::default()));
    }
    result
}

/// What is to be written for a Service, if there is one.
fn wanted(cache: &Cache, key: &Key) -> Option<(Arc<Service>, Vec<Write>)> {
    let service = cache.get::<Service>(key)?;
    let pods: Vec<_> =
        cache.within::<Pod>(&key.namespace).filter(|pod| selects(service, pod)).cloned().collect();
    let slices: Vec<_> = cache.owned_by::<EndpointSlice>(&service.uid()?).cloned().collect();
    let taken = |name: &str| cache.get::<EndpointSlice>(&key.beside(name)).is_some();
    Some((Arc::clone(service), placement::writes(service, &pods, &slices, taken)))
}

async fn act(context: &Context, service: &Key, owner: &str, write: &Write) -> Result<(), Error> {
    match write {
        Write::Create(slice) => {
            let key = service.beside(slice.name_any());
            let body = serde_json::to_value(slice).map_err(|error| Error::Malformed {
                what: format!("EndpointSlice {key}"),
                why: error.to_string(),
            })?;
            context.create::<EndpointSlice>(&key, owner, &body).await
        }
        Write::Change { live, wanted } => context.change(live.as_ref(), patch(live, wanted)).await,
        Write::Delete(live) => context.delete(live.as_ref(), true).await,
    }
}

/// What makes a slice the wanted one. Labels that the Service has no more go, as upstream takes them.
fn patch(live: &EndpointSlice, wanted: &EndpointSlice) -> Value {
    let gone = live.labels().keys().map(|name| (name, None));
    let labels: BTreeMap<_, _> =
        gone.chain(wanted.labels().iter().map(|(name, value)| (name, Some(value)))).collect();
    json!({"metadata": {"labels": labels}, "endpoints": wanted.endpoints, "ports": wanted.ports})
}

/// Whether a pod is behind a Service with an address of its own: requests to that address pass the data plane.
pub(crate) fn has_an_address(pod: &Pod, cache: &Cache) -> bool {
    selecting(pod, cache).any(|service| {
        let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
        address.is_some_and(|address| !address.is_empty() && address != "None")
    })
}

fn selecting<'a>(pod: &'a Pod, cache: &'a Cache) -> impl Iterator<Item = &'a Arc<Service>> + 'a {
    let namespace = pod.namespace().unwrap_or_default();
    cache.within::<Service>(&namespace).filter(|service| selects(service, pod))
}

/// The Service whose endpoints a slice holds.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let service = slice.labels().get(SERVICE_NAME)?;
    Some(Key::new(slice.namespace().unwrap_or_default(), service))
}

/// Whether a pod is an endpoint of a Service, by its labels. A Service without a selector has none: its endpoints
/// are written by hand.
fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let matches = |(name, value): (&String, &String)| pod.labels().get(name) == Some(value);
    service.namespace() == pod.namespace()
        && selector.is_some_and(|selector| !selector.is_empty() && selector.iter().all(matches))
}
