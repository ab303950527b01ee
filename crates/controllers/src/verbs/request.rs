//! What people ask of the controllers beside a spec: an annotation with an identity of its own, carried out once and
//! answered by another annotation.

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::digest::digest;

/// The annotation that asks.
pub const REQUEST: &str = "segue.dev/request";

/// The longest id that is repeated in an answer.
const LONGEST_ID: usize = 253;

/// The annotation that answers.
pub const RESPONSE: &str = "segue.dev/response";

/// The verbs. Each kind carries out some of them.
pub mod verbs {
    /// Ends the pause of a rollout.
    pub const PROMOTE: &str = "promote";
    /// Takes a rollout back.
    pub const ABORT: &str = "abort";
    /// Tries what has failed, or was aborted, again.
    pub const RETRY: &str = "retry";
    /// Holds a rollout.
    pub const PAUSE: &str = "pause";
    /// Ends the hold.
    pub const RESUME: &str = "resume";
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// Tells this request from the last one.
    pub id: String,
    /// What is to be done.
    pub verb: String,
    /// The rollout that it is meant for; any without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// The step of that rollout that it is meant for; any without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i32>,
    /// The name that the request gives for its author. A claim: all who may write the object may write any name.
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
    /// The outcome, or the reason of a refusal.
    pub message: String,
    /// When.
    pub time: Timestamp,
}

/// The unanswered request of an object. A request that cannot be read is answered at once, with the reason.
pub fn unanswered(object: &impl Resource) -> Option<Result<Request, String>> {
    let text = object.annotations().get(REQUEST)?;
    let request = serde_json::from_str::<Request>(text)
        .map_err(|error| format!("{REQUEST} must be {{\"id\": \"...\", \"verb\": \"...\"}}: {error}"));
    let response = object.annotations().get(RESPONSE);
    let answered = response.and_then(|text| serde_json::from_str::<Response>(text).ok());
    (answered.map(|answered| answered.id) != Some(identity(text))).then_some(request)
}

/// What a request is known by in its answer: its id, or all that it says where it has none. An answer must have room
/// beside its request: a long one is known by its digest.
pub fn identity(request: &str) -> String {
    let id =
        serde_json::from_str::<Request>(request).map_or_else(|_| request.to_owned(), |request| request.id);
    identity_of(&id)
}

/// What the id of a request is known by.
pub(crate) fn identity_of(id: &str) -> String {
    if id.len() > LONGEST_ID { digest(&id.into()) } else { id.to_owned() }
}

/// The answer to an object's request.
pub fn answer(object: &impl Resource, outcome: Result<String, String>, time: Timestamp) -> Response {
    let text = object.annotations().get(REQUEST).map(String::as_str).unwrap_or_default();
    let id = identity(text);
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
        let long = "x".repeat(200_000);
        for wrong in ["retry", "{}", r#"{"id": "1", "verb": "retry", "more": 1}"#, &long] {
            let asked = object(wrong, None);
            let why = unanswered(&asked).unwrap().unwrap_err();
            assert!(why.starts_with("segue.dev/request must be "), "{why}");
            let response = answer(&asked, Err(why), Timestamp::UNIX_EPOCH);
            assert!(!response.done && response.id.len() <= LONGEST_ID);
            assert_eq!(unanswered(&object(wrong, Some(&response))), None, "{wrong}");
        }
    }
}
