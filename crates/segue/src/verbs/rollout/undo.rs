use clap::Args as ClapArgs;

use super::{About, Subject, revision::Revision, revisioned};
use crate::{
    output::{Answer, Error, Report},
    verbs::failure::Failure,
};

/// Roll back to an earlier revision, as a change of the spec
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue undo leaderworkerset/ray
  segue undo modelserving/pd --to 3

Without --to, a rollout that is under way is reverted; otherwise the revision before the current one is chosen. Templates are \
set back, replica counts are not. The rollback keeps to the budget and the steps of the object, as any rollout. If manifests \
are applied from a repository, change them there, too: otherwise the next apply brings the newer revision back.")]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
    /// The number of the revision, from `segue history` [default: the previous one]
    #[arg(long, value_name = "NUMBER")]
    to: Option<i64>,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(go_back(args))
}

async fn go_back(args: &Args) -> Result<Answer, Failure> {
    let mut subject = Subject::find(&args.about, &revisioned()).await?;
    let title = subject.target.title();
    let revisions = subject.revisions().await?;
    let chosen = choose(&revisions, args.to, subject.wanted_key(), subject.current_key());
    let revision = chosen.map_err(|why| Failure::Refused(format!("{title}: {why}")))?;
    let back = subject.revisioned()?.back;
    subject.change(|object| Ok(back(&revision.data, object))).await?;
    let mut report = Report::new(args.about.output);
    report.done(&title, &format!("is set back to revision {}", revision.number), "")?;
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
            Err(format!("the spec asks for revision {} already", found.number))
        }
        (Some(found), _) => Ok(found),
        (None, Some(number)) => Err(format!("revision {number} not found; allowed are: {}", known())),
        (None, None) => Err("there is no earlier revision".to_owned()),
    }
}
