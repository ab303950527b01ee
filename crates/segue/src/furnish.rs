//! What the embedded API holds before anybody writes to it: what every cluster has, and the kinds that we serve.

use apiserver::{Admission, Cause, Refusal, Server};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Collected, Full};
use serde_json::{Value, json};

use crate::output::Error;

/// Puts it there. What is there already stays as it should be.
pub(crate) async fn furnish(server: &Server) -> Result<(), Error> {
    let refused = |refusal: Refusal| Error::Up { what: "furnish the API", why: refusal.message().to_owned() };
    server.furnish().await.map_err(refused)?;
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
        .map_err(|error| Error::up("make a request", &error))?;
    let answer = server.answer(request).await;
    if answer.status() == StatusCode::OK || answer.status() == StatusCode::CREATED {
        return Ok(());
    }
    let bytes = answer.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let status: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    Err(Error::Up { what: "furnish the API", why: format!("{path}: {}", status["message"]) })
}

/// Judges objects of our kinds with the rules that a schema cannot hold.
#[derive(Debug)]
pub(crate) struct OurKinds;

impl Admission for OurKinds {
    fn admit(&self, object: &Value, old: Option<&Value>) -> Result<Vec<String>, Refusal> {
        let Ok(kind) = api::Kind::of(object) else { return Ok(Vec::new()) };
        let verdict = api::validate(object, old);
        if verdict.accepted() {
            return Ok(verdict.warnings);
        }
        let causes: Vec<Cause> = verdict
            .violations
            .iter()
            .map(|violation| Cause {
                reason: "FieldValueInvalid",
                field: violation.field.clone(),
                message: without_field(violation),
            })
            .collect();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Err(Refusal::invalid(kind.group, kind.name, name, &causes))
    }
}

/// The sentence of a violation; its field is told apart.
fn without_field(violation: &api::Violation) -> String {
    let text = violation.to_string();
    text.strip_prefix(&format!("{}: ", violation.field)).unwrap_or(&text).to_owned()
}
