use std::time::Duration;

use clap::Args as ClapArgs;
use controllers::{
    kind::Served,
    request::{REQUEST, RESPONSE, Request, Response, identity},
};
use serde_json::{Value, json};

use super::{About, Subject, kinds};
use crate::{
    output::{Answer, Error, Report},
    verbs::failure::Failure,
};

/// How long an answer may take. A replica of the operator that takes over needs 15 s.
const PATIENCE: Duration = Duration::from_mins(1);

/// Ask the controllers to promote, abort or retry a rollout
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue promote modeldeployment/chat
  segue abort mdep/chat --reason 'answers are slow'
  segue retry leaderworkerset/ray

promote ends the pause of a rollout. abort takes a rollout back to the previous version; its version is not tried again \
until `segue retry` or a new version. retry starts a failed or aborted rollout again; for a LeaderWorkerSet it recreates \
groups at once that wait in back-off after repeated failures.

The request names the rollout and the step that you saw, and is refused once they are over. Waits up to 60 s until the \
controllers have answered. Exit code 1 when they refuse, or do not answer.")]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
    /// The reason, which is kept with the request
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Asks the controllers for a verb.
pub(crate) fn run(verb: &str, args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(ask(verb, &args.about, args.reason.clone()))
}

/// The kinds whose controllers take a request of this verb.
pub(super) fn takers(verb: &str) -> Vec<&'static Served> {
    kinds(|served| served.requests.iter().any(|(known, _)| *known == verb))
}

async fn ask(verb: &str, about: &About, reason: Option<String>) -> Result<Answer, Failure> {
    let subject = Subject::find(about, &takers(verb)).await?;
    request(verb, subject, about, reason).await
}

/// Asks the controllers for a verb on an object, and waits for the answer.
pub(super) async fn request(
    verb: &str,
    mut subject: Subject,
    about: &About,
    reason: Option<String>,
) -> Result<Answer, Failure> {
    let title = subject.target.title();
    if subject.is_not_adopted().await {
        let namespace = &subject.cluster.namespace;
        return Err(Failure::Refused(format!(
            "{title} belongs to another operator; adopt it first: segue adopt {title} -n {namespace}"
        )));
    }
    if is_unanswered(&subject.object["metadata"]["annotations"]) {
        return Err(Failure::Refused(format!(
            "{title} has a request that no controller has answered; check that the operator runs"
        )));
    }
    let request = Request {
        id: String::new(),
        verb: verb.to_owned(),
        rollout: subject.object["status"]["rollout"]["id"].as_str().map(str::to_owned),
        step: subject.object["status"]["rollout"]["step"].as_i64().and_then(|step| step.try_into().ok()),
        actor: std::env::var("USER").ok(),
        reason,
    };
    // No other client writes to the version that the request is written to.
    let version =
        |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let asked = |object: &Value| {
        let request = Request { id: version(object), ..request.clone() };
        let text = serde_json::to_string(&request).map_err(|error| Failure::usage(error.to_string()))?;
        Ok(json!({"metadata": {"annotations": {REQUEST: text}}}))
    };
    subject.change(asked).await?;
    let id = version(&subject.object);
    eprintln!("{title}: waiting for the controllers");
    let mut answer = None;
    let answered = |object: Option<&Value>| {
        let Some(object) = object else { return true };
        answer = response(&object["metadata"]["annotations"]).filter(|response| response.id == id);
        answer.is_some()
    };
    let watching = subject.cluster.watch_until(&subject.target, answered);
    let Ok(watched) = tokio::time::timeout(PATIENCE, watching).await else {
        return Err(Failure::Refused(format!(
            "no controller has answered the request for {title} for {} s; the request stays: check that the operator runs",
            PATIENCE.as_secs()
        )));
    };
    watched?;
    let mut report = Report::new(about.output);
    match answer {
        Some(Response { done: true, message, .. }) => report.answered(&title, &message)?,
        Some(Response { message, .. }) => report.refused(&title, &message, &Value::Null),
        None => report.refused(&title, "the object was deleted", &Value::Null),
    }
    Ok(report.finish()?)
}

fn response(annotations: &Value) -> Option<Response> {
    serde_json::from_str(annotations[RESPONSE].as_str()?).ok()
}

fn is_unanswered(annotations: &Value) -> bool {
    let Some(text) = annotations[REQUEST].as_str() else { return false };
    response(annotations).is_none_or(|response| response.id != identity(text))
}
