//! Which phases the object of a story goes through: a campaign that never reaches one proves nothing of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use kube::{
    Api, ResourceExt,
    api::{WatchEvent, WatchParams},
    core::DynamicObject,
};
use serde_json::Value;

/// How often the object went from one phase to another.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases(Arc<Mutex<BTreeMap<String, u64>>>);

impl Phases {
    pub(super) fn reached(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn follow(self, api: Api<DynamicObject>) {
        let (mut version, mut before) = ("0".to_owned(), "nothing".to_owned());
        loop {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else { return };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                let (object, phase) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        let phase = phase(&object.data["status"]);
                        (object, phase)
                    }
                    WatchEvent::Deleted(object) => (object, "nothing".to_owned()),
                    _ => continue,
                };
                version = object.resource_version().unwrap_or_default();
                if phase != before {
                    let edge = format!("{before} -> {phase}");
                    *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(edge).or_default() += 1;
                    before = phase;
                }
            }
        }
    }
}

/// What the object says of itself: its phase, or else the conditions that are true.
fn phase(status: &Value) -> String {
    if let Some(phase) = status["phase"].as_str() {
        return phase.to_owned();
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut so: Vec<&str> =
        conditions.filter(|it| it["status"] == "True").filter_map(|it| it["type"].as_str()).collect();
    so.sort_unstable();
    if so.is_empty() { "new".to_owned() } else { so.join("+") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_says_which_phase_it_is_in() {
        assert_eq!(phase(&json!({"phase": "Idle", "conditions": [{"type": "A", "status": "True"}]})), "Idle");
        let conditions = json!({"conditions": [
            {"type": "UpdateInProgress", "status": "True"},
            {"type": "Available", "status": "False"},
            {"type": "Progressing", "status": "True"},
        ]});
        assert_eq!(phase(&conditions), "Progressing+UpdateInProgress");
        assert_eq!(phase(&Value::Null), "new");
    }
}
