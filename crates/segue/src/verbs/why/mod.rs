//! What an object is doing, and what it waits for.

mod print;
mod read;

use clap::Args as ClapArgs;
use jiff::Timestamp;
use serde_json::Value;

use self::read::{Seen, State};
use super::{
    Reach,
    client::{Ask, with_query},
    failure::Failure,
    rollout::Subject,
};
use crate::output::{self, Answer, Error, Format};

/// Say what an object is doing, what it waits for, since when, until when, and what happens then.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue why modelserving/pd
  segue why lws/ray -n serving
  segue why modeldeployment/chat -o json

For ModelServing, LeaderWorkerSet and ModelDeployment: from their status, the pods that do not serve, and the latest events.

Exit codes: 0 nothing is left to do, 1 something is (it works, waits, is held, or nobody looks after it), 2 it could not be
asked. With -o json, `state` tells these apart: Idle, Working, Stalled, Paused, NotSeen, Deleting.")]
pub(crate) struct Args {
    /// KIND/NAME
    #[arg(value_name = "KIND/NAME", required = true)]
    what: Vec<String>,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

/// The kinds that can be asked, and the label by which their pods are found.
const KINDS: [(&str, &str); 3] = [
    ("ModelServing", "modelserving.volcano.sh/name"),
    ("LeaderWorkerSet", "leaderworkerset.sigs.k8s.io/name"),
    ("ModelDeployment", "segue.dev/model-deployment"),
];

/// Pods whose events are told: those of the others say the same.
const PODS_WITH_EVENTS: usize = 2;

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    super::run(explain(args))
}

async fn explain(args: &Args) -> Result<Answer, Failure> {
    let subject = Subject::find(&args.reach, &args.what, &KINDS.map(|(kind, _)| kind)).await?;
    let why = look(subject).await?.explain();
    match args.output {
        Format::Json => {
            let why = serde_json::to_value(&why).map_err(|error| Failure::usage(error.to_string()))?;
            output::print(&output::json(&why)?)?;
        }
        Format::Table => output::print(&print::text(&why))?,
    }
    Ok(if why.state == State::Idle { Answer::Yes } else { Answer::No })
}

/// Everything that an answer follows from.
async fn look(subject: Subject) -> Result<Seen, Failure> {
    let target = &subject.target;
    let label = KINDS.iter().find(|(kind, _)| *kind == target.served.kind).map_or("", |(_, label)| label);
    let selector = format!("{label}={}", target.name);
    let inside = |root: &str, plural: &str| format!("{root}/namespaces/{}/{plural}", target.namespace);
    let pods = subject.list(&inside("/api/v1", "pods"), ("labelSelector", &selector)).await?;
    let pods = pods.into_iter().filter_map(|pod| serde_json::from_value(pod).ok()).collect();
    let sets = if target.served.kind == "ModelDeployment" {
        let sets = inside("/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets");
        subject.list(&sets, ("labelSelector", &selector)).await?
    } else {
        Vec::new()
    };
    let mut seen = Seen {
        title: target.title(),
        namespace: target.namespace.clone(),
        object: subject.object.clone(),
        sets,
        pods,
        events: Vec::new(),
        now: now(),
    };
    let events = inside("/apis/events.k8s.io/v1", "events");
    for uid in seen.told_of().into_iter().take(1 + PODS_WITH_EVENTS) {
        let about = format!("regarding.uid={uid}");
        match subject.list(&events, ("fieldSelector", &about)).await {
            Ok(events) => seen.events.extend(events),
            // An answer without them is better than none.
            Err(Failure::Refused(why)) => eprintln!("events are left out: {why}"),
            Err(failure) => return Err(failure),
        }
    }
    Ok(seen)
}

fn now() -> Timestamp {
    let since = (controllers::Settings::default().clock)();
    Timestamp::from_second(i64::try_from(since.as_secs()).unwrap_or_default()).unwrap_or_default()
}

impl Subject {
    /// The objects at a path that a selector selects.
    async fn list(&self, path: &str, selector: (&str, &str)) -> Result<Vec<Value>, Failure> {
        let list = self.cluster.ask(Ask::get(with_query(path, &[selector]))).await?.granted()?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }
}
