//! Looks at a running container again and again, and reports what it means.
use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;
use tokio::{sync::mpsc, task::JoinSet, time};

use crate::{
    check::{Check, Target},
    process::Shim,
    tally::{Rhythm, Tally},
};

/// What the probes found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// The startup probe has succeeded; the others begin.
    Started,
    Ready(bool),
    /// One look failed: which probe, and what it saw.
    Unhealthy(&'static str, String),
    /// It must be ended: which probe says so, and within what time if not the pod's.
    Kill(&'static str, Option<Duration>),
}

/// The probes of one run of a container. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Probing {
    pub reports: mpsc::Receiver<Report>,
    _task: JoinSet<()>,
}

#[derive(Debug, Clone)]
struct Prober {
    name: &'static str,
    check: Check,
    rhythm: Rhythm,
    grace: Option<Duration>,
    shim: Shim,
    reports: mpsc::Sender<Report>,
}

impl Probing {
    pub fn start(target: Target<'_>, shim: &Shim) -> Self {
        let (sender, reports) = mpsc::channel(16);
        let prober = |name, probe: Option<&Probe>| {
            let (shim, reports) = (shim.clone(), sender.clone());
            let make = |probe: &Probe| {
                let (check, rhythm) = (Check::of_probe(probe, target), Rhythm::of(probe));
                let grace =
                    probe.termination_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok());
                Prober { name, check, rhythm, grace: grace.map(Duration::from_secs), shim, reports }
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
                && !startup.wait_for_start().await
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
                        readiness.keep_ready().await;
                    }
                },
                async {
                    if let Some(liveness) = liveness {
                        liveness.watch_life().await;
                    }
                }
            );
        });
        Self { reports, _task: task }
    }
}

impl Prober {
    async fn look(&self) -> bool {
        let seen = match time::timeout(self.rhythm.timeout, self.check.make(&self.shim)).await {
            Ok(seen) => seen,
            Err(_) => Err(format!("no answer within {} s", self.rhythm.timeout.as_secs())),
        };
        if let Err(why) = &seen {
            drop(self.reports.send(Report::Unhealthy(self.name, why.clone())).await);
        }
        seen.is_ok()
    }

    async fn ticks(&self) -> time::Interval {
        time::sleep(self.rhythm.delay).await;
        let mut ticks = time::interval(self.rhythm.period);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        ticks
    }

    async fn wait_for_start(&self) -> bool {
        let (mut ticks, mut tally) = (self.ticks().await, Tally::default());
        loop {
            ticks.tick().await;
            match tally.count(self.look().await, &self.rhythm) {
                Some(true) => return true,
                Some(false) => {
                    drop(self.reports.send(Report::Kill(self.name, self.grace)).await);
                    return false;
                }
                None => {}
            }
        }
    }

    async fn keep_ready(&self) {
        let (mut ticks, mut tally, mut said) = (self.ticks().await, Tally::default(), false);
        loop {
            ticks.tick().await;
            if let Some(ready) = tally.count(self.look().await, &self.rhythm)
                && ready != said
            {
                said = ready;
                drop(self.reports.send(Report::Ready(ready)).await);
            }
        }
    }

    async fn watch_life(&self) {
        let (mut ticks, mut tally) = (self.ticks().await, Tally::default());
        loop {
            ticks.tick().await;
            if tally.count(self.look().await, &self.rhythm) == Some(false) {
                drop(self.reports.send(Report::Kill(self.name, self.grace)).await);
                return;
            }
        }
    }
}
