//! What is to be seen at one moment, and how it looks. Everything in it was said by the API, the gateway or the load.

use std::{collections::VecDeque, time::Duration};

use api::modeldeployment::{ModelDeploymentStatus, VersionStatus};
use gateway::{Snapshot, load::Totals};

use super::{manifest::REPLICAS, watch::Observed};

/// How many of the last steps are shown.
const STEPS: usize = 8;

/// How wide all of the traffic is drawn.
const BAR: usize = 20;

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
    pub(super) phase: String,
    pub(super) known: Observed,
    /// By the gateway: requests, and connections to Services.
    pub(super) in_flight: u64,
    pub(super) load: Totals,
    /// Answers in a second, lately.
    pub(super) rate: u64,
    pub(super) steps: Vec<Step>,
}

/// What is in flight through the gateway.
pub(super) fn in_flight(snapshot: &Snapshot) -> u64 {
    let requests: u64 = snapshot.routes.values().map(|counts| counts.in_flight).sum();
    let direct = snapshot.cluster_addresses.values().map(|counts| counts.in_flight + counts.connections);
    requests + direct.sum::<u64>()
}

/// A share of the replicas that are asked for, in percent.
pub(super) fn percent(pods: usize) -> usize {
    pods * 100 / REPLICAS
}

/// What the service is doing, in the words of its status.
pub(super) fn doing(status: &ModelDeploymentStatus) -> Option<String> {
    let wait = || Some(status.rollout.as_ref()?.waiting_for.as_ref()?.subject.clone());
    status.message.clone().or_else(wait)
}

/// How many requests failed because of the platform, and how many of them had begun to be answered.
pub(super) fn failures(load: &Totals) -> String {
    let failed = load.lost();
    match load.truncated {
        0 => failed.to_string(),
        1 => format!("{failed} (1 of them a broken stream)"),
        streams => format!("{failed} ({streams} of them broken streams)"),
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

    /// What belongs to one version, the older first.
    fn version(self, place: usize, text: &str) -> String {
        self.with(["36", "35"][place % 2], text)
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
        format!("{:>7}  {}", seconds(view.elapsed), view.phase),
        String::new(),
        paint.dim(&format!("{:<35}traffic", "version replicas")),
    ];
    let versions = known.status.versions.iter().enumerate();
    lines.extend(versions.map(|(place, shown)| version(place, shown, paint)));
    let (pods, peak) = (known.pods.len(), known.peak);
    let fares = format!("failed {}, app errors {}", failures(load), load.app_errors);
    let well = load.lost() + load.app_errors == 0;
    let fares =
        if well { paint.good(&format!("{fares}: good")) } else { paint.bad(&format!("{fares}: BAD")) };
    lines.extend([
        String::new(),
        format!("pods      {pods}, {} % of {REPLICAS} replicas; peak {} %", percent(pods), percent(peak)),
        format!("observed  {}", observed(&known.status)),
        format!("requests  {}, {} a second, {} in flight", load.requests(), view.rate, view.in_flight),
        format!("          {fares}"),
        format!("rollout   {}", doing(&known.status).unwrap_or_else(|| "none".to_owned())),
        String::new(),
    ]);
    let first = view.steps.len().saturating_sub(STEPS);
    lines.extend(view.steps[first..].iter().map(|step| paint.dim(&line(step))));
    lines
}

/// The shares that users got lately, as the gateway counted them.
fn observed(status: &ModelDeploymentStatus) -> String {
    let share = |version: &VersionStatus| {
        let percent = version.traffic.observed?;
        Some(format!("{} {percent} %", version.name))
    };
    let shares: Vec<String> = status.versions.iter().filter_map(share).collect();
    if shares.is_empty() {
        "too few requests to tell".to_owned()
    } else {
        shares.join(", ") + " of the last requests"
    }
}

/// A step as a line.
pub(super) fn line(step: &Step) -> String {
    format!("{:>7}  {}", seconds(step.at), step.what)
}

/// A version: a mark for each of its units, and as much of a bar as it has of the traffic.
fn version(place: usize, version: &VersionStatus, paint: Paint) -> String {
    let VersionStatus { name, capacity, traffic, in_flight, .. } = version;
    let count = |number: i32| usize::try_from(number).unwrap_or_default();
    let (ready, live, asked) = (count(capacity.ready), count(version.replicas), count(capacity.asked));
    let leaving = live.saturating_sub(asked.max(ready));
    let starting = live.saturating_sub(ready + leaving);
    let marks = format!("{}{}{}", "■".repeat(ready), "□".repeat(starting), "▫".repeat(leaving));
    let rest = match (starting, leaving) {
        (0, 0) => String::new(),
        (0, leaving) => format!(", {leaving} leaving"),
        (starting, 0) => format!(", {starting} starting"),
        (starting, leaving) => format!(", {starting} + {leaving}"),
    };
    let units = format!("{ready} ready{rest}");
    // What the gateway does; what it was asked to do counts when it has confirmed it.
    let desired = traffic.desired;
    let bar = |block: &str, share: i32| block.repeat(count(share) * BAR / 100);
    let (bar, share) = match traffic.applied {
        Some(applied) if applied == desired => (bar("█", applied), format!("{applied} %")),
        Some(applied) => (bar("█", applied), format!("{applied} → {desired} %")),
        None => (bar("░", desired), format!("→ {desired} %")),
    };
    let in_flight = in_flight.map_or_else(String::new, |requests| format!("{requests} in flight"));
    let (marks, bar) = (format!("{marks:<6}"), format!("{bar:<BAR$}"));
    let (marks, bar) = (paint.version(place, &marks), paint.version(place, &bar));
    format!("{name:<7} {marks} {units:<20}{bar} {share:>10} {in_flight:>12}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::watch::tests::rollout, *};

    fn view() -> View {
        let wait =
            json!({"reason": "NotReady", "subject": "1 replica of v2", "since": "2026-01-01T00:00:00Z"});
        let status = json!({
            "phase": "Rolling", "message": "bringing up 1 replica of v2",
            "rollout": rollout("waitingFor", &wait),
            "versions": [
                {"name": "v1", "revision": 1, "capacity": {"asked": 4, "granted": 4, "ready": 4}, "replicas": 4,
                    "traffic": {"desired": 100, "applied": 100, "observed": 99}, "readyReplicas": 4, "inFlight": 7},
                {"name": "v2", "revision": 2, "capacity": {"asked": 1, "granted": 1, "ready": 0}, "replicas": 1,
                    "traffic": {"desired": 0}, "readyReplicas": 0},
            ],
        });
        let pods = (0..5).map(|pod| pod.to_string()).collect();
        let known = Observed { status: serde_json::from_value(status).unwrap(), pods, peak: 6 };
        let steps =
            (1..9).map(|at| Step { at: Duration::from_secs(at), what: format!("step {at}") }).collect();
        View {
            elapsed: Duration::from_millis(12_340),
            phase: "v2 takes over".to_owned(),
            known,
            in_flight: 9,
            load: Totals { ok: 700, ..Totals::default() },
            rate: 60,
            steps,
        }
    }

    #[test]
    fn a_moment_is_told_in_words_and_numbers() {
        let text = render(&view(), Paint(false)).join("\n");
        let expected = "
 12.3 s  v2 takes over

version replicas                   traffic
v1      ■■■■   4 ready             ████████████████████      100 %  7 in flight
v2      □      0 ready, 1 starting                           → 0 %

pods      5, 125 % of 4 replicas; peak 150 %
observed  v1 99 % of the last requests
requests  700, 60 a second, 9 in flight
          failed 0, app errors 0: good
rollout   bringing up 1 replica of v2

  1.0 s  step 1
  2.0 s  step 2
  3.0 s  step 3
  4.0 s  step 4
  5.0 s  step 5
  6.0 s  step 6
  7.0 s  step 7
  8.0 s  step 8";
        assert_eq!(format!("\n{text}"), expected);
    }

    #[test]
    fn what_is_on_its_way_is_shown_beside_what_is() {
        let shown = |asked: i32, live: i32, ready: i32, applied: i32, desired: i32| {
            let status = json!({"name": "v1", "revision": 1, "capacity": {"asked": asked, "granted": live, "ready": ready},
                "replicas": live, "traffic": {"desired": desired, "applied": applied}, "readyReplicas": ready,
                "inFlight": 16});
            version(0, &serde_json::from_value(status).unwrap(), Paint(false))
        };
        let leaving = "v1      ■■■▫   3 ready, 1 leaving  ███████████████       75 → 50 % 16 in flight";
        assert_eq!(shown(3, 4, 3, 75, 50), leaving);
        // A line of just 80 would lose its last letter to what clears the rest of it.
        assert_eq!(leaving.chars().count(), 79);
        assert!(shown(4, 4, 2, 100, 100).starts_with("v1      ■■□□   2 ready, 2 starting "));
        // One that goes may still be ready for a moment.
        assert!(shown(3, 4, 4, 75, 75).starts_with("v1      ■■■■   4 ready   "));
    }

    #[test]
    fn what_is_bad_is_said_and_not_only_coloured() {
        let mut view = view();
        (view.load.failed, view.load.truncated) = (2, 5);
        let colours = ["1;31", "2", "0", "36", "35"].map(|code| format!("\x1b[{code}m"));
        let strip = |line: &String| colours.iter().fold(line.clone(), |line, code| line.replace(code, ""));
        let coloured = render(&view, Paint(true));
        assert!(coloured.iter().any(|line| line.contains("\x1b[1;31m")));
        let plain: Vec<String> = coloured.iter().map(strip).collect();
        assert_eq!(plain, render(&view, Paint(false)));
        let said = "          failed 7 (5 of them broken streams), app errors 0: BAD";
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
