//! Resource amounts: requests of pods, capacity of the node.
use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, PodSpec},
    apimachinery::pkg::api::resource,
};
use schema::quantity::{Form, Quantity};

/// Amounts by resource name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources(pub BTreeMap<String, Quantity>);

impl Resources {
    /// From `[("cpu", "4"), ("memory", "8Gi")]`; text that is not a quantity counts as 0.
    pub fn of<'a>(amounts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let amounts = amounts.into_iter();
        Self(
            amounts
                .map(|(name, text)| (name.to_owned(), Quantity::parse(text).unwrap_or_default()))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.get(name).plus(*amount);
            self.0.insert(name.clone(), sum);
        }
    }

    fn at_least(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let most = self.get(name).max(*amount);
            self.0.insert(name.clone(), most);
        }
    }

    /// Reads a resource list of the API.
    pub(crate) fn read(list: Option<&BTreeMap<String, resource::Quantity>>) -> Self {
        Self::of(list.into_iter().flatten().map(|(name, quantity)| (name.as_str(), quantity.0.as_str())))
    }

    /// The resource list of the API.
    pub(crate) fn written(&self) -> BTreeMap<String, resource::Quantity> {
        self.0.iter().map(|(name, amount)| (name.clone(), resource::Quantity(text(name, *amount)))).collect()
    }
}

/// An amount as text: memory in Ki, Mi, Gi, the others in decimal units.
pub(crate) fn text(name: &str, amount: Quantity) -> String {
    amount.text(if name == "memory" { Form::BinarySi } else { Form::DecimalSi })
}

/// Requests, and limits where there is no request.
fn of_container(container: &Container) -> Resources {
    let Some(resources) = &container.resources else { return Resources::default() };
    let mut asked = Resources::read(resources.limits.as_ref());
    asked.0.extend(Resources::read(resources.requests.as_ref()).0);
    asked
}

/// The requests of a pod: the sum of its containers or the largest init container, whichever is more, and one
/// of `pods`.
pub(crate) fn requests_of(spec: &PodSpec) -> Resources {
    let mut asked = Resources::default();
    for container in &spec.containers {
        asked.add(&of_container(container));
    }
    for container in spec.init_containers.iter().flatten() {
        asked.at_least(&of_container(container));
    }
    asked.add(&Resources::read(spec.overhead.as_ref()));
    asked.add(&Resources::of([("pods", "1")]));
    asked
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_asks_for_the_larger_of_its_containers_and_its_greediest_init_container() {
        let spec = serde_json::from_value(json!({
            "initContainers": [{"name": "i", "resources": {"requests": {"memory": "3Gi"}}}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
                {"name": "b", "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "2"}}},
            ],
        }));
        let wanted = [("cpu", "1500m"), ("memory", "3Gi"), ("nvidia.com/gpu", "2"), ("pods", "1")];
        assert_eq!(requests_of(&spec.unwrap()), Resources::of(wanted));
    }
}
