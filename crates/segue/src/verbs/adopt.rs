use api::Kind;
use clap::Args as ClapArgs;
use controllers::{
    adopt::{self, Adoptable},
    kind::Served,
};
use kube::Client;
use serde_json::Value;

use super::{
    client::{Connected, Connection},
    failure::Failure,
    rollout::known,
};
use crate::{
    operator::other_operators::Leases,
    output::{Answer, Error, Format, Report},
};

/// Adopt the pods of LeaderWorkerSets and ModelServings from another operator, without a restart
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue adopt -n serving --dry-run
  segue adopt -n serving
  segue adopt lws/ray modelserving/pd -n serving

Stop the other operator first. Pods keep their names, uids and containers: the pods of a LeaderWorkerSet get it as their \
owner, and its StatefulSets are deleted without their pods; the pods of a ModelServing get an annotation. An interrupted \
adoption is completed by the next one. Pods get Segue's readiness gate when they are next replaced.

If the Lease of another operator of LeaderWorkerSets is being renewed, nothing is written; that takes up to its term to find \
out. Kthena may run without a Lease: make sure yourself that it is stopped. Exit codes: 0 adopted, 1 an object belongs to an \
unknown owner or an operator is alive, 2 no answer from the API.")]
pub(crate) struct Args {
    /// The objects, as NAME or KIND/NAME [default: all of the namespace]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    super::run(take_over(args))
}

async fn take_over(args: &Args) -> Result<Answer, Failure> {
    let Connected { client, namespace, .. } = super::connect(&args.connection).await?;
    let found = look(&client, &namespace).await.map_err(unasked)?;
    let mut report = Report::new(args.output);
    let missing = args.names.iter().filter(|name| !found.iter().any(|it| it.is_called(name)));
    for name in missing {
        report.refused(name, &format!("not found in namespace {namespace}"), &Value::Null);
    }
    let chosen = |it: &&Found| args.names.is_empty() || args.names.iter().any(|name| it.is_called(name));
    let chosen: Vec<&Found> = found.iter().filter(chosen).collect();
    let kinds: Vec<&'static Served> = chosen.iter().map(|it| it.served).collect();
    if let Some(why) = Leases::default().find(&client, &kinds).await.map_err(unasked)? {
        // It would make again what is taken from it as fast as that goes.
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

/// Returns the objects of a namespace that another operator may own.
async fn look(client: &Client, namespace: &str) -> Result<Vec<Found>, kube::Error> {
    let mut found = Vec::new();
    for served in known() {
        let Some(adoptable) = served.adoptable else { continue };
        let objects = adoptable(client.clone(), namespace.to_owned()).await?;
        found.extend(objects.into_iter().map(|object| Found { served, object }));
    }
    Ok(found)
}

/// An object that may be another operator's.
struct Found {
    served: &'static Served,
    object: Adoptable,
}

impl Found {
    fn title(&self) -> String {
        format!("{}/{}", self.served.kind.singular, self.object.name)
    }

    /// By its name alone, or with its kind.
    fn is_called(&self, word: &str) -> bool {
        let Kind { singular, plural, short_names, .. } = self.served.kind;
        let Some((kind, name)) = word.split_once('/') else { return word == self.object.name };
        let is_kind = [*singular, *plural].contains(&kind) || short_names.contains(&kind);
        is_kind && name == self.object.name
    }

    async fn take_over(
        &self,
        client: &Client,
        namespace: &str,
        dry_run: bool,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let title = self.title();
        let steps = match &self.object.steps {
            Ok(steps) => steps,
            Err(why) => {
                report.refused(&title, why, &Value::Null);
                return Ok(());
            }
        };
        if steps.is_empty() {
            report.done(&title, "is adopted already", "")?;
            return Ok(());
        }
        if !self.object.outdated.is_empty() {
            let pods = self.object.outdated.join(", ");
            eprintln!(
                "note: {title}: these pods differ from the spec, so they are replaced after the adoption: {pods}"
            );
        }
        for step in steps {
            if dry_run {
                report.done(&title, &format!("would {step}"), "")?;
                continue;
            }
            adopt::carry_out(client, namespace, step).await.map_err(unasked)?;
            report.done(&title, &step.to_string(), "")?;
        }
        Ok(())
    }
}
