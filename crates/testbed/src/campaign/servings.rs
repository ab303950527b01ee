//! Stories of serving groups and their roles.

use serde_json::{Value, json};

use super::workload::{Step, Workload};

/// What is said of a ModelServing besides the images of its roles.
#[derive(Clone, Copy)]
struct Shape {
    groups: u32,
    prefill: u32,
    decode: u32,
    /// Of each decode replica; prefill is single pods.
    workers: u32,
    recovery: &'static str,
    by: By,
    stays: Stays,
    /// The scheduler that places groups.
    gang: bool,
}

/// What must stay while nodes are drained.
#[derive(Clone, Copy)]
enum Stays {
    Nothing,
    /// One of each role.
    Roles,
    /// A group.
    Groups,
}

/// How it is updated.
#[derive(Clone, Copy)]
enum By {
    /// Whole groups: how many may be missing, how many more there may be, and how many stay.
    Groups(u32, u32, u32),
    /// Roles: how many of each may be missing, and how many more there may be.
    Roles(u32, u32),
    /// The steps of the proposal.
    Steps,
}

const PLAIN: Shape = Shape {
    groups: 2,
    prefill: 1,
    decode: 2,
    workers: 1,
    recovery: "RoleRecreate",
    by: By::Groups(1, 0, 0),
    stays: Stays::Nothing,
    gang: false,
};

const STEPS: Shape = Shape { groups: 1, prefill: 2, decode: 2, workers: 0, by: By::Steps, ..PLAIN };

fn serving(image: &str, shape: Shape) -> Step {
    let Shape { groups, prefill, decode, workers, recovery, by, stays, gang } = shape;
    let pod = || json!({"spec": {"containers": [{"name": "c", "image": image}]}});
    let mut roles = [
        json!({"name": "prefill", "replicas": prefill, "workerReplicas": 0, "entryTemplate": pod()}),
        json!({"name": "decode", "replicas": decode, "workerReplicas": workers, "entryTemplate": pod()}),
    ];
    if workers > 0 {
        roles[1]["workerTemplate"] = pod();
    }
    let mut strategy = match by {
        By::Groups(missing, more, partition) => json!({
            "type": "ServingGroupRollingUpdate",
            "rollingUpdateConfiguration": {
                "maxUnavailable": missing, "maxSurge": more, "partition": partition,
            },
        }),
        By::Roles(missing, more) => {
            for role in &mut roles {
                role["maxUnavailable"] = missing.into();
                role["maxSurge"] = more.into();
            }
            json!({"type": "RoleRollingUpdate"})
        }
        By::Steps => json!({
            "type": "ServingGroupRollingUpdate",
            "rollingUpdateConfiguration": {"maxUnavailable": 1, "roleUpgrade": {"steps": steps()}},
        }),
    };
    match stays {
        Stays::Nothing => {}
        Stays::Groups => strategy["evictionStrategy"] = json!({"minAvailable": 1}),
        Stays::Roles => {
            let least = json!({"prefill": 1, "decode": 1});
            strategy["evictionStrategy"] = json!({"protectionLevel": "Role", "roleMinAvailable": least});
        }
    }
    Step::Apply(json!({
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "metadata": {"name": "x", "annotations": {"segue.dev/settle-seconds": "1", "segue.dev/drain-seconds": "1"}},
        "spec": {
            "replicas": groups,
            "schedulerName": if gang { "volcano" } else { "default-scheduler" },
            "recoveryPolicy": recovery,
            "rolloutStrategy": strategy,
            "template": {"roles": roles},
        },
    }))
}

fn steps() -> Value {
    json!([
        {"role": "decode", "updateTo": 1},
        {"role": "prefill", "updateTo": 1},
        {"role": "prefill", "updateTo": "100%"},
        {"role": "decode", "updateTo": "100%"},
    ])
}

pub(super) fn servings() -> Vec<Workload> {
    let story = |name, steps: Vec<Step>| Workload { name, steps };
    let one = serving("one", PLAIN);
    let becomes = |name, shape: Shape| {
        story(name, vec![one.clone(), Step::Settle, serving("one", shape), Step::Settle])
    };
    let rolls = |name, shape: Shape| {
        story(name, vec![serving("one", shape), Step::Settle, serving("two", shape), Step::Settle])
    };
    let midway = |name, then: Vec<Step>| {
        let mut steps = vec![serving("one", STEPS), Step::Settle, serving("two", STEPS), Step::After(12)];
        steps.extend(then);
        steps.push(Step::Settle);
        story(name, steps)
    };
    let after = |name, shape: Shape, what: Step| {
        story(name, vec![serving("one", shape), Step::Settle, what, Step::Settle])
    };
    let whole = Shape { recovery: "ServingGroupRecreate", ..PLAIN };
    let halves = Shape { groups: 2, prefill: 1, recovery: "ServingGroupRecreate", ..STEPS };
    vec![
        story("create", vec![one.clone(), Step::Settle]),
        story("create, single pods", vec![serving("one", Shape { workers: 0, ..PLAIN }), Step::Settle]),
        becomes("more groups", Shape { groups: 3, ..PLAIN }),
        becomes("fewer groups", Shape { groups: 1, ..PLAIN }),
        becomes("more of a role", Shape { decode: 3, ..PLAIN }),
        becomes("less of a role", Shape { decode: 1, ..PLAIN }),
        becomes("more workers", Shape { workers: 2, ..PLAIN }),
        rolls("groups, one missing", PLAIN),
        rolls("groups, one more", Shape { by: By::Groups(0, 1, 0), ..PLAIN }),
        rolls("groups, to a partition", Shape { by: By::Groups(1, 0, 1), ..PLAIN }),
        rolls("roles, one missing", Shape { by: By::Roles(1, 0), ..PLAIN }),
        rolls("roles, one more", Shape { by: By::Roles(0, 1), workers: 0, ..PLAIN }),
        rolls("steps", STEPS),
        rolls("steps, with workers", Shape { workers: 1, ..STEPS }),
        rolls("steps, two groups", Shape { groups: 2, prefill: 1, ..STEPS }),
        midway("steps, back midway", vec![serving("one", STEPS)]),
        midway("steps, a third template midway", vec![serving("three", STEPS)]),
        midway("steps, more of a role midway", vec![serving("two", Shape { prefill: 3, ..STEPS })]),
        midway("steps, the loss of a pod midway", vec![Step::DeletePod("x-0-prefill-0-0")]),
        rolls("roles that stay, one more", Shape { by: By::Roles(0, 1), stays: Stays::Roles, ..PLAIN }),
        rolls("roles that stay, steps", Shape { workers: 1, stays: Stays::Roles, ..STEPS }),
        rolls("groups that stay, one more", Shape { by: By::Groups(0, 1, 0), stays: Stays::Groups, ..PLAIN }),
        rolls("placed together, one more", Shape { by: By::Groups(0, 1, 0), gang: true, ..PLAIN }),
        after("restart of a worker", PLAIN, Step::Restart("x-1-decode-0-1")),
        after("restart, the whole group", whole, Step::Restart("x-1-decode-0-1")),
        after("restart, only the pod", Shape { recovery: "None", ..PLAIN }, Step::Restart("x-1-decode-0-1")),
        after("loss of an entry", PLAIN, Step::DeletePod("x-1-decode-0-0")),
        after("loss of a single pod, the whole group", whole, Step::DeletePod("x-1-prefill-0-0")),
        after("loss, only the pod", Shape { recovery: "None", ..PLAIN }, Step::DeletePod("x-1-decode-0-1")),
        after("loss of a node", PLAIN, Step::LoseNode("x-1-decode-0-1")),
        story(
            "steps, the loss of a group midway",
            vec![
                serving("one", halves),
                Step::Settle,
                serving("two", halves),
                Step::After(6),
                Step::DeletePod("x-0-prefill-0-0"),
                Step::Settle,
            ],
        ),
        after("delete", PLAIN, Step::Delete),
        story(
            "delete while rolling",
            vec![
                one.clone(),
                Step::Settle,
                serving("two", PLAIN),
                Step::After(6),
                Step::Delete,
                Step::Settle,
            ],
        ),
    ]
}
