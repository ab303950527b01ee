//! What a cluster has from its first moment.
use http::{Request, StatusCode, header};
use http_body_util::Full;
use serde_json::json;

use crate::{refusal::Refusal, server::Server, store::Key};

/// The namespaces that a kube-apiserver makes for itself; clients count on the first.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Server {
    /// Makes the namespaces that are there before anybody asks. Those that exist stay as they are.
    pub async fn furnish(&self) -> Result<(), Refusal> {
        for name in NAMESPACES.iter().filter(|name| self.get(&Key::new("namespaces", "", name)).is_none()) {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let request = Request::post("/api/v1/namespaces?fieldManager=kube-apiserver")
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::from(namespace.to_string()))
                .map_err(|error| Refusal::internal(error.to_string()))?;
            let code = self.answer(request).await.status();
            // Somebody else was faster: as good.
            if !code.is_success() && code != StatusCode::CONFLICT {
                return Err(Refusal::internal(format!("the namespace {name} could not be made: {code}")));
            }
        }
        Ok(())
    }
}
