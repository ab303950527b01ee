//! The rehearsal of an upgrade.

mod leaderworkerset;
mod modeldeployment;
mod modelserving;
mod picture;
mod rayservice;
mod resources;
mod timetable;

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::Value;

use self::timetable::Timetable;
use crate::{
    manifest,
    output::{self, Answer, Error},
};

/// Show what an upgrade would do, step by step, before it happens.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue plan -f examples/rayservice-incremental-upgrade/rayservice.yaml
  segue plan -f examples/backendai-model-service-deployment/canary.yaml --start-seconds 120
  segue plan -f service.yaml --rollback-at 90          the same, called off after 90 seconds
  segue plan -f service.yaml -o svg > upgrade.svg      a picture of capacity and traffic

The steps come from the functions that will make them; only the times are assumed. Exit code 1 when the manifest is
refused or the upgrade would never end.")]
pub(crate) struct Args {
    /// The manifest to upgrade to, or - for standard input
    #[arg(short, long = "file", value_name = "FILE")]
    file: String,
    /// The manifest that runs now; the new one, an older version of it, if absent
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// How long new capacity takes to be ready
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    start_seconds: u32,
    /// How long old capacity takes to be gone after it left service
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    stop_seconds: u32,
    /// Call the upgrade off after so long
    #[arg(long, value_name = "SECONDS")]
    rollback_at: Option<u32>,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Svg,
}

/// What is assumed of the world.
pub(crate) struct Assumptions {
    pub(crate) start: Duration,
    pub(crate) stop: Duration,
    pub(crate) called_off: Option<Duration>,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { file, from, start_seconds, stop_seconds, rollback_at, output } = args;
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    let assumptions = Assumptions {
        start: seconds(*start_seconds),
        stop: seconds(*stop_seconds),
        called_off: rollback_at.map(seconds),
    };
    let old =
        from.as_deref().map(manifest::read).transpose()?.and_then(|manifests| manifests.into_iter().next());
    let mut answer = Answer::Yes;
    for manifest in manifest::read(file)? {
        if !is_accepted(&manifest) || old.as_ref().is_some_and(|old| !is_accepted(old)) {
            answer = Answer::No;
            continue;
        }
        let timetable = timetable(&manifest, old.as_ref(), &assumptions)?;
        if !timetable.ends {
            answer = Answer::No;
        }
        output::print(&match output {
            Format::Table => timetable.text(),
            Format::Json => output::json(&timetable.json())?,
            Format::Svg => picture::svg(&timetable),
        })?;
    }
    Ok(answer)
}

/// Whether admission would take it; says why not.
fn is_accepted(manifest: &Value) -> bool {
    let verdict = api::validate(manifest, None);
    if !verdict.accepted() {
        eprintln!("{}: refused", manifest::title(manifest));
        verdict.violations.iter().for_each(|violation| eprintln!("  {violation}"));
    }
    verdict.accepted()
}

fn timetable(manifest: &Value, old: Option<&Value>, assumptions: &Assumptions) -> Result<Timetable, Error> {
    match manifest["kind"].as_str() {
        Some("RayService") => rayservice::timetable(manifest, old, assumptions),
        Some("ModelDeployment") => modeldeployment::timetable(manifest, old, assumptions),
        Some("LeaderWorkerSet") => leaderworkerset::timetable(manifest, old, assumptions),
        Some("ModelServing") => modelserving::timetable(manifest, old, assumptions),
        _ => Err(Error::NoPlan(format!(
            "{}: nothing is rolled out: a RayCluster is upgraded by its RayService",
            manifest::title(manifest)
        ))),
    }
}

/// A manifest as its type, with everything filled in.
fn typed<T: serde::de::DeserializeOwned>(manifest: &Value) -> Result<T, Error> {
    let filled = api::defaulted(manifest).map_err(|violation| Error::NoPlan(violation.to_string()))?;
    T::deserialize(filled).map_err(|error| Error::NoPlan(error.to_string()))
}
