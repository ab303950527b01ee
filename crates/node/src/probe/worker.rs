//! Runs the probes of one running container and reports their verdicts.
use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;
use tokio::{sync::mpsc, task::JoinSet, time};

use crate::{
    probe::{
        handler::{Handler, Target},
        timing::{ResultRun, Timing},
    },
    process::client::Shim,
};

/// A verdict of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// The startup probe has succeeded; the others begin.
    Started,
    Ready(bool),
    /// One attempt failed: the probe and its error.
    Unhealthy(&'static str, String),
    /// The container must be killed: the probe that failed, and its own grace period, if it has one.
    Kill(&'static str, Option<Duration>),
}

/// The probes of one run of a container. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct Probes {
    pub reports: mpsc::Receiver<Report>,
    _task: JoinSet<()>,
}

#[derive(Debug, Clone)]
struct Prober {
    name: &'static str,
    check: Handler,
    timing: Timing,
    grace: Option<Duration>,
    shim: Shim,
    reports: mpsc::Sender<Report>,
}

impl Probes {
    pub fn start(target: Target<'_>, shim: &Shim) -> Self {
        let (sender, reports) = mpsc::channel(16);
        let prober = |name, probe: Option<&Probe>| {
            let (shim, reports) = (shim.clone(), sender.clone());
            let make = |probe: &Probe| {
                let (check, timing) = (Handler::of_probe(probe, target), Timing::of(probe));
                let grace =
                    probe.termination_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok());
                Prober { name, check, timing, grace: grace.map(Duration::from_secs), shim, reports }
            };
            probe.map(make)
        };
        let container = target.container;
        let startup = prober("Startup", container.startup_probe.as_ref());
        let readiness = prober("Readiness", container.readiness_probe.as_ref());
        let liveness = prober("Liveness", container.liveness_probe.as_ref());
        let mut task = JoinSet::new();
        task.spawn(async move {
            if let Some(startup) = startup
                && !startup.probe_startup().await
            {
                return;
            }
            drop(sender.send(Report::Started).await);
            if readiness.is_none() {
                drop(sender.send(Report::Ready(true)).await);
            }
            // The agent reads reports until it drops the receiver.
            drop(sender);
            tokio::join!(
                async {
                    if let Some(readiness) = readiness {
                        readiness.probe_readiness().await;
                    }
                },
                async {
                    if let Some(liveness) = liveness {
                        liveness.probe_liveness().await;
                    }
                }
            );
        });
        Self { reports, _task: task }
    }
}

impl Prober {
    async fn probe_once(&self) -> bool {
        let seen = match time::timeout(self.timing.timeout, self.check.run(&self.shim)).await {
            Ok(seen) => seen,
            Err(_) => Err(format!("no answer within {} s", self.timing.timeout.as_secs())),
        };
        if let Err(why) = &seen {
            drop(self.reports.send(Report::Unhealthy(self.name, why.clone())).await);
        }
        seen.is_ok()
    }

    async fn ticks(&self) -> time::Interval {
        time::sleep(self.timing.delay).await;
        let mut ticks = time::interval(self.timing.period);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        ticks
    }

    async fn probe_startup(&self) -> bool {
        let (mut ticks, mut results) = (self.ticks().await, ResultRun::default());
        loop {
            ticks.tick().await;
            match results.record(self.probe_once().await, &self.timing) {
                Some(true) => return true,
                Some(false) => {
                    drop(self.reports.send(Report::Kill(self.name, self.grace)).await);
                    return false;
                }
                None => {}
            }
        }
    }

    async fn probe_readiness(&self) {
        let (mut ticks, mut results, mut said) = (self.ticks().await, ResultRun::default(), false);
        loop {
            ticks.tick().await;
            if let Some(ready) = results.record(self.probe_once().await, &self.timing)
                && ready != said
            {
                said = ready;
                drop(self.reports.send(Report::Ready(ready)).await);
            }
        }
    }

    async fn probe_liveness(&self) {
        let (mut ticks, mut results) = (self.ticks().await, ResultRun::default());
        loop {
            ticks.tick().await;
            if results.record(self.probe_once().await, &self.timing) == Some(false) {
                drop(self.reports.send(Report::Kill(self.name, self.grace)).await);
                return;
            }
        }
    }
}
