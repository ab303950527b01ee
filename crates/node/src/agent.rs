//! The agent: watches pods, places them, and gives each to its keeper.
use std::{
    collections::HashMap,
    fs::{self, File, TryLockError},
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinSet},
    time,
};

use crate::{
    address::Pool,
    context::{Context, uid},
    events::Events,
    index::Index,
    journal::{Journal, Written},
    leftovers,
    log::{Logs, Outputs},
    names::Names,
    object,
    place::{Room, Verdict, Waiting, place},
    pod::Keeper,
    settings::Settings,
    status::unscheduled,
    watch as pods,
};

/// How long to wait when the API does not take a write.
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("failed to use the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("another node agent uses the directory {}", .0.display())]
    Busy(PathBuf),
    #[error("failed to end the processes that an earlier agent left: {0}")]
    Leftovers(#[source] io::Error),
    #[error("failed to register the node: {0}")]
    Register(#[source] Box<kube::Error>),
}

/// A node that runs pods as processes of this machine. Nothing of a pod outlives it, however it ends.
pub struct Node {
    client: Client,
    settings: Settings,
    outputs: Outputs,
}

impl Node {
    pub fn new(client: Client, mut settings: Settings) -> Self {
        settings.directory = std::path::absolute(&settings.directory).unwrap_or(settings.directory);
        let outputs = Outputs::new(&settings.directory, settings.log_limit);
        Self { client, settings, outputs }
    }

    /// The output of the containers, while the node runs.
    pub fn logs(&self) -> Arc<dyn Logs> {
        Arc::new(self.outputs.clone())
    }

    /// Runs until `stop` is true or its sender is gone; then ends all containers, with their grace.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), NodeError> {
        let _lock = lock(&self.settings.directory)?;
        leftovers::end(leftovers::mark_of_agent(&self.settings.directory))
            .await
            .map_err(NodeError::Leftovers)?;
        object::register(&self.client, &self.settings).await.map_err(|e| NodeError::Register(Box::new(e)))?;
        let names = Names::open(&self.settings)
            .await
            .map_err(|source| NodeError::Directory { path: self.settings.directory.clone(), source })?;
        let (events, writing) = Events::new(self.client.clone(), &self.settings.name, self.settings.now);
        let (changes, mut heard) = mpsc::channel(256);
        // Ends by itself when nobody can send an event any more.
        let writing = tokio::spawn(writing);
        let mut tasks = JoinSet::new();
        tasks.spawn(pods::follow(Api::all(self.client.clone()), changes));
        tasks.spawn(Arc::clone(&names).keep(Api::all(self.client.clone())));
        tasks.spawn(object::keep_alive(self.client.clone(), self.settings.clone()));
        let Self { client, settings, outputs } = self;
        let mut agent = Agent::new(Context { client, settings, events, outputs, names });
        agent.attend(&mut heard, &mut stop).await;
        agent.leave().await;
        drop(agent);
        // The last events are worth a moment, not a hang.
        drop(time::timeout(AGAIN, writing).await);
        Ok(())
    }
}

/// One agent per directory: a second one would take the first one's processes for leftovers.
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

/// A pod that is kept here.
#[derive(Debug)]
struct Kept {
    pod: watch::Sender<Option<Arc<Pod>>>,
    /// As it was bound: what it takes of the node.
    bound: Arc<Pod>,
    address: Ipv4Addr,
    task: Id,
}

struct Agent {
    context: Arc<Context>,
    index: Index,
    pool: Pool,
    /// By uid: a pod of the same name may come before the last one is gone.
    kept: HashMap<String, Kept>,
    keepers: JoinSet<()>,
    leaving: watch::Sender<bool>,
    swept: bool,
}

impl Agent {
    fn new(context: Context) -> Self {
        Self {
            pool: Pool::new(context.settings.addresses),
            context: Arc::new(context),
            index: Index::default(),
            kept: HashMap::new(),
            keepers: JoinSet::new(),
            leaving: watch::Sender::new(false),
            swept: false,
        }
    }

    async fn attend(
        &mut self,
        changes: &mut mpsc::Receiver<pods::Change<Pod>>,
        stop: &mut watch::Receiver<bool>,
    ) {
        let mut settled = true;
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                Some(change) = changes.recv() => {
                    self.index.learn(change);
                    // What came in the meantime is one change.
                    while let Ok(change) = changes.try_recv() {
                        self.index.learn(change);
                    }
                }
                Some(ended) = self.keepers.join_next_with_id() => {
                    self.forget(ended.map_or_else(|error| error.id(), |(id, ())| id));
                }
                () = time::sleep(AGAIN), if !settled => {}
            }
            self.sweep();
            self.hand_out();
            settled = self.schedule().await;
        }
    }

    /// Ends all containers and waits until they are gone.
    async fn leave(&mut self) {
        self.leaving.send_replace(true);
        while self.keepers.join_next().await.is_some() {}
    }

    fn forget(&mut self, task: Id) {
        let gone = self.kept.extract_if(|_, kept| kept.task == task);
        for (_, kept) in gone {
            self.pool.give_back(kept.address);
        }
    }

    /// Removes the directories of pods that went while no agent was here.
    fn sweep(&mut self) {
        if std::mem::replace(&mut self.swept, true) {
            return;
        }
        let name = &self.context.settings.name;
        for place in ["pods", "logs"] {
            let entries = fs::read_dir(self.context.settings.directory.join(place));
            for entry in entries.into_iter().flatten().flatten() {
                let is_kept = self.index.on_node(name).any(|pod| entry.file_name() == uid(pod));
                if !is_kept {
                    drop(fs::remove_dir_all(entry.path()));
                }
            }
        }
    }

    /// Tells every keeper how its pod is, and finds one for those that have none.
    fn hand_out(&mut self) {
        let name = self.context.settings.name.clone();
        let here: HashMap<String, Arc<Pod>> =
            self.index.on_node(&name).map(|pod| (uid(pod).to_owned(), Arc::clone(pod))).collect();
        for (uid, kept) in &self.kept {
            let pod = here.get(uid).cloned();
            kept.pod.send_if_modified(|known| {
                let same = known.as_ref().map(Arc::as_ptr) == pod.as_ref().map(Arc::as_ptr);
                known.clone_from(&pod);
                !same
            });
        }
        for (uid, pod) in here {
            if !self.kept.contains_key(&uid) {
                self.keep(uid, pod);
            }
        }
    }

    fn keep(&mut self, uid: String, pod: Arc<Pod>) {
        let had = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
        let Some(address) = self.pool.take(had) else {
            self.context.events.warning(&pod, "FailedCreatePodSandBox", "no address is left for the pod");
            return;
        };
        let (sender, receiver) = watch::channel(Some(Arc::clone(&pod)));
        let leaving = self.leaving.subscribe();
        let keeper = Keeper { context: Arc::clone(&self.context), pod: receiver, address, leaving };
        let task = self.keepers.spawn(keeper.keep()).id();
        self.kept.insert(uid, Kept { pod: sender, bound: pod, address, task });
    }

    /// Binds the pods that fit and says of the others why not. Says whether the API took everything.
    async fn schedule(&mut self) -> bool {
        let waiting = self.index.waiting();
        if waiting.is_empty() {
            return true;
        }
        let settings = &self.context.settings;
        let kept = self.kept.values().map(|kept| &kept.bound);
        let room = Room {
            labels: object::labels(settings),
            capacity: settings.capacity.clone(),
            taken: self.index.taken(&settings.name, kept),
        };
        let mut settled = true;
        for (waiting, verdict) in place(&waiting, &room) {
            settled &= match verdict {
                Verdict::Bind => self.bind(&waiting).await,
                Verdict::Gated(why) => self.explain(&waiting, "SchedulingGated", &why).await,
                Verdict::Unschedulable(why) => self.explain(&waiting, "Unschedulable", &why).await,
            };
        }
        self.hand_out();
        settled
    }

    async fn bind(&mut self, pod: &Waiting) -> bool {
        let Waiting { namespace, name, .. } = pod;
        let node = self.context.settings.name.clone();
        let Some(bound) = self.index.get(namespace, name).cloned() else { return true };
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
                self.index.assume(namespace, name, &node);
                true
            }
            // Somebody was faster; the watch tells.
            Err(kube::Error::Api(_)) => true,
            Err(_) => false,
        }
    }

    async fn explain(&self, pod: &Waiting, reason: &str, why: &str) -> bool {
        let Some(pod) = self.index.get(&pod.namespace, &pod.name) else { return true };
        let status = unscheduled(pod, reason, why, (self.context.settings.now)());
        if !crate::status::differs(&status, pod.status.as_ref()) {
            return true;
        }
        if reason == "Unschedulable" {
            self.context.events.warning(pod, "FailedScheduling", why);
        }
        Journal::new(&self.context.client, Arc::clone(pod)).write(status).await != Written::No
    }
}
