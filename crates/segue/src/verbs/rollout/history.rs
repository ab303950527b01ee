use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::{About, Subject, revisioned};
use crate::{
    output::{self, Answer, Error, Format},
    verbs::failure::Failure,
};

/// List the revisions of an object, the newest first
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue history leaderworkerset/ray
  segue history modelserving/pd -n serving -o json

The revision that the spec asks for is marked `wanted`, the one that a rollout comes from `current`. `segue undo` goes back \
to a revision.")]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(show(args))
}

async fn show(args: &Args) -> Result<Answer, Failure> {
    let rows = rows(args).await?;
    if args.about.output == Format::Json {
        output::print(&output::json(&rows.into())?)?;
        return Ok(Answer::Yes);
    }
    let mut text = format!("{:<10} {:<12} {:<16} {:<22} IMAGES\n", "REVISION", "KEY", "STATUS", "STORED");
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

/// The revisions of an object, as JSON has them.
pub(in crate::verbs) async fn rows(args: &Args) -> Result<Vec<Value>, Failure> {
    let subject = Subject::find(&args.about, &revisioned()).await?;
    let shape = subject.revisioned()?;
    let revisions = subject.revisions().await?;
    let rows = revisions.iter().map(|revision| {
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
            "images": revision.images(shape),
        })
    });
    Ok(rows.collect())
}
