use std::time::Duration;

use api::rayservice::{IncrementalUpgradeOptions, RayService};
use clap::Args as ClapArgs;
use planner::granted::{self, Moment, Pace};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    manifest,
    output::{self, Answer, Error, Format},
};

/// Show what an upgrade would do, step by step, before it happens.
#[derive(ClapArgs)]
#[command(after_help = "Example:
  segue plan -f examples/rayservice-incremental-upgrade/rayservice.yaml --start-seconds 60

The times are those of a rehearsal: new capacity is taken to be ready --start-seconds after it is asked for.
Today RayServices with an incremental upgrade are rehearsed.")]
pub(crate) struct Args {
    /// The manifest, or - for standard input
    #[arg(short, long = "file", value_name = "FILE")]
    file: String,
    /// How long new capacity takes to be ready
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    start_seconds: u32,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { file, start_seconds, output } = args;
    let mut refused = false;
    for manifest in manifest::read(file)? {
        let verdict = api::validate(&manifest, None);
        if !verdict.accepted() {
            refused = true;
            eprintln!("{}: refused", manifest::title(&manifest));
            verdict.violations.iter().for_each(|violation| eprintln!("  {violation}"));
            continue;
        }
        let options = incremental(&manifest)?;
        let pace = pace(&options).ok_or_else(|| Error::NotYet("the upgrade could never end".into()))?;
        let moments = granted::rehearse(pace, Duration::from_secs(u64::from(*start_seconds)));
        let text = match output {
            Format::Table => table(&manifest::title(&manifest), &options, *start_seconds, &moments),
            Format::Json => output::json(&moments.iter().map(object).collect())?,
        };
        output::print(&text)?;
    }
    Ok(if refused { Answer::No } else { Answer::Yes })
}

/// The options of an incremental upgrade, with everything filled in.
fn incremental(manifest: &Value) -> Result<IncrementalUpgradeOptions, Error> {
    let not_yet = || {
        Error::NotYet(format!(
            "{}: no rehearsal for this kind and strategy yet; RayServices with an incremental upgrade have one",
            manifest::title(manifest)
        ))
    };
    if manifest["kind"] != "RayService" {
        return Err(not_yet());
    }
    let filled = api::defaulted(manifest).map_err(|violation| Error::NotYet(violation.to_string()))?;
    let service = RayService::deserialize(filled).map_err(|error| Error::NotYet(error.to_string()))?;
    service.spec.upgrade_strategy.and_then(|strategy| strategy.incremental().cloned()).ok_or_else(not_yet)
}

fn pace(options: &IncrementalUpgradeOptions) -> Option<Pace> {
    let interval = Duration::from_secs(u64::try_from(options.interval_seconds).ok()?);
    let surge = u32::try_from(options.max_surge_percent).ok()?;
    let step = u32::try_from(options.step_size_percent).ok()?;
    Pace::new(surge, step, interval)
}

fn table(title: &str, options: &IncrementalUpgradeOptions, start: u32, moments: &[Moment]) -> String {
    let mut text = format!(
        "{title}: surge {}%, step {}%, every {}s; new capacity is ready after {start}s\n\n\
         {:>8}  {:>8} {:>8}  {:>8} {:>8}  {}\n\
         {:>8}  {:>8} {:>8}  {:>8} {:>8}\n",
        options.max_surge_percent,
        options.step_size_percent,
        options.interval_seconds,
        "AT",
        "OLD",
        "OLD",
        "NEW",
        "NEW",
        "BECAUSE",
        "",
        "CAPACITY",
        "TRAFFIC",
        "CAPACITY",
        "TRAFFIC",
    );
    for Moment { at, old, new, reason } in moments {
        text += &format!(
            "{:>7}s  {:>7}% {:>7}%  {:>7}% {:>7}%  {reason}\n",
            at.as_secs(),
            old.capacity,
            old.weight,
            new.capacity,
            new.weight,
        );
    }
    let peak = moments.iter().map(|m| m.old.capacity + m.new.capacity).max().unwrap_or(100);
    let total = moments.last().map_or(0, |m| m.at.as_secs());
    text + &format!("\npeak {peak}% of the capacity, {total}s in all\n")
}

fn object(moment: &Moment) -> Value {
    let side = |side: &granted::Side| json!({"capacity": side.capacity, "weight": side.weight});
    json!({
        "at": moment.at.as_secs(),
        "old": side(&moment.old),
        "new": side(&moment.new),
        "reason": moment.reason.to_string(),
    })
}
