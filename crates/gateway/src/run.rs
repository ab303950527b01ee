//! The gateway as a whole: follow, compile, serve, and only then say so.
use std::{
    future::Future,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use futures_util::future::join_all;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::{
    counters::Snapshot,
    index::{Index, Lagging},
    listeners::{Listeners, Places},
    live::Live,
    routes::{Verdicts, compile},
    settings::Settings,
    status::Writer,
    world::{Kind, Name, World},
};

/// After what time something that failed is tried again, when nothing changes before.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the API may take to accept a status.
const LONGEST: Duration = Duration::from_secs(2);

/// A gateway. Cheap to clone; every clone is the same gateway.
#[derive(Debug, Clone)]
pub struct Gateway {
    live: Arc<Live>,
    settings: Arc<Settings>,
    places: Arc<Mutex<Places>>,
}

impl Gateway {
    pub fn new(settings: Settings) -> Self {
        let live = Arc::new(Live::new(settings.divert));
        Self { live, settings: Arc::new(settings), places: Arc::default() }
    }

    /// Everything that was counted. The time is that of the caller.
    pub fn snapshot(&self, now: SystemTime) -> Snapshot {
        self.live.snapshot(now)
    }

    /// Whether nothing is in flight at this address, and nothing new comes to it.
    pub fn drained(&self, endpoint: SocketAddr) -> bool {
        self.live.drained(endpoint)
    }

    /// Changes when another table is served, and when an endpoint that left service has finished its last request or
    /// connection: what a handover waits for, without asking again and again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.live.changes()
    }

    /// The `controllerName` under which it answers for routes.
    pub fn controller(&self) -> &str {
        &self.settings.controller
    }

    /// Where is listened, by the address that a Gateway or a Service asks for; or why not.
    pub fn places(&self) -> Places {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves until `stop`, then lets what is in flight end, for as long as the drain allows.
    pub async fn run(&self, client: Client, stop: impl Future<Output = ()>) {
        let index = Arc::new(Index::default());
        let mut watches = JoinSet::new();
        for kind in Kind::ALL {
            let (index, client) = (Arc::clone(&index), client.clone());
            watches.spawn(async move { index.follow(kind, client).await });
        }
        let mut listeners = Listeners::new(Arc::clone(&self.live), Arc::clone(&self.settings));
        let mut stop = pin!(stop);
        let mut worlds = Lagging::new(&index, self.settings.lag);
        let mut world = World::default();
        let mut unfinished = false;
        loop {
            tokio::select! {
                () = &mut stop => break,
                next = worlds.next() => world = next,
                () = tokio::time::sleep(AGAIN), if unfinished => {}
            }
            let verdicts = self.serve(&world, &mut listeners).await;
            let places = self.places();
            tokio::select! {
                () = &mut stop => break,
                written = self.write(&client, &world, &verdicts, &places) => {
                    unfinished = !written || listeners.lacking();
                }
            }
        }
        watches.shutdown().await;
        listeners.close_all().await;
    }

    /// Makes the table of a world the one that is served. When this returns, it is.
    async fn serve(&self, world: &World, listeners: &mut Listeners) -> Verdicts {
        let compiled = compile(world, &self.settings);
        listeners.bind(&compiled.plan).await;
        self.live.install(compiled.plan.clone());
        listeners.settle(&compiled.plan);
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = listeners.places();
        compiled.verdicts
    }

    /// Writes every status that differs; false if one could not be written.
    async fn write(&self, client: &Client, world: &World, verdicts: &Verdicts, places: &Places) -> bool {
        let statuses = self.statuses(world, verdicts, places);
        let writing = statuses.iter().map(|(kind, name, status)| {
            // No longer: what changes meanwhile waits for it.
            timeout(LONGEST, write(client, world, *kind, name, status))
        });
        join_all(writing).await.into_iter().all(|written| written == Ok(true))
    }

    fn statuses(&self, world: &World, verdicts: &Verdicts, places: &Places) -> Vec<(Kind, Name, Value)> {
        let writer = Writer { controller: &self.settings.controller, now: (self.settings.clock)() };
        let mut statuses = Vec::new();
        let mut add = |kind, name: &Name, status: &dyn Fn(&DynamicObject) -> Option<Value>| {
            let status = world.get(kind, name).and_then(|object| status(object));
            statuses.extend(status.map(|status| (kind, name.clone(), status)));
        };
        for (name, generation) in &verdicts.classes {
            add(Kind::Class, name, &|object| writer.class(object, *generation));
        }
        for (name, verdict) in &verdicts.gateways {
            add(Kind::Gateway, name, &|object| writer.gateway(object, verdict, places));
        }
        for (name, verdict) in &verdicts.http_routes {
            add(Kind::HttpRoute, name, &|object| writer.route(object, verdict));
        }
        for (name, verdict) in &verdicts.grpc_routes {
            add(Kind::GrpcRoute, name, &|object| writer.route(object, verdict));
        }
        statuses
    }
}

/// Writes one status, if the object is still the one that was judged. If it is not, its change is on its way to us and
/// is judged then; so that is no failure.
async fn write(client: &Client, world: &World, kind: Kind, name: &Name, status: &Value) -> bool {
    let Some(version) = world.get(kind, name).and_then(|object| object.metadata.resource_version.clone())
    else {
        return true;
    };
    let resource = ApiResource::from_gvk(&kind.gvk());
    let api: Api<DynamicObject> = if name.namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &name.namespace, &resource)
    };
    let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
    match api.patch_status(&name.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => true,
        Err(kube::Error::Api(refusal)) => refusal.code == 409 || refusal.code == 404,
        Err(_) => false,
    }
}
