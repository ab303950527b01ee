//! The counts as Prometheus reads them.
use std::{fmt::Write, time::Duration};

use crate::{
    counters::{Counts, Snapshot},
    histogram::{Distribution, Latencies},
    routes::ServicePort,
};

/// The bounds that are shown, in milliseconds: each is a bound that is counted.
const SHOWN: [u32; 22] = [
    1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 800, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000,
    100_000, 300_000, 1_000_000,
];

type Count = fn(&Counts) -> u64;
type Part = fn(&Latencies) -> &Distribution;

impl Snapshot {
    /// Returns the counts of every Service in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let mut text = Text::default();
        let services = || self.services.iter();
        let counters: [(&str, &str, Count); 6] = [
            ("requests", "Requests that were sent to the Service", |counts| counts.requests),
            ("connections", "Connections that were not HTTP", |counts| counts.accepted),
            ("retries", "Attempts that an endpoint refused and another got", |counts| counts.retried),
            ("cancelled", "Requests that the client gave up", |counts| counts.cancelled),
            ("received_bytes", "Bytes from clients", |counts| counts.bytes_received),
            ("sent_bytes", "Bytes to clients", |counts| counts.bytes_sent),
        ];
        for (name, help, count) in counters {
            text.head(&format!("{name}_total"), "counter", help);
            for (service, counts) in services() {
                text.line(&format!("{name}_total"), service, "", count(counts));
            }
        }
        text.head("requests_in_flight", "gauge", "Requests and connections that have not ended");
        for (service, counts) in services() {
            text.line("requests_in_flight", service, "", counts.in_flight + counts.connections);
        }
        text.head("answers_total", "counter", "Answers of the servers by class of status");
        for (service, counts) in services() {
            for (class, count) in &counts.answers {
                text.line("answers_total", service, &format!("class=\"{}xx\"", class / 100), *count);
            }
        }
        text.head("failures_total", "counter", "Requests that failed on the way, by cause");
        for (service, counts) in services() {
            for (cause, count) in &counts.failed {
                text.line("failures_total", service, &format!("cause=\"{}\"", cause.word()), *count);
            }
        }
        let histograms: [(&str, &str, Part); 2] = [
            ("first_byte_seconds", "Time until the first byte of the answer", |it| &it.first_byte),
            ("request_seconds", "Time until the end of the answer", |it| &it.whole),
        ];
        for (name, help, distribution) in histograms {
            text.head(name, "histogram", help);
            for (service, latencies) in &self.latencies {
                text.histogram(name, service, distribution(latencies));
            }
        }
        text.head("unrouted_total", "counter", "Requests that no rule answers");
        text.0 += &format!("segue_gateway_unrouted_total {}\n", self.unrouted);
        text.0
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.0 += &format!("# HELP segue_gateway_{name} {help}\n# TYPE segue_gateway_{name} {kind}\n");
    }

    fn line(&mut self, name: &str, port: &ServicePort, label: &str, value: impl std::fmt::Display) {
        let ServicePort { service, port } = port;
        let comma = if label.is_empty() { "" } else { "," };
        // Text takes whatever is written to it. Names of Kubernetes need no escapes.
        let _ = writeln!(
            self.0,
            "segue_gateway_{name}{{namespace=\"{}\",service=\"{}\",port=\"{port}\"{comma}{label}}} {value}",
            service.namespace, service.name,
        );
    }

    fn histogram(&mut self, name: &str, port: &ServicePort, distribution: &Distribution) {
        let bucket = format!("{name}_bucket");
        for millis in SHOWN {
            let bound = format!("{}.{:03}", millis / 1_000, millis % 1_000);
            let bound = bound.trim_end_matches('0').trim_end_matches('.');
            let within = distribution.within(Duration::from_millis(millis.into()));
            self.line(&bucket, port, &format!("le=\"{bound}\""), within);
        }
        self.line(&bucket, port, "le=\"+Inf\"", distribution.count());
        self.line(&format!("{name}_sum"), port, "", distribution.sum.as_secs_f64());
        self.line(&format!("{name}_count"), port, "", distribution.count());
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::SystemTime};

    use super::*;
    use crate::{Cause, cache::Name};

    #[test]
    fn a_service_is_told_in_the_text_of_prometheus() {
        let service = ServicePort { service: Name::new("ns", "web"), port: 80 };
        let counts = Counts {
            requests: 7,
            in_flight: 1,
            answers: [(200, 4), (500, 1)].into(),
            failed: [(Cause::TimedOut, 1)].into(),
            ..Counts::default()
        };
        let whole = Distribution {
            buckets: [(Duration::from_millis(2), 3), (Duration::from_millis(900), 2), (Duration::MAX, 1)]
                .into(),
            sum: Duration::from_millis(1_500),
        };
        let latencies = Latencies { whole, ..Latencies::default() };
        let snapshot = Snapshot {
            at: SystemTime::UNIX_EPOCH,
            table_epoch: 1,
            generations: BTreeMap::new(),
            ready: BTreeMap::new(),
            routes: BTreeMap::new(),
            services: [(service.clone(), counts)].into(),
            latencies: [(service, latencies)].into(),
            cluster_addresses: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            unrouted: 3,
        };
        let text = snapshot.metrics();
        let of = |name: &str, label: &str| {
            format!("segue_gateway_{name}{{namespace=\"ns\",service=\"web\",port=\"80\"{label}}} ")
        };
        let expected = [
            ("requests_total", "", "7"),
            ("requests_in_flight", "", "1"),
            ("answers_total", ",class=\"5xx\"", "1"),
            ("failures_total", ",cause=\"timed-out\"", "1"),
            ("request_seconds_bucket", ",le=\"0.001\"", "0"),
            ("request_seconds_bucket", ",le=\"0.002\"", "3"),
            ("request_seconds_bucket", ",le=\"0.8\"", "3"),
            ("request_seconds_bucket", ",le=\"1\"", "5"),
            ("request_seconds_bucket", ",le=\"1000\"", "5"),
            ("request_seconds_bucket", ",le=\"+Inf\"", "6"),
            ("request_seconds_sum", "", "1.5"),
            ("request_seconds_count", "", "6"),
            ("first_byte_seconds_count", "", "0"),
        ];
        for (name, label, value) in expected {
            let line = of(name, label) + value;
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("segue_gateway_unrouted_total 3\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let declared = |name: &str| text.contains(&format!("# TYPE {name} "));
            assert!(declared(name) || family.is_some_and(declared), "{line} has no type");
        }
    }
}
