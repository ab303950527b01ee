//! Subresources that are not a part of the stored object (eviction, binding, log), and access reviews, which are not
//! stored.
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    handlers::delete::Options,
    object,
    registry::resource::{Resource, Rules},
    request::body,
    request::{self, Target},
    response::{self, Body},
    selector::Labels,
    server::Server,
    status::{About, StatusError, cause},
    store::{Key, Query},
};

impl Server {
    pub(crate) async fn subresource(
        &self,
        method: &Method,
        resource: &Resource,
        target: Target<'_>,
        query: &request::Query,
        body: &Bytes,
    ) -> Result<Response<Body>, StatusError> {
        let pod = resource.is_built_in("", "Pod");
        let key = Key::new(&resource.storage(), target.namespace, target.name);
        match (method.as_str(), target.subresource) {
            ("POST", "eviction") if pod => self.evict(resource, &key, body).await,
            ("POST", "binding") if pod => self.bind(resource, &key, body).await,
            (_, sub @ ("exec" | "attach" | "portforward" | "proxy" | "ephemeralcontainers" | "resize"))
                if pod =>
            {
                Err(StatusError::not_here(&format!("pods/{sub}")))
            }
            ("GET", "log") if pod => self.log(resource, &key, query).await,
            _ if matches!(resource.rules, Rules::Custom(_)) => {
                Err(StatusError::not_found(resource.about(target.name)))
            }
            _ => Err(StatusError::no_such_resource()),
        }
    }

    /// Deletes a pod, unless a disruption budget allows no further disruption.
    async fn evict(
        &self,
        resource: &Resource,
        key: &Key,
        body: &Bytes,
    ) -> Result<Response<Body>, StatusError> {
        let eviction = body::read(body, false)?.value;
        let name = &key.place.name;
        let entry = self.get(key).ok_or_else(|| StatusError::not_found(resource.about(name)))?;
        let query = Query { namespace: Some(&key.place.namespace), ..Query::default() };
        let budgets = self.store().list("policy/poddisruptionbudgets", &query);
        for (_, budget) in budgets.map(|listing| listing.items).unwrap_or_default() {
            let budget: Value = serde_json::from_slice(&budget.bytes).unwrap_or_default();
            let covers =
                Labels::from_object(&budget["spec"]["selector"]).is_some_and(|s| s.matches(&entry.labels));
            if covers && budget["status"]["disruptionsAllowed"].as_i64().unwrap_or_default() <= 0 {
                let why = "Cannot evict pod as it would violate the pod's disruption budget.";
                let message =
                    format!("The disruption budget {} does not allow it now", object::name(&budget));
                let cause = cause("DisruptionBudget", "", message);
                return Err(StatusError::too_many_requests(why, 10).with_cause(&cause));
            }
        }
        let options = &eviction["deleteOptions"];
        let options = Options {
            grace: options["gracePeriodSeconds"].as_i64(),
            uid: options["preconditions"]["uid"].as_str().map(str::to_owned),
            ..Options::default()
        };
        self.delete_one(resource, key, &options).await?;
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(response::json(StatusCode::CREATED, status.to_string()))
    }

    /// Binds a pod to a node; a bound pod is refused.
    async fn bind(
        &self,
        resource: &Resource,
        key: &Key,
        body: &Bytes,
    ) -> Result<Response<Body>, StatusError> {
        let binding = body::read(body, false)?.value;
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        let about: About<'_> = resource.about(&key.place.name);
        let entry = self.get(key).ok_or_else(|| StatusError::not_found(about))?;
        let pod: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        if node.is_empty() {
            let cause = cause("FieldValueRequired", "target.name", "Required value");
            return Err(StatusError::invalid("", "Binding", &key.place.name, &[cause]));
        }
        if let Some(there) = pod["spec"]["nodeName"].as_str().filter(|there| !there.is_empty()) {
            let why = format!("pod {} is already assigned to node {there:?}", key.place.name);
            return Err(StatusError::conflict(about, &why));
        }
        self.rewrite(resource, key, |pod| {
            if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
                pod["spec"]["nodeName"] = json!(node);
            }
        })
        .await?;
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(response::json(StatusCode::CREATED, status.to_string()))
    }
}

/// Allows every access: the API has one user, who may do everything.
pub(crate) fn access_review(mut review: Value) -> Value {
    review["status"] = json!({"allowed": true});
    review
}
