//! Which slice an endpoint is in, and what is to be written for that.
//!
//! # Guarantees
//! - An endpoint that stays, stays in its slice: what is written follows what changed.
//! - Nothing is written when nothing differs, and names follow from what is there: doing it twice does it once.
//! - What goes out of service is written before everything else. Other than that a slice is made before one goes, so
//!   that an endpoint that moves is never in none.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{Pod, Service},
        discovery::v1::{Endpoint, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::ResourceExt;
use serde_json::json;

use super::{
    CONTROLLER, HEADLESS, MANAGED_BY, SERVICE_NAME,
    slices::{Group, groups, port_keys},
};
use crate::digest::digest;

/// How many endpoints a slice holds: the default of kube-controller-manager. More, and every change is sent to
/// every watcher with all the others.
const MOST: usize = 100;

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    /// A slice that is not there.
    Create(EndpointSlice),
    /// A slice that differs from the wanted one.
    Change { live: Arc<EndpointSlice>, wanted: EndpointSlice },
    /// A slice that is not needed.
    Delete(Arc<EndpointSlice>),
}

/// A wanted slice: an existing one, or a new one.
#[derive(Debug)]
struct SlicePlan {
    live: Option<Arc<EndpointSlice>>,
    endpoints: Vec<Endpoint>,
}

impl SlicePlan {
    fn room(&self) -> usize {
        MOST.saturating_sub(self.endpoints.len())
    }

    /// Whether the slice is written anyway.
    fn differ(&self) -> bool {
        let live = self.live.as_ref().and_then(|live| live.endpoints.as_deref()).unwrap_or_default();
        live != self.endpoints
    }
}

/// What is to be written so that a Service has the endpoints of these pods, which it selects. `owned` are the slices
/// that it controls; `taken` says whether a slice of this name exists.
pub(super) fn writes(
    service: &Service,
    pods: &[Arc<Pod>],
    owned: &[Arc<EndpointSlice>],
    taken: impl Fn(&str) -> bool,
) -> Vec<Write> {
    let groups = groups(service, pods);
    if groups.is_empty() {
        return Vec::new();
    }
    let mut spare: Vec<_> = owned.iter().filter(|slice| is_ours(slice)).cloned().collect();
    let mut wanted = Vec::new();
    for group in &groups {
        let (here, elsewhere) = spare.into_iter().partition(|slice| holds(slice, group));
        let (seats, emptied) = seat(group, here);
        spare = elsewhere;
        spare.extend(emptied);
        wanted.extend(seats.into_iter().map(|seats| (group, seats)));
    }
    let mut names = Names { service, taken, number: 0 };
    let mut writes = Vec::new();
    for (group, seats) in wanted {
        // A slice that is not needed becomes this one: one write, and no moment without either.
        let live = seats.live.or_else(|| {
            let place = spare.iter().position(|slice| slice.address_type == group.address_type)?;
            Some(spare.remove(place))
        });
        let name = live.as_ref().map_or_else(|| names.next(), |live| live.name_any());
        let slice = slice(service, group, name, seats.endpoints);
        match live {
            Some(live) if is_so(&live, &slice) => {}
            Some(live) => writes.push(Write::Change { live, wanted: slice }),
            // The collector of garbage is about to take them.
            None if service.metadata.deletion_timestamp.is_some() => {}
            None => writes.push(Write::Create(slice)),
        }
    }
    writes.extend(spare.into_iter().map(Write::Delete));
    in_order(writes, &groups)
}

/// Whether a slice is ours to change. A slice with another manager is not; a slice that is being deleted counts as
/// gone.
fn is_ours(slice: &EndpointSlice) -> bool {
    slice.metadata.deletion_timestamp.is_none()
        && slice.labels().get(MANAGED_BY).is_some_and(|manager| manager == CONTROLLER)
}

fn holds(slice: &EndpointSlice, group: &Group) -> bool {
    let ports = slice.ports.as_deref().unwrap_or_default();
    slice.address_type == group.address_type && port_keys(ports) == port_keys(&group.ports)
}

/// Gives every endpoint of a group a place in these slices, or in new ones. Says which of the slices are empty then.
fn seat(group: &Group, slices: Vec<Arc<EndpointSlice>>) -> (Vec<SlicePlan>, Vec<Arc<EndpointSlice>>) {
    let mut waiting: BTreeMap<_, _> =
        group.endpoints.iter().map(|endpoint| (pod_of(endpoint), endpoint.clone())).collect();
    let stay = |live: Arc<EndpointSlice>| {
        let endpoints =
            live.endpoints.iter().flatten().filter_map(|endpoint| waiting.remove(&pod_of(endpoint)));
        SlicePlan { endpoints: endpoints.collect(), live: Some(live) }
    };
    let mut all: Vec<SlicePlan> = slices.into_iter().map(stay).collect();
    // Those that are written anyway first, and the fuller ones of them, so that others become empty and go. Then the
    // one that has room for all who wait: as few writes as can be.
    all.sort_by_key(|seats| (!seats.differ(), Reverse(seats.endpoints.len())));
    for seats in &mut all {
        if seats.differ() || waiting.len() <= seats.room() {
            fill(seats, &mut waiting);
        }
    }
    while !waiting.is_empty() {
        let mut seats = SlicePlan { live: None, endpoints: Vec::new() };
        fill(&mut seats, &mut waiting);
        all.push(seats);
    }
    for seats in &mut all {
        seats.endpoints.sort_by_cached_key(pod_of);
    }
    let (mut used, empty): (Vec<SlicePlan>, Vec<SlicePlan>) =
        all.into_iter().partition(|seats| !seats.endpoints.is_empty());
    let mut empty = empty.into_iter().filter_map(|seats| seats.live);
    if used.is_empty() {
        // One stays, to say that there is none.
        used.push(SlicePlan { live: empty.next(), endpoints: Vec::new() });
    }
    (used, empty.collect())
}

fn fill(seats: &mut SlicePlan, waiting: &mut BTreeMap<PodKey, Endpoint>) {
    while seats.room() > 0
        && let Some((_, endpoint)) = waiting.pop_first()
    {
        seats.endpoints.push(endpoint);
    }
}

/// Name and uid: a pod that is made again under the same name is another pod.
type PodKey = (String, String);

fn pod_of(endpoint: &Endpoint) -> PodKey {
    let target = endpoint.target_ref.as_ref();
    let (name, uid) = target.map(|target| (target.name.clone(), target.uid.clone())).unwrap_or_default();
    (name.unwrap_or_default(), uid.unwrap_or_default())
}

/// Names for new slices. They follow from the Service's uid, so that a Service that is made anew under the same name
/// does not meet the slices of its predecessor while these are collected.
struct Names<'a, T> {
    service: &'a Service,
    taken: T,
    number: u32,
}

impl<T: Fn(&str) -> bool> Names<'_, T> {
    fn next(&mut self) -> String {
        loop {
            let mark = digest(&json!([self.service.uid(), self.number]));
            self.number += 1;
            let name = format!("{}-{mark}", self.service.name_any());
            if !(self.taken)(&name) {
                return name;
            }
        }
    }
}

fn slice(service: &Service, group: &Group, name: String, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: service.name_any(),
        uid: service.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: service.namespace(),
            labels: Some(labels(service)),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: group.address_type.clone(),
        endpoints: Some(endpoints),
        ports: Some(group.ports.clone()),
    }
}

/// The labels of a Service, and those by which readers find its slices: the latter are not the Service's to say.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    if matches!(address, "" | "None") {
        labels.insert(HEADLESS.to_owned(), String::new());
    } else {
        labels.remove(HEADLESS);
    }
    labels.insert(SERVICE_NAME.to_owned(), service.name_any());
    labels.insert(MANAGED_BY.to_owned(), CONTROLLER.to_owned());
    labels
}

/// Whether a slice is as it should be.
fn is_so(live: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let endpoints = |slice: &EndpointSlice| slice.endpoints.clone().unwrap_or_default();
    let ports = |slice: &EndpointSlice| port_keys(slice.ports.as_deref().unwrap_or_default());
    live.labels() == wanted.labels() && ports(live) == ports(wanted) && endpoints(live) == endpoints(wanted)
}

/// What takes an endpoint out of service, or says otherwise how it is, goes first: a request may be on its way to it.
/// Then new slices before changed ones, and those before what goes.
fn in_order(mut writes: Vec<Write>, groups: &[Group]) -> Vec<Write> {
    let key = |family: &str, endpoint: &Endpoint| (family.to_owned(), pod_of(endpoint));
    let all = groups.iter().flat_map(|group| group.endpoints.iter().map(move |it| (&group.address_type, it)));
    let wanted: BTreeMap<_, _> = all.map(|(family, endpoint)| (key(family, endpoint), endpoint)).collect();
    let is_urgent = |live: &EndpointSlice| {
        live.endpoints.iter().flatten().any(|before| {
            let after = wanted.get(&key(&live.address_type, before));
            after.is_none_or(|it| it.conditions != before.conditions || it.addresses != before.addresses)
        })
    };
    writes.sort_by_cached_key(|write| match write {
        Write::Change { live, .. } | Write::Delete(live) if is_urgent(live) => 0,
        Write::Create(_) => 1,
        Write::Change { .. } => 2,
        Write::Delete(_) => 3,
    });
    writes
}
