//! One admission review: the object, the object before an update, and the verdict.

use apiserver::Admission;
use serde_json::{Value, json};

use crate::admission::KindAdmission;

/// Answers an `AdmissionReview`.
pub(super) fn review(review: &Value) -> Result<Value, String> {
    let request = &review["request"];
    if review["kind"] != "AdmissionReview" || !request["uid"].is_string() {
        return Err("expected an AdmissionReview with a request".to_owned());
    }
    let mut response = verdict(&request["object"], Some(&request["oldObject"]).filter(|old| old.is_object()));
    response["uid"] = request["uid"].clone();
    Ok(json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}))
}

fn verdict(object: &Value, old: Option<&Value>) -> Value {
    // An object that is being deleted is always admitted: its finalizers are removed by updates.
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return json!({"allowed": true});
    }
    match KindAdmission.admit(object, old) {
        Ok(warnings) => json!({"allowed": true, "warnings": warnings}),
        Err(refusal) => json!({"allowed": false, "status": refusal.json()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str) -> Value {
        json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": name},
            "spec": {"leaderWorkerTemplate": {
                "size": 1,
                "workerTemplate": {"spec": {"containers": [{"name": "c", "image": "one"}]}},
            }},
        })
    }

    fn asked(object: &Value, old: &Value) -> Value {
        let request = json!({"uid": "7", "object": object, "oldObject": old});
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        super::review(&review).unwrap()["response"].clone()
    }

    #[test]
    fn a_refusal_has_the_words_of_the_embedded_api() {
        let mut bad = set("x");
        bad["spec"]["rolloutStrategy"] = json!({
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxUnavailable": 0, "maxSurge": 0},
        });
        let answer = asked(&bad, &Value::Null);
        let embedded = KindAdmission.admit(&bad, None).unwrap_err();
        assert_eq!((&answer["uid"], &answer["allowed"]), (&json!("7"), &json!(false)));
        assert_eq!(answer["status"]["message"], embedded.message());
        assert!(embedded.message().contains("maxUnavailable"), "{}", embedded.message());
    }

    #[test]
    fn good_ones_pass_and_warnings_are_told() {
        let mut odd = set("x");
        odd["spec"]["colour"] = json!("red");
        let answer = asked(&odd, &Value::Null);
        assert_eq!(answer["allowed"], json!(true));
        assert!(answer["warnings"][0].as_str().unwrap().contains("colour"), "{answer}");
    }

    #[test]
    fn who_goes_is_let_go() {
        let mut bad = set("x");
        bad["spec"]["leaderWorkerTemplate"]["size"] = json!(0);
        assert_eq!(asked(&bad, &set("x"))["allowed"], json!(false));
        bad["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(asked(&bad, &set("x"))["allowed"], json!(true));
    }

    #[test]
    fn what_is_no_review_is_no_verdict() {
        assert!(review(&json!({"kind": "Pod"})).is_err());
    }
}
