//! Stories of Ray clusters.

mod checker;
mod machine;

use std::time::Duration;

use serde_json::{Value, json};

pub use self::machine::Befalls;
pub(super) use self::{
    checker::{ClusterChecker, Wanted},
    machine::Machine,
};
use super::workload::{Step, Workload};

/// What is said of a cluster besides its image.
#[derive(Clone, Copy)]
struct Shape {
    replicas: u32,
    most: u32,
    least: u32,
    hosts: u32,
    tolerant: bool,
    suspended: bool,
    recreate: bool,
}

const PLAIN: Shape =
    Shape { replicas: 3, most: 5, least: 0, hosts: 1, tolerant: true, suspended: false, recreate: false };

fn cluster(image: &str, shape: Shape) -> Step {
    let Shape { replicas, most, least, hosts, tolerant, suspended, recreate } = shape;
    let pod = |name: &str| json!({"spec": {"containers": [{"name": name, "image": image}]}});
    let mut cluster = json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "x"},
        "spec": {
            "rayVersion": "2.53.0",
            "suspend": suspended,
            "upgradeStrategy": {"type": if recreate { "Recreate" } else { "None" }},
            "headGroupSpec": {"template": pod("head")},
            "workerGroupSpecs": [{
                "groupName": "g", "replicas": replicas, "minReplicas": least, "maxReplicas": most,
                "numOfHosts": hosts, "template": pod("worker"),
            }],
        },
    });
    if tolerant {
        cluster["spec"]["gcsFaultToleranceOptions"] = json!({"redisAddress": "redis:6379"});
    }
    Step::Apply(cluster)
}

/// The same with a second group.
fn with_another(step: Step) -> Step {
    let Step::Apply(mut cluster) = step else { return step };
    let groups = &mut cluster["spec"]["workerGroupSpecs"];
    let mut other: Value = groups[0].clone();
    other["groupName"] = "h".into();
    other["replicas"] = 1.into();
    if let Some(groups) = groups.as_array_mut() {
        groups.push(other);
    }
    Step::Apply(cluster)
}

/// Longer than a failing check is borne with.
const LONG: Duration = Duration::from_mins(4);

pub(super) fn clusters() -> Vec<Workload> {
    let story = |name, steps: Vec<Step>| Workload { name, steps };
    let one = |shape: Shape| cluster("one", shape);
    let becomes = |name, from: Shape, to: Step| story(name, vec![one(from), Step::Settle, to, Step::Settle]);
    let after = |name, from: Shape, what: Vec<Step>| {
        let steps = [vec![one(from), Step::Settle], what, vec![Step::Settle]];
        story(name, steps.concat())
    };
    let befalls = |what: Befalls| Step::OfCluster(what);
    let alone = Shape { tolerant: false, ..PLAIN };
    let hosts = Shape { replicas: 2, hosts: 2, ..PLAIN };
    let again = Shape { recreate: true, ..PLAIN };
    let asleep = Shape { suspended: true, ..PLAIN };
    vec![
        story("create", vec![one(PLAIN), Step::Settle]),
        story("create, not fault tolerant", vec![one(alone), Step::Settle]),
        story("create, replicas of two hosts", vec![one(hosts), Step::Settle]),
        becomes("scale up", PLAIN, one(Shape { replicas: 5, ..PLAIN })),
        becomes("scale down", PLAIN, one(Shape { replicas: 1, ..PLAIN })),
        after(
            "edit the bounds",
            PLAIN,
            vec![one(Shape { most: 2, ..PLAIN }), Step::Settle, one(Shape { least: 4, ..PLAIN })],
        ),
        after("the autoscaler names a worker", PLAIN, vec![befalls(Befalls::ScaledDownBy("w0"))]),
        becomes("another group", PLAIN, with_another(one(PLAIN))),
        story("a group less", vec![with_another(one(PLAIN)), Step::Settle, one(PLAIN), Step::Settle]),
        after("loss of the head", PLAIN, vec![Step::DeletePod("head")]),
        after("the head fails", PLAIN, vec![befalls(Befalls::Fails("head"))]),
        after("the head exits at its start", PLAIN, vec![befalls(Befalls::HeadsFail(3))]),
        after("loss of the head, not fault tolerant", alone, vec![Step::DeletePod("head")]),
        after("loss of the head's node", PLAIN, vec![Step::LoseNode("head")]),
        after("loss of a worker", PLAIN, vec![Step::DeletePod("w1")]),
        after("a worker fails", PLAIN, vec![befalls(Befalls::Fails("w1"))]),
        after("loss of a node", PLAIN, vec![Step::LoseNode("w1")]),
        after("loss of a host of two", hosts, vec![Step::DeletePod("w1")]),
        after(
            "loss of the head and of a worker",
            PLAIN,
            vec![Step::DeletePod("head"), Step::DeletePod("w1")],
        ),
        after(
            "the check of every worker fails",
            PLAIN,
            vec![befalls(Befalls::Unhealthy("workers")), Step::Wait(LONG), befalls(Befalls::Healthy)],
        ),
        after(
            "the check of a worker fails",
            PLAIN,
            vec![befalls(Befalls::Unhealthy("w1")), Step::Wait(LONG)],
        ),
        after(
            "the check of the head fails",
            PLAIN,
            vec![befalls(Befalls::Unhealthy("head")), Step::Wait(LONG)],
        ),
        after(
            "two workers are marked",
            PLAIN,
            vec![befalls(Befalls::Marked("w0")), befalls(Befalls::Marked("w2"))],
        ),
        after("suspend and resume", PLAIN, vec![one(asleep), Step::Settle, one(PLAIN)]),
        story("suspend while it comes up", vec![one(PLAIN), Step::After(6), one(asleep), Step::Settle]),
        after("recreate", again, vec![cluster("two", again)]),
        after("another template", PLAIN, vec![cluster("two", PLAIN)]),
        after("delete", PLAIN, vec![Step::Delete]),
        after("delete, not fault tolerant", alone, vec![Step::Delete]),
        story("delete while it comes up", vec![one(PLAIN), Step::After(6), Step::Delete, Step::Settle]),
        after("delete, Redis does not answer", PLAIN, vec![befalls(Befalls::RedisIsGone), Step::Delete]),
    ]
}
