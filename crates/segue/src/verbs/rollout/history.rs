use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::{KINDS, Subject};
use crate::{
    output::{self, Answer, Error, Format},
    verbs::{Reach, failure::Failure},
};

/// Show the revisions of an object that can be gone back to, the newest first.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue history leaderworkerset/ray
  segue history modelserving/pd -n serving -o json

`wanted` is what the spec asks for, `current` what it comes from; between the two an update is under way.")]
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
    crate::verbs::run(show(args))
}

async fn show(args: &Args) -> Result<Answer, Failure> {
    let subject = Subject::find(&args.reach, &args.what, &KINDS).await?;
    let rows: Vec<Value> = subject
        .revisions()
        .await?
        .iter()
        .map(|revision| {
            let is = |key: &str, word| if revision.key == key { Some(word) } else { None };
            let marks: Vec<&str> = [is(subject.wanted_key(), "wanted"), is(subject.current_key(), "current")]
                .into_iter()
                .flatten()
                .collect();
            json!({
                "revision": revision.number,
                "key": revision.key,
                "is": marks,
                "stored": revision.stored,
                "images": revision.images(subject.shape()),
            })
        })
        .collect();
    if args.output == Format::Json {
        output::print(&output::json(&rows.into())?)?;
        return Ok(Answer::Yes);
    }
    let mut text = format!("{:<10} {:<12} {:<16} {:<22} IMAGES\n", "REVISION", "KEY", "IS", "STORED");
    for row in rows {
        let word = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let marks: Vec<&str> = row["is"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (number, marks) = (row["revision"].to_string(), marks.join(", "));
        text += &format!(
            "{number:<10} {:<12} {marks:<16} {:<22} {}\n",
            word("key"),
            word("stored"),
            word("images")
        );
    }
    output::print(&text)?;
    Ok(Answer::Yes)
}
