//! The endpoint of the metrics. The cluster authenticates each reader (`TokenReview`) and authorizes it
//! (`SubjectAccessReview`).

use bytes::Bytes;
use controllers::Metrics;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use kube::Client;
use serde_json::{Value, json};

/// The path of the metrics.
pub(crate) const PATH: &str = "/metrics";

/// Serves the metrics of the controllers.
#[derive(Clone)]
pub(crate) struct MetricsEndpoint {
    pub(crate) client: Client,
    pub(crate) metrics: Metrics,
}

impl MetricsEndpoint {
    /// Returns the metrics, or the refusal that these headers earn.
    pub(crate) async fn answer(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let refused = |code: StatusCode| {
            let mut response = Response::new(Full::new(Bytes::from(code.to_string())));
            *response.status_mut() = code;
            response
        };
        let Some(token) = token(headers) else { return refused(StatusCode::UNAUTHORIZED) };
        match self.may_read(token).await {
            Ok(true) => {
                let mut response = Response::new(Full::new(Bytes::from(self.metrics.text())));
                let text =
                    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
                response.headers_mut().insert(header::CONTENT_TYPE, text);
                response
            }
            Ok(false) => refused(StatusCode::FORBIDDEN),
            // The cluster cannot be asked now; the next scrape may succeed.
            Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    /// Returns whether the bearer of a token may read the metrics.
    async fn may_read(&self, token: &str) -> Result<bool, kube::Error> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let status = self.review("/apis/authentication.k8s.io/v1/tokenreviews", &review).await?;
        if status["authenticated"] != true {
            return Ok(false);
        }
        let user = &status["user"];
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user["username"], "uid": user["uid"], "groups": user["groups"],
                "nonResourceAttributes": {"path": PATH, "verb": "get"},
            },
        });
        let status = self.review("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
        Ok(status["allowed"] == true)
    }

    async fn review(&self, path: &str, review: &Value) -> Result<Value, kube::Error> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        let answer: Value = self.client.request(request).await?;
        Ok(answer["status"].clone())
    }
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_has_a_token() {
        let with = |value: &'static str| {
            HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))])
        };
        assert_eq!(token(&with("Bearer abc")), Some("abc"));
        for wrong in ["Bearer ", "Basic abc", "abc", ""] {
            assert_eq!(token(&with(wrong)), None, "{wrong}");
        }
        assert_eq!(token(&HeaderMap::new()), None);
    }
}
