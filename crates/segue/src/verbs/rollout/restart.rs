use clap::Args as ClapArgs;
use serde_json::json;

use super::{KINDS, Subject};
use crate::{
    output::{Answer, Error, Format, Report},
    verbs::{Reach, failure::Failure},
};

/// Replace every pod of an object within its budget, as a change of its templates.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue restart leaderworkerset/ray
  segue restart modelserving/pd")]
pub(crate) struct Args {
    /// KIND/NAME
    #[arg(value_name = "KIND/NAME", required = true)]
    what: Vec<String>,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(begin_anew(args))
}

async fn begin_anew(args: &Args) -> Result<Answer, Failure> {
    let subject = Subject::find(&args.reach, &args.what, &KINDS).await?;
    // The annotation that kubectl uses for the same; its value only has to be a new one.
    let version = subject.object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let mark = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": format!("version {version}")}}});
    subject.change((subject.shape().marked)(&subject.object, &mark)).await?;
    let mut report = Report::new(args.output);
    report.done(&subject.target.title(), "restarts within its budget", "")?;
    Ok(report.finish()?)
}
