//! What an object is doing, and what it waits for.

mod answer;
mod observation;
mod print;
mod status;

use clap::Args as ClapArgs;
use controllers::kind::Served;
use jiff::Timestamp;
use serde_json::Value;

use self::{
    answer::State,
    observation::{Child, Observation},
};
use super::{
    client::{ApiRequest, with_query},
    failure::Failure,
    rollout::{About, Subject, known},
};
use crate::output::{self, Answer, Error, Format};

/// Explain what an object is doing, what it waits for, until when, and what happens then
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue why modelserving/pd
  segue why lws/ray -n serving
  segue why modeldeployment/chat -o json

Reads the status, the pods that are not ready, and the latest events. Exit codes: 0 the object is up to date, 1 it is \
changing, waiting, failed, aborted, paused or not reconciled, 2 no answer from the API. With -o json, `state` is one of Idle, Working, \
Stalled, Failed, Aborted, Paused, NotSeen, NotAdopted, Deleting.")]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
}

/// Pods whose events are told: those of the others say the same.
const PODS_WITH_EVENTS: usize = 2;

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    super::run(explain(args))
}

async fn explain(args: &Args) -> Result<Answer, Failure> {
    let subject = Subject::find(&args.about, &known().collect::<Vec<_>>()).await?;
    let why = observe(subject).await?.explain();
    match args.about.output {
        Format::Json => {
            let why = serde_json::to_value(&why).map_err(|error| Failure::usage(error.to_string()))?;
            output::print(&output::json(&why)?)?;
        }
        Format::Table => output::print(&print::text(&why))?,
    }
    Ok(if why.state == State::Idle { Answer::Yes } else { Answer::No })
}

/// Everything that an answer follows from.
async fn observe(subject: Subject) -> Result<Observation, Failure> {
    let target = &subject.target;
    let selector = format!("{}={}", subject.served.label, target.name);
    let inside = |root: &str, plural: &str| format!("{root}/namespaces/{}/{plural}", target.namespace);
    let pods = subject.list(&inside("/api/v1", "pods"), ("labelSelector", &selector)).await?;
    let pods = pods.into_iter().filter_map(|pod| serde_json::from_value(pod).ok()).collect();
    let mut children = Vec::new();
    for served in parts(subject.served) {
        let path = inside(&format!("/apis/{}", served.kind.api_version()), served.kind.plural);
        let objects = subject.list(&path, ("labelSelector", &selector)).await?;
        children.extend(objects.into_iter().map(|object| Child { served, object }));
    }
    let is_not_adopted = subject.is_not_adopted().await;
    let mut observation = Observation {
        served: subject.served,
        is_not_adopted,
        title: target.title(),
        namespace: target.namespace.clone(),
        object: subject.object.clone(),
        children,
        pods,
        events: Vec::new(),
        now: now(),
    };
    let events = inside("/apis/events.k8s.io/v1", "events");
    for uid in observation.event_subjects().into_iter().take(1 + PODS_WITH_EVENTS) {
        let about = format!("regarding.uid={uid}");
        match subject.list(&events, ("fieldSelector", &about)).await {
            Ok(events) => observation.events.extend(events),
            // An answer without them is better than none.
            Err(Failure::Refused(why)) => eprintln!("note: failed to read events: {why}"),
            Err(failure) => return Err(failure),
        }
    }
    Ok(observation)
}

/// The kinds that objects of a kind are made of.
fn parts(served: &Served) -> impl Iterator<Item = &'static Served> {
    let is_part = |it: &&'static Served| served.needs.iter().any(|kind| std::ptr::eq(*kind, it.kind));
    known().filter(is_part)
}

fn now() -> Timestamp {
    let since = (controllers::Clock::default().wall)();
    Timestamp::from_second(i64::try_from(since.as_secs()).unwrap_or_default()).unwrap_or_default()
}

impl Subject {
    /// The objects at a path that a selector selects.
    async fn list(&self, path: &str, selector: (&str, &str)) -> Result<Vec<Value>, Failure> {
        let list = self.cluster.ask(ApiRequest::get(with_query(path, &[selector]))).await?.into_body()?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }
}
