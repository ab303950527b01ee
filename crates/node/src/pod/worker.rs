//! One pod on this node, from its binding to its deletion.
use std::{collections::HashMap, fs, net::Ipv4Addr, sync::Arc, time::Duration};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use tokio::{sync::watch, task::JoinSet, time};

use crate::{
    container::{
        environment::PodInfo,
        log::ContainerLog,
        runner::{ContainerRunner, SharedStatuses, Stop},
        status::{RuntimeStatus, State, Terminated},
    },
    context::{Context, is_terminal, key, uid},
    network::pod::PodNetwork,
    pod::{
        admission::{Rejection, rejection},
        phase::Policy,
        status::{RuntimeStatuses, StatusInput, status},
        status_writer::{StatusWriter, WriteResult},
    },
    process::{client::Network, orphans},
    settings::Settings,
    volume::{self, sources::Sources},
};

/// The delay before a write that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Runs one pod.
pub(crate) struct PodWorker {
    pub context: Arc<Context>,
    /// The pod in the API; `None` when it is gone.
    pub pod: watch::Receiver<Option<Arc<Pod>>>,
    pub address: Ipv4Addr,
    /// The agent itself is stopping.
    pub shutting_down: watch::Receiver<bool>,
}

impl PodWorker {
    /// Returns when no process of the pod runs, and the pod is gone from the API or the agent stops.
    pub async fn run(mut self) {
        let Some(pod) = self.pod.borrow_and_update().clone() else { return };
        let mut writer = StatusWriter::new(&self.context.client, Arc::clone(&pod));
        let rejected = pod.spec.as_ref().and_then(rejection);
        match rejected {
            _ if is_terminal(&pod) => drop(self.open_logs(&pod)),
            Some(rejected) => self.reject(&mut writer, &rejected).await,
            None => self.run_containers(&pod, &mut writer).await,
        }
        if self.wait_for_deletion(&mut writer).await {
            self.context.logs.remove(key(&pod), uid(&pod));
            drop(fs::remove_dir_all(self.context.directory_of(uid(&pod))));
        }
    }

    fn open_logs(&self, pod: &Pod) -> std::io::Result<HashMap<String, Arc<ContainerLog>>> {
        let names: Vec<_> = containers(pod).map(|container| container.name.clone()).collect();
        let main = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        self.context.logs.open(key(pod), uid(pod), names.split_at(main))
    }

    async fn reject(&mut self, writer: &mut StatusWriter, rejected: &Rejection) {
        let Rejection { reason, message } = rejected;
        self.context.events.warning(writer.known(), reason, message);
        let statuses =
            containers(writer.known()).map(|c| (c.name.clone(), RuntimeStatus::waiting(reason, message)));
        let statuses: RuntimeStatuses = statuses.collect();
        while self.is_here() {
            let rejected = Some((*reason, message.as_str()));
            if self.write(writer, &statuses, rejected).await != WriteResult::No {
                return;
            }
            self.wait_before_retry().await;
        }
    }

    async fn write(
        &self,
        writer: &mut StatusWriter,
        statuses: &RuntimeStatuses,
        rejected: Option<(&str, &str)>,
    ) -> WriteResult {
        let now = (self.context.settings.now)();
        let running = statuses.values().any(|status| matches!(status.state, State::Running { .. }));
        // When only the agent stops, the next agent starts the containers again.
        let ending = writer.known().metadata.deletion_timestamp.is_some() && !running;
        let input = StatusInput { statuses, address: self.address, rejected, ending, now };
        let status = status(writer.known(), &input);
        writer.write(status).await
    }

    fn is_here(&self) -> bool {
        self.pod.borrow().is_some() && !*self.shutting_down.borrow()
    }

    async fn wait_before_retry(&mut self) {
        let changed = async {
            tokio::select! {
                _ = self.pod.changed() => {}
                _ = self.shutting_down.changed() => {}
            }
        };
        drop(time::timeout(RETRY_AFTER, changed).await);
    }

    /// Runs the containers and writes the pod's status until no container runs any more.
    async fn run_containers(&mut self, pod: &Arc<Pod>, writer: &mut StatusWriter) {
        let now = (self.context.settings.now)();
        let shared: SharedStatuses = Arc::new(watch::Sender::new(recovered(pod, now)));
        let mut seen = shared.subscribe();
        let (stop, stopped) = watch::channel(self.wanted_stop());
        let mut tasks = JoinSet::new();
        tasks.spawn(self.containers_of(pod, &shared, stopped).run());
        let mut done = false;
        loop {
            let wanted_stop = self.wanted_stop();
            stop.send_if_modified(|stop| std::mem::replace(stop, wanted_stop) != wanted_stop);
            if let Some(pod) = self.pod.borrow_and_update().clone() {
                writer.observe(&pod);
            }
            let statuses = seen.borrow_and_update().clone();
            let written = self.write(writer, &statuses, None).await;
            if done && (written != WriteResult::No || !self.is_here()) {
                return;
            }
            tokio::select! {
                _ = tasks.join_next(), if !done => done = true,
                _ = seen.changed() => {}
                _ = self.pod.changed() => {}
                _ = self.shutting_down.changed() => {}
                () = time::sleep(RETRY_AFTER), if written == WriteResult::No => {}
            }
        }
    }

    fn containers_of(
        &self,
        pod: &Arc<Pod>,
        shared: &SharedStatuses,
        stop: watch::Receiver<Stop>,
    ) -> PodContainers {
        let logs = self.open_logs(pod);
        if let Err(error) = &logs {
            self.context.events.warning(pod, "Failed", &format!("cannot keep its output: {error}"));
        }
        PodContainers {
            context: Arc::clone(&self.context),
            pod: Arc::clone(pod),
            address: self.address,
            network: None,
            logs: logs.unwrap_or_default(),
            shared: Arc::clone(shared),
            stop,
        }
    }

    /// Whether the pod must stop now, for its deletion or the agent's stop, and within which grace period.
    fn wanted_stop(&self) -> Stop {
        let seconds =
            |value: Option<i64>| Duration::from_secs(value.unwrap_or(30).try_into().unwrap_or_default());
        let pod = self.pod.borrow();
        let Some(pod) = pod.as_ref() else { return Stop::Within(Duration::ZERO) };
        let grace = seconds(pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds));
        match &pod.metadata.deletion_timestamp {
            _ if *self.shutting_down.borrow() => Stop::Within(grace.min(self.context.settings.stop_within)),
            Some(_) => Stop::Within(seconds(pod.metadata.deletion_grace_period_seconds)),
            None => Stop::No,
        }
    }

    /// Deletes the pod from the API once it is marked for deletion. Returns whether it is gone; false if the
    /// agent stops.
    async fn wait_for_deletion(&mut self, writer: &mut StatusWriter) -> bool {
        loop {
            if *self.shutting_down.borrow_and_update() {
                return false;
            }
            let Some(pod) = self.pod.borrow_and_update().clone() else { return true };
            writer.observe(&pod);
            if pod.metadata.deletion_timestamp.is_some() && writer.delete().await == WriteResult::No {
                self.wait_before_retry().await;
                continue;
            }
            tokio::select! {
                _ = self.pod.changed() => {}
                _ = self.shutting_down.changed() => {}
            }
        }
    }
}

/// The main containers, then the init containers: a request for logs without a name means the first.
fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
}

/// The statuses that an earlier agent wrote.
fn recovered(pod: &Pod, now: jiff::Timestamp) -> RuntimeStatuses {
    let statuses = pod.status.iter().flat_map(|status| {
        let main = status.container_statuses.iter().flatten();
        main.chain(status.init_container_statuses.iter().flatten())
    });
    let status = |status: &ContainerStatus| (status.name.clone(), RuntimeStatus::recovered(status, now));
    statuses.map(status).collect()
}

/// The containers of a pod, while the pod runs.
struct PodContainers {
    context: Arc<Context>,
    pod: Arc<Pod>,
    address: Ipv4Addr,
    /// Held until the last container has ended.
    network: Option<PodNetwork>,
    logs: HashMap<String, Arc<ContainerLog>>,
    shared: SharedStatuses,
    stop: watch::Receiver<Stop>,
}

impl PodContainers {
    /// Runs the init containers one after the other, then the main containers together.
    async fn run(mut self) {
        let Some(spec) = self.pod.spec.clone() else { return };
        if !self.prepare_volumes().await || !self.prepare_network().await {
            return;
        }
        let policy = Policy::read(spec.restart_policy.as_deref());
        for container in spec.init_containers.iter().flatten() {
            let Some(runner) = self.runner(container, policy.for_init()) else { return };
            runner.run().await;
            let succeeded = |statuses: &RuntimeStatuses| {
                statuses.get(&container.name)?.last_termination().map(Terminated::succeeded)
            };
            if succeeded(&self.shared.borrow()) != Some(true) {
                return;
            }
        }
        join_all(
            spec.containers
                .iter()
                .filter_map(|container| self.runner(container, policy))
                .map(ContainerRunner::run),
        )
        .await;
    }

    fn runner(&self, container: &Container, policy: Policy) -> Option<ContainerRunner> {
        Some(ContainerRunner {
            context: Arc::clone(&self.context),
            pod: Arc::clone(&self.pod),
            container: container.clone(),
            policy,
            address: self.address,
            network: self.network.as_ref().map_or(Network::Machine, |network| network.network.clone()),
            directory: self.context.directory_of(uid(&self.pod)),
            output: Arc::clone(self.logs.get(&container.name)?),
            shared: Arc::clone(&self.shared),
            stop: self.stop.clone(),
        })
    }

    /// Makes the network of the pod, where pods have one of their own. Returns false if the pod stops before.
    async fn prepare_network(&mut self) -> bool {
        let Some(bridge) = self.context.bridge.clone() else { return true };
        loop {
            if *self.stop.borrow() != Stop::No {
                return false;
            }
            let Settings { shim, directory, backoff, .. } = &self.context.settings;
            let mark = orphans::mark(directory, uid(&self.pod), "network");
            match bridge.connect(shim, directory, self.address, mark).await {
                Ok(network) => self.network = Some(network),
                Err(error) => {
                    let why = format!("its network: {error}");
                    self.context.events.warning(&self.pod, "FailedCreatePodSandBox", &why);
                    let stopped = self.stop.wait_for(|stop| *stop != Stop::No);
                    drop(time::timeout(backoff.first, stopped).await);
                    continue;
                }
            }
            return true;
        }
    }

    /// Writes the volumes as soon as all objects that they refer to exist. Returns false if the pod stops before.
    async fn prepare_volumes(&mut self) -> bool {
        loop {
            if *self.stop.borrow() != Stop::No {
                return false;
            }
            let Err(why) = self.write_volumes().await else { return true };
            self.context.events.warning(&self.pod, "FailedMount", &why);
            let stopped = self.stop.wait_for(|stop| *stop != Stop::No);
            drop(time::timeout(self.context.settings.backoff.first, stopped).await);
        }
    }

    async fn write_volumes(&self) -> Result<(), String> {
        let sources =
            Sources::fetch(&self.context.client, &self.pod).await.map_err(|error| error.to_string())?;
        let place = PodInfo { pod: &self.pod, node: &self.context.settings.name, address: self.address };
        let directory = self.context.directory_of(uid(&self.pod));
        volume::write(place, &sources, &directory).map_err(|error| error.to_string())
    }
}
