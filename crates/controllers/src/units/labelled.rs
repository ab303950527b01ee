//! The labels of pods: they are what pods are told apart by, and what Services select. A pod notes the labels that it
//! is made with, so that they can be restored when they are changed.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::is_going;
use crate::{json::lay, labels, runtime::Cache};

/// Notes on a new pod the labels that it is made with, without the labels that change while it lives.
pub(crate) fn note(mut pod: Value) -> Value {
    let mut made_with = pod["metadata"]["labels"].clone();
    if let Some(labels) = made_with.as_object_mut() {
        labels.remove(labels::COUNTS_GROUP);
        labels.remove(labels::RAY_SERVE);
    }
    lay(&mut pod["metadata"]["annotations"], json!({labels::MADE_WITH: made_with.to_string()}));
    pod
}

/// The pods of an owner that have other labels than they were made with, each with the labels that it has lost.
pub(crate) fn changed(cache: &Cache, owner: &str) -> Vec<(Arc<Pod>, Value)> {
    let pods = cache.owned_by::<Pod>(owner).filter(|pod| !is_going(pod));
    pods.filter_map(|pod| Some((Arc::clone(pod), lost(pod)?))).collect()
}

/// The labels that a pod was made with and has no more.
pub(crate) fn lost(pod: &Pod) -> Option<Value> {
    let noted: Value = serde_json::from_str(pod.annotations().get(labels::MADE_WITH)?).ok()?;
    let is_lost = |(name, value): &(&String, &Value)| {
        pod.labels().get(name.as_str()).map(String::as_str) != value.as_str()
    };
    let lost: serde_json::Map<String, Value> = noted
        .as_object()?
        .iter()
        .filter(is_lost)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (!lost.is_empty()).then_some(Value::Object(lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_given_back_and_what_was_added_stays() {
        let pod = note(json!({"metadata": {"labels": {"a": "1", "b": "2", labels::COUNTS_GROUP: "true"}}}));
        let lost_of = |labels: Value| {
            let mut pod = pod.clone();
            pod["metadata"]["labels"] = labels;
            lost(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(lost_of(json!({"a": "1", "b": "2", "c": "3"})), None);
        assert_eq!(lost_of(json!({"a": "7"})), Some(json!({"a": "1", "b": "2"})));
        assert_eq!(lost(&Pod::default()), None, "another operator made it");
    }
}
