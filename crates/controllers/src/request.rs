//! What people ask of the controllers beside a spec: an annotation with an identity of its own, carried out once and
//! answered by another annotation.

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

/// The annotation that asks.
pub const REQUEST: &str = "segue.dev/request";

/// The annotation that answers.
pub const RESPONSE: &str = "segue.dev/response";

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// Tells this request from the last one.
    pub id: String,
    /// What is to be done.
    pub verb: String,
    /// Who says that they ask. A claim: whoever may write the object may write any name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// Of which request.
    pub id: String,
    /// Whether it was carried out.
    pub done: bool,
    /// What was done, or why not.
    pub message: String,
    /// When.
    pub time: Timestamp,
}

/// The request of an object that nobody has answered. One that cannot be read is answered at once, with the reason.
pub fn unanswered(object: &impl Resource) -> Option<Result<Request, String>> {
    let text = object.annotations().get(REQUEST)?;
    let request = serde_json::from_str::<Request>(text).map_err(|error| format!("{REQUEST}: {error}"));
    let response = object.annotations().get(RESPONSE);
    let answered = response.and_then(|text| serde_json::from_str::<Response>(text).ok());
    // What has no identity is known by all that it says.
    let id = request.as_ref().map_or(text, |request| &request.id);
    (answered.as_ref().map(|answered| &answered.id) != Some(id)).then_some(request)
}

/// The answer to an object's request.
pub fn answer(object: &impl Resource, outcome: Result<String, String>, time: Timestamp) -> Response {
    let text = object.annotations().get(REQUEST).cloned().unwrap_or_default();
    let id = serde_json::from_str::<Request>(&text).map_or(text, |request| request.id);
    let done = outcome.is_ok();
    let (Ok(message) | Err(message)) = outcome;
    Response { id, done, message, time }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn object(request: &str, response: Option<&Response>) -> Pod {
        let mut pod: Pod =
            serde_json::from_value(json!({"metadata": {"annotations": {REQUEST: request}}})).unwrap();
        if let Some(response) = response {
            let text = serde_json::to_string(response).unwrap();
            pod.annotations_mut().insert(RESPONSE.to_owned(), text);
        }
        pod
    }

    #[test]
    fn a_request_is_carried_out_until_it_is_answered_and_never_again() {
        let text = r#"{"id": "1", "verb": "retry", "actor": "me"}"#;
        let asked = object(text, None);
        assert_eq!(unanswered(&asked).unwrap().unwrap().verb, "retry");
        let response = answer(&asked, Ok("done".to_owned()), Timestamp::UNIX_EPOCH);
        assert_eq!((response.id.as_str(), response.done), ("1", true));
        assert_eq!(unanswered(&object(text, Some(&response))), None);
        let next = object(r#"{"id": "2", "verb": "retry"}"#, Some(&response));
        assert_eq!(unanswered(&next).unwrap().unwrap().id, "2");
        assert_eq!(unanswered(&Pod::default()), None);
    }

    #[test]
    fn what_cannot_be_read_is_answered_once() {
        for wrong in ["retry", "{}", r#"{"id": "1", "verb": "retry", "more": 1}"#] {
            let asked = object(wrong, None);
            let why = unanswered(&asked).unwrap().unwrap_err();
            assert!(why.starts_with("segue.dev/request: "), "{why}");
            let response = answer(&asked, Err(why), Timestamp::UNIX_EPOCH);
            assert!(!response.done);
            assert_eq!(unanswered(&object(wrong, Some(&response))), None, "{wrong}");
        }
    }
}
