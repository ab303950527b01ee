use api::{KINDS, Kind};
use clap::{Args as ClapArgs, ValueEnum};
use serde_json::{Value, json};

use crate::output::{self, Answer, Error};

/// Print the CRDs of the kinds that Segue serves.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue crds | segue apply -f -             install all of them
  segue crds --kind ModelDeployment         one of them
  segue crds -o json                        all of them, as one List")]
pub(crate) struct Args {
    /// Only this kind; kind, plural and short name are all understood
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// As YAML documents or as one JSON List
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { kind, output } = args;
    let crds: Vec<Value> = match kind {
        Some(name) => vec![find(name)?.crd()],
        None => KINDS.iter().map(|kind| kind.crd()).collect(),
    };
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
