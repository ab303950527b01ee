//! The agent: it watches pods, schedules them and starts a worker for each.
use std::{
    collections::HashMap,
    fs::{self, File, TryLockError},
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams, runtime::watcher::Event};
use serde_json::json;
use tokio::{
    sync::watch,
    task::{Id, JoinSet},
    time,
};

use crate::{
    container::log::{LogStore, Logs},
    context::{Context, uid},
    events::Events,
    network::{address::Pool, hosts::HostsFiles, pod::Bridge},
    pod::{
        status::unscheduled,
        status_writer::{StatusWriter, WriteResult},
        worker::PodWorker,
    },
    process::orphans,
    registration,
    scheduler::{Decision, NodeInfo, PendingPod, cache::PodCache, schedule},
    settings::Settings,
    watch::follow,
};

/// The delay before a write that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("failed to use the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("another node agent uses the directory {}", .0.display())]
    Busy(PathBuf),
    #[error("failed to end the processes that an earlier agent left: {0}")]
    Orphans(#[source] io::Error),
    #[error("failed to make networks for pods, which needs root and the commands ip and nsenter: {0}")]
    Networks(#[source] io::Error),
    #[error("failed to register the node: {0}")]
    Register(#[source] Box<kube::Error>),
}

/// A node that runs pods as processes of this machine. No process of a pod outlives it, however it ends.
pub struct Node {
    client: Client,
    settings: Settings,
    logs: LogStore,
}

impl Node {
    pub fn new(client: Client, mut settings: Settings) -> Self {
        settings.directory = std::path::absolute(&settings.directory).unwrap_or(settings.directory);
        let logs = LogStore::new(&settings.directory, settings.log_limit);
        Self { client, settings, logs }
    }

    /// Access to the logs of the containers, while the node runs.
    pub fn logs(&self) -> Arc<dyn Logs> {
        Arc::new(self.logs.clone())
    }

    /// Runs until `stop` is true or its sender is gone; then stops all containers within their grace period.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), NodeError> {
        let _lock = lock(&self.settings.directory)?;
        orphans::kill_marked(orphans::mark_of_agent(&self.settings.directory))
            .await
            .map_err(NodeError::Orphans)?;
        registration::register(&self.client, &self.settings)
            .await
            .map_err(|e| NodeError::Register(Box::new(e)))?;
        let hosts = HostsFiles::open(&self.settings)
            .await
            .map_err(|source| NodeError::Directory { path: self.settings.directory.clone(), source })?;
        let bridge = if self.settings.pod_networks {
            Some(Bridge::open(&self.settings.directory).await.map_err(NodeError::Networks)?)
        } else {
            None
        };
        let (events, writing) = Events::new(self.client.clone(), &self.settings.name, self.settings.now);
        // Ends by itself when the last sender of events is dropped.
        let writing = tokio::spawn(writing);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&hosts).follow_slices(Api::all(self.client.clone())));
        if let Some(bridge) = &bridge {
            tasks.spawn(bridge.clone().answer_questions());
        }
        tasks.spawn(registration::renew_lease(self.client.clone(), self.settings.clone()));
        let pods = pin!(follow(Api::all(self.client.clone())));
        let Self { client, settings, logs } = self;
        let mut agent = Agent::new(Context { client, settings, events, logs, hosts, bridge: bridge.clone() });
        agent.run(pods, &mut stop).await;
        agent.shut_down().await;
        drop(agent);
        if let Some(bridge) = bridge {
            bridge.close().await;
        }
        // A slow API delays the stop by this much and no more.
        drop(time::timeout(RETRY_AFTER, writing).await);
        Ok(())
    }
}

/// Allows one agent per directory: a second one would kill the first one's processes as orphans.
fn lock(directory: &Path) -> Result<File, NodeError> {
    let failed = |source| NodeError::Directory { path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(failed)?;
    let file = File::create(directory.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(NodeError::Busy(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// A pod with a worker.
#[derive(Debug)]
struct PodEntry {
    pod: watch::Sender<Option<Arc<Pod>>>,
    /// The pod as it was bound; its requests are what it takes of the node.
    bound: Arc<Pod>,
    address: Ipv4Addr,
    task: Id,
}

struct Agent {
    context: Arc<Context>,
    pods: PodCache,
    pool: Pool,
    /// By uid: a pod of the same name may be created before the last one is gone.
    workers: HashMap<String, PodEntry>,
    tasks: JoinSet<()>,
    shutting_down: watch::Sender<bool>,
    has_removed_stale: bool,
}

impl Agent {
    fn new(context: Context) -> Self {
        Self {
            pool: Pool::new(context.bridge.as_ref().map_or(context.settings.addresses, Bridge::addresses)),
            context: Arc::new(context),
            pods: PodCache::default(),
            workers: HashMap::new(),
            tasks: JoinSet::new(),
            shutting_down: watch::Sender::new(false),
            has_removed_stale: false,
        }
    }

    async fn run(
        &mut self,
        mut pods: impl Stream<Item = Vec<Event<Pod>>> + Unpin,
        stop: &mut watch::Receiver<bool>,
    ) {
        let mut settled = true;
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                Some(events) = pods.next() => self.pods.apply(&events),
                Some(ended) = self.tasks.join_next_with_id() => {
                    self.release(ended.map_or_else(|error| error.id(), |(id, ())| id));
                }
                () = time::sleep(RETRY_AFTER), if !settled => {}
            }
            if !self.pods.is_whole() {
                continue;
            }
            self.remove_stale_directories();
            self.dispatch();
            settled = self.bind_waiting().await;
        }
    }

    /// Stops all containers and waits until they are gone.
    async fn shut_down(&mut self) {
        self.shutting_down.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }

    fn release(&mut self, task: Id) {
        let gone = self.workers.extract_if(|_, workers| workers.task == task);
        for (_, workers) in gone {
            self.pool.give_back(workers.address);
        }
    }

    /// Removes the directories of pods that were deleted while no agent ran. Does so once.
    fn remove_stale_directories(&mut self) {
        if std::mem::replace(&mut self.has_removed_stale, true) {
            return;
        }
        let here = self.pods.on_node(&self.context.settings.name);
        for place in ["pods", "logs"] {
            let entries = fs::read_dir(self.context.settings.directory.join(place));
            for entry in entries.into_iter().flatten().flatten() {
                if !here.iter().any(|pod| entry.file_name() == uid(pod)) {
                    drop(fs::remove_dir_all(entry.path()));
                }
            }
        }
    }

    /// Sends every worker the current state of its pod, and starts a worker for pods that have none.
    fn dispatch(&mut self) {
        let here = self.pods.on_node(&self.context.settings.name);
        let here: HashMap<String, Arc<Pod>> =
            here.into_iter().map(|pod| (uid(&pod).to_owned(), pod)).collect();
        for (uid, workers) in &self.workers {
            let pod = here.get(uid).cloned();
            workers.pod.send_if_modified(|known| {
                let same = known.as_ref().map(Arc::as_ptr) == pod.as_ref().map(Arc::as_ptr);
                known.clone_from(&pod);
                !same
            });
        }
        for (uid, pod) in here {
            if !self.workers.contains_key(&uid) {
                self.start_worker(uid, pod);
            }
        }
    }

    fn start_worker(&mut self, uid: String, pod: Arc<Pod>) {
        let had = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
        let Some(address) = self.pool.take(had) else {
            self.context.events.warning(&pod, "FailedCreatePodSandBox", "no address is left for the pod");
            return;
        };
        let (sender, receiver) = watch::channel(Some(Arc::clone(&pod)));
        let shutting_down = self.shutting_down.subscribe();
        let worker = PodWorker { context: Arc::clone(&self.context), pod: receiver, address, shutting_down };
        let task = self.tasks.spawn(worker.run()).id();
        self.workers.insert(uid, PodEntry { pod: sender, bound: pod, address, task });
    }

    /// Binds the pending pods that fit and writes the reason to the others. Returns whether all writes succeeded.
    async fn bind_waiting(&mut self) -> bool {
        let waiting = self.pods.waiting();
        if waiting.is_empty() {
            return true;
        }
        let settings = &self.context.settings;
        let workers = self.workers.values().map(|workers| &workers.bound);
        let node = NodeInfo {
            labels: registration::labels(settings),
            capacity: settings.capacity.clone(),
            taken: self.pods.taken(&settings.name, workers),
        };
        let mut settled = true;
        for (pod, decision) in schedule(&waiting, &node) {
            settled &= match decision {
                Decision::Bind => self.bind(&pod).await,
                Decision::Gated(why) => self.set_unschedulable(&pod, "SchedulingGated", &why).await,
                Decision::Unschedulable(why) => self.set_unschedulable(&pod, "Unschedulable", &why).await,
            };
        }
        self.dispatch();
        settled
    }

    async fn bind(&mut self, pod: &PendingPod) -> bool {
        let PendingPod { namespace, name, .. } = pod;
        let node = self.context.settings.name.clone();
        let Some(bound) = self.pods.get((namespace, name)) else { return true };
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid(&bound)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let pods: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace);
        let answer: Result<serde_json::Value, _> =
            pods.create_subresource("binding", name, &PostParams::default(), &binding).await;
        match answer {
            Ok(_) => {
                let message = format!("Successfully assigned {namespace}/{name} to {node}");
                self.context.events.normal(&bound, "Scheduled", &message);
                self.pods.assume(&bound, &node);
                true
            }
            // The pod has changed meanwhile; the watch brings the change.
            Err(kube::Error::Api(_)) => true,
            Err(_) => false,
        }
    }

    async fn set_unschedulable(&self, pod: &PendingPod, reason: &str, why: &str) -> bool {
        let Some(pod) = self.pods.get((&pod.namespace, &pod.name)) else { return true };
        let status = unscheduled(&pod, reason, why, (self.context.settings.now)());
        if !crate::pod::status::differs(&status, pod.status.as_ref()) {
            return true;
        }
        if reason == "Unschedulable" {
            self.context.events.warning(&pod, "FailedScheduling", why);
        }
        StatusWriter::new(&self.context.client, pod).write(status).await != WriteResult::No
    }
}
