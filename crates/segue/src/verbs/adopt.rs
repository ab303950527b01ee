use api::Kind;
use clap::Args as ClapArgs;
use controllers::{
    adopt::{self, Takeover},
    leaderworkerset, modelserving,
};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::{
    client::{Connected, Reach},
    failure::Failure,
};
use crate::{
    others,
    output::{Answer, Error, Format, Report},
};

/// Take over what another operator made of a LeaderWorkerSet or ModelServing, without restarting a pod.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue adopt -n serving --dry-run
  segue adopt -n serving
  segue adopt lws/ray modelserving/pd -n serving

Stop the other operator first. Pods keep their names, their uids and what they run. Those of a LeaderWorkerSet become its own,
and its StatefulSets are deleted without them; those of a ModelServing get a mark. Segue leaves objects of another operator
alone until this is done. Whoever stops in the middle runs it again. An adopted leader or entry gets the readiness gate of
ours when it is replaced next.
An operator of LeaderWorkerSets that is alive is seen by its Lease, and nothing is written. One of ModelServings (Kthena) may
run without a Lease, or have one for its autoscaler alone: whether it is stopped is for you to know.
Exit code 1 when something belongs to somebody unknown, 2 when the API could not be asked.")]
pub(crate) struct Args {
    /// NAME or KIND/NAME; by default all of the namespace
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
    let found = look(&client, &namespace).await.map_err(unasked)?;
    let mut report = Report::new(args.output);
    let missing = args.names.iter().filter(|name| !found.iter().any(|it| it.is_called(name)));
    for name in missing {
        report.refused(name, &format!("there is none in namespace {namespace}"), &Value::Null);
    }
    let chosen = |it: &&Found| args.names.is_empty() || args.names.iter().any(|name| it.is_called(name));
    let chosen: Vec<&Found> = found.iter().filter(chosen).collect();
    let now = (controllers::Settings::default().clock)();
    let sets = chosen.iter().any(|it| it.kind.name == api::leaderworkerset::KIND.name);
    if let Some(why) = others::alive(&client, &[&api::leaderworkerset::KIND], now).await.map_err(unasked)?
        && sets
    {
        // It would make its StatefulSets again as fast as they go.
        return Err(Failure::Refused(why));
    }
    for it in chosen {
        it.take_over(&client, &namespace, args.dry_run, &mut report).await?;
    }
    Ok(report.finish()?)
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed an error")]
fn unasked(error: kube::Error) -> Failure {
    Failure::usage(format!("failed to adopt: {error}"))
}

/// An object that may be another operator's.
struct Found {
    kind: &'static Kind,
    name: String,
    takeover: Result<Vec<Takeover>, String>,
    /// Pods that are replaced when they are ours.
    outdated: Vec<String>,
}

async fn look(client: &Client, namespace: &str) -> Result<Vec<Found>, kube::Error> {
    let mut found = Vec::new();
    for left in leaderworkerset::adopt::look(client, namespace).await? {
        let (kind, name) = (&api::leaderworkerset::KIND, left.set.name_any());
        found.push(Found { kind, name, takeover: left.takeover(), outdated: Vec::new() });
    }
    for left in modelserving::adopt::look(client, namespace).await? {
        let (kind, name) = (&api::modelserving::KIND, left.serving.name_any());
        found.push(Found { kind, name, takeover: left.takeover(), outdated: left.outdated() });
    }
    Ok(found)
}

impl Found {
    fn title(&self) -> String {
        format!("{}/{}", self.kind.name.to_lowercase(), self.name)
    }

    /// By its name alone, or with its kind.
    fn is_called(&self, word: &str) -> bool {
        let short = word.strip_prefix("lws/").map(|name| format!("leaderworkerset/{name}"));
        word == self.name || short.as_deref().unwrap_or(word) == self.title()
    }

    async fn take_over(
        &self,
        client: &Client,
        namespace: &str,
        dry_run: bool,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let title = self.title();
        let writes = match &self.takeover {
            Ok(writes) => writes,
            Err(why) => {
                report.refused(&title, why, &Value::Null);
                return Ok(());
            }
        };
        if writes.is_empty() {
            report.done(&title, "is ours already", "")?;
            return Ok(());
        }
        if !self.outdated.is_empty() {
            let pods = self.outdated.join(", ");
            eprintln!(
                "note: {title}: the spec asks for something else than these pods run, and they are replaced when it is ours: \
                 {pods}"
            );
        }
        for write in writes {
            if dry_run {
                report.done(&title, &format!("would {write}"), "")?;
                continue;
            }
            adopt::take(client, namespace, write).await.map_err(unasked)?;
            report.done(&title, &write.to_string(), "")?;
        }
        Ok(())
    }
}
