//! The cache of pods, fed by the watch. No I/O.
use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{
    reflector::{ObjectRef, Store, store::Writer},
    watcher::Event,
};

use crate::{
    context::{is_terminal, key, uid},
    resources::{Resources, requests_of},
    scheduler::PendingPod,
    watch,
};

/// All pods of the API.
#[derive(Debug)]
pub(crate) struct PodCache {
    pods: Store<Pod>,
    cache: Writer<Pod>,
    is_whole: bool,
}

impl Default for PodCache {
    fn default() -> Self {
        let cache = Writer::default();
        Self { pods: cache.as_reader(), cache, is_whole: false }
    }
}

impl PodCache {
    pub fn apply(&mut self, events: &[Event<Pod>]) {
        self.is_whole = watch::apply(&mut self.cache, events);
    }

    /// Whether the cache has every pod: no list is under way. Before the end of the first list, every pod
    /// seems to be gone. A later list may be older than a binding that is made before its end; the pod would
    /// lose its node again, and its processes.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub fn get(&self, (namespace, name): (&str, &str)) -> Option<Arc<Pod>> {
        self.pods.get(&ObjectRef::new(name).within(namespace))
    }

    pub fn on_node(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods.state_filter(|pod| node_of(pod) == Some(node))
    }

    /// The pods without a node that name this scheduler.
    pub fn waiting(&self) -> Vec<PendingPod> {
        self.pods.state_filter(is_waiting).iter().filter_map(|pod| waiting(pod)).collect()
    }

    /// The resources that are allocated on the node: to pods that are not terminal, and to pods that are gone
    /// from the API and still have processes.
    pub fn taken<'a>(&self, node: &str, workers: impl Iterator<Item = &'a Arc<Pod>>) -> Resources {
        let mut taken = Resources::default();
        let mut counted = HashSet::new();
        let here = self.on_node(node).into_iter().filter(|pod| !is_terminal(pod));
        let forgotten = workers.filter(|pod| self.get(key(pod)).is_none_or(|is| uid(&is) != uid(pod)));
        for pod in here.chain(forgotten.cloned()) {
            if counted.insert(uid(&pod).to_owned())
                && let Some(spec) = &pod.spec
            {
                taken.add(&requests_of(spec));
            }
        }
        taken
    }

    /// Records a binding before the watch confirms it, as kube-scheduler assumes pods.
    pub fn assume(&mut self, bound: &Pod, node: &str) {
        let mut bound = bound.clone();
        if let Some(spec) = &mut bound.spec {
            spec.node_name = Some(node.to_owned());
        }
        self.cache.apply_watcher_event(&Event::Apply(bound));
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn is_waiting(pod: &Pod) -> bool {
    let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default();
    node_of(pod).is_none()
        && !is_terminal(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && matches!(scheduler, "" | "default-scheduler")
}

fn waiting(pod: &Pod) -> Option<PendingPod> {
    let spec = pod.spec.as_ref()?;
    let (namespace, name) = key(pod);
    Some(PendingPod {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        asks: requests_of(spec),
        gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
        selector: spec.node_selector.clone().unwrap_or_default(),
    })
}
