//! The service, its users, and how it goes from v1 to v2.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use api::modeldeployment::{ModelDeployment, ModelDeploymentStatus, Outcome, Phase};
use gateway::load::{Client, Target, Totals};
use kube::Api;
use serde_json::{Value, json};
use testbed::eventually;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    namespace::say,
    site::{Class, Site, pipe, segue},
};

const REPLICAS: usize = 4;

/// A stream takes 4 seconds, and a pod that is told to end has 1: nothing but the drain protects it.
const TOKENS: u32 = 20;
const TOKEN_MILLIS: u32 = 200;
const GRACE_SECONDS: u32 = 1;
const DRAIN_SECONDS: u32 = 5;

const PER_SECOND: u32 = 40;
const STREAMS: u32 = 8;
const APART: Duration = Duration::from_millis((TOKENS * TOKEN_MILLIS / STREAMS) as u64);
const PATH: &str = "/v1/completions";

/// Generous: a loaded machine is no reason to fail.
const START: Duration = Duration::from_mins(2);
const HANDOVER: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug)]
pub enum Strategy {
    Rolling,
    Incremental,
}

impl Strategy {
    fn settings(self) -> Value {
        match self {
            Self::Rolling => json!({"type": "Rolling", "rolling": {"maxSurge": "50%", "maxUnavailable": 0}}),
            Self::Incremental => json!({
                "type": "Incremental",
                "incremental": {"maxSurgePercent": 50, "stepSizePercent": 50, "intervalSeconds": 2},
            }),
        }
    }
}

/// A service, in a namespace of its own.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    name: &'static str,
    class: Class,
    port: u16,
    strategy: Strategy,
    /// Whether a handover waits: for gateways 5 seconds, the default, and for the longest stream.
    waits: bool,
}

impl Service {
    pub fn new(name: &'static str, class: Class, port: u16, strategy: Strategy) -> Self {
        Self { name, class, port, strategy, waits: true }
    }

    /// From v1 to v2 under load, and nobody notices.
    pub async fn drops_nothing(self, site: &Site) {
        let mut serving = Serving::start(self, site).await;
        let (outcome, took) = serving.hand_over().await;
        let lost = serving.end(&format!("{outcome:?} in {} s", took.as_secs())).await;
        assert_eq!(outcome, Outcome::Promoted);
        assert_eq!(lost, 0);
    }

    /// The same without the waits. What breaks is counted.
    pub async fn drops_something(self, site: &Site) {
        let mut serving = Serving::start(Self { waits: false, ..self }, site).await;
        let (outcome, took) = serving.hand_over().await;
        let lost = serving.end(&format!("without waits {outcome:?} in {} s", took.as_secs())).await;
        assert!(lost > 0, "nothing was counted");
    }

    /// All pods are killed under load.
    pub async fn counts_what_is_killed(self, site: &Site) {
        let serving = Serving::start(self, site).await;
        let mut kubectl = site.cluster.kubectl();
        kubectl.args(["-n", &serving.namespace, "delete", "pods", "--all", "--force", "--grace-period=0"]);
        pipe(&mut kubectl, "");
        eventually("a failed request", START, async || (lost(serving.load.totals()) > 0).then_some(()))
            .await
            .unwrap();
        serving.end("all pods killed").await;
    }

    fn manifest(&self, namespace: &str, version: &str) -> Value {
        let mut traffic = json!({
            "ports": [{"name": "http", "port": self.port}],
            "gateway": {"className": self.class.name()},
            "drainSeconds": DRAIN_SECONDS,
        });
        if !self.waits {
            traffic["drainSeconds"] = 0.into();
            traffic["settleSeconds"] = 0.into();
        }
        json!({
            "apiVersion": "segue.dev/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "replicas": REPLICAS,
                "version": version,
                "workload": {"type": "Pod", "pod": {"spec": {
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    "containers": [{
                        "name": "model",
                        "image": "segue",
                        "command": [segue().to_string_lossy(), "model-server"],
                        "args": [
                            "--version=$(MODEL_VERSION)",
                            "--load-seconds=1",
                            format!("--token-gap-millis={TOKEN_MILLIS}"),
                            format!("--port={}", self.port),
                        ],
                        "readinessProbe": {"httpGet": {"path": "/ready", "port": self.port}, "periodSeconds": 1},
                    }],
                }}},
                "env": [{"name": "MODEL_VERSION", "value": version}],
                "traffic": traffic,
                "health": {"readyDeadlineSeconds": 60},
                "strategy": self.strategy.settings(),
                "rollback": {"progressDeadlineSeconds": 120},
            },
        })
    }
}

/// A service that v1 serves, with users.
struct Serving<'a> {
    service: Service,
    site: &'a Site,
    namespace: String,
    load: Load,
}

impl<'a> Serving<'a> {
    async fn start(service: Service, site: &'a Site) -> Self {
        let namespace = site.cluster.namespace(service.name).await.unwrap();
        site.apply(&service.manifest(&namespace, "v1"));
        let deployments: Api<ModelDeployment> = Api::namespaced(site.cluster.client(), &namespace);
        eventually("v1 serving", START, async || {
            let status = deployments.get(service.name).await.unwrap().status?;
            serves(&status).then_some(())
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {:#}", state(site, service, &namespace)));
        let address = door(site, service, &namespace);
        // What was accepted is not always served yet; these users come when it is.
        let probe = Client::new(target(address, PATH));
        eventually("an answer", START, async || {
            let (_, body) = probe.request().await;
            String::from_utf8_lossy(&body).contains("\"v1\"").then_some(())
        })
        .await
        .unwrap();
        let load = Load::start(address);
        // Some streams are under way.
        eventually("the first users", START, async || (load.totals().ok > 100).then_some(())).await.unwrap();
        Self { service, site, namespace, load }
    }

    /// Applies v2; how its handover ended, and after what time.
    async fn hand_over(&mut self) -> (Outcome, Duration) {
        let Self { service, site, namespace, .. } = self;
        #[expect(clippy::disallowed_methods, reason = "tells a person how long it took, decides nothing")]
        let began = Instant::now();
        let applied = site.apply(&service.manifest(namespace, "v2"));
        let generation = applied["metadata"]["generation"].as_i64().unwrap();
        let deployments: Api<ModelDeployment> = Api::namespaced(site.cluster.client(), namespace);
        let outcome = eventually("the end of the handover", HANDOVER, async || {
            site.cluster.check().unwrap();
            let status = deployments.get(service.name).await.unwrap().status?;
            let over = status.observed_generation >= generation && status.phase == Some(Phase::Idle);
            let outcome = status.rollout.as_ref().and_then(|rollout| rollout.outcome);
            let outcome = outcome.or_else(|| status.history.first().map(|record| record.outcome))?;
            let moved = status.current_version.as_deref() == Some("v2");
            (over && (moved || outcome != Outcome::Promoted)).then_some(outcome)
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {:#}", state(site, *service, namespace)));
        (outcome, began.elapsed())
    }

    /// Users go. How many requests were lost; `what` they lived through is told with the figures.
    async fn end(self, what: &str) -> u64 {
        let Self { service, load, .. } = self;
        let (short, streams) = load.end().await;
        let totals = sum(short, streams);
        say(&format!(
            "{} behind {}: {what}: {} requests, of these {} streams; {} failed, {} truncated",
            service.name,
            service.class.name(),
            totals.requests(),
            streams.requests(),
            totals.failed + totals.app_errors,
            totals.truncated,
        ));
        lost(totals)
    }
}

/// Where users come in, as the data plane itself says.
fn door(site: &Site, service: Service, namespace: &str) -> SocketAddr {
    let gateway = site.get(&["-n", namespace, "gateway", service.name]);
    let address = gateway["status"]["addresses"][0]["value"].as_str();
    let address = address.unwrap_or_else(|| panic!("no address: {gateway:#}")).parse().unwrap();
    SocketAddr::new(address, service.port)
}

/// What somebody wants to know when nothing happens.
fn state(site: &Site, service: Service, namespace: &str) -> Value {
    let status = |kind: &str| {
        let list = site.get(&["-n", namespace, kind]);
        list["items"].as_array().unwrap().iter().map(|item| item["status"].clone()).collect::<Value>()
    };
    json!({
        "service": service.name,
        "deployment": status("modeldeployments"),
        "gateway": status("gateways"),
        "routes": status("httproutes"),
        "pods": status("pods"),
    })
}

fn serves(status: &ModelDeploymentStatus) -> bool {
    status.phase == Some(Phase::Idle)
        && status.current_version.as_deref() == Some("v1")
        && usize::try_from(status.ready_replicas) == Ok(REPLICAS)
}

/// No server answers with an error by itself here, so one that is answered is lost too: Traefik says 502 and 503 as if
/// it were the server.
fn lost(totals: Totals) -> u64 {
    totals.requests() - totals.ok
}

fn sum(one: Totals, other: Totals) -> Totals {
    Totals {
        ok: one.ok + other.ok,
        app_errors: one.app_errors + other.app_errors,
        failed: one.failed + other.failed,
        truncated: one.truncated + other.truncated,
    }
}

fn target(address: SocketAddr, path: &str) -> Target {
    Target { address, host: "chat.example".to_owned(), path: path.to_owned(), fresh: false }
}

/// Short questions by the clock, and a few long streams at any time.
struct Load {
    short: Client,
    streams: Client,
    stop: watch::Sender<bool>,
    asking: JoinSet<()>,
}

impl Load {
    fn start(address: SocketAddr) -> Self {
        let short = Client::new(target(address, PATH));
        let streams = target(address, &format!("{PATH}?stream={TOKENS}"));
        let streams = Client::of_streams(streams, sample::LAST_EVENT);
        let (stop, stopped) = watch::channel(false);
        let told = || {
            let mut stopped = stopped.clone();
            async move { drop(stopped.wait_for(|stopped| *stopped).await) }
        };
        let mut asking = JoinSet::new();
        let (client, stopping) = (short.clone(), told());
        asking.spawn(async move { client.open_loop(PER_SECOND, stopping).await });
        for place in 0..STREAMS {
            let (client, stopping) = (streams.clone(), told());
            asking.spawn(async move {
                tokio::time::sleep(APART * place).await;
                client.closed_loop_until(1, stopping).await;
            });
        }
        Self { short, streams, stop, asking }
    }

    fn totals(&self) -> Totals {
        sum(self.short.totals(), self.streams.totals())
    }

    /// Nothing new is asked; the last answers are waited for.
    async fn end(mut self) -> (Totals, Totals) {
        self.stop.send_replace(true);
        while self.asking.join_next().await.is_some() {}
        (self.short.totals(), self.streams.totals())
    }
}
