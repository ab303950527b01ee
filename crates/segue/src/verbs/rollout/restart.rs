use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::{About, PARTITION_BEFORE_PAUSE, Subject, revisioned};
use crate::{
    output::{Answer, Error, Report},
    verbs::failure::Failure,
};

/// Restart all pods of an object, within its budget
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue restart leaderworkerset/ray
  segue restart modelserving/pd

Adds an annotation to the pod templates, as `kubectl rollout restart` does: a rollout replaces every pod.")]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(begin_anew(args))
}

async fn begin_anew(args: &Args) -> Result<Answer, Failure> {
    let mut subject = Subject::find(&args.about, &revisioned()).await?;
    let marked = subject.revisioned()?.marked;
    let restarted = |object: &Value| {
        // The annotation that kubectl uses for the same; its value only has to be a new one.
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let mark = format!("version {version}");
        Ok(marked(object, &json!({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": mark}}})))
    };
    subject.change(restarted).await?;
    let mut report = Report::new(args.about.output);
    let is_paused = subject.object["metadata"]["annotations"][PARTITION_BEFORE_PAUSE].is_string();
    let what = if is_paused {
        "restarts once it is resumed: segue resume"
    } else {
        "is restarting within its budget"
    };
    report.done(&subject.target.title(), what, "")?;
    Ok(report.finish()?)
}
