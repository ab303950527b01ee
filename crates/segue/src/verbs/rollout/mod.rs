//! The commands about rollouts: history, undo, restart, pause, resume, retry.
//!
//! Each is a change of the spec, on the condition that the spec has not changed since it was read. Only what a spec cannot
//! express is a request to the controllers.

pub(crate) mod history;
pub(crate) mod pause;
pub(crate) mod request;
pub(crate) mod restart;
mod revision;
pub(crate) mod undo;

use clap::Args as ClapArgs;
use controllers::{
    adopt::Step,
    kind::{self, Revisioned, Served},
};
use http::{Method, StatusCode};
use serde_json::Value;

use super::{
    client::{ApiRequest, Cluster, Connection, with_query},
    discovery,
    failure::Failure,
    target::{Named, Target},
};
use crate::output::Format;

/// The annotation by which an object remembers its partition while it is held.
pub(super) const PARTITION_BEFORE_PAUSE: &str = "segue.dev/partition-before-pause";

/// How often a change is tried again because the status was written at the same time.
const MAX_CONFLICTS: usize = 20;

/// The kinds that commands are about. Tests add one.
pub(super) fn known() -> impl Iterator<Item = &'static Served> {
    #[cfg(test)]
    let added = [&crate::toy::SERVED];
    #[cfg(not(test))]
    let added: [&'static Served; 0] = [];
    kind::KINDS.into_iter().chain(added)
}

/// The kinds that can be asked something.
fn kinds(can: impl Fn(&Served) -> bool) -> Vec<&'static Served> {
    known().filter(|served| can(served)).collect()
}

/// The kinds that have revisions.
pub(super) fn revisioned() -> Vec<&'static Served> {
    kinds(|served| served.revisions.is_some())
}

/// The description of a kind that the API serves, among those that can be asked. Two API groups may have kinds of one
/// name.
fn described(
    served: &discovery::Served,
    name: &str,
    kinds: &[&'static Served],
) -> Result<&'static Served, String> {
    let mut same_name = kinds.iter().copied().filter(|it| it.kind.name == served.kind).peekable();
    let Some(other) = same_name.peek().copied() else {
        let known: Vec<&str> = kinds.iter().map(|it| it.kind.name).collect();
        let (kind, known) = (&served.kind, known.join(", "));
        return Err(format!("this command does not support the kind {kind}; it supports: {known}"));
    };
    same_name.find(|it| it.kind.group == served.group).ok_or_else(|| {
        let discovery::Served { kind, group, .. } = served;
        let api::Kind { singular, group: ours, .. } = other.kind;
        format!("this command does not support {kind} of {group}, but of {ours}: {singular}.{ours}/{name}")
    })
}

/// The one object that a verb is about, and how it answers.
#[derive(ClapArgs)]
pub(crate) struct About {
    /// The object, as KIND/NAME or KIND NAME
    #[arg(value_name = "KIND/NAME", required = true)]
    what: Vec<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(super) output: Format,
    #[command(flatten)]
    connection: Connection,
}

/// One object that a person named.
pub(super) struct Subject {
    pub cluster: Cluster,
    pub target: Target,
    pub served: &'static Served,
    pub object: Value,
}

impl Subject {
    /// Finds it, if it is of one of these kinds.
    pub async fn find(about: &About, kinds: &[&'static Served]) -> Result<Self, Failure> {
        let About { what, connection, .. } = about;
        let named = Named::read(what)?;
        let [Named { kind, name: Some(name) }] = &named[..] else {
            return Err(Failure::usage("expected one object, as in modelserving/pd"));
        };
        let cluster = Cluster::connect(connection).await?;
        let served = cluster.kind_called(kind).await?;
        let described = described(&served, name, kinds).map_err(Failure::usage)?;
        let target = Target { served, namespace: cluster.namespace.clone(), name: name.clone() };
        let answered = cluster.ask(ApiRequest::get(target.path())).await?;
        if answered.code == StatusCode::NOT_FOUND {
            return Err(Failure::Refused(format!("{} not found{}", target.title(), target.place())));
        }
        Ok(Self { object: answered.into_body()?, cluster, target, served: described })
    }

    /// Whether the controllers leave the object alone because pods of it are another operator's. False where that cannot be
    /// read.
    pub async fn is_not_adopted(&self) -> bool {
        let Some(adoptable) = self.served.adoptable_named else { return false };
        let Target { namespace, name, .. } = &self.target;
        let found = adoptable(self.cluster.client(), namespace.clone(), name.clone()).await;
        let found = found.unwrap_or_default();
        let mut steps = found.iter().flat_map(|it| it.steps.iter().flatten());
        steps.any(|step| matches!(step, Step::Own { .. }))
    }

    /// How its kind goes back, restarts and is held.
    fn revisioned(&self) -> Result<Revisioned, Failure> {
        self.served.revisions.ok_or_else(|| Failure::usage("this kind has no revisions"))
    }

    /// Changes it by a patch that is made of the object as it is. A conflict with a write that leaves the spec as it was
    /// found, as every status is, is no reason to give up: the object is read and the patch is made again.
    async fn change(&mut self, patch: impl Fn(&Value) -> Result<Value, Failure>) -> Result<(), Failure> {
        for _ in 0..MAX_CONFLICTS {
            let answered =
                self.cluster.ask(conditional(&self.target, &self.object, patch(&self.object)?)).await?;
            if answered.code != StatusCode::CONFLICT {
                return answered.into_body().map(drop);
            }
            let found = self.cluster.ask(ApiRequest::get(self.target.path())).await?.into_body()?;
            if is_another_spec(&self.object, &found) {
                break;
            }
            self.object = found;
        }
        let title = self.target.title();
        Err(Failure::Refused(format!(
            "{title} was changed at the same time; nothing was written, run the command again"
        )))
    }
}

/// A patch that is applied only to this state of an object.
fn conditional(target: &Target, object: &Value, mut patch: Value) -> ApiRequest {
    patch["metadata"]["uid"] = object["metadata"]["uid"].clone();
    patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    ApiRequest {
        method: Method::PATCH,
        // Whoever applies a manifest later is told who changed its fields.
        path: with_query(&target.path(), &[("fieldManager", "segue-rollout")]),
        content: Some("application/merge-patch+json"),
        body: patch.to_string().into_bytes(),
        ..ApiRequest::default()
    }
}

/// Whether a user decided on something else than what is there now: another object, another spec, another hold or request.
fn is_another_spec(seen: &Value, found: &Value) -> bool {
    let parts = |object: &Value| {
        let metadata = &object["metadata"];
        [&metadata["uid"], &metadata["annotations"], &metadata["deletionTimestamp"], &object["spec"]]
            .map(Value::clone)
    };
    parts(seen) != parts(found)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_no_other_spec_and_everything_else_is() {
        let seen = json!({
            "metadata": {"uid": "1", "resourceVersion": "5", "annotations": {"a": "1"}},
            "spec": {"replicas": 1}, "status": {"readyReplicas": 0},
        });
        let mut written = seen.clone();
        written["metadata"]["resourceVersion"] = json!("6");
        written["status"]["readyReplicas"] = json!(1);
        assert!(!is_another_spec(&seen, &written));
        for (path, value) in [
            ("/metadata/uid", json!("2")),
            ("/metadata/annotations/a", json!("2")),
            ("/spec/replicas", json!(2)),
        ] {
            let mut changed = written.clone();
            *changed.pointer_mut(path).unwrap() = value;
            assert!(is_another_spec(&seen, &changed), "{path}");
        }
    }

    #[test]
    fn kinds_of_one_name_in_two_groups_are_told_apart() {
        let mut served = discovery::Served::pods();
        let kinds = kind::KINDS;
        let asked = |served: &discovery::Served| described(served, "x", &kinds).map(|it| it.kind.name);
        assert!(
            asked(&served)
                .unwrap_err()
                .starts_with("this command does not support the kind Pod; it supports: Leader")
        );
        served.kind = "LeaderWorkerSet".to_owned();
        served.group = "example.com".to_owned();
        assert_eq!(
            asked(&served).unwrap_err(),
            "this command does not support LeaderWorkerSet of example.com, but of leaderworkerset.x-k8s.io: \
             leaderworkerset.leaderworkerset.x-k8s.io/x"
        );
        served.group = "leaderworkerset.x-k8s.io".to_owned();
        assert_eq!(asked(&served), Ok("LeaderWorkerSet"));
    }

    /// Asks an API that has nothing, and returns what it was asked for.
    async fn asked(served: &Served) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let client = kube::Client::try_from(kube::Config::new(url)).unwrap();
        let asks = served.adoptable_named.unwrap()(client, "n".to_owned(), "x".to_owned());
        let answers = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4_096];
            let length = stream.read(&mut request).await.unwrap();
            let body =
                r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
            let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..length]).lines().next().unwrap().to_owned()
        };
        let (found, asked) = tokio::join!(asks, answers);
        assert!(found.unwrap().is_none());
        asked
    }

    #[tokio::test]
    async fn what_is_not_adopted_is_asked_by_name() {
        for served in kind::KINDS.into_iter().filter(|served| served.adoptable.is_some()) {
            let path = format!("/apis/{}/namespaces/n/{}/x", served.kind.api_version(), served.kind.plural);
            assert_eq!(asked(served).await, format!("GET {path} HTTP/1.1"));
        }
    }
}
