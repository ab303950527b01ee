//! The object of a manifest as an API has it, and whether that API has room for an upgrade of it.

use controllers::kind;
use http::StatusCode;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use super::{
    Connection,
    client::{ApiRequest, Cluster, segment},
    failure::Failure,
};
use crate::output::Error;

/// A connected API.
pub(crate) struct Live {
    runtime: Runtime,
    cluster: Cluster,
}

impl Live {
    pub(crate) fn connect(connection: &Connection) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let cluster = runtime.block_on(Cluster::connect(connection)).map_err(error)?;
        Ok(Self { runtime, cluster })
    }

    /// The object of a manifest of one of our kinds; nothing where it does not exist.
    pub(crate) fn object(&self, manifest: &Value) -> Result<Option<Value>, Error> {
        let Ok(kind) = api::Kind::of(manifest) else { return Ok(None) };
        let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or(&self.cluster.namespace);
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!(
            "/apis/{}/{}/namespaces/{}/{}/{}",
            kind.group,
            kind.version,
            segment(namespace),
            kind.plural,
            segment(name)
        );
        let answered = self.runtime.block_on(self.cluster.ask(ApiRequest::get(path))).map_err(error)?;
        match answered.code {
            StatusCode::NOT_FOUND => Ok(None),
            _ => answered.into_body().map(Some).map_err(error),
        }
    }

    /// Why the upgrade to a manifest would be refused for lack of room.
    pub(crate) fn refusal(&self, manifest: &Value, live: Option<Value>) -> Result<Option<String>, Error> {
        self.runtime.block_on(refusal(&self.cluster, manifest, live)).map_err(error)
    }
}

/// Why the upgrade to a manifest, of the object as it is, would be refused for lack of room.
pub(super) async fn refusal(
    cluster: &Cluster,
    manifest: &Value,
    live: Option<Value>,
) -> Result<Option<String>, Failure> {
    if api::Kind::of(manifest).is_err() {
        return Ok(None);
    }
    let Some(fits) = manifest["kind"].as_str().and_then(kind::named).and_then(|served| served.fits) else {
        return Ok(None);
    };
    fits(cluster.client(), manifest.clone(), live)
        .await
        .map_err(|error| Failure::Refused(format!("what the nodes have free cannot be read: {error}")))
}

fn error(failure: Failure) -> Error {
    match failure {
        Failure::Refused(why) => Error::Failed(why),
        Failure::Failed(error) => error,
    }
}
