//! The summary of a demonstration, as text and as JSON.

use std::time::Duration;

use api::modeldeployment::Outcome;
use planner::counted;
use serde_json::{Value, json};

use super::{
    counts::Counts,
    manifest::{REPLICAS, Strategy},
    view::{Paint, Step, failures, percent, seconds},
};
use controllers::Protections;

/// What is known when all processes have ended.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) strategy: Strategy,
    pub(super) protections: Protections,
    pub(super) counts: Counts,
    /// The most pods at once.
    pub(super) peak: usize,
    /// From the new version to its end.
    pub(super) took: Duration,
    /// None when it did not end in time.
    pub(super) outcome: Option<Outcome>,
    pub(super) steps: Vec<Step>,
}

impl Summary {
    /// Returns whether the upgrade finished and no request failed. The model has no errors of its own but one, that it is not loaded: here those
    /// are the platform's too.
    pub(super) fn is_good(&self) -> bool {
        let load = self.counts.load;
        self.outcome == Some(Outcome::Promoted)
            && load.requests() > 0
            && load.ok == load.requests()
            && self.counts.disagreements().is_empty()
    }

    /// Returns the outcome as JSON has it.
    fn outcome(&self) -> Value {
        self.outcome.map_or_else(|| json!("Unfinished"), |outcome| json!(outcome))
    }

    /// The protections that were taken away, as the flag has them.
    fn without(&self) -> Vec<&'static str> {
        let Protections { drain, gate, settle } = self.protections;
        let all = [("drain", drain), ("gate", gate), ("settle", settle)];
        all.into_iter().filter(|(_, on)| !on).map(|(word, _)| word).collect()
    }

    pub(super) fn text(&self, paint: Paint) -> String {
        let load = self.counts.load;
        let gateway = self.counts.gateway;
        let disagreements = self.counts.disagreements();
        let counts = format!(
            "load {}, gateway {} ({} and {}), model servers {}",
            load.requests(),
            self.counts.by_gateway(),
            counted(gateway.requests, "request"),
            counted(gateway.connections, "connection"),
            self.counts.servers.answered,
        );
        let without = self.without();
        let without =
            if without.is_empty() { String::new() } else { format!(" without {}", without.join(", ")) };
        let lost = load.lost() + load.app_errors;
        let ended = ended(self.outcome);
        let verdict =
            format!("{} upgrade{without}: v2 {ended} after {}", self.strategy.word(), seconds(self.took));
        let verdict = if self.is_good() {
            paint.good(&format!("{verdict}, and no request failed"))
        } else if lost > 0 {
            paint.bad(&format!("{verdict}, and {} failed", counted(lost, "request")))
        } else {
            paint.bad(&verdict)
        };
        let mut text = format!(
            "{verdict}\n\
             \n  requests           {}\n  failed             {}\n  app errors         {}\n\
             \x20 peak capacity      {} % of {REPLICAS} replicas\n  counted by         {counts}; {}\n",
            load.requests(),
            failures(&load),
            load.app_errors,
            percent(self.peak),
            self.counts.verdict(),
        );
        for line in disagreements {
            text += &format!("                     {line}\n");
        }
        text += "\nTry next:\n";
        for command in self.try_next() {
            text += &format!("  {command}\n");
        }
        text
    }

    /// The other strategy, the other side of a protection, and the machine to keep.
    fn try_next(&self) -> [String; 3] {
        let (this, other) = (self.strategy.word(), self.strategy.other().word());
        let contrast = if self.without().is_empty() { " --without drain" } else { "" };
        [
            format!("segue demo --strategy {other}"),
            format!("segue demo --strategy {this}{contrast}"),
            "segue up".to_owned(),
        ]
    }

    pub(super) fn json(&self) -> Value {
        let load = self.counts.load;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let seconds = |time: Duration| Duration::from_millis(millis(time)).as_secs_f64();
        let steps: Vec<Value> =
            self.steps.iter().map(|step| json!({"at": seconds(step.at), "what": step.what})).collect();
        json!({
            "strategy": self.strategy.word(),
            "without": self.without(),
            "requests": load.requests(),
            "failed": load.lost(),
            "appErrors": load.app_errors,
            "truncated": load.truncated,
            "peakPercent": percent(self.peak),
            "durationMillis": millis(self.took),
            "outcome": self.outcome(),
            "counts": {
                "load": load.requests(),
                "gateway": self.counts.by_gateway(),
                "servers": self.counts.servers.answered,
                "disagreements": self.counts.disagreements(),
            },
            "good": self.is_good(),
            "steps": steps,
        })
    }
}

/// Returns how the upgrade ended, as the end of a sentence.
pub(super) fn ended(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        None => "did not take over",
        Some(Outcome::Promoted) => "took over",
        Some(Outcome::RolledBack) => "was rolled back",
        Some(Outcome::Aborted) => "was aborted",
        Some(Outcome::Superseded) => "was superseded",
        Some(Outcome::Refused) => "was refused",
    }
}

#[cfg(test)]
mod tests {
    use super::{super::counts::tests::good, *};

    fn summary() -> Summary {
        Summary {
            strategy: Strategy::Rolling,
            protections: Protections::default(),
            counts: good(300),
            peak: 5,
            took: Duration::from_millis(31_250),
            outcome: Some(Outcome::Promoted),
            steps: vec![Step { at: Duration::from_micros(1_500_007), what: "v1 serves".to_owned() }],
        }
    }

    #[test]
    fn a_good_run_is_told_in_one_glance() {
        let expected = "rolling upgrade: v2 took over after 31.2 s, and no request failed

  requests           300
  failed             0
  app errors         0
  peak capacity      125 % of 4 replicas
  counted by         load 300, gateway 300 (200 requests and 100 connections), model servers 300; the counts agree

Try next:
  segue demo --strategy incremental
  segue demo --strategy rolling --without drain
  segue up
";
        assert_eq!(summary().text(Paint(false)), expected);
        assert!(summary().is_good());
    }

    #[test]
    fn whatever_is_wrong_makes_it_bad_and_is_said() {
        let bad = |change: fn(&mut Summary), says: &str| {
            let mut summary = summary();
            change(&mut summary);
            let text = summary.text(Paint(false));
            assert!(
                !summary.is_good() && !text.contains("no request failed") && text.contains(says),
                "{text}"
            );
            assert_eq!(summary.json()["good"], false);
        };
        bad(|summary| summary.outcome = None, "v2 did not take over after");
        bad(|summary| summary.outcome = Some(Outcome::RolledBack), "v2 was rolled back");
        bad(|summary| summary.counts = good(0), "requests           0");
        bad(|summary| summary.counts.servers.answered = 299, "model servers 299; the counts DIFFER");
        bad(|summary| summary.counts.load.failed = 1, "failed             1");
        bad(|summary| summary.counts.load.truncated = 7, "failed             7 (7 of them broken streams)");
        bad(|summary| summary.counts.load.app_errors = 1, "app errors         1");
    }

    #[test]
    fn a_stream_that_broke_off_has_failed_like_any_other_request() {
        let mut summary = summary();
        (summary.counts.load.failed, summary.counts.load.truncated) = (4, 1);
        let json = summary.json();
        assert_eq!((&json["failed"], &json["truncated"]), (&json!(5), &json!(1)));
        let text = summary.text(Paint(false));
        assert!(text.contains("failed             5 (1 of them a broken stream)"), "{text}");
    }

    #[test]
    fn programs_get_the_same() {
        let mut summary = summary();
        summary.protections.gate = false;
        let expected = json!({
            "strategy": "rolling", "without": ["gate"], "requests": 300, "failed": 0, "appErrors": 0, "truncated": 0,
            "peakPercent": 125, "durationMillis": 31_250, "outcome": "Promoted", "good": true,
            "counts": {"load": 300, "gateway": 300, "servers": 300, "disagreements": []},
            "steps": [{"at": 1.5, "what": "v1 serves"}],
        });
        assert_eq!(summary.json(), expected);
    }
}
