//! Bootstrap: the objects that every cluster has before the first client connects.
use http::{Request, StatusCode, header};
use http_body_util::Full;
use serde_json::json;

use crate::{server::Server, status::StatusError, store::Key};

/// The namespaces that a kube-apiserver makes for itself; clients count on the first.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Server {
    /// Creates the system namespaces, and gives Services that share a cluster IP one of their own. Namespaces that exist
    /// are not changed.
    pub async fn bootstrap(&self) -> Result<(), StatusError> {
        for name in NAMESPACES.iter().filter(|name| self.get(&Key::new("namespaces", "", name)).is_none()) {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let request = Request::post("/api/v1/namespaces?fieldManager=kube-apiserver")
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::from(namespace.to_string()))
                .map_err(|error| StatusError::internal(error.to_string()))?;
            let code = self.handle(request).await.status();
            // Another client created it in the meantime.
            if !code.is_success() && code != StatusCode::CONFLICT {
                return Err(StatusError::internal(format!("the namespace {name} could not be made: {code}")));
            }
        }
        self.repair_addresses().await
    }
}
