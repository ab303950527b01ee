use api::Verdict;
use clap::Args as ClapArgs;
use serde_json::{Value, json};

use crate::{
    manifest,
    output::{self, Answer, Error, Format},
};

/// Validate manifests as `segue apply` and admission do, without a cluster
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue validate -f service.yaml
  cat *.yaml | segue validate -f -
  segue validate -f service.yaml -o json

Exit codes: 0 all accepted, 1 a manifest is refused, 2 a file cannot be read.")]
pub(crate) struct Args {
    /// A file of manifests, or - for standard input; may be repeated
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    file: Vec<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { file, output } = args;
    let mut judged = Vec::new();
    for file in file {
        for manifest in manifest::read(file)? {
            let verdict = api::validate(&manifest, None).strict();
            judged.push((manifest::title(&manifest), verdict));
        }
    }
    let text = match output {
        Format::Table => judged.iter().map(|(title, verdict)| sentences(title, verdict)).collect(),
        Format::Json => {
            output::json(&judged.iter().map(|(title, verdict)| object(title, verdict)).collect())?
        }
    };
    output::print(&text)?;
    let accepted = judged.iter().all(|(_, verdict)| verdict.accepted());
    Ok(if accepted { Answer::Yes } else { Answer::No })
}

fn sentences(title: &str, verdict: &Verdict) -> String {
    let word = if verdict.accepted() { "accepted" } else { "refused" };
    let mut text = format!("{title}: {word}\n");
    for violation in &verdict.violations {
        text += &format!("  {violation}\n");
    }
    for warning in &verdict.warnings {
        text += &format!("  warning: {warning}\n");
    }
    text
}

fn object(title: &str, verdict: &Verdict) -> Value {
    let violations: Vec<Value> = verdict
        .violations
        .iter()
        .map(|v| json!({"field": v.field, "reason": v.cause.to_string(), "value": v.value, "allowed": v.allowed}))
        .collect();
    json!({
        "manifest": title,
        "accepted": verdict.accepted(),
        "violations": violations,
        "warnings": verdict.warnings,
    })
}
