//! The verbs that go back, begin anew, hold and go on.
//!
//! What the spec of a kind can say is a change of the spec, made as the person who asks, on the condition that nobody has
//! changed it meanwhile. What it cannot say is a request to the controllers.

pub(crate) mod history;
pub(crate) mod hold;
pub(crate) mod restart;
pub(crate) mod retry;
mod revision;
mod serving;
mod set;
pub(crate) mod undo;

use http::{Method, StatusCode};
use serde_json::Value;

use super::{
    client::{Ask, Cluster, Reach, with_query},
    failure::Failure,
    object::{Named, Target},
};

/// The annotation by which an object remembers its partition while it is held.
pub(super) const HELD: &str = "segue.dev/partition-before-pause";

/// What the verbs have to know of a kind.
struct Shape {
    kind: &'static str,
    /// The labels of its revisions: whose they are, and their key.
    name_label: &'static str,
    revision_label: &'static str,
    /// The templates of pods in a revision.
    pods: fn(&Value) -> Vec<&Value>,
    /// The change of the spec that goes back to a revision.
    back: fn(data: &Value, live: &Value) -> Value,
    /// The change of the spec that lays this over every template of pods.
    marked: fn(live: &Value, mark: &Value) -> Value,
    /// The type of rollout that a partition of groups holds.
    rolls: &'static str,
}

static SHAPES: [&Shape; 2] = [&set::SHAPE, &serving::SHAPE];

/// The kinds that have revisions and can be held.
const KINDS: [&str; 2] = ["LeaderWorkerSet", "ModelServing"];

/// One object that a person named.
pub(super) struct Subject {
    pub cluster: Cluster,
    pub target: Target,
    pub object: Value,
}

impl Subject {
    /// Finds it, if it is of one of these kinds.
    pub async fn find(reach: &Reach, words: &[String], kinds: &[&str]) -> Result<Self, Failure> {
        let named = Named::read(words)?;
        let [Named { kind, name: Some(name) }] = &named[..] else {
            return Err(Failure::usage("name one object, as in modelserving/pd"));
        };
        let cluster = Cluster::reach(reach).await?;
        let served = cluster.kind_called(kind).await?;
        if !kinds.contains(&served.kind.as_str()) {
            let (kind, kinds) = (served.kind, kinds.join(", "));
            return Err(Failure::usage(format!("{kind} cannot be asked this; these can: {kinds}")));
        }
        let target = Target { served, namespace: cluster.namespace.clone(), name: name.clone() };
        let answered = cluster.ask(Ask::get(target.path())).await?;
        if answered.code == StatusCode::NOT_FOUND {
            return Err(Failure::Refused(format!("{}: there is none{}", target.title(), target.place())));
        }
        Ok(Self { object: answered.granted()?, cluster, target })
    }

    fn shape(&self) -> &'static Shape {
        SHAPES.into_iter().find(|shape| shape.kind == self.target.served.kind).unwrap_or(&set::SHAPE)
    }

    /// Changes it, if it is still as it was found.
    async fn change(&self, mut patch: Value) -> Result<(), Failure> {
        patch["metadata"]["uid"] = self.object["metadata"]["uid"].clone();
        patch["metadata"]["resourceVersion"] = self.object["metadata"]["resourceVersion"].clone();
        let ask = Ask {
            method: Method::PATCH,
            // Whoever applies a manifest later is told who changed its fields.
            path: with_query(&self.target.path(), &[("fieldManager", "segue-rollout")]),
            content: Some("application/merge-patch+json"),
            body: patch.to_string().into_bytes(),
            ..Ask::default()
        };
        let answered = self.cluster.ask(ask).await?;
        if answered.code == StatusCode::CONFLICT {
            let title = self.target.title();
            return Err(Failure::Refused(format!(
                "{title}: somebody changed it meanwhile; look, and ask again"
            )));
        }
        answered.granted().map(drop)
    }
}
