//! What pods hold.

use std::collections::BTreeMap;

use api::PodTemplate;
use schema::quantity::Quantity;
use serde_json::Value;

/// What pods hold: amounts by name, in thousandths, so that a tenth of a core is a whole number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, u64>);

impl Resources {
    /// What a pod of this template asks for: requests, or limits where there are none.
    pub fn of(template: &PodTemplate) -> Self {
        let mut total = Self::default();
        for container in template.json()["spec"]["containers"].as_array().into_iter().flatten() {
            let resources = &container["resources"];
            let mut asked = BTreeMap::new();
            for list in ["limits", "requests"] {
                for (name, amount) in resources[list].as_object().into_iter().flatten() {
                    asked.extend(thousandths(amount).map(|amount| (name.clone(), amount)));
                }
            }
            total = total.plus(&Self(asked));
        }
        total
    }

    /// So many times as much.
    #[must_use]
    pub fn times(&self, count: u32) -> Self {
        Self(
            self.0
                .iter()
                .map(|(name, amount)| (name.clone(), amount.saturating_mul(u64::from(count))))
                .collect(),
        )
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.0.clone();
        for (name, amount) in &other.0 {
            let held = sum.entry(name.clone()).or_insert(0);
            *held = held.saturating_add(*amount);
        }
        Self(sum)
    }

    /// Each amount, in thousandths.
    pub fn amounts(&self) -> impl Iterator<Item = (&String, u64)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Accelerators first: they are what is scarce.
    pub fn in_order(amounts: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
        let mut list: Vec<(String, u64)> =
            amounts.iter().map(|(name, amount)| (name.clone(), *amount)).collect();
        list.sort_by_key(|(name, _)| (!name.contains('/'), name.clone()));
        list
    }

    /// An amount as people write it.
    pub fn display(name: &str, thousandths: u64) -> String {
        let whole = thousandths / 1_000;
        if name == "memory" || name.contains("storage") {
            let is_whole = whole.is_multiple_of(1 << 30);
            return if is_whole {
                format!("{}Gi", whole >> 30)
            } else {
                format!("{}Mi", whole.div_ceil(1 << 20))
            };
        }
        match thousandths % 1_000 {
            0 => whole.to_string(),
            rest => format!("{whole}.{}", format!("{rest:03}").trim_end_matches('0')),
        }
    }
}

/// A quantity in thousandths; nothing for what is none, or less than nothing.
fn thousandths(quantity: &Value) -> Option<u64> {
    Quantity::read(quantity).ok().and_then(|quantity| u64::try_from(quantity.millis()).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_holds_what_its_containers_ask_for() {
        let template = PodTemplate::from(json!({"spec": {"containers": [
            {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 2, "nvidia.com/gpu": 1}}},
            {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}},
            {"resources": {"limits": {"ephemeral-storage": "16Mi"}}},
        ]}}));
        let total = Resources::of(&template).times(2);
        let shown: Vec<String> = Resources::in_order(&total.0)
            .iter()
            .map(|(name, amount)| format!("{name} {}", Resources::display(name, *amount)))
            .collect();
        assert_eq!(shown, ["nvidia.com/gpu 2", "cpu 3", "ephemeral-storage 32Mi", "memory 2Gi"]);
    }
}
