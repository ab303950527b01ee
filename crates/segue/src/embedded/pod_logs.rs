//! The logs of containers, from the node to the embedded API. Neither crate depends on the other.

use std::sync::Arc;

use apiserver::{PodLogs, StatusError};
use bytes::Bytes;
use futures_util::{future::BoxFuture, stream::BoxStream};
use node::{LogError, LogRequest, Logs};

/// Serves the logs of a node, as a kubelet does for a kube-apiserver.
#[derive(Debug)]
pub(crate) struct NodePodLogs(pub(crate) Arc<dyn Logs>);

impl PodLogs for NodePodLogs {
    fn read(
        &self,
        request: apiserver::LogRequest,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, StatusError>> {
        let apiserver::LogRequest { namespace, pod, container, follow, tail, previous } = request;
        let (here, name) = (pod.clone(), container.clone());
        let request = LogRequest { namespace, pod, container: Some(container), follow, tail, previous };
        Box::pin(async move { self.0.read(request).await.map_err(|error| refusal(error, &here, &name)) })
    }
}

/// Returns the refusal in the words of a kubelet, which clients match.
fn refusal(error: LogError, pod: &str, container: &str) -> StatusError {
    match error {
        // Bound to the node, and not started yet.
        LogError::NoPod(_) | LogError::Waiting(_) => StatusError::bad_request(format!(
            "container {container:?} in pod {pod:?} is waiting to start: ContainerCreating"
        )),
        LogError::NoPrevious(_) => StatusError::bad_request(format!(
            "previous terminated container {container:?} in pod {pod:?} not found"
        )),
        error @ (LogError::WhichContainer { .. } | LogError::NoContainer { .. }) => {
            StatusError::bad_request(error.to_string())
        }
        LogError::Io(error) => StatusError::internal(error.to_string()),
    }
}
