use clap::Args as ClapArgs;
use controllers::request::{REQUEST, RESPONSE, Request, Response};
use serde_json::{Value, json};

use super::Subject;
use crate::{
    output::{Answer, Error, Format, Report},
    verbs::{Reach, failure::Failure},
};

/// Make groups that wait because they failed again and again at once.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue retry leaderworkerset/ray
  segue retry lws/ray --reason 'the volume is back'

The controllers answer; it waits for that. Exit code 1 when they refuse.")]
pub(crate) struct Args {
    /// KIND/NAME
    #[arg(value_name = "KIND/NAME", required = true)]
    what: Vec<String>,
    /// Why, for those who read the events
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(ask(args))
}

async fn ask(args: &Args) -> Result<Answer, Failure> {
    let subject = Subject::find(&args.reach, &args.what, &["LeaderWorkerSet"]).await?;
    let title = subject.target.title();
    if is_unanswered(&subject.object["metadata"]["annotations"]) {
        return Err(Failure::Refused(format!(
            "{title}: another request is not answered yet; does the operator run?"
        )));
    }
    // Nobody else writes to this version.
    let id = subject.object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let actor = std::env::var("USER").ok();
    let request = Request { id: id.clone(), verb: "retry".to_owned(), actor, reason: args.reason.clone() };
    let text = serde_json::to_string(&request).map_err(|error| Failure::usage(error.to_string()))?;
    subject.change(json!({"metadata": {"annotations": {REQUEST: text}}})).await?;
    eprintln!("{title}: waiting for the controllers to answer");
    let mut answer = None;
    let answered = |object: Option<&Value>| {
        let Some(object) = object else { return true };
        answer = response(&object["metadata"]["annotations"]).filter(|response| response.id == id);
        answer.is_some()
    };
    subject.cluster.watch_until(&subject.target, answered).await?;
    let mut report = Report::new(args.output);
    match answer {
        Some(Response { done: true, message, .. }) => report.done(&title, &message, "")?,
        Some(Response { message, .. }) => report.refused(&title, &message, &Value::Null),
        None => report.refused(&title, "it is gone", &Value::Null),
    }
    Ok(report.finish()?)
}

fn response(annotations: &Value) -> Option<Response> {
    serde_json::from_str(annotations[RESPONSE].as_str()?).ok()
}

fn is_unanswered(annotations: &Value) -> bool {
    let Some(text) = annotations[REQUEST].as_str() else { return false };
    let id = serde_json::from_str::<Request>(text).map_or_else(|_| text.to_owned(), |request| request.id);
    response(annotations).is_none_or(|response| response.id != id)
}
