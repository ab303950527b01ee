//! The metrics of the controllers.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// Numbers since the start. All clones count in the same ones.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    runs: Family<Controller, Histogram, fn() -> Histogram>,
    delays: Family<Controller, Histogram, fn() -> Histogram>,
    failures: Family<Failure, Counter>,
    writes: Family<Write, Counter>,
    leads: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    controller: &'static str,
    category: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    verb: &'static str,
    kind: &'static str,
}

/// From a millisecond to half a minute: a reconcile that takes longer hangs on the API.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("segue");
        let runs = Family::new_with_constructor(seconds as fn() -> Histogram);
        let delays = Family::new_with_constructor(seconds as fn() -> Histogram);
        let (failures, writes, leads) = (Family::default(), Family::default(), Gauge::default());
        let what = "Duration of a reconcile";
        registry.register_with_unit("reconcile_duration", what, Unit::Seconds, runs.clone());
        let what = "Time from when an object was due until its reconcile began";
        registry.register_with_unit("queue_delay", what, Unit::Seconds, delays.clone());
        registry.register("reconcile_errors", "Reconciles that failed and are tried again", failures.clone());
        registry.register("api_writes", "Writes that the API accepted", writes.clone());
        registry.register("leads", "1 while this process holds the lease", leads.clone());
        Self { registry: Arc::new(registry), runs, delays, failures, writes, leads }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// All of them, in the text format of `OpenMetrics`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Text takes whatever is written to it.
        text::encode(&mut text, &self.registry).map(|()| text).unwrap_or_default()
    }

    /// Whether this process leads.
    pub fn leads(&self, so: bool) {
        self.leads.set(i64::from(so));
    }

    pub(crate) fn waited(&self, controller: &'static str, time: Duration) {
        self.delays.get_or_create(&Controller { controller }).observe(time.as_secs_f64());
    }

    pub(crate) fn ran(&self, controller: &'static str, time: Duration) {
        self.runs.get_or_create(&Controller { controller }).observe(time.as_secs_f64());
    }

    pub(crate) fn failed(&self, controller: &'static str, category: &'static str) {
        self.failures.get_or_create(&Failure { controller, category }).inc();
    }

    pub(crate) fn wrote(&self, verb: &'static str, kind: &'static str) {
        self.writes.get_or_create(&Write { verb, kind }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_controller_category_verb_and_kind() {
        let metrics = Metrics::default();
        metrics.waited("LeaderWorkerSet", Duration::from_millis(3));
        metrics.ran("LeaderWorkerSet", Duration::from_millis(30));
        metrics.failed("LeaderWorkerSet", "stale");
        metrics.wrote("create", "Pod");
        metrics.wrote("create", "Pod");
        metrics.leads(true);
        let text = metrics.text();
        for line in [
            "segue_reconcile_duration_seconds_count{controller=\"LeaderWorkerSet\"} 1",
            "segue_queue_delay_seconds_bucket{le=\"0.004\",controller=\"LeaderWorkerSet\"} 1",
            "segue_reconcile_errors_total{controller=\"LeaderWorkerSet\",category=\"stale\"} 1",
            "segue_api_writes_total{verb=\"create\",kind=\"Pod\"} 2",
            "segue_leads 1",
        ] {
            assert!(text.contains(line), "{line} is missing in:\n{text}");
        }
    }
}
