//! What is to be seen at one moment, and how it looks. Everything in it was said by the API, the gateway or the load.

use std::{collections::VecDeque, time::Duration};

use api::modeldeployment::{ModelDeploymentStatus, VersionStatus};
use gateway::{Snapshot, load::Tallied};

use super::{manifest::REPLICAS, watch::Known};

/// How many of the last steps are shown.
const STEPS: usize = 5;

/// Something that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Since the start.
    pub(super) at: Duration,
    pub(super) what: String,
}

/// One moment.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) elapsed: Duration,
    /// What the demonstration itself is at.
    pub(super) act: String,
    pub(super) known: Known,
    /// By the gateway: requests, and connections to Services.
    pub(super) in_flight: u64,
    pub(super) load: Tallied,
    /// Answers in a second, lately.
    pub(super) rate: u64,
    pub(super) steps: Vec<Step>,
}

/// What is in flight through the gateway.
pub(super) fn in_flight(snapshot: &Snapshot) -> u64 {
    let requests: u64 = snapshot.routes.values().map(|counts| counts.in_flight).sum();
    let connections: u64 = snapshot.services.values().map(|counts| counts.connections).sum();
    requests + connections
}

/// A share of the replicas that are asked for, in percent.
pub(super) fn percent(pods: usize) -> usize {
    pods * 100 / REPLICAS
}

/// What the service is doing, in the words of its status.
pub(super) fn doing(status: &ModelDeploymentStatus) -> Option<String> {
    status.message.clone().or_else(|| waiting(status).map(|wait| format!("waits for {wait}")))
}

/// What it waits for.
fn waiting(status: &ModelDeploymentStatus) -> Option<String> {
    let wait = status.rollout.as_ref()?.waiting_for.as_ref()?;
    Some(format!("{} ({})", wait.subject, wait.reason))
}

/// How many requests failed because of the platform, and how many of them had begun to be answered.
pub(super) fn failures(load: &Tallied) -> String {
    let failed = load.lost();
    match load.truncated {
        0 => failed.to_string(),
        1 => format!("{failed} (1 of them a stream that broke off)"),
        streams => format!("{failed} ({streams} of them streams that broke off)"),
    }
}

/// How many answers a second there were lately.
#[derive(Debug, Default)]
pub(super) struct Rate(VecDeque<(Duration, u64)>);

impl Rate {
    const WINDOW: Duration = Duration::from_secs(2);

    /// Takes in how many there are by now, and says how many there were a second.
    pub(super) fn at(&mut self, now: Duration, requests: u64) -> u64 {
        self.0.push_back((now, requests));
        while self.0.len() > 2 && self.0.front().is_some_and(|(then, _)| *then + Self::WINDOW < now) {
            self.0.pop_front();
        }
        let Some((then, before)) = self.0.front() else { return 0 };
        let millis = u64::try_from(now.saturating_sub(*then).as_millis()).unwrap_or(u64::MAX);
        ((requests - before) * 1000).checked_div(millis).unwrap_or(0)
    }
}

/// Marks words with a colour; the words say it without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint(pub(super) bool);

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }

    fn dim(self, text: &str) -> String {
        self.with("2", text)
    }
}

/// Seconds, to a tenth.
pub(super) fn seconds(time: Duration) -> String {
    format!("{}.{} s", time.as_secs(), time.subsec_millis() / 100)
}

/// The moment as lines of a screen.
pub(super) fn render(view: &View, paint: Paint) -> Vec<String> {
    let View { known, load, .. } = view;
    let mut lines = vec![
        format!("{:>7}  {}", seconds(view.elapsed), view.act),
        String::new(),
        paint.dim("version     replicas   capacity      traffic in percent          in flight"),
        paint.dim("                       asked ready   desired applied observed"),
    ];
    lines.extend(known.status.versions.iter().map(version));
    let (pods, peak) = (known.pods.len(), known.peak);
    let fares = format!("failed {}, app errors {}", failures(load), load.app_errors);
    let well = load.lost() + load.app_errors == 0;
    let fares =
        if well { paint.good(&format!("{fares}: good")) } else { paint.bad(&format!("{fares}: BAD")) };
    lines.extend([
        String::new(),
        format!("pods      {pods}, {} % of {REPLICAS} replicas; peak {} %", percent(pods), percent(peak)),
        format!("requests  {}, {} a second, {} in flight", load.requests(), view.rate, view.in_flight),
        format!("          {fares}"),
        format!("rollout   {}", doing(&known.status).unwrap_or_else(|| "nothing to do".to_owned())),
        format!(
            "waits     {}",
            waiting(&known.status).map_or_else(|| "for nothing".to_owned(), |wait| format!("for {wait}"))
        ),
        String::new(),
    ]);
    let first = view.steps.len().saturating_sub(STEPS);
    lines.extend(view.steps[first..].iter().map(|step| paint.dim(&line(step))));
    lines
}

/// A step as a line.
pub(super) fn line(step: &Step) -> String {
    format!("{:>7}  {}", seconds(step.at), step.what)
}

fn version(version: &VersionStatus) -> String {
    let VersionStatus { name, capacity, traffic, replicas, .. } = version;
    let known = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    format!(
        "{name:<11} {replicas:>8}   {:>5} {:>5}   {:>7} {:>7} {:>8}   {:>9}",
        capacity.asked,
        capacity.ready,
        traffic.desired,
        known(traffic.applied.map(i64::from)),
        known(traffic.observed.map(i64::from)),
        known(version.in_flight),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::watch::tests::rollout, *};

    fn view() -> View {
        let wait = json!({"reason": "NotReady", "subject": "1 unit of v2", "since": "2026-01-01T00:00:00Z"});
        let status = json!({
            "phase": "Rolling", "message": "bringing up 1 unit of v2",
            "rollout": rollout("waitingFor", &wait),
            "versions": [
                {"name": "v1", "revision": 1, "capacity": {"asked": 4, "granted": 4, "ready": 4}, "replicas": 4,
                    "traffic": {"desired": 100, "applied": 100, "observed": 99}, "readyReplicas": 4, "inFlight": 7},
                {"name": "v2", "revision": 2, "capacity": {"asked": 1, "granted": 1, "ready": 0}, "replicas": 1,
                    "traffic": {"desired": 0}, "readyReplicas": 0},
            ],
        });
        let pods = (0..5).map(|pod| pod.to_string()).collect();
        let known = Known { status: serde_json::from_value(status).unwrap(), pods, peak: 6 };
        let steps =
            (1..9).map(|at| Step { at: Duration::from_secs(at), what: format!("step {at}") }).collect();
        View {
            elapsed: Duration::from_millis(12_340),
            act: "v2 takes over".to_owned(),
            known,
            in_flight: 9,
            load: Tallied { ok: 700, ..Tallied::default() },
            rate: 60,
            steps,
        }
    }

    #[test]
    fn a_moment_is_told_in_words_and_numbers() {
        let text = render(&view(), Paint(false)).join("\n");
        let expected = "
 12.3 s  v2 takes over

version     replicas   capacity      traffic in percent          in flight
                       asked ready   desired applied observed
v1                 4       4     4       100     100       99           7
v2                 1       1     0         0       -        -           -

pods      5, 125 % of 4 replicas; peak 150 %
requests  700, 60 a second, 9 in flight
          failed 0, app errors 0: good
rollout   bringing up 1 unit of v2
waits     for 1 unit of v2 (NotReady)

  4.0 s  step 4
  5.0 s  step 5
  6.0 s  step 6
  7.0 s  step 7
  8.0 s  step 8";
        assert_eq!(format!("\n{text}"), expected);
    }

    #[test]
    fn what_is_bad_is_said_and_not_only_coloured() {
        let mut view = view();
        (view.load.failed, view.load.truncated) = (2, 5);
        let strip =
            |line: &String| line.replace("\x1b[1;31m", "").replace("\x1b[2m", "").replace("\x1b[0m", "");
        let coloured = render(&view, Paint(true));
        assert!(coloured.iter().any(|line| line.contains("\x1b[1;31m")));
        let plain: Vec<String> = coloured.iter().map(strip).collect();
        assert_eq!(plain, render(&view, Paint(false)));
        let said = "          failed 7 (5 of them streams that broke off), app errors 0: BAD";
        assert!(plain.iter().any(|line| line == said), "{plain:?}");
    }

    #[test]
    fn a_rate_is_that_of_the_last_two_seconds() {
        let mut rate = Rate::default();
        assert_eq!(rate.at(Duration::ZERO, 0), 0);
        assert_eq!(rate.at(Duration::from_secs(1), 60), 60);
        assert_eq!(rate.at(Duration::from_secs(3), 180), 60);
        assert_eq!(rate.at(Duration::from_secs(5), 180), 0);
    }
}
