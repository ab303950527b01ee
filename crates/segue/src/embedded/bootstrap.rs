//! The first objects of the embedded API: those of every cluster, the CRDs of our kinds, the `GatewayClass`.

use apiserver::{Server, StatusError};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Collected, Full};
use serde_json::{Value, json};

use crate::output::Error;

/// Applies the first objects. Those that exist are brought up to date.
pub(crate) async fn bootstrap(server: &Server) -> Result<(), Error> {
    let refused = |refusal: StatusError| Error::FailedTo {
        what: "bootstrap the API",
        why: refusal.message().to_owned(),
    };
    server.bootstrap().await.map_err(refused)?;
    let definitions = api::KINDS.iter().map(|kind| kind.crd()).chain(gateway::crds());
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        apply(server, &path, &definition).await?;
    }
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "segue"},
        "spec": {"controllerName": gateway::Settings::default().controller},
    });
    apply(server, "/apis/gateway.networking.k8s.io/v1/gatewayclasses/segue", &class).await
}

async fn apply(server: &Server, path: &str, object: &Value) -> Result<(), Error> {
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}?fieldManager=segue&force=true"))
        .header("content-type", "application/apply-patch+yaml")
        .body(Full::new(Bytes::from(object.to_string())))
        .map_err(|error| Error::failed_to("make a request", &error))?;
    let answer = server.handle(request).await;
    if answer.status() == StatusCode::OK || answer.status() == StatusCode::CREATED {
        return Ok(());
    }
    let bytes = answer.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let status: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    Err(Error::FailedTo { what: "bootstrap the API", why: format!("{path}: {}", status["message"]) })
}
