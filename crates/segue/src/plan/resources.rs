//! What pods hold.

use std::collections::BTreeMap;

use api::PodTemplate;
use serde_json::Value;

/// Amounts by name, in thousandths, so that a tenth of a core is a whole number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources(BTreeMap<String, u64>);

impl Resources {
    /// What a pod of this template asks for: requests, or limits where there are none.
    pub(crate) fn of(template: &PodTemplate) -> Self {
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

    pub(crate) fn times(&self, count: u32) -> Self {
        Self(
            self.0
                .iter()
                .map(|(name, amount)| (name.clone(), amount.saturating_mul(u64::from(count))))
                .collect(),
        )
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut sum = self.0.clone();
        for (name, amount) in &other.0 {
            let held = sum.entry(name.clone()).or_insert(0);
            *held = held.saturating_add(*amount);
        }
        Self(sum)
    }

    pub(crate) fn amounts(&self) -> impl Iterator<Item = (&String, u64)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Accelerators first: they are what is scarce.
    pub(crate) fn in_order(amounts: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
        let mut list: Vec<(String, u64)> =
            amounts.iter().map(|(name, amount)| (name.clone(), *amount)).collect();
        list.sort_by_key(|(name, _)| (!name.contains('/'), name.clone()));
        list
    }

    /// An amount as people write it.
    pub(crate) fn display(name: &str, thousandths: u64) -> String {
        let whole = thousandths / 1_000;
        if name == "memory" || name.contains("storage") {
            return format!("{}Gi", whole.div_ceil(1 << 30));
        }
        match thousandths % 1_000 {
            0 => whole.to_string(),
            rest => format!("{whole}.{}", format!("{rest:03}").trim_end_matches('0')),
        }
    }
}

/// A Kubernetes quantity in thousandths; nothing for what is none.
fn thousandths(quantity: &Value) -> Option<u64> {
    let text = match quantity {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "m" => 1,
        "" => 1_000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "Ki" => 1_000 << 10,
        "Mi" => 1_000 << 20,
        "Gi" => 1_000 << 30,
        "Ti" => 1_000 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(factor)?.checked_add(fraction.checked_mul(factor)? / 1_000)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        let cases = [
            (json!("500m"), 500),
            (json!(1), 1_000),
            (json!("1.5"), 1_500),
            (json!("2Ki"), 2_048_000),
            (json!("0.5Gi"), 536_870_912_000),
            (json!("1k"), 1_000_000),
        ];
        for (quantity, expected) in cases {
            assert_eq!(thousandths(&quantity), Some(expected), "{quantity}");
        }
        for none in [json!("x"), json!("1e3"), json!(null), json!("")] {
            assert_eq!(thousandths(&none), None, "{none}");
        }
    }

    #[test]
    fn a_pod_holds_what_its_containers_ask_for() {
        let template = PodTemplate::from(json!({"spec": {"containers": [
            {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 2, "nvidia.com/gpu": 1}}},
            {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}},
        ]}}));
        let total = Resources::of(&template).times(2);
        let shown: Vec<String> = Resources::in_order(&total.0)
            .iter()
            .map(|(name, amount)| format!("{name} {}", Resources::display(name, *amount)))
            .collect();
        assert_eq!(shown, ["nvidia.com/gpu 2", "cpu 3", "memory 2Gi"]);
    }
}
