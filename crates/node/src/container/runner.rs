//! Runs one container: starts, probes, restarts and stops.
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
    container::{
        environment::{self, PodInfo},
        log::{ContainerLog, LogWriter},
        status::{RuntimeStatus, State, Terminated},
        stop::{GracefulStop, Step},
    },
    context::{Context, uid},
    pod::{phase::Policy, status::RuntimeStatuses},
    probe::{
        handler::{Handler, Target},
        worker::{Probes, Report},
    },
    process::{
        client::{ExitStatus, Network, Program, Running},
        orphans,
    },
    volume::{self, sources::Sources},
};

/// Whether the pod must stop, and its grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    Within(Duration),
}

/// The statuses of a pod's containers. The pod worker watches them and writes the pod's status.
pub(crate) type SharedStatuses = Arc<watch::Sender<RuntimeStatuses>>;

/// Runs one container.
pub(crate) struct ContainerRunner {
    pub context: Arc<Context>,
    pub pod: Arc<Pod>,
    pub container: Container,
    pub policy: Policy,
    pub address: Ipv4Addr,
    pub network: Network,
    pub directory: PathBuf,
    pub output: Arc<ContainerLog>,
    pub shared: SharedStatuses,
    pub stop: watch::Receiver<Stop>,
}

impl ContainerRunner {
    /// Runs the container, and restarts it as its policy says, until it is not to be restarted.
    pub async fn run(mut self) {
        let backoff = self.context.settings.backoff;
        let mut restarts = 0;
        if let State::Terminated(ended) = self.status().state {
            // From before a restart of the agent.
            if !self.policy.restarts(ended.code) {
                return;
            }
            self.record_restart(ended);
        }
        while !self.is_stopping() {
            let program = match self.prepare().await {
                Ok(program) => program,
                Err(why) => {
                    self.report_config_error(&why).await;
                    continue;
                }
            };
            let began = Instant::now();
            let ended = self.run_once(program).await;
            self.update(|status| {
                *status = RuntimeStatus {
                    state: State::Terminated(ended.clone()),
                    ready: false,
                    started: false,
                    ..status.clone()
                };
            });
            if self.is_stopping() || !self.policy.restarts(ended.code) {
                return;
            }
            if began.elapsed() > backoff.longest * 2 {
                restarts = 0;
            }
            self.back_off(&ended, backoff.after(restarts)).await;
            restarts += 1;
            if !self.is_stopping() {
                self.record_restart(ended);
            }
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow() != Stop::No
    }

    fn status(&self) -> RuntimeStatus {
        self.shared.borrow().get(&self.container.name).cloned().unwrap_or_default()
    }

    fn update(&self, change: impl FnOnce(&mut RuntimeStatus)) {
        self.shared.send_modify(|statuses| change(statuses.entry(self.container.name.clone()).or_default()));
    }

    fn record_restart(&self, last: Terminated) {
        self.update(|status| {
            *status =
                RuntimeStatus { last: Some(last), restarts: status.restarts + 1, ..RuntimeStatus::default() };
        });
    }

    /// Waits for the delay, or until the pod must stop.
    async fn wait_unless_stopped(&mut self, delay: Duration) {
        drop(time::timeout(delay, self.stop.wait_for(|stop| *stop != Stop::No)).await);
    }

    async fn back_off(&mut self, ended: &Terminated, delay: Duration) {
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
        self.update(|status| {
            let waiting = RuntimeStatus::waiting("CrashLoopBackOff", &message);
            *status = RuntimeStatus { last: Some(ended.clone()), restarts: status.restarts, ..waiting };
        });
        self.wait_unless_stopped(delay).await;
    }

    async fn report_config_error(&mut self, why: &str) {
        self.context.events.warning(&self.pod, "Failed", &format!("Error: {why}"));
        self.update(|status| status.state = RuntimeStatus::waiting("CreateContainerConfigError", why).state);
        self.wait_unless_stopped(self.context.settings.backoff.first).await;
    }

    /// Makes the container's directory, environment and command.
    async fn prepare(&self) -> Result<Program, String> {
        let sources =
            Sources::fetch(&self.context.client, &self.pod).await.map_err(|error| error.to_string())?;
        let root = self.directory.join("containers").join(&self.container.name);
        fs::create_dir_all(&root).map_err(|error| format!("failed to make {}: {error}", root.display()))?;
        let mut environment = self.basics(&root.display().to_string());
        volume::link(&self.pod, &self.container, &self.directory, &root, &mut environment)
            .map_err(|error| error.to_string())?;
        let place = PodInfo { pod: &self.pod, node: &self.context.settings.name, address: self.address };
        environment::build(place, &self.container, &sources, &mut environment)
            .map_err(|error| error.to_string())?;
        let words = self.container.command.iter().chain(&self.container.args).flatten();
        let command = words.map(|word| environment::expand(word, &environment)).collect();
        let directory = self.container.working_dir.as_deref().filter(|path| !path.is_empty());
        let directory = directory.map_or(root, PathBuf::from);
        // Last, so that no manifest can hide a process from its agent.
        let mark = orphans::mark(&self.context.settings.directory, uid(&self.pod), &self.container.name);
        environment.insert(orphans::MARK.to_owned(), mark);
        let hosts = self.context.hosts.path_for(&self.pod)?;
        Ok(Program { command, environment, directory, hosts, network: self.network.clone() })
    }

    /// The environment that every container has.
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

    /// Runs the container once.
    async fn run_once(&mut self, program: Program) -> Terminated {
        let now = self.context.settings.now;
        let (mut running, output) = match self.context.settings.shim.start(&program) {
            Ok(started) => started,
            Err(error) => return Terminated::new(&ExitStatus::NotStarted(error.to_string()), None, now()),
        };
        if let Err(end) = running.started().await {
            return Terminated::new(&end, None, now());
        }
        let since = now();
        let mut writing = JoinSet::new();
        let writer = self.output.begin();
        if let Err(error) = &writer {
            self.context.events.warning(&self.pod, "Failed", &format!("cannot keep its output: {error}"));
        }
        writing.spawn(copy(output, writer.ok()));
        self.update(|status| status.state = State::Running { since });
        let message = format!("Started container {}", self.container.name);
        self.context.events.normal(&self.pod, "Started", &message);
        let end = self.supervise(running, &program).await;
        if end == ExitStatus::Lost {
            let mark = orphans::mark(&self.context.settings.directory, uid(&self.pod), &self.container.name);
            drop(orphans::kill_marked(format!("{}={mark}", orphans::MARK)).await);
        }
        // The tree is gone, so its output has an end.
        writing.join_all().await;
        let mut ended = Terminated::new(&end, Some(since), now());
        let policy = self.container.termination_message_policy.as_deref();
        if !ended.succeeded() && ended.message.is_empty() && policy == Some("FallbackToLogsOnError") {
            ended.message = self.output.end();
        }
        ended
    }

    /// Handles probe reports and stop requests until the container has ended.
    async fn supervise(&mut self, mut running: Running, program: &Program) -> ExitStatus {
        let target = Target { container: &self.container.clone(), address: self.address, program };
        let mut probes = Probes::start(target, &self.context.settings.shim);
        let mut stop: Option<GracefulStop> = None;
        loop {
            tokio::select! {
                end = running.ended() => return end,
                Some(report) = probes.reports.recv() => {
                    let kill = self.handle_report(report);
                    // A container that is being stopped is not killed by its probes; its readiness is still reported.
                    if let Some((why, grace)) = kill && stop.is_none() {
                        let grace = grace.unwrap_or_else(|| self.grace());
                        stop = Some(self.begin_stop(&mut running, target, grace, &why).await);
                    }
                }
                grace = next_stop(&mut self.stop) => match &mut stop {
                    Some(stop) => stop.shorten(grace),
                    None => {
                        stop = Some(self.begin_stop(&mut running, target, grace, "").await);
                    }
                },
                next = GracefulStop::next(&mut stop) => match next {
                    Step::Terminate => running.terminate().await,
                    Step::Kill => running.kill(),
                },
            }
        }
    }

    /// Applies a probe report. Returns the message and the probe's grace period if the container must be killed.
    fn handle_report(&self, report: Report) -> Option<(String, Option<Duration>)> {
        match report {
            Report::Started => self.update(|status| status.started = true),
            Report::Ready(ready) => self.update(|status| status.ready = ready),
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

    async fn begin_stop(
        &self,
        running: &mut Running,
        target: Target<'_>,
        grace: Duration,
        why: &str,
    ) -> GracefulStop {
        let stopping = format!("Stopping container {}", self.container.name);
        let message = if why.is_empty() { &stopping } else { why };
        self.context.events.normal(&self.pod, "Killing", message);
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        let hook = hook.filter(|_| !grace.is_zero()).map(|hook| Handler::of_hook(hook, target));
        if hook.is_none() {
            running.terminate().await;
        }
        GracefulStop::new(hook, self.context.settings.shim.clone(), grace)
    }
}

/// Waits until the pod must stop, or must stop sooner.
async fn next_stop(stop: &mut watch::Receiver<Stop>) -> Duration {
    loop {
        if stop.changed().await.is_err() {
            // The sender lives as long as this task.
            std::future::pending::<()>().await;
        }
        if let Stop::Within(grace) = *stop.borrow_and_update() {
            return grace;
        }
    }
}

/// Copies output into the log. Reads it also when the log cannot be written: a full disk must not block a container.
async fn copy(mut output: ChildStderr, mut writer: Option<LogWriter>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = output.read(&mut buffer).await {
        if let Some(writer) = &mut writer {
            drop(writer.write(&buffer[..count]));
        }
    }
}
