//! The rehearsal of an upgrade.

mod picture;
mod timetable;

use std::time::Duration;

use api::Verdict;
use clap::{Args as ClapArgs, ValueEnum};
use controllers::{
    kind::{self, Served},
    rehearsal::{Assumptions, NoPlan, Rehearsal},
};
use serde_json::Value;

use self::timetable::Timetable;
use crate::{
    manifest,
    output::{self, Answer, Error},
    verbs::{Connection, live::Live},
};

/// Show the steps of an upgrade before it happens
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue plan -f service.yaml
  segue plan -f new.yaml --from running.yaml --start-seconds 120
  segue plan -f service.yaml --rollback-at 90
  segue plan -f service.yaml --live
  segue plan -f service.yaml -o svg > upgrade.svg

The functions that carry an upgrade out compute the steps; only the times are assumed. With --from, each manifest is compared \
with that of the same object; with --live, with the object as the API has it, and with what the nodes have free. Exit codes: 0 the upgrade ends, 1 a manifest is refused, the upgrade has no room, would fail or would not end, or part of \
the manifest has no effect, 2 failed.")]
pub(crate) struct Args {
    /// The manifests to upgrade to, or - for standard input
    #[arg(short, long = "file", value_name = "FILE")]
    file: String,
    /// The manifests that run now [default: the new ones, at an older version]
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// Compare with the objects and the free capacity of the API
    #[arg(long, conflicts_with = "from")]
    live: bool,
    #[command(flatten)]
    connection: Connection,
    /// The assumed time for new replicas to become ready
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    start_seconds: u32,
    /// The assumed time for old replicas to end after they leave service
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    stop_seconds: u32,
    /// Roll back after this time
    #[arg(long, value_name = "SECONDS")]
    rollback_at: Option<u32>,
    /// The output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Svg,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { file, from, live, connection, start_seconds, stop_seconds, rollback_at, output } = args;
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    let assumptions = Assumptions {
        start: seconds(*start_seconds),
        stop: seconds(*stop_seconds),
        called_off: rollback_at.map(seconds),
    };
    let before = from.as_deref().map(manifest::read).transpose()?;
    let live = live.then(|| Live::connect(connection)).transpose()?;
    let mut answer = Answer::Yes;
    for manifest in manifest::read(file)? {
        if is_of_others(&manifest) {
            say(*output, &format!("{}: this kind is not upgraded in steps", manifest::title(&manifest)));
            continue;
        }
        let old = before.as_ref().map(|before| before.iter().find(|it| is_same_object(it, &manifest)));
        if old == Some(None) {
            say(
                *output,
                &format!(
                    "{}: not in the old manifests, so there is nothing to upgrade",
                    manifest::title(&manifest)
                ),
            );
            continue;
        }
        let found = live.as_ref().map(|live| live.object(&manifest)).transpose()?.flatten();
        let old = old.flatten().or(found.as_ref());
        if let Some(live) = &live
            && let Some(why) = live.refusal(&manifest, found.clone())?
        {
            eprintln!("refused: {}: {why}", manifest::title(&manifest));
            answer = Answer::No;
        }
        // What runs already may have been stored by another version, with other fields.
        if old.is_some_and(|old| !judged(old, api::validate(old, None)).accepted()) {
            answer = Answer::No;
            continue;
        }
        let verdict = judged(&manifest, api::validate(&manifest, old).strict());
        if !verdict.accepted() || !show(&manifest, old, &verdict, &assumptions, *output)? {
            answer = Answer::No;
        }
    }
    Ok(answer)
}

/// Whether a manifest is of an API group that has no kind of ours: a Service beside a set, say. It is no business of a
/// plan.
fn is_of_others(manifest: &Value) -> bool {
    let version = manifest["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    kind::KINDS.iter().all(|served| served.kind.group != group)
}

/// How many replicas change beside an upgrade: the table counts the new number from the beginning.
fn scaled(old: &Value, new: &Value) -> Option<String> {
    let replicas = |it: &Value| api::defaulted(it).ok()?["spec"]["replicas"].as_u64();
    let (old, new) = (replicas(old)?, replicas(new)?);
    (old != new)
        .then(|| format!("replicas change from {old} to {new}; the table counts {new} from the start"))
}

/// Whether two manifests are of one object.
fn is_same_object(one: &Value, other: &Value) -> bool {
    let id = |it: &Value| {
        let metadata = &it["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("default").to_owned();
        (it["apiVersion"].clone(), it["kind"].clone(), namespace, metadata["name"].clone())
    };
    id(one) == id(other)
}

/// Shows one upgrade. Returns whether it would be carried out as shown, to its end.
fn show(
    manifest: &Value,
    old: Option<&Value>,
    verdict: &Verdict,
    assumptions: &Assumptions,
    output: Format,
) -> Result<bool, Error> {
    let title = manifest::title(manifest);
    let Some(served) = manifest["kind"].as_str().and_then(kind::named) else {
        return Err(Error::NoPlan(format!("{title}: unknown kind")));
    };
    let planned = Planned::of(served, manifest, old, verdict, assumptions)
        .map_err(|why| Error::NoPlan(format!("{title}: {why}")))?;
    match &planned.steps {
        Ok(rehearsal) => {
            let timetable = Timetable { title: &title, rehearsal };
            output::print(&match output {
                Format::Table => timetable.text(),
                Format::Json => output::json(&timetable.json())?,
                Format::Svg => picture::svg(&timetable),
            })?;
        }
        Err(why) => say(output, &format!("{title}: {why}")),
    }
    if let Some(note) = old.and_then(|old| scaled(old, manifest)).filter(|_| planned.steps.is_ok()) {
        eprintln!("note: {title}: {note}");
    }
    for line in &planned.not_acted_on {
        eprintln!("not acted on: {title}: {line}");
    }
    Ok(planned.is_carried_out())
}

/// The plan of one upgrade.
#[derive(Debug)]
struct Planned {
    /// The steps, or the sentence that says why there are none.
    steps: Result<Rehearsal, String>,
    /// Whether the upgrade ends with the new version, or as it was called off. One without steps ends, unless the operator
    /// does nothing for the object.
    ends: bool,
    /// The fields of the manifest that have no effect, each with what happens instead. None repeats why there are no
    /// steps.
    not_acted_on: Vec<String>,
}

impl Planned {
    /// Plans an upgrade to a manifest that admission accepted with this verdict. Fails with the reason when the kind
    /// cannot rehearse what was asked for.
    fn of(
        served: &Served,
        manifest: &Value,
        old: Option<&Value>,
        verdict: &Verdict,
        assumptions: &Assumptions,
    ) -> Result<Self, String> {
        let mut not_acted_on = (served.not_acted_on)(manifest);
        not_acted_on.extend(verdict.ignored.iter().cloned());
        let (steps, ends) = match (served.plan)(manifest, old, assumptions) {
            Ok(rehearsal) => {
                is_called_off_in_time(served, manifest, old, assumptions)?;
                let ends = rehearsal.ends && rehearsal.failure.is_none();
                (Ok(rehearsal), ends)
            }
            Err(NoPlan::Nothing(why) | NoPlan::AtOnce(why)) => (Err(why), true),
            Err(NoPlan::NotServed(why)) => {
                not_acted_on.retain(|line| line != why);
                (Err(why.to_owned()), false)
            }
            Err(NoPlan::Unsupported(why)) => return Err(why),
        };
        Ok(Self { steps, ends, not_acted_on })
    }

    /// Whether all of what the manifest asks for is done, to the end of the upgrade.
    fn is_carried_out(&self) -> bool {
        self.ends && self.not_acted_on.is_empty()
    }
}

/// Fails where an upgrade is to be rolled back when it has ended already.
fn is_called_off_in_time(
    served: &Served,
    manifest: &Value,
    old: Option<&Value>,
    assumptions: &Assumptions,
) -> Result<(), String> {
    let Some(at) = assumptions.called_off.map(|at| at.as_secs()) else { return Ok(()) };
    let whole = (served.plan)(manifest, old, &Assumptions { called_off: None, ..*assumptions });
    match whole.ok().filter(|whole| whole.ends).map(|whole| whole.seconds()) {
        Some(end) if end <= at => Err(format!(
            "--rollback-at is {at}, and the upgrade ends after {end} s; use a number below {end}"
        )),
        _ => Ok(()),
    }
}

/// Says something where no steps are shown.
fn say(output: Format, line: &str) {
    match output {
        Format::Table => println!("{line}"),
        // What programs read has steps and nothing else.
        Format::Json | Format::Svg => eprintln!("{line}"),
    }
}

/// Prints the reasons of a refusal.
fn judged(manifest: &Value, verdict: Verdict) -> Verdict {
    if !verdict.accepted() {
        eprintln!("{}: refused", manifest::title(manifest));
        verdict.violations.iter().for_each(|violation| eprintln!("  {violation}"));
    }
    verdict
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::toy;

    const ASSUMPTIONS: Assumptions =
        Assumptions { start: Duration::from_secs(30), stop: Duration::from_secs(10), called_off: None };

    /// A kind that was added is planned by its description alone.
    #[test]
    fn a_kind_that_was_added_answers() {
        let note = json!({"apiVersion": "test.segue.dev/v1", "kind": "Note", "metadata": {"name": "x"}});
        let planned = Planned::of(&toy::SERVED, &note, None, &Verdict::default(), &ASSUMPTIONS).unwrap();
        assert_eq!(planned.steps.as_ref().unwrap_err(), "a note is not rolled out");
        assert!(planned.is_carried_out(), "{planned:?}");
        let ignored = vec!["spec.text: nobody reads it".to_owned()];
        let verdict = Verdict { ignored, ..Verdict::default() };
        let planned = Planned::of(&toy::SERVED, &note, None, &verdict, &ASSUMPTIONS).unwrap();
        assert_eq!(planned.not_acted_on, ["spec.text: nobody reads it"]);
        assert!(!planned.is_carried_out(), "{planned:?}");
    }
}
