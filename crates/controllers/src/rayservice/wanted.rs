//! A spec in the planner's words, and the names and ports that follow from it.

use std::time::Duration;

use api::{
    Embedded,
    raycluster::ManagedBy,
    rayservice::{self, IncrementalUpgradeOptions, RayService, RayServiceSpec, UpgradeType},
};
use kube::ResourceExt;
use planner::granted::StepSchedule;
use serde_json::{Value, json};

use crate::{
    count, labels, owner,
    raycluster::{asks_for_tokens, keeps_tables_in_rocksdb},
    traffic::{Parents, Protocol, Traffic, TrafficPort},
};

/// The head's port of Serve where no port is named `serve`.
const SERVE_PORT: i32 = 8000;
/// The port of gRPC where none is named `serve-grpc`.
const GRPC_PORT: i32 = 9000;
/// The head's port of the dashboard where no port is named `dashboard`.
const DASHBOARD_PORT: i32 = 8265;
/// The port on which the Gateway listens under the shipped spelling of the strategy.
const SHIPPED_PORT: i32 = 80;
/// How long a cluster that was replaced stays where the spec does not say.
const DELETION_DELAY: Duration = Duration::from_mins(1);
/// How long a gateway of others may take to do what it has confirmed.
const SETTLE: Duration = Duration::from_secs(5);

/// How one cluster takes over from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// It does not.
    None,
    /// All traffic at once, when the new cluster is ready.
    BlueGreen,
    /// Step by step.
    Incremental(StepSchedule),
}

impl Strategy {
    /// The strategy of a spec; nothing for steps that could never end.
    pub(super) fn of(spec: &RayServiceSpec) -> Option<Self> {
        let strategy = spec.upgrade_strategy.as_ref();
        if strategy.and_then(|strategy| strategy.ty) == Some(UpgradeType::None) {
            return Some(Self::None);
        }
        let Some(options) = strategy.and_then(|strategy| strategy.incremental()) else {
            return Some(Self::BlueGreen);
        };
        let interval = Duration::from_secs(u64::from(count(options.interval_seconds)));
        let pace =
            StepSchedule::new(count(options.max_surge_percent), count(options.step_size_percent), interval);
        pace.map(Self::Incremental)
    }

    pub(super) fn is_incremental(self) -> bool {
        matches!(self, Self::Incremental(_))
    }

    /// The pace of the planner. Blue/green is a surge of everything and one step.
    pub(super) fn pace(self) -> Option<StepSchedule> {
        match self {
            Self::None => None,
            Self::BlueGreen => StepSchedule::new(100, 100, Duration::ZERO),
            Self::Incremental(pace) => Some(pace),
        }
    }
}

/// What a service asks for, beside its revision.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) strategy: Strategy,
    /// How long a cluster stays that was replaced.
    pub(super) delay: Duration,
    /// After how long without progress an upgrade goes back by itself.
    pub(super) rollback_after: Option<Duration>,
    /// How long the first cluster may take to serve before that is told.
    pub(super) initializing: Option<Duration>,
    pub(super) is_suspended: bool,
}

/// What a service asks for, or what of it is not served, in a sentence.
pub(super) fn wanted(service: &RayService) -> Result<Wanted, &'static str> {
    let spec = &service.spec;
    let strategy = Strategy::of(spec).ok_or("an upgrade with these steps could never end")?;
    if let Some(why) = not_served(service) {
        return Err(why);
    }
    let text = |name: &str| service.annotations().get(name).map(String::as_str);
    let seconds = |seconds: i32| Duration::from_secs(u64::from(count(seconds)));
    Ok(Wanted {
        strategy,
        delay: spec.ray_cluster_deletion_delay_seconds.map_or(DELETION_DELAY, seconds),
        rollback_after: text(rayservice::ROLLBACK_AFTER)
            .and_then(|text| text.parse().ok())
            .map(Duration::from_secs),
        initializing: text(rayservice::INITIALIZING_TIMEOUT).and_then(rayservice::initializing_timeout),
        is_suspended: spec.suspend == Some(true),
    })
}

/// What is not served yet, in a sentence.
fn not_served(service: &RayService) -> Option<&'static str> {
    let cluster = &service.spec.ray_cluster_config;
    if service.spec.managed_by == Some(ManagedBy::MultiKueue) {
        return Some("spec.managedBy hands this service to Kueue: nothing is done for it here");
    }
    if asks_for_tokens(cluster) {
        return Some(
            "rayClusterConfig.authOptions.mode is token, and the token is not sent to Serve yet: use mode disabled",
        );
    }
    // Its clusters would never get a pod.
    keeps_tables_in_rocksdb(cluster).then_some(
        "rayClusterConfig.gcsFaultToleranceOptions.backend is rocksdb, which is not served: use redis",
    )
}

/// The name of the Service that clients use.
pub(super) fn stable_name(service: &RayService) -> String {
    let named = service.spec.serve_service.as_ref().and_then(|it| it.json()["metadata"]["name"].as_str());
    named.map_or_else(|| format!("{}-serve-svc", service.name_any()), ToOwned::to_owned)
}

/// The name of the Service of one cluster.
pub(super) fn cluster_service(cluster: &str) -> String {
    format!("{cluster}-serve-svc")
}

/// The ports of a cluster config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) serve: i32,
    /// Where gRPC is configured.
    pub(super) grpc: Option<i32>,
    pub(super) dashboard: i32,
}

/// The ports of a cluster config with these applications.
pub(super) fn ports(cluster: &Value, applications: &Value) -> Ports {
    let container = &cluster["headGroupSpec"]["template"]["spec"]["containers"][0];
    let named = |name: &str| {
        let mut ports = container["ports"].as_array()?.iter();
        let port = ports.find(|port| port["name"] == name)?["containerPort"].as_i64()?;
        i32::try_from(port).ok()
    };
    let options = &applications["grpc_options"];
    let serves_grpc = options["grpc_servicer_functions"].as_array().is_some_and(|list| !list.is_empty());
    let configured = || {
        let port = options["port"].as_i64().and_then(|port| i32::try_from(port).ok());
        serves_grpc.then(|| port.unwrap_or(GRPC_PORT))
    };
    Ports {
        serve: named("serve").unwrap_or(SERVE_PORT),
        grpc: named("serve-grpc").or_else(configured),
        dashboard: named("dashboard").unwrap_or(DASHBOARD_PORT),
    }
}

/// What every object of a service is labelled with.
pub(super) fn labels_of(service: &RayService) -> Value {
    let name = service.name_any();
    json!({labels::RAY_SERVICE: name, labels::RAY_FROM_NAME: name, labels::RAY_FROM_CRD: "RayService"})
}

/// How traffic reaches a service. Only an incremental upgrade needs a Gateway.
pub(super) fn traffic(service: &RayService, ports: Ports) -> Traffic {
    let name = service.name_any();
    let strategy = service.spec.upgrade_strategy.as_ref();
    let options = strategy.and_then(|strategy| strategy.incremental());
    let is_shipped = strategy.and_then(|it| it.ty) == Some(UpgradeType::NewClusterWithIncrementalUpgrade);
    let http = TrafficPort {
        name: "http".to_owned(),
        protocol: Protocol::Http,
        route: format!("{name}-httproute"),
        listens: if is_shipped { SHIPPED_PORT } else { ports.serve },
        port: ports.serve,
    };
    let grpc = ports.grpc.map(|port| TrafficPort {
        name: "grpc".to_owned(),
        protocol: Protocol::Grpc,
        route: format!("{name}-grpcroute"),
        listens: port,
        port,
    });
    Traffic {
        namespace: service.namespace().unwrap_or_default(),
        owner: owner(service),
        labels: labels_of(service),
        ports: [Some(http), grpc].into_iter().flatten().collect(),
        gateway: options.map(|options| parents(&name, options)),
        settle: SETTLE,
    }
}

fn parents(name: &str, options: &IncrementalUpgradeOptions) -> Parents {
    let own = options.gateway.as_ref();
    let class = options.gateway_class_name.clone().filter(|_| own.is_none());
    Parents {
        own: class.map(|class| (format!("{name}-gateway"), class)),
        existing: own.map(|own| own.parent_refs.clone()),
        hostnames: own.map(|own| own.hostnames.clone()).unwrap_or_default(),
        paths: Vec::new(),
    }
}

/// The Service that a person describes for clients.
pub(super) fn described(service: &RayService) -> Option<&Value> {
    service.spec.serve_service.as_ref().map(Embedded::json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_of_the_head_and_grpc_is_there_where_it_is_configured() {
        let cluster = json!({"headGroupSpec": {"template": {"spec": {"containers": [{"ports": [
            {"name": "serve", "containerPort": 8100}, {"name": "dashboard", "containerPort": 8300},
        ]}]}}}});
        let none = json!({});
        assert_eq!(ports(&none, &none), Ports { serve: 8000, grpc: None, dashboard: 8265 });
        assert_eq!(ports(&cluster, &none), Ports { serve: 8100, grpc: None, dashboard: 8300 });
        let grpc = |options: Value| ports(&cluster, &json!({"grpc_options": options})).grpc;
        assert_eq!(grpc(json!({"port": 9100})), None, "no function is served");
        assert_eq!(grpc(json!({"grpc_servicer_functions": ["f"]})), Some(9000));
        assert_eq!(grpc(json!({"port": 9100, "grpc_servicer_functions": ["f"]})), Some(9100));
    }
}
