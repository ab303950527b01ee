//! One pod on this node, from its binding to its deletion.
use std::{collections::HashMap, fs, net::Ipv4Addr, sync::Arc, time::Duration};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use tokio::{sync::watch, task::JoinSet, time};

use crate::{
    container::{Board, Life, Stop},
    context::{Context, is_over, key, uid},
    environment::Place,
    journal::{Journal, Written},
    log::Output,
    phase::Policy,
    refusal::{Refused, refusal},
    sources::Sources,
    status::{Facts, Views, status},
    view::{Ended, State, View},
    volume,
};

/// How long to wait when the API does not take a write.
const AGAIN: Duration = Duration::from_millis(500);

/// The one who runs a pod.
pub(crate) struct Keeper {
    pub context: Arc<Context>,
    /// The pod as the API has it; nothing when it is gone.
    pub pod: watch::Receiver<Option<Arc<Pod>>>,
    pub address: Ipv4Addr,
    /// The agent itself is stopping.
    pub leaving: watch::Receiver<bool>,
}

impl Keeper {
    /// Returns when nothing of the pod runs, and it is gone from the API or the agent stops.
    pub async fn keep(mut self) {
        let Some(pod) = self.pod.borrow_and_update().clone() else { return };
        let mut journal = Journal::new(&self.context.client, Arc::clone(&pod));
        let refused = pod.spec.as_ref().and_then(refusal);
        match refused {
            _ if is_over(&pod) => drop(self.open_outputs(&pod)),
            Some(refused) => self.refuse(&mut journal, &refused).await,
            None => self.host(&pod, &mut journal).await,
        }
        if self.wait_for_deletion(&mut journal).await {
            self.context.outputs.remove(key(&pod), uid(&pod));
            drop(fs::remove_dir_all(self.context.directory_of(uid(&pod))));
        }
    }

    fn open_outputs(&self, pod: &Pod) -> std::io::Result<HashMap<String, Arc<Output>>> {
        let names: Vec<_> = containers(pod).map(|container| container.name.clone()).collect();
        let main = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        self.context.outputs.open(key(pod), uid(pod), names.split_at(main))
    }

    async fn refuse(&mut self, journal: &mut Journal, refused: &Refused) {
        let Refused { reason, message } = refused;
        self.context.events.warning(journal.known(), reason, message);
        let views = containers(journal.known()).map(|c| (c.name.clone(), View::waiting(reason, message)));
        let views: Views = views.collect();
        while self.is_here() {
            let refused = Some((*reason, message.as_str()));
            if self.write(journal, &views, refused).await != Written::No {
                return;
            }
            self.wait_a_moment().await;
        }
    }

    async fn write(&self, journal: &mut Journal, views: &Views, refused: Option<(&str, &str)>) -> Written {
        let now = (self.context.settings.now)();
        let running = views.values().any(|view| matches!(view.state, State::Running { .. }));
        // When only the agent stops, the next one starts them again.
        let ending = journal.known().metadata.deletion_timestamp.is_some() && !running;
        let facts = Facts { views, address: self.address, refused, ending, now };
        let status = status(journal.known(), &facts);
        journal.write(status).await
    }

    fn is_here(&self) -> bool {
        self.pod.borrow().is_some() && !*self.leaving.borrow()
    }

    async fn wait_a_moment(&mut self) {
        let changed = async {
            tokio::select! {
                _ = self.pod.changed() => {}
                _ = self.leaving.changed() => {}
            }
        };
        drop(time::timeout(AGAIN, changed).await);
    }

    /// Runs the containers and writes what becomes of them until nothing runs any more.
    async fn host(&mut self, pod: &Arc<Pod>, journal: &mut Journal) {
        let now = (self.context.settings.now)();
        let board: Board = Arc::new(watch::Sender::new(recovered(pod, now)));
        let mut seen = board.subscribe();
        let (stop, stopped) = watch::channel(self.wish());
        let mut lives = JoinSet::new();
        lives.spawn(self.house(pod, &board, stopped).live());
        let mut done = false;
        loop {
            let wish = self.wish();
            stop.send_if_modified(|stop| std::mem::replace(stop, wish) != wish);
            if let Some(pod) = self.pod.borrow_and_update().clone() {
                journal.learn(&pod);
            }
            let views = seen.borrow_and_update().clone();
            let written = self.write(journal, &views, None).await;
            if done && (written != Written::No || !self.is_here()) {
                return;
            }
            tokio::select! {
                _ = lives.join_next(), if !done => done = true,
                _ = seen.changed() => {}
                _ = self.pod.changed() => {}
                _ = self.leaving.changed() => {}
                () = time::sleep(AGAIN), if written == Written::No => {}
            }
        }
    }

    fn house(&self, pod: &Arc<Pod>, board: &Board, stop: watch::Receiver<Stop>) -> House {
        let outputs = self.open_outputs(pod);
        if let Err(error) = &outputs {
            self.context.events.warning(pod, "Failed", &format!("cannot keep its output: {error}"));
        }
        House {
            context: Arc::clone(&self.context),
            pod: Arc::clone(pod),
            address: self.address,
            outputs: outputs.unwrap_or_default(),
            board: Arc::clone(board),
            stop,
        }
    }

    /// What the API and the agent want of the pod now.
    fn wish(&self) -> Stop {
        let seconds =
            |value: Option<i64>| Duration::from_secs(value.unwrap_or(30).try_into().unwrap_or_default());
        let pod = self.pod.borrow();
        let Some(pod) = pod.as_ref() else { return Stop::Within(Duration::ZERO) };
        let grace = seconds(pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds));
        match &pod.metadata.deletion_timestamp {
            _ if *self.leaving.borrow() => Stop::Within(grace.min(self.context.settings.stop_within)),
            Some(_) => Stop::Within(seconds(pod.metadata.deletion_grace_period_seconds)),
            None => Stop::No,
        }
    }

    /// Takes the pod out of the API when it is to go. Says whether it is gone.
    async fn wait_for_deletion(&mut self, journal: &mut Journal) -> bool {
        loop {
            if *self.leaving.borrow_and_update() {
                return false;
            }
            let Some(pod) = self.pod.borrow_and_update().clone() else { return true };
            journal.learn(&pod);
            if pod.metadata.deletion_timestamp.is_some() && journal.delete().await == Written::No {
                self.wait_a_moment().await;
                continue;
            }
            tokio::select! {
                _ = self.pod.changed() => {}
                _ = self.leaving.changed() => {}
            }
        }
    }
}

/// The containers first: whoever does not say which one means the first.
fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
}

/// What an earlier agent wrote of the containers.
fn recovered(pod: &Pod, now: jiff::Timestamp) -> Views {
    let statuses = pod.status.iter().flat_map(|status| {
        let main = status.container_statuses.iter().flatten();
        main.chain(status.init_container_statuses.iter().flatten())
    });
    let view = |status: &ContainerStatus| (status.name.clone(), View::recovered(status, now));
    statuses.map(view).collect()
}

/// The containers of a pod while they run.
struct House {
    context: Arc<Context>,
    pod: Arc<Pod>,
    address: Ipv4Addr,
    outputs: HashMap<String, Arc<Output>>,
    board: Board,
    stop: watch::Receiver<Stop>,
}

impl House {
    /// Init containers one after the other, then the others together.
    async fn live(mut self) {
        let Some(spec) = self.pod.spec.clone() else { return };
        if !self.furnish().await {
            return;
        }
        let policy = Policy::read(spec.restart_policy.as_deref());
        for container in spec.init_containers.iter().flatten() {
            let Some(life) = self.life(container, policy.of_init()) else { return };
            life.live().await;
            let succeeded = |views: &Views| views.get(&container.name)?.over().map(Ended::succeeded);
            if succeeded(&self.board.borrow()) != Some(true) {
                return;
            }
        }
        join_all(spec.containers.iter().filter_map(|container| self.life(container, policy)).map(Life::live))
            .await;
    }

    fn life(&self, container: &Container, policy: Policy) -> Option<Life> {
        Some(Life {
            context: Arc::clone(&self.context),
            pod: Arc::clone(&self.pod),
            container: container.clone(),
            policy,
            address: self.address,
            directory: self.context.directory_of(uid(&self.pod)),
            output: Arc::clone(self.outputs.get(&container.name)?),
            board: Arc::clone(&self.board),
            stop: self.stop.clone(),
        })
    }

    /// Writes the volumes, as soon as all that they hold is there. Says whether it was.
    async fn furnish(&mut self) -> bool {
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
        let place = Place { pod: &self.pod, node: &self.context.settings.name, address: self.address };
        let directory = self.context.directory_of(uid(&self.pod));
        volume::write(place, &sources, &directory).map_err(|error| error.to_string())
    }
}
