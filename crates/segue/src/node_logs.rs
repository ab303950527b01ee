//! The node's output of containers, for the embedded API to serve. Neither knows the other.

use std::sync::Arc;

use apiserver::{PodLogs, Refusal};
use bytes::Bytes;
use futures_util::{future::BoxFuture, stream::BoxStream};
use node::{LogError, LogRequest, Logs};

/// A node's output where a kube-apiserver would ask a kubelet.
#[derive(Debug)]
pub(crate) struct NodeLogs(pub(crate) Arc<dyn Logs>);

impl PodLogs for NodeLogs {
    fn read(
        &self,
        request: apiserver::LogRequest,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, Refusal>> {
        let apiserver::LogRequest { namespace, pod, container, follow, tail, previous } = request;
        let (here, name) = (pod.clone(), container.clone());
        let request = LogRequest { namespace, pod, container: Some(container), follow, tail, previous };
        Box::pin(async move { self.0.read(request).await.map_err(|error| refusal(error, &here, &name)) })
    }
}

/// In the words of a kubelet, which clients match.
fn refusal(error: LogError, pod: &str, container: &str) -> Refusal {
    match error {
        // Bound to the node, and not yet begun by it.
        LogError::NoPod(_) | LogError::Waiting(_) => Refusal::bad_request(format!(
            "container {container:?} in pod {pod:?} is waiting to start: ContainerCreating"
        )),
        LogError::NoPrevious(_) => Refusal::bad_request(format!(
            "previous terminated container {container:?} in pod {pod:?} not found"
        )),
        error @ (LogError::WhichContainer { .. } | LogError::NoContainer { .. }) => {
            Refusal::bad_request(error.to_string())
        }
        LogError::Io(error) => Refusal::internal(error.to_string()),
    }
}
