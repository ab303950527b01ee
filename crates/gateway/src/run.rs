//! The gateway as a whole: watch, compile, serve, then write status.
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
    cache::{Cache, Kind, Name},
    counters::Snapshot,
    listeners::{Bindings, Listeners},
    reflector::{Delayed, Reflector},
    router::Router,
    routes::{Statuses, compile},
    settings::Settings,
    status::Writer,
};

/// After what time a write or a bind that failed is tried again, when nothing changes before.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long the API may take to accept a status.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// A gateway. Cheap to clone; every clone is the same gateway.
#[derive(Debug, Clone)]
pub struct Gateway {
    router: Arc<Router>,
    settings: Arc<Settings>,
    bindings: Arc<Mutex<Bindings>>,
}

impl Gateway {
    pub fn new(settings: Settings) -> Self {
        let router = Arc::new(Router::new(settings.failover));
        Self { router, settings: Arc::new(settings), bindings: Arc::default() }
    }

    /// Everything that was counted. The time is that of the caller.
    pub fn snapshot(&self, now: SystemTime) -> Snapshot {
        self.router.snapshot(now)
    }

    /// Returns the counts of every Service in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        // Prometheus takes the time at which it reads.
        self.snapshot(SystemTime::UNIX_EPOCH).metrics()
    }

    /// Whether nothing is in flight at this address, and nothing new comes to it.
    pub fn drained(&self, endpoint: SocketAddr) -> bool {
        self.router.drained(endpoint)
    }

    /// Changes when another table is served, and when an endpoint that left service has finished its last request or
    /// connection: what a handover waits for, without asking again and again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.router.changes()
    }

    /// The `controllerName` under which it answers for routes.
    pub fn controller(&self) -> &str {
        &self.settings.controller
    }

    /// The listening sockets, by the address that a Gateway or a Service asks for; or why there is none.
    pub fn bindings(&self) -> Bindings {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves until `stop`, then lets what is in flight end, for as long as the drain allows.
    pub async fn run(&self, client: Client, stop: impl Future<Output = ()>) {
        let reflector = Arc::new(Reflector::default());
        let mut watches = JoinSet::new();
        for kind in Kind::ALL {
            let (reflector, client) = (Arc::clone(&reflector), client.clone());
            watches.spawn(async move { reflector.run(kind, client).await });
        }
        let mut listeners = Listeners::new(Arc::clone(&self.router), Arc::clone(&self.settings));
        let mut stop = pin!(stop);
        let mut caches = Delayed::new(&reflector, self.settings.lag);
        let mut cache = Cache::default();
        let mut unfinished = false;
        loop {
            tokio::select! {
                () = &mut stop => break,
                next = caches.next() => cache = next,
                () = tokio::time::sleep(RETRY_AFTER), if unfinished => {}
            }
            let statuses = self.serve(&cache, &mut listeners);
            let bindings = self.bindings();
            tokio::select! {
                () = &mut stop => break,
                written = self.write(&client, &cache, &statuses, &bindings) => {
                    unfinished = !written || listeners.any_refused();
                }
            }
        }
        watches.shutdown().await;
        listeners.close_all().await;
    }

    /// Serves what the cache says. When this returns, the table is in place.
    fn serve(&self, cache: &Cache, listeners: &mut Listeners) -> Statuses {
        let compiled = compile(cache, &self.settings);
        listeners.bind(&compiled.config);
        self.router.install(compiled.config.clone());
        listeners.serve_bound(&compiled.config);
        *self.bindings.lock().unwrap_or_else(PoisonError::into_inner) = listeners.bindings();
        compiled.statuses
    }

    /// Writes every status that differs; false if one could not be written.
    async fn write(&self, client: &Client, cache: &Cache, statuses: &Statuses, bindings: &Bindings) -> bool {
        let patches = self.patches(cache, statuses, bindings);
        let writing = patches.iter().map(|(kind, name, status)| {
            // Changes that come meanwhile wait for it.
            timeout(WRITE_TIMEOUT, write(client, cache, *kind, name, status))
        });
        join_all(writing).await.into_iter().all(|written| written == Ok(true))
    }

    fn patches(&self, cache: &Cache, statuses: &Statuses, bindings: &Bindings) -> Vec<(Kind, Name, Value)> {
        let writer = Writer { controller: &self.settings.controller, now: (self.settings.clock)() };
        let mut patches = Vec::new();
        let mut add = |kind, name: &Name, status: &dyn Fn(&DynamicObject) -> Option<Value>| {
            let status = cache.get(kind, name).and_then(|object| status(object));
            patches.extend(status.map(|status| (kind, name.clone(), status)));
        };
        for (name, generation) in &statuses.classes {
            add(Kind::GatewayClass, name, &|object| writer.class(object, *generation));
        }
        for (name, status) in &statuses.gateways {
            add(Kind::Gateway, name, &|object| writer.gateway(object, status, bindings));
        }
        for (name, status) in &statuses.http_routes {
            add(Kind::HttpRoute, name, &|object| writer.route(object, status));
        }
        for (name, status) in &statuses.grpc_routes {
            add(Kind::GrpcRoute, name, &|object| writer.route(object, status));
        }
        patches
    }
}

/// Writes one status, if the object is still the version that was compiled. If it is not, the watch brings the change
/// and it is compiled then; so a conflict is no failure.
async fn write(client: &Client, cache: &Cache, kind: Kind, name: &Name, status: &Value) -> bool {
    let Some(version) = cache.get(kind, name).and_then(|object| object.metadata.resource_version.clone())
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
