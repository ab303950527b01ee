//! `pods/log`: the server checks pod, container and options; a [`PodLogs`] (the node) has the output.
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::{
    future::BoxFuture,
    stream::{BoxStream, StreamExt},
};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};

use crate::{
    object,
    registry::resource::Resource,
    request::Query,
    response::{self, Body},
    server::Server,
    status::{Cause, StatusError},
    store::Key,
};

/// The output to read. The server has checked that the pod exists, is bound to a node and has the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogRequest {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    /// Goes on until the container ends.
    pub follow: bool,
    /// The last lines only.
    pub tail: Option<usize>,
    /// The run before this one.
    pub previous: bool,
}

/// The source of container output, as the kubelet is for a kube-apiserver.
pub trait PodLogs: std::fmt::Debug + Send + Sync + 'static {
    fn read(&self, request: LogRequest) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, StatusError>>;
}

/// The source of container output. It is set after the start, because the node is a client of the server.
#[derive(Debug, Default)]
pub(crate) struct Source(OnceLock<Arc<dyn PodLogs>>);

impl Source {
    pub fn set(&self, logs: Arc<dyn PodLogs>) {
        // The first one stays: there is one node.
        drop(self.0.set(logs));
    }
}

impl Server {
    /// `pods/log`. A kube-apiserver finds the container and leaves the rest to the kubelet; so does this.
    pub(crate) async fn log(
        &self,
        resource: &Resource,
        key: &Key,
        query: &Query,
    ) -> Result<Response<Body>, StatusError> {
        let Some(source) = self.log_source().0.get() else {
            return Err(StatusError::not_here("pods/log without a node"));
        };
        let entry = self.get(key).ok_or_else(|| StatusError::not_found(resource.about(&key.place.name)))?;
        let pod: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        let tail = number(query, "tailLines", &key.place.name, 0)?;
        let limit = number(query, "limitBytes", &key.place.name, 1)?;
        refuse_unkept(query)?;
        let container = container(&pod, query.get("container"))?.to_owned();
        if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
            // Nobody has anything to say about it yet.
            let mut response = response::text(StatusCode::NO_CONTENT, "");
            response.headers_mut().clear();
            return Ok(response);
        }
        let request = LogRequest {
            namespace: key.place.namespace.to_string(),
            pod: key.place.name.to_string(),
            container,
            follow: query.flag("follow"),
            tail,
            previous: query.flag("previous"),
        };
        let pieces = source.read(request).await?;
        let pieces = bounded(pieces, limit).map(|piece| Ok(Frame::data(piece)));
        let mut response = response::text(StatusCode::OK, "");
        *response.body_mut() = StreamBody::new(pieces).boxed_unsync();
        Ok(response)
    }
}

/// The container that is meant, in the words of a kube-apiserver where none is.
fn container<'a>(pod: &'a Value, wanted: &'a str) -> Result<&'a str, StatusError> {
    let names = |list: &str| -> Vec<&'a str> {
        let containers = pod["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default();
        containers.iter().filter_map(|container| container["name"].as_str()).collect()
    };
    let (main, init) = (names("containers"), names("initContainers"));
    let pod = object::name(pod);
    match (wanted, main.as_slice()) {
        ("", [only]) => Ok(only),
        ("", []) => {
            Err(StatusError::bad_request(format!("a container name must be specified for pod {pod}")))
        }
        ("", _) => {
            let mut message = format!(
                "a container name must be specified for pod {pod}, choose one of: [{}]",
                main.join(" ")
            );
            if !init.is_empty() {
                message += &format!(" or one of the init containers: [{}]", init.join(" "));
            }
            Err(StatusError::bad_request(message))
        }
        _ if main.contains(&wanted) || init.contains(&wanted) => Ok(wanted),
        _ => Err(StatusError::bad_request(format!("container {wanted} is not valid for pod {pod}"))),
    }
}

fn number(query: &Query, name: &'static str, pod: &str, least: i64) -> Result<Option<usize>, StatusError> {
    let text = query.get(name);
    if text.is_empty() {
        return Ok(None);
    }
    let number: i64 = text.parse().map_err(|_| {
        StatusError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
    })?;
    if number < least {
        let why = if least == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" };
        let cause = Cause::invalid(name, &json!(number), why);
        return Err(StatusError::invalid("", "PodLogOptions", pod, &[cause]));
    }
    Ok(Some(usize::try_from(number).unwrap_or(usize::MAX)))
}

/// Output is kept as it came: without times, and both streams in one. To ignore the wish would be a wrong answer.
fn refuse_unkept(query: &Query) -> Result<(), StatusError> {
    let unkept = ["sinceSeconds", "sinceTime"].into_iter().find(|name| !query.get(name).is_empty());
    let unkept = unkept.or_else(|| query.flag("timestamps").then_some("timestamps"));
    let unkept = unkept.or_else(|| (!matches!(query.get("stream"), "" | "All")).then_some("stream"));
    unkept.map_or(Ok(()), |name| Err(StatusError::not_here(&format!("pods/log with {name}"))))
}

/// Ends after so many bytes.
fn bounded(pieces: BoxStream<'static, Bytes>, limit: Option<usize>) -> BoxStream<'static, Bytes> {
    let Some(limit) = limit else { return pieces };
    let cut = pieces.scan(limit, |left, mut piece| {
        piece.truncate(*left);
        *left -= piece.len();
        std::future::ready((!piece.is_empty()).then_some(piece))
    });
    cut.boxed()
}
