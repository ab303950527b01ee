//! The server: routes a request to its handler.
use std::{
    fmt::Debug,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::Notify;

use crate::{
    addresses::Addresses,
    admission::Admission,
    discovery,
    discovery::openapi,
    environment::Environment,
    garbage_collector::Collector,
    handlers::logs::{PodLogs, Source},
    registry::Registry,
    registry::resource::{Part, Resource, Rules},
    request::body,
    request::negotiation::Representation,
    request::{Path, Query, Target},
    response::{self, Body},
    status::StatusError,
    store::{Entry, Key, Store},
};

/// The source of `/metrics`.
pub trait Metrics: Debug + Send + Sync + 'static {
    /// Returns the numbers of now in the text format of Prometheus.
    fn text(&self) -> String;
}

/// The embedded API. Cheap to clone; every clone is the same server.
#[derive(Debug, Clone)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    registry: RwLock<Arc<Registry>>,
    environment: Arc<dyn Environment>,
    admission: Vec<Arc<dyn Admission>>,
    logs: Source,
    metrics: OnceLock<Arc<dyn Metrics>>,
    collector: Collector,
    addresses: Addresses,
    /// Wakes the garbage collector.
    changed: Notify,
}

/// A request, read as far as it can be without its body.
#[derive(Debug)]
pub struct Call<'a> {
    pub resource: Arc<Resource>,
    pub namespace: &'a str,
    pub name: &'a str,
    pub part: Part,
    pub query: Query,
    pub representation: Representation,
    pub headers: &'a HeaderMap,
    /// Warnings for the client, whatever the response.
    warnings: Mutex<Vec<String>>,
}

impl Call<'_> {
    pub fn key(&self) -> Key {
        self.key_of(self.name)
    }

    pub fn key_of(&self, name: &str) -> Key {
        Key::new(&self.resource.storage(), self.namespace, name)
    }

    pub fn warn(&self, warnings: Vec<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
    }

    pub fn not_found(&self) -> StatusError {
        StatusError::not_found(self.resource.about(self.name))
    }
}

impl Server {
    /// A server over a store. The kinds that its CRDs define are served at once.
    pub fn new(store: Store, environment: Arc<dyn Environment>, admission: Vec<Arc<dyn Admission>>) -> Self {
        let registry = RwLock::new(Arc::new(Registry::built_in()));
        let server = Self(Arc::new(Inner {
            store,
            registry,
            environment,
            admission,
            logs: Source::default(),
            metrics: OnceLock::new(),
            collector: Collector::default(),
            addresses: Addresses::default(),
            changed: Notify::new(),
        }));
        server.install_stored_kinds();
        server
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    pub fn environment(&self) -> &dyn Environment {
        &*self.0.environment
    }

    pub(crate) fn admission(&self) -> &[Arc<dyn Admission>] {
        &self.0.admission
    }

    /// Sets the source of `pods/log`, which is refused as not implemented until then.
    pub fn set_log_source(&self, logs: Arc<dyn PodLogs>) {
        self.0.logs.set(logs);
    }

    pub(crate) fn log_source(&self) -> &Source {
        &self.0.logs
    }

    /// Sets the source of `/metrics`, which is empty until then.
    pub fn set_metrics(&self, metrics: Arc<dyn Metrics>) {
        // The first one stays.
        drop(self.0.metrics.set(metrics));
    }

    pub(crate) fn addresses(&self) -> &Addresses {
        &self.0.addresses
    }

    pub(crate) fn changed(&self) -> &Notify {
        &self.0.changed
    }

    pub(crate) fn collector(&self) -> &Collector {
        &self.0.collector
    }

    pub fn registry(&self) -> Arc<Registry> {
        let registry = self.0.registry.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&registry)
    }

    /// Changes what is served, one change after the other.
    pub(crate) fn change_registry<E>(
        &self,
        change: impl FnOnce(&Registry) -> Result<Registry, E>,
    ) -> Result<(), E> {
        let mut registry = self.0.registry.write().unwrap_or_else(PoisonError::into_inner);
        *registry = Arc::new(change(&registry)?);
        Ok(())
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.0.store.get(key)
    }

    /// Handles one request. Errors are responses too.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, body::LIMIT).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return response::error(&StatusError::too_large(body::LIMIT));
            }
            Err(error) => {
                let why = format!("the body could not be read: {error}");
                return response::error(&StatusError::bad_request(why));
            }
        };
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let answered = match Path::parse(head.uri.path()) {
            Path::Resource(target) => self.resource(&head.method, target, query, &head.headers, body).await,
            path => self.non_resource(&head.method, &path),
        };
        answered.unwrap_or_else(|error| response::error(&error))
    }

    /// Discovery, health and the like.
    fn non_resource(&self, method: &Method, path: &Path<'_>) -> Result<Response<Body>, StatusError> {
        if method != Method::GET && method != Method::HEAD {
            return Err(StatusError::method_not_allowed());
        }
        let registry = self.registry();
        let found = match path {
            Path::Group(group) => discovery::group(&registry, group),
            Path::Version { group, version } => discovery::version(&registry, group, version),
            Path::Other(path) => match path.trim_matches('/') {
                "healthz" | "livez" | "readyz" => return Ok(response::text(StatusCode::OK, "ok")),
                "metrics" => {
                    let text = self.0.metrics.get().map(|metrics| metrics.text());
                    return Ok(response::text(StatusCode::OK, text.unwrap_or_default()));
                }
                "version" => Some(discovery::server_version()),
                "api" => Some(discovery::core_versions()),
                "apis" => Some(discovery::groups(&registry)),
                path => openapi::document(&registry, path),
            },
            Path::Resource(_) => None,
        };
        match found {
            Some(document) => Ok(response::json(StatusCode::OK, document.to_string())),
            None => Ok(response::text(StatusCode::NOT_FOUND, "404 page not found\n")),
        }
    }

    async fn resource(
        &self,
        method: &Method,
        target: Target<'_>,
        query: Query,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Body>, StatusError> {
        let registry = self.registry();
        let Some(resource) = registry.find(target.group, target.version, target.plural) else {
            let known = registry.all().any(|resource| {
                resource.group == target.group
                    && resource.version == target.version
                    && matches!(resource.rules, Rules::BuiltIn(_))
            });
            return if known {
                Err(StatusError::no_such_resource())
            } else {
                Ok(response::text(StatusCode::NOT_FOUND, "404 page not found\n"))
            };
        };
        let resource = Arc::clone(resource);
        if resource.namespaced == target.namespace.is_empty()
            && !(method == Method::GET && target.name.is_empty())
        {
            return Err(StatusError::no_such_resource());
        }
        let part = match target.subresource {
            "" => Part::Main,
            "status" => Part::Status,
            "scale" => Part::Scale,
            "finalize" => Part::Finalize,
            _ => return self.subresource(method, &resource, target, &query, &body).await,
        };
        if !resource.has_part(part) {
            return Err(StatusError::no_such_resource());
        }
        let representation = Representation::negotiate(headers, query.get("includeObject"))?;
        let call = Call {
            resource,
            namespace: target.namespace,
            name: target.name,
            part,
            query,
            representation,
            headers,
            warnings: Mutex::default(),
        };
        let answered = self.verb(method, &call, &body).await;
        let mut response = answered.unwrap_or_else(|error| response::error(&error));
        let warnings = call.warnings.into_inner().unwrap_or_else(PoisonError::into_inner);
        response::warn(&mut response, &warnings);
        Ok(response)
    }

    async fn verb(
        &self,
        method: &Method,
        call: &Call<'_>,
        body: &Bytes,
    ) -> Result<Response<Body>, StatusError> {
        match (method.as_str(), call.name.is_empty()) {
            ("GET" | "HEAD", true) if call.query.flag("watch") => self.watch(call),
            ("GET" | "HEAD", true) => self.list(call),
            ("GET" | "HEAD", false) => self.read(call),
            ("POST", true) => self.create(call, body).await,
            ("PUT", false) => self.update(call, body).await,
            ("PATCH", false) => self.patch(call, body).await,
            ("DELETE", false) => self.delete(call, body).await,
            ("DELETE", true) => self.delete_collection(call, body).await,
            _ => Err(StatusError::method_not_allowed()),
        }
    }
}
