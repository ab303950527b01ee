//! One container from its first start to its last end.
use std::{collections::BTreeMap, fs, net::Ipv4Addr, path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::{
    io::AsyncReadExt,
    process::ChildStderr,
    sync::watch,
    task::JoinSet,
    time::{self, Instant},
};

use crate::{
    check::{Check, Target},
    context::{Context, uid},
    ending::{Ending, Step},
    environment::{self, Place},
    leftovers,
    log::{Output, Pen},
    phase::Policy,
    probing::{Probing, Report},
    process::{End, Program, Running},
    sources::Sources,
    status::Views,
    view::{Ended, State, View},
    volume,
};

/// Whether the pod is to end, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    Within(Duration),
}

/// What the containers of a pod have come to, for whoever writes its status.
pub(crate) type Board = Arc<watch::Sender<Views>>;

/// A container and all that its life needs.
pub(crate) struct Life {
    pub context: Arc<Context>,
    pub pod: Arc<Pod>,
    pub container: Container,
    pub policy: Policy,
    pub address: Ipv4Addr,
    pub directory: PathBuf,
    pub output: Arc<Output>,
    pub board: Board,
    pub stop: watch::Receiver<Stop>,
}

impl Life {
    /// Runs the container again and again, as its policy says, until it is over.
    pub async fn live(mut self) {
        let backoff = self.context.settings.backoff;
        let mut starts = 0;
        if let State::Ended(ended) = self.view().state {
            // From before a restart of the agent.
            if !self.policy.restarts(ended.code) {
                return;
            }
            self.begin_again(ended);
        }
        while !self.is_stopping() {
            let program = match self.prepare().await {
                Ok(program) => program,
                Err(why) => {
                    self.wait_for_its_needs(&why).await;
                    continue;
                }
            };
            starts += 1;
            let began = Instant::now();
            let ended = self.run(program).await;
            self.note(|view| {
                *view =
                    View { state: State::Ended(ended.clone()), ready: false, started: false, ..view.clone() };
            });
            if self.is_stopping() || !self.policy.restarts(ended.code) {
                return;
            }
            if began.elapsed() > backoff.forgets_after() {
                starts = 1;
            }
            self.back_off(&ended, backoff.delay(starts)).await;
            if !self.is_stopping() {
                self.begin_again(ended);
            }
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow() != Stop::No
    }

    fn view(&self) -> View {
        self.board.borrow().get(&self.container.name).cloned().unwrap_or_default()
    }

    fn note(&self, change: impl FnOnce(&mut View)) {
        self.board.send_modify(|views| change(views.entry(self.container.name.clone()).or_default()));
    }

    fn begin_again(&self, last: Ended) {
        self.note(|view| {
            *view = View { last: Some(last), restarts: view.restarts + 1, ..View::default() };
        });
    }

    /// Waits, unless the pod is to end.
    async fn pause(&mut self, delay: Duration) {
        drop(time::timeout(delay, self.stop.wait_for(|stop| *stop != Stop::No)).await);
    }

    async fn back_off(&mut self, ended: &Ended, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        let name = &self.container.name;
        let message = format!("back-off {} s restarting failed container={name}", delay.as_secs_f32());
        self.context.events.warning(
            &self.pod,
            "BackOff",
            &format!("Back-off restarting failed container {name}"),
        );
        self.note(|view| {
            let waiting = View::waiting("CrashLoopBackOff", &message);
            *view = View { last: Some(ended.clone()), restarts: view.restarts, ..waiting };
        });
        self.pause(delay).await;
    }

    async fn wait_for_its_needs(&mut self, why: &str) {
        self.context.events.warning(&self.pod, "Failed", &format!("Error: {why}"));
        self.note(|view| view.state = View::waiting("CreateContainerConfigError", why).state);
        self.pause(self.context.settings.backoff.first).await;
    }

    /// Makes the container's directory and its environment.
    async fn prepare(&self) -> Result<Program, String> {
        let sources =
            Sources::fetch(&self.context.client, &self.pod).await.map_err(|error| error.to_string())?;
        let root = self.directory.join("containers").join(&self.container.name);
        fs::create_dir_all(&root).map_err(|error| format!("failed to make {}: {error}", root.display()))?;
        let mut environment = self.basics(&root.display().to_string());
        volume::link(&self.pod, &self.container, &self.directory, &root, &mut environment)
            .map_err(|error| error.to_string())?;
        let place = Place { pod: &self.pod, node: &self.context.settings.name, address: self.address };
        environment::build(place, &self.container, &sources, &mut environment)
            .map_err(|error| error.to_string())?;
        let words = self.container.command.iter().chain(&self.container.args).flatten();
        let command = words.map(|word| environment::expand(word, &environment)).collect();
        let directory = self.container.working_dir.as_deref().filter(|path| !path.is_empty());
        let directory = directory.map_or(root, PathBuf::from);
        // Last, so that no manifest can hide a process from its agent.
        let mark = leftovers::mark(&self.context.settings.directory, uid(&self.pod), &self.container.name);
        environment.insert(leftovers::MARK.to_owned(), mark);
        let hosts = self.context.names.hosts_of(&self.pod)?;
        Ok(Program { command, environment, directory, hosts })
    }

    /// What every container has without asking.
    fn basics(&self, root: &str) -> BTreeMap<String, String> {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
        let name = self.pod.metadata.name.clone().unwrap_or_default();
        let basics = [
            ("PATH", path),
            ("HOME", root.to_owned()),
            ("HOSTNAME", name),
            ("POD_IP", self.address.to_string()),
        ];
        basics.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// One run, from start to end.
    async fn run(&mut self, program: Program) -> Ended {
        let now = self.context.settings.now;
        let (mut running, output) = match self.context.settings.shim.start(&program) {
            Ok(started) => started,
            Err(error) => return Ended::new(&End::NotStarted(error.to_string()), None, now()),
        };
        if let Err(end) = running.started().await {
            return Ended::new(&end, None, now());
        }
        let since = now();
        let mut writing = JoinSet::new();
        let pen = self.output.begin();
        if let Err(error) = &pen {
            self.context.events.warning(&self.pod, "Failed", &format!("cannot keep its output: {error}"));
        }
        writing.spawn(copy(output, pen.ok()));
        self.note(|view| view.state = State::Running { since });
        let message = format!("Started container {}", self.container.name);
        self.context.events.normal(&self.pod, "Started", &message);
        let end = self.attend(running, &program).await;
        if end == End::Lost {
            let mark =
                leftovers::mark(&self.context.settings.directory, uid(&self.pod), &self.container.name);
            drop(leftovers::end(format!("{}={mark}", leftovers::MARK)).await);
        }
        // The tree is gone, so its output has an end.
        writing.join_all().await;
        Ended::new(&end, Some(since), now())
    }

    /// Listens to the probes and to the pod until the container has ended.
    async fn attend(&mut self, mut running: Running, program: &Program) -> End {
        let target = Target { container: &self.container.clone(), address: self.address, program };
        let mut probing = Probing::start(target, &self.context.settings.shim);
        let mut ending: Option<Ending> = None;
        loop {
            tokio::select! {
                end = running.ended() => return end,
                Some(report) = probing.reports.recv() => {
                    let kill = self.hear(report);
                    // A container that is ending is not judged any more, but its readiness still is.
                    if let Some((why, grace)) = kill && ending.is_none() {
                        let grace = grace.unwrap_or_else(|| self.grace());
                        ending = Some(self.begin_to_end(&mut running, target, grace, &why).await);
                    }
                }
                grace = wanted_grace(&mut self.stop) => match &mut ending {
                    Some(ending) => ending.shorten(grace),
                    None => {
                        ending = Some(self.begin_to_end(&mut running, target, grace, "").await);
                    }
                },
                step = Ending::next(&mut ending) => match step {
                    Step::Terminate => running.terminate().await,
                    Step::Kill => running.kill(),
                },
            }
        }
    }

    /// Notes what a probe says; a reason if the container must be ended, and the grace that the probe has for it.
    fn hear(&self, report: Report) -> Option<(String, Option<Duration>)> {
        match report {
            Report::Started => self.note(|view| view.started = true),
            Report::Ready(ready) => self.note(|view| view.ready = ready),
            Report::Unhealthy(probe, why) => {
                self.context.events.warning(&self.pod, "Unhealthy", &format!("{probe} probe failed: {why}"));
            }
            Report::Kill(probe, grace) => {
                let name = &self.container.name;
                let probe = probe.to_lowercase();
                return Some((format!("Container {name} failed {probe} probe, will be restarted"), grace));
            }
        }
        None
    }

    fn grace(&self) -> Duration {
        let seconds = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        Duration::from_secs(seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(30))
    }

    async fn begin_to_end(
        &self,
        running: &mut Running,
        target: Target<'_>,
        grace: Duration,
        why: &str,
    ) -> Ending {
        let stopping = format!("Stopping container {}", self.container.name);
        let message = if why.is_empty() { &stopping } else { why };
        self.context.events.normal(&self.pod, "Killing", message);
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        let hook = hook.filter(|_| !grace.is_zero()).map(|hook| Check::of_hook(hook, target));
        if hook.is_none() {
            running.terminate().await;
        }
        Ending::new(hook, self.context.settings.shim.clone(), grace)
    }
}

/// Waits until the pod is to end, or is to end sooner.
async fn wanted_grace(stop: &mut watch::Receiver<Stop>) -> Duration {
    loop {
        if stop.changed().await.is_err() {
            // Whoever decides is gone, and with it this task.
            std::future::pending::<()>().await;
        }
        if let Stop::Within(grace) = *stop.borrow_and_update() {
            return grace;
        }
    }
}

/// Copies what a container says into its log. It is read in any case: a disk that is full must not stop a container.
async fn copy(mut output: ChildStderr, mut pen: Option<Pen>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = output.read(&mut buffer).await {
        if let Some(pen) = &mut pen {
            drop(pen.write(&buffer[..count]));
        }
    }
}
