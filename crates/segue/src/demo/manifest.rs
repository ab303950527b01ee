//! The service that is demonstrated.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};

/// What it is called; its stable Service has the same name.
pub(super) const NAME: &str = "chat";
pub(super) const REPLICAS: usize = 4;

/// How long a stream of so many tokens is: longer than any grace period, as answers of models are.
pub(super) const TOKEN_MILLIS: u32 = 200;
pub(super) const TOKENS: u32 = 20;

/// How the new version takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Strategy {
    /// Replica by replica
    Rolling,
    /// In equal steps of capacity and traffic
    Incremental,
}

impl Strategy {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Rolling => "rolling",
            Self::Incremental => "incremental",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Rolling => Self::Incremental,
            Self::Incremental => Self::Rolling,
        }
    }

    fn settings(self) -> Value {
        match self {
            Self::Rolling => json!({"type": "Rolling", "rolling": {"maxSurge": "25%", "maxUnavailable": 0}}),
            Self::Incremental => json!({
                "type": "Incremental",
                "incremental": {"maxSurgePercent": 25, "stepSizePercent": 25, "intervalSeconds": 2},
            }),
        }
    }
}

/// What differs from one demonstration to the next.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// The program whose `model-server` is the model: this one.
    pub(super) program: PathBuf,
    /// Where the servers keep their counts.
    pub(super) counts: PathBuf,
    /// The port of the Service and of its pods. It is free, so that a demonstration runs beside `segue up`.
    pub(super) port: u16,
    pub(super) strategy: Strategy,
}

impl Service {
    /// The manifest of a version. The variable makes it one, as it would with a real server.
    ///
    /// A pod that is told to end has 2 seconds: a stream takes 4, so nothing but the drain protects it.
    pub(super) fn manifest(&self, version: &str) -> Value {
        json!({
            "apiVersion": "segue.dev/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": NAME},
            "spec": {
                "replicas": REPLICAS,
                "version": version,
                "workload": {"type": "Pod", "pod": {"spec": {
                    "terminationGracePeriodSeconds": 2,
                    "containers": [{
                        "name": "model",
                        "image": "segue",
                        "command": [self.program.to_string_lossy(), "model-server"],
                        "args": [
                            "--version=$(MODEL_VERSION)",
                            "--load-seconds=3",
                            "--latency-millis=20",
                            format!("--token-gap-millis={TOKEN_MILLIS}"),
                            format!("--port={}", self.port),
                            format!("--counts={}", self.counts.display()),
                        ],
                        "ports": [{"name": "http", "containerPort": self.port}],
                        "readinessProbe": {"httpGet": {"path": "/ready", "port": self.port}, "periodSeconds": 1},
                        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                    }],
                }}},
                "env": [{"name": "MODEL_VERSION", "value": version}],
                "traffic": {
                    "ports": [{"name": "http", "port": self.port}],
                    "gateway": {"className": "segue"},
                    "drainSeconds": 60,
                    "settleSeconds": 1,
                },
                "health": {"readyDeadlineSeconds": 30},
                "strategy": self.strategy.settings(),
                "rollback": {"progressDeadlineSeconds": 120},
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_demonstrated_is_accepted_without_a_warning() {
        for strategy in [Strategy::Rolling, Strategy::Incremental] {
            let service =
                Service { program: "/bin/segue".into(), counts: "/tmp/x".into(), port: 8000, strategy };
            let verdict = api::validate(&service.manifest("v1"), None);
            assert!(verdict.accepted() && verdict.warnings.is_empty(), "{verdict:?}");
        }
    }
}
