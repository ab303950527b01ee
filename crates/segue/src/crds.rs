use std::collections::BTreeSet;

use api::{KINDS, Kind};
use clap::{Args as ClapArgs, ValueEnum};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::{
    output::{self, Answer, Error},
    verbs::{self, Connection},
};

/// Print the CRDs of Segue's kinds, or check those of a cluster
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue crds | segue apply -f -
  segue crds --kind ModelDeployment
  segue crds -o json
  segue crds --check

Check before you apply over a CRD of another operator. Exit code 1 of --check: a CRD is missing, or would drop or refuse \
fields that Segue uses.")]
pub(crate) struct Args {
    /// Print only this kind, given as kind, plural, singular or short name
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Check which CRDs a cluster has, who wrote them, and which fields they would drop
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    connection: Connection,
    /// The output format: YAML documents or one JSON List; with --check, text or JSON
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { kind, check, connection, output } = args;
    let kinds: Vec<&'static Kind> = match kind {
        Some(name) => vec![find(name)?],
        None => KINDS.into(),
    };
    if *check {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let found = runtime.block_on(look(connection, &kinds))?;
        return report(&found, *output);
    }
    let crds: Vec<Value> = kinds.iter().map(|kind| kind.crd()).collect();
    match output {
        Format::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": crds});
            output::print(&output::json(&list)?)?;
        }
        Format::Yaml => {
            for crd in &crds {
                output::print(&format!("---\n{}", output::yaml(crd)?))?;
            }
        }
    }
    Ok(Answer::Yes)
}

fn find(name: &str) -> Result<&'static Kind, Error> {
    let wanted = name.to_lowercase();
    let answers_to = |kind: &Kind| {
        [kind.singular, kind.plural].contains(&wanted.as_str()) || kind.short_names.contains(&wanted.as_str())
    };
    KINDS.iter().copied().find(|kind| answers_to(kind)).ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        Error::UnknownKind { given: name.to_owned(), known: known.join(", ") }
    })
}

/// A CRD as a cluster has it.
struct Found {
    name: String,
    installed: bool,
    /// Who wrote its spec.
    writers: BTreeSet<String>,
    /// What it would do to objects of ours.
    lacks: Vec<String>,
}

async fn look(connection: &Connection, kinds: &[&'static Kind]) -> Result<Vec<Found>, Error> {
    let client: Client = verbs::connect(connection).await?.client;
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let mut found = Vec::new();
    for kind in kinds {
        let name = kind.crd_name();
        let crd = api.get_opt(&name).await.map_err(|error| Error::failed_to("look at the CRDs", &error))?;
        found.push(match crd {
            None => Found { name, installed: false, writers: BTreeSet::new(), lacks: Vec::new() },
            Some(crd) => {
                let writers = writers(&crd);
                let crd = serde_json::to_value(crd).unwrap_or_default();
                Found { name, installed: true, writers, lacks: kind.lacks(&crd) }
            }
        });
    }
    Ok(found)
}

/// Those who wrote fields other than the status, and the release that a chart says it belongs to.
fn writers(crd: &CustomResourceDefinition) -> BTreeSet<String> {
    let fields = crd.managed_fields().iter().filter(|entry| entry.subresource.is_none());
    let mut writers: BTreeSet<String> = fields.filter_map(|entry| entry.manager.clone()).collect();
    if let Some(release) = crd.annotations().get("meta.helm.sh/release-name") {
        writers.insert(format!("Helm release {release}"));
    }
    writers
}

fn report(found: &[Found], format: Format) -> Result<Answer, Error> {
    let text = match format {
        Format::Yaml => found.iter().map(sentences).collect(),
        Format::Json => output::json(&found.iter().map(object).collect())?,
    };
    output::print(&text)?;
    let good = found.iter().all(|found| found.installed && found.lacks.is_empty());
    Ok(if good { Answer::Yes } else { Answer::No })
}

fn sentences(found: &Found) -> String {
    if !found.installed {
        return format!("{}: not installed\n", found.name);
    }
    let writers: Vec<&str> = found.writers.iter().map(String::as_str).collect();
    let word = if found.lacks.is_empty() { "complete" } else { "incomplete" };
    let mut text = format!("{}: installed by {}, {word}\n", found.name, writers.join(", "));
    for lack in &found.lacks {
        text += &format!("  {lack}\n");
    }
    text
}

fn object(found: &Found) -> Value {
    let Found { name, installed, writers, lacks } = found;
    json!({"name": name, "installed": installed, "writers": writers, "lacks": lacks})
}
