//! Templates as the public operator prints them, so that a revision has the same key here and there, and so that two
//! texts of one template are one.

use api::leaderworkerset::{LeaderWorkerTemplate, RestartPolicy};
use serde_json::{Value, json};

use crate::json::canonical::{canonicalize, pod_template};

/// A template as Go prints it: zero values that it leaves out are left out, those that it prints are there, and
/// quantities have one form. What Go does not know is kept, because it reaches the pods.
pub(super) fn canonical(template: &LeaderWorkerTemplate) -> Result<Value, serde_json::Error> {
    // The old name of the policy; the public operator renames it before it stores anything.
    let policy = match template.restart_policy {
        RestartPolicy::Default => RestartPolicy::None,
        policy => policy,
    };
    let mut value = serde_json::to_value(template)?;
    value["restartPolicy"] = json!(policy);
    for name in ["leaderTemplate", "workerTemplate"] {
        if let Some(pod) = value.get_mut(name) {
            pod_template(pod);
        }
    }
    for claim in value["volumeClaimTemplates"].as_array_mut().into_iter().flatten() {
        canonicalize("core/v1.PersistentVolumeClaim", claim);
    }
    if value["volumeClaimTemplates"].is_null()
        && let Some(fields) = value.as_object_mut()
    {
        fields.remove("volumeClaimTemplates");
    }
    Ok(value)
}

/// The text that Go writes: `<`, `>` and `&` are escaped in case it ends up in a page.
pub(super) fn text(value: &Value) -> String {
    let mut text = String::new();
    for letter in value.to_string().chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical_of(template: Value) -> Value {
        canonical(&serde_json::from_value(template).unwrap()).unwrap()
    }

    fn pod(spec: Value) -> Value {
        let mut template = json!({"workerTemplate": {}});
        template["workerTemplate"]["spec"] = spec;
        canonical_of(template)["workerTemplate"]["spec"].take()
    }

    /// Rows of 2.2: what Go prints though it is not in the manifest.
    #[test]
    fn zero_values_that_go_prints_are_there() {
        assert_eq!(
            canonical_of(json!({"workerTemplate": {}})),
            json!({
                "restartPolicy": "RecreateGroupOnPodRestart",
                "size": 1,
                "workerTemplate": {"metadata": {}, "spec": {"containers": null}},
            })
        );
        let rows = [
            (json!({"name": "c"}), json!({"name": "c", "resources": {}})),
            (
                json!({"name": "c", "env": [{"name": "e", "valueFrom": {"resourceFieldRef": {"resource": "cpu"}}}]}),
                json!({"name": "c", "resources": {}, "env": [
                    {"name": "e", "valueFrom": {"resourceFieldRef": {"resource": "cpu", "divisor": "0"}}},
                ]}),
            ),
            (
                json!({"name": "c", "livenessProbe": {"grpc": {"port": 1}}}),
                json!({"name": "c", "resources": {}, "livenessProbe": {"grpc": {"port": 1, "service": null}}}),
            ),
        ];
        for list in ["containers", "initContainers"] {
            for (written, canonical) in &rows {
                assert_eq!(pod(json!({list: [written]}))[list], json!([canonical]));
            }
        }
        let claim = json!({"metadata": {"name": "d"}, "spec": {"dataSource": {"kind": "k", "name": "n"}}});
        let canonical = canonical_of(json!({"workerTemplate": {}, "volumeClaimTemplates": [claim]}));
        assert_eq!(
            canonical["volumeClaimTemplates"],
            json!([{
                "metadata": {"name": "d"},
                "spec": {"dataSource": {"apiGroup": null, "kind": "k", "name": "n"}, "resources": {}},
                "status": {},
            }])
        );
        let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
        assert_eq!(
            pod(json!({"volumes": [volume]}))["volumes"][0]["ephemeral"]["volumeClaimTemplate"],
            json!({"metadata": {}, "spec": {"resources": {}}})
        );
    }

    /// Rows of 2.2: what Go leaves out though it is in the manifest, and what it keeps.
    #[test]
    fn zero_values_that_go_omits_are_omitted() {
        let bare = pod(json!({"containers": []}));
        for nothing in [
            json!({"hostNetwork": false}),
            json!({"nodeSelector": {}}),
            json!({"tolerations": []}),
            json!({"serviceAccountName": ""}),
            json!({"volumes": null}),
        ] {
            let mut spec = nothing.clone();
            spec["containers"] = json!([]);
            assert_eq!(pod(spec), bare, "{nothing}");
        }
        for kept in [
            json!({"automountServiceAccountToken": false}),
            json!({"securityContext": {}}),
            json!({"terminationGracePeriodSeconds": 0}),
        ] {
            let (name, value) = kept.as_object().unwrap().iter().next().unwrap();
            assert_eq!(pod(kept.clone())[name], *value);
        }
        let tools = json!({"workerTemplate": {"metadata": {"creationTimestamp": null}, "spec": {}}});
        assert_eq!(canonical_of(tools), canonical_of(json!({"workerTemplate": {}})));
    }

    #[test]
    fn quantities_have_one_form_and_unknown_fields_stay() {
        let limits = |cpu: Value, memory: Value| {
            let spec = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu, "memory": memory}}}]});
            pod(spec)["containers"][0]["resources"]["limits"].take()
        };
        assert_eq!(limits(json!("0.5"), json!("1024Mi")), json!({"cpu": "500m", "memory": "1Gi"}));
        assert_eq!(limits(json!(2), json!("1Gi")), json!({"cpu": "2", "memory": "1Gi"}));
        let newer = pod(json!({"containers": [{"name": "c", "future": {"empty": ""}}]}));
        assert_eq!(newer["containers"][0]["future"], json!({"empty": ""}));
    }

    #[test]
    fn the_old_name_of_a_policy_is_the_new_one() {
        let policy = |policy: &str| canonical_of(json!({"workerTemplate": {}, "restartPolicy": policy}));
        assert_eq!(policy("Default"), policy("None"));
    }

    #[test]
    fn text_is_escaped_as_go_escapes_it() {
        assert_eq!(text(&json!({"a": "<b> && \"c\""})), r#"{"a":"\u003cb\u003e \u0026\u0026 \"c\""}"#);
    }
}
