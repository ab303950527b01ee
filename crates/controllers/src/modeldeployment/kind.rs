//! What there is to say of deployments beside how they are reconciled.

use super::{Deployments, capacity, plan, wanted};
use crate::{
    conditions::modeldeployment as conditions,
    kind::{Idle, Progress, Right, Served},
    labels,
    pipeline::{Controller, Pipeline},
    rehearsal::typed,
};

const GATEWAY: &str = "gateway.networking.k8s.io";

/// The kind.
pub static SERVED: Served = Served {
    kind: &api::modeldeployment::KIND,
    label: labels::DEPLOYMENT,
    needs: &[&api::leaderworkerset::KIND],
    rights: &[RIGHTS],
    other: None,
    progress: Progress {
        // Too few serve while the first version starts, too: that is no reason to call it stalled.
        noted: &[
            conditions::DEGRADED,
            conditions::ROLLBACK_IN_PROGRESS,
            conditions::PAUSED,
            conditions::CAPACITY_SHORT,
        ],
        busy: &[conditions::PROGRESSING, conditions::DEGRADED],
        // Where a rollout is over, its version before may be kept for a while.
        idle: Idle::NotBusy,
        wait: "/rollout/waitingFor",
        failure: Some("/rollout/failure"),
        going_back: Some(conditions::ROLLBACK_IN_PROGRESS),
        verb: Some("/rollout/request/verb"),
        paused: Some(conditions::PAUSED),
        ..Progress::WAITS
    },
    revisions: None,
    requests: Deployments::REQUESTS,
    adoptable: None,
    adoptable_named: None,
    plan: plan::plan,
    fits: Some(capacity::would_be_refused),
    not_acted_on: |manifest| {
        let deployment = typed::<api::modeldeployment::ModelDeployment>(manifest);
        deployment.map(|it| wanted::not_acted_on(&it.spec)).unwrap_or_default()
    },
    reconciler: &Pipeline::<Deployments>::new(),
};

const RIGHTS: &[Right] = &[
    Right::new("leaderworkerset.x-k8s.io", "leaderworkersets", "create, delete, patch", "a version is a set"),
    Right::new("discovery.k8s.io", "endpointslices", "list, watch", "know what gets requests"),
    Right::new(GATEWAY, "gateways", "create, delete, get, list, patch, watch", "where requests come in"),
    Right::new(GATEWAY, "httproutes", "create, delete, get, list, patch, watch", "the weights of versions"),
    Right::new(GATEWAY, "grpcroutes", "create, delete, get, list, patch, watch", "the weights of versions"),
];
