//! The admission webhook: it validates objects of our kinds by the rules that a schema cannot hold. Every replica serves it,
//! whether it leads or not.

mod certificate;
mod review;
mod rotation;

pub(crate) use self::rotation::{Lifetimes, Rotation};

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use rustls::ServerConfig;
use serde_json::Value;

use self::certificate::Resolver;
use super::metrics::{self, MetricsEndpoint};
use crate::output::Error;

/// The Service by which the API reaches it, in the namespace of the operator.
pub(crate) const SERVICE: &str = "segue-webhook";
/// The Secret in which its certificate is kept.
pub(crate) const SECRET: &str = "segue-webhook";
/// The path of admission reviews.
pub(crate) const PATH: &str = "/validate";

/// An object has at most 3 MiB, and a review of an update holds two.
const LONGEST: usize = 8 << 20;

/// Returns a TLS configuration that serves the resolver's certificate.
fn tls(resolver: Arc<Resolver>) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::failed_to("set up TLS", &error))?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    Ok(Arc::new(config))
}

/// Answers an admission review, or a read of the metrics.
pub(crate) async fn answer(request: Request<Incoming>, metrics: &MetricsEndpoint) -> Response<Full<Bytes>> {
    if request.uri().path() == metrics::PATH && request.method() == Method::GET {
        return metrics.answer(request.headers()).await;
    }
    if request.uri().path() != PATH || request.method() != Method::POST {
        return text(StatusCode::NOT_FOUND, format!("there are POST {PATH} and GET {}", metrics::PATH));
    }
    let Ok(body) = Limited::new(request.into_body(), LONGEST).collect().await else {
        return text(StatusCode::PAYLOAD_TOO_LARGE, format!("a review has at most {LONGEST} bytes"));
    };
    match serde_json::from_slice(&body.to_bytes())
        .map_err(|error| error.to_string())
        .and_then(|review: Value| review::review(&review))
    {
        Ok(review) => {
            let mut answer = text(StatusCode::OK, review.to_string());
            let json = http::HeaderValue::from_static("application/json");
            answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
            answer
        }
        Err(why) => text(StatusCode::BAD_REQUEST, why),
    }
}

fn text(code: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = code;
    answer
}
