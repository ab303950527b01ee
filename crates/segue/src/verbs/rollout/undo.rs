use clap::Args as ClapArgs;

use super::{KINDS, Subject, revision::Revision};
use crate::{
    output::{Answer, Error, Format, Report},
    verbs::{Reach, failure::Failure},
};

/// Go back to an earlier revision, as a change of the spec.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue undo leaderworkerset/ray
  segue undo modelserving/pd --to 3

Without --to: while an update is under way, back to where it comes from; else to the revision before. `segue history` lists
them. Templates go back, and numbers of replicas stay. It is rolled out within the budget of the object and by its steps, as
any change. Where manifests come from a repository, change them
there, too: they would be applied again. Who applies them is told that these fields were changed, and takes them back with
--force-conflicts.")]
pub(crate) struct Args {
    /// KIND/NAME
    #[arg(value_name = "KIND/NAME", required = true)]
    what: Vec<String>,
    /// The number of the revision
    #[arg(long, value_name = "NUMBER")]
    to: Option<i64>,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(go_back(args))
}

async fn go_back(args: &Args) -> Result<Answer, Failure> {
    let subject = Subject::find(&args.reach, &args.what, &KINDS).await?;
    let title = subject.target.title();
    let revisions = subject.revisions().await?;
    let chosen = choose(&revisions, args.to, subject.wanted_key(), subject.current_key());
    let revision = chosen.map_err(|why| Failure::Refused(format!("{title}: {why}")))?;
    let patch = (subject.shape().back)(&revision.data, &subject.object);
    subject.change(patch).await?;
    let mut report = Report::new(args.output);
    report.done(&title, &format!("goes back to revision {}", revision.number), "")?;
    Ok(report.finish()?)
}

fn choose<'a>(
    revisions: &'a [Revision],
    to: Option<i64>,
    wanted: &str,
    current: &str,
) -> Result<&'a Revision, String> {
    let known = || revisions.iter().map(|it| it.number.to_string()).collect::<Vec<_>>().join(", ");
    let found = match to {
        Some(number) => revisions.iter().find(|it| it.number == number),
        None if wanted != current => revisions.iter().find(|it| it.key == current),
        None => revisions.iter().find(|it| it.key != wanted),
    };
    match (found, to) {
        (Some(found), _) if found.key == wanted => {
            Err(format!("revision {} is what its spec asks for", found.number))
        }
        (Some(found), _) => Ok(found),
        (None, Some(number)) => Err(format!("there is no revision {number}; there are: {}", known())),
        (None, None) => Err("there is no earlier revision".to_owned()),
    }
}
