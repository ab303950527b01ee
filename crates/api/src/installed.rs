//! Compares an installed CRD with that of Segue.

use serde_json::Value;

use crate::Kind;

impl Kind {
    /// What an installed CRD of this kind would drop or refuse of ours, as sentences; none means that it will do.
    pub fn lacks(&self, installed: &Value) -> Vec<String> {
        let version = |crd: &Value| -> Option<Value> {
            let versions = crd["spec"]["versions"].as_array()?;
            versions.iter().find(|it| it["name"] == self.version && it["served"] == true).cloned()
        };
        let (Some(ours), Some(theirs)) = (version(&self.crd()), version(installed)) else {
            return vec![format!("does not serve version {}", self.version)];
        };
        let mut lacks = Vec::new();
        for part in ["status", "scale"] {
            if !ours["subresources"][part].is_null() && theirs["subresources"][part].is_null() {
                lacks.push(format!("has no subresource {part}"));
            }
        }
        let root =
            |version: &Value, part: &str| version["schema"]["openAPIV3Schema"]["properties"][part].clone();
        for part in ["spec", "status"] {
            compare(part, &root(&ours, part), &root(&theirs, part), &mut lacks);
        }
        lacks
    }
}

/// Adds what one schema allows and the other does not, where it begins to differ.
fn compare(path: &str, ours: &Value, theirs: &Value, lacks: &mut Vec<String>) {
    if theirs.is_null() {
        lacks.push(format!("drops {path}"));
        return;
    }
    if let (Some(ours), Some(theirs)) = (ours["enum"].as_array(), theirs["enum"].as_array()) {
        for value in ours.iter().filter(|value| !theirs.contains(value)) {
            lacks.push(format!("refuses {path}: {}", value.as_str().unwrap_or_default()));
        }
    }
    let is_open = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, field) in ours["properties"].as_object().into_iter().flatten() {
        let known = &theirs["properties"][name.as_str()];
        let any = &theirs["additionalProperties"];
        if known.is_null() && (is_open(theirs) || any.is_object() || *any == true) {
            continue;
        }
        compare(&format!("{path}.{name}"), field, known, lacks);
    }
    if ours["items"].is_object() && !is_open(theirs) {
        compare(&format!("{path}[]"), &ours["items"], &theirs["items"], lacks);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{KINDS, leaderworkerset};

    #[test]
    fn our_own_crds_lack_nothing() {
        for kind in KINDS {
            assert_eq!(kind.lacks(&kind.crd()), Vec::<String>::new(), "{}", kind.name);
        }
    }

    #[test]
    fn what_another_crd_would_drop_or_refuse_is_named() {
        let kind = &leaderworkerset::KIND;
        let mut crd = kind.crd();
        let version = &mut crd["spec"]["versions"][0];
        let schema = &mut version["schema"]["openAPIV3Schema"]["properties"];
        schema["spec"]["properties"]["startupPolicy"]["enum"] = json!(["LeaderCreated", "LeaderReady"]);
        schema["status"]["properties"].as_object_mut().unwrap().remove("groups");
        version["subresources"].as_object_mut().unwrap().remove("scale");
        assert_eq!(
            kind.lacks(&crd),
            [
                "has no subresource scale",
                "refuses spec.startupPolicy: LeaderHasAddress",
                "drops status.groups"
            ]
        );
        crd["spec"]["versions"][0]["name"] = json!("v2");
        assert_eq!(kind.lacks(&crd), ["does not serve version v1"]);
    }

    #[test]
    fn a_schema_that_keeps_what_it_does_not_know_drops_nothing() {
        let kind = &leaderworkerset::KIND;
        let mut crd = kind.crd();
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        schema["spec"] = open.clone();
        schema["status"] = open;
        assert_eq!(kind.lacks(&crd), Vec::<String>::new());
    }
}
