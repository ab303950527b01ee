use clap::Args as ClapArgs;
use controllers::leaderworkerset::adopt::{self, Left};
use serde_json::Value;

use super::{
    client::{Connected, Reach},
    failure::Failure,
};
use crate::{
    others,
    output::{Answer, Error, Format, Report},
};

/// Take over the sets that another operator made, without restarting a pod.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue adopt -n serving --dry-run
  segue adopt -n serving
  segue adopt ray -n serving

Stop the other operator first. Its StatefulSets are deleted without their pods, and the pods become the set's own: they keep
their names, their uids and what they run. Segue leaves sets of another operator alone until this is done. Whoever stops in
the middle runs it again. An adopted leader gets the readiness gate of ours when its group is replaced next.
Exit code 1 when something belongs to somebody unknown, 2 when the API could not be asked.")]
pub(crate) struct Args {
    /// The sets; by default all of the namespace
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Say what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    super::run(take_over(args))
}

async fn take_over(args: &Args) -> Result<Answer, Failure> {
    let Connected { client, namespace, .. } = super::connect(&args.reach).await?;
    let unasked = |error: kube::Error| Failure::usage(format!("failed to adopt: {error}"));
    let now = (controllers::Settings::default().clock)();
    if let Some(why) = others::alive(&client, &[&api::leaderworkerset::KIND], now).await.map_err(unasked)? {
        // It would make its StatefulSets again as fast as they go.
        return Err(Failure::Refused(why));
    }
    let sets = adopt::look(&client, &namespace).await.map_err(unasked)?;
    let mut report = Report::new(args.output);
    let missing = args.names.iter().filter(|name| sets.iter().all(|left| title(left) != set(name)));
    for name in missing {
        report.refused(&set(name), &format!("there is none in namespace {namespace}"), &Value::Null);
    }
    let chosen =
        |left: &&Left| args.names.is_empty() || args.names.iter().any(|name| title(left) == set(name));
    for left in sets.iter().filter(chosen) {
        let title = title(left);
        let writes = match left.takeover() {
            Ok(writes) => writes,
            Err(why) => {
                report.refused(&title, &why, &Value::Null);
                continue;
            }
        };
        if writes.is_empty() {
            report.done(&title, "is ours already", "")?;
        }
        for write in writes {
            if args.dry_run {
                report.done(&title, &format!("would {write}"), "")?;
                continue;
            }
            adopt::take(&client, &namespace, &write).await.map_err(unasked)?;
            report.done(&title, &write.to_string(), "")?;
        }
    }
    Ok(report.finish()?)
}

fn title(left: &Left) -> String {
    set(left.set.metadata.name.as_deref().unwrap_or_default())
}

fn set(name: &str) -> String {
    format!("leaderworkerset/{name}")
}
