//! What the API has, as far as it concerns the controllers.

use std::{
    fmt::Debug,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use api::{
    gateway::{GRPCRoute, Gateway, HTTPRoute},
    leaderworkerset::LeaderWorkerSet,
    modeldeployment::ModelDeployment,
    modelserving::ModelServing,
    volcano::PodGroup,
};
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Node, PersistentVolumeClaim, Pod, Service},
    discovery::v1::EndpointSlice,
    policy::v1::PodDisruptionBudget,
};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{Key, Shelf, Who};
use crate::{endpoints, labels};

/// Every object that is followed.
#[derive(Debug, Default)]
pub struct World {
    /// Sets of groups.
    pub sets: Shelf<LeaderWorkerSet>,
    /// Serving groups of roles.
    pub servings: Shelf<ModelServing>,
    /// Services with versions.
    pub deployments: Shelf<ModelDeployment>,
    /// Pods.
    pub pods: Shelf<Pod>,
    /// What pods keep.
    pub claims: Shelf<PersistentVolumeClaim>,
    /// How many pods may be disturbed at once.
    pub budgets: Shelf<PodDisruptionBudget>,
    /// What pods run on.
    pub nodes: Shelf<Node>,
    /// The templates of earlier revisions.
    pub revisions: Shelf<ControllerRevision>,
    /// Services.
    pub services: Shelf<Service>,
    /// Pods that are placed together.
    pub pod_groups: Shelf<PodGroup>,
    /// The endpoints of Services.
    pub slices: Shelf<EndpointSlice>,
    /// Gateways.
    pub gateways: Shelf<Gateway>,
    /// Routes of HTTP.
    pub http_routes: Shelf<HTTPRoute>,
    /// Routes of gRPC.
    pub grpc_routes: Shelf<GRPCRoute>,
}

impl World {
    /// All that we look after: what can be done for them may depend on which kinds there are.
    fn everybody(&self) -> Vec<(Who, Key)> {
        let sets = self.sets.all().map(|it| (Who::LeaderWorkerSet, Key::of(it.as_ref())));
        let servings = self.servings.all().map(|it| (Who::ModelServing, Key::of(it.as_ref())));
        let deployments = self.deployments.all().map(|it| (Who::ModelDeployment, Key::of(it.as_ref())));
        sets.chain(servings).chain(deployments).collect()
    }

    fn is_listed(&self, scopes: &[String]) -> bool {
        self.sets.is_listed(scopes)
            && self.servings.is_listed(scopes)
            && self.deployments.is_listed(scopes)
            && self.pods.is_listed(scopes)
            && self.claims.is_listed(scopes)
            && self.budgets.is_listed(scopes)
            && self.nodes.is_listed(&[String::new()])
            && self.revisions.is_listed(scopes)
            && self.services.is_listed(scopes)
            && self.pod_groups.is_listed(scopes)
            && self.slices.is_listed(scopes)
            && self.gateways.is_listed(scopes)
            && self.http_routes.is_listed(scopes)
            && self.grpc_routes.is_listed(scopes)
    }
}

#[cfg(test)]
impl World {
    /// A world with these objects and nothing else.
    pub(crate) fn with<K: Followed>(objects: impl IntoIterator<Item = K>) -> Self {
        let mut world = Self::default();
        for object in objects {
            K::shelf_mut(&mut world).put(object);
        }
        world
    }
}

/// A kind that is followed.
pub trait Followed:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Where its objects are.
    fn shelf_mut(world: &mut World) -> &mut Shelf<Self>;

    /// Who looks again when this object changes.
    fn concerns(&self, world: &World) -> Vec<(Who, Key)>;
}

macro_rules! followed {
    ($kind:ty, $field:ident, $concerns:expr) => {
        impl Followed for $kind {
            fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
                &mut world.$field
            }

            fn concerns(&self, world: &World) -> Vec<(Who, Key)> {
                $concerns(self, world)
            }
        }
    };
}

followed!(LeaderWorkerSet, sets, |set: &Self, _: &World| {
    let mut concerned = owner(set);
    concerned.push((Who::LeaderWorkerSet, Key::of(set)));
    concerned
});
followed!(ModelServing, servings, |it: &Self, _: &World| vec![(Who::ModelServing, Key::of(it))]);
followed!(ModelDeployment, deployments, |it: &Self, _: &World| vec![(Who::ModelDeployment, Key::of(it))]);
followed!(Pod, pods, |pod: &Self, world: &World| {
    let mut concerned = owner(pod);
    if concerned.is_empty() {
        // Of another operator: whoever waits for it to be taken over looks again.
        let set = pod.labels().get(labels::SET_NAME);
        concerned.extend(set.map(|name| (Who::LeaderWorkerSet, Key::of(pod).beside(name))));
    }
    concerned.extend(endpoints::services_of(pod, world).map(|key| (Who::Endpoints, key)));
    concerned
});
// A claim that stays when its set goes is nobody's.
followed!(PersistentVolumeClaim, claims, |claim: &Self, _: &World| {
    let set = claim.labels().get(labels::SET_NAME);
    set.map(|name| (Who::LeaderWorkerSet, Key::of(claim).beside(name))).into_iter().collect()
});
followed!(PodDisruptionBudget, budgets, |budget: &Self, world: &World| {
    let sets = world.sets.within(&budget.namespace().unwrap_or_default());
    let sets = sets.map(|set| (Who::LeaderWorkerSet, Key::of(set.as_ref())));
    sets.chain(owner(budget)).collect()
});
followed!(Node, nodes, |node: &Self, world: &World| {
    let is_here = |pod: &&Arc<Pod>| {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == node.metadata.name.as_deref()
    };
    world.pods.all().filter(is_here).flat_map(|pod| owner(pod.as_ref())).collect()
});
followed!(ControllerRevision, revisions, |it: &Self, _: &World| owner(it));
followed!(Service, services, |service: &Self, _: &World| {
    let mut concerned = owner(service);
    concerned.push((Who::Endpoints, Key::of(service)));
    // That of a version belongs to the version, and is written by its deployment.
    let deployment = service.labels().get(labels::DEPLOYMENT);
    concerned.extend(deployment.map(|name| (Who::ModelDeployment, Key::of(service).beside(name))));
    concerned
});
followed!(PodGroup, pod_groups, |it: &Self, _: &World| owner(it));
followed!(EndpointSlice, slices, |slice: &Self, world: &World| {
    let Some(service) = endpoints::service_of(slice) else { return Vec::new() };
    let mut concerned =
        world.services.get(&service).map(|service| owner(service.as_ref())).unwrap_or_default();
    concerned.push((Who::Endpoints, service));
    concerned
});
followed!(Gateway, gateways, |it: &Self, _: &World| owner(it));
followed!(HTTPRoute, http_routes, |it: &Self, _: &World| owner(it));
followed!(GRPCRoute, grpc_routes, |it: &Self, _: &World| owner(it));

/// Who controls an object, if it is one of us.
fn owner(object: &impl Resource) -> Vec<(Who, Key)> {
    let namespace = object.meta().namespace.clone().unwrap_or_default();
    let owners = object.meta().owner_references.as_deref().unwrap_or_default();
    let controllers = owners.iter().filter(|owner| owner.controller == Some(true));
    let known = controllers.filter_map(|owner| {
        let who = match owner.kind.as_str() {
            "LeaderWorkerSet" => Who::LeaderWorkerSet,
            "ModelServing" => Who::ModelServing,
            "ModelDeployment" => Who::ModelDeployment,
            _ => return None,
        };
        Some((who, Key::new(namespace.clone(), owner.name.clone())))
    });
    known.collect()
}

/// The world, shared by those who feed it and those who read it. Nobody waits while they hold it.
#[derive(Clone, Debug, Default)]
pub struct Index(Arc<RwLock<World>>);

impl Index {
    /// Looks at it.
    pub fn read(&self) -> RwLockReadGuard<'_, World> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every kind was listed: half a world would be decided upon as if the other half were gone.
    pub(super) fn is_listed(&self, scopes: &[String]) -> bool {
        self.read().is_listed(scopes)
    }

    /// Changes what is known, and says who is concerned by what changed.
    pub(super) fn learn<K: Followed>(&self, news: News<K>) -> Vec<(Who, Key)> {
        let mut world = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = K::shelf_mut(&mut world);
        let was_served = known.is_served();
        let mut touched: Vec<Arc<K>> = Vec::new();
        match news {
            News::Here(object) => {
                let key = Key::of(&object);
                let before = known.get(&key).cloned();
                if known.put(object) {
                    touched.extend(before.into_iter().chain(known.get(&key).cloned()));
                }
            }
            News::Written(object) => {
                let key = Key::of(&object);
                let before = known.get(&key).cloned();
                if known.put_written(object) {
                    touched.extend(before.into_iter().chain(known.get(&key).cloned()));
                }
            }
            News::Gone(object) => touched.extend(known.remove(&object)),
            News::All(scope, version, objects) => {
                touched.extend(known.replace(&scope, version, objects));
                touched.extend(known.all().cloned());
            }
            News::NoSuchKind(scope) => known.is_unknown(&scope),
        }
        let appeared = known.is_served() != was_served;
        let mut concerned = if appeared { world.everybody() } else { Vec::new() };
        concerned.extend(touched.iter().flat_map(|object| object.concerns(&world)));
        concerned
    }
}

/// What is learnt of a kind.
#[derive(Debug)]
pub(super) enum News<K> {
    /// All that there was in a namespace, or for the empty one everywhere, at a version.
    All(String, u64, Vec<K>),
    /// An object, by the watch.
    Here(K),
    /// An object, as a write answered it.
    Written(K),
    /// An object that is gone.
    Gone(K),
    /// The API does not serve it, or nobody asked for it.
    NoSuchKind(String),
}
