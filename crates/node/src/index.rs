//! The pods that the watch has brought, and what follows from them. No I/O.
use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use crate::{
    context::{is_over, key, uid},
    place::Waiting,
    resources::{Resources, asked_by},
    watch::{Change, Known},
};

/// All pods by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Index(Known<Pod>);

fn owned((namespace, name): (&str, &str)) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

impl Index {
    pub fn learn(&mut self, change: Change<Pod>) {
        change.apply(&mut self.0);
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        self.0.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub fn on_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.0.values().filter(move |pod| node_of(pod) == Some(node))
    }

    /// The pods that nobody has placed yet and that are ours to place.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.0.values().filter(|pod| is_waiting(pod)).filter_map(|pod| waiting(pod)).collect()
    }

    /// What is taken of a node: by pods that are not over, and by those whose processes still run though the API has
    /// forgotten them.
    pub fn taken<'a>(&'a self, node: &'a str, kept: impl Iterator<Item = &'a Arc<Pod>>) -> Resources {
        let mut taken = Resources::default();
        let mut counted = HashSet::new();
        let here = self.on_node(node).filter(|pod| !is_over(pod));
        let forgotten =
            kept.filter(|pod| self.get(key(pod).0, key(pod).1).is_none_or(|is| uid(is) != uid(pod)));
        for pod in here.chain(forgotten) {
            if counted.insert(uid(pod).to_owned())
                && let Some(spec) = &pod.spec
            {
                taken.add(&asked_by(spec));
            }
        }
        taken
    }

    /// Takes a binding for granted until the watch confirms it.
    pub fn assume(&mut self, namespace: &str, name: &str, node: &str) {
        if let Some(pod) = self.0.get_mut(&(namespace.to_owned(), name.to_owned()))
            && let Some(spec) = &mut Arc::make_mut(pod).spec
        {
            spec.node_name = Some(node.to_owned());
        }
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn is_waiting(pod: &Pod) -> bool {
    let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default();
    node_of(pod).is_none()
        && !is_over(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && matches!(scheduler, "" | "default-scheduler")
}

fn waiting(pod: &Pod) -> Option<Waiting> {
    let spec = pod.spec.as_ref()?;
    let (namespace, name) = owned(key(pod));
    Some(Waiting {
        namespace,
        name,
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        asks: asked_by(spec),
        gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
        selector: spec.node_selector.clone().unwrap_or_default(),
    })
}
