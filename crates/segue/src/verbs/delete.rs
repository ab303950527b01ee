use std::time::Duration;

use clap::{ArgAction, Args as ClapArgs};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    client::{Ask, Cluster, Reach},
    documents::Document,
    failure::Failure,
    object::{Named, Target},
};
use crate::output::{Answer, Error, Format, Report};

/// Delete objects, and wait until they are gone.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue delete pod/web
  segue delete pod web api -n serving
  segue delete -f service.yaml
  segue delete rayservice/chat --wait=false

Objects of files are deleted in the opposite order. While it waits, what holds an object is told on standard error.
Exit code 1 when an object is not there or not gone in time, 2 when the API could not be asked.")]
pub(crate) struct Args {
    /// KIND/NAME ..., or KIND NAME ...
    #[arg(value_name = "KIND/NAME", required_unless_present = "file")]
    what: Vec<String>,
    /// What a file, a folder or - for standard input says; may be given more than once
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "what")]
    file: Vec<String>,
    /// Wait until the objects are gone
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    wait: bool,
    /// How long to wait for all of them, as in 30s or 5m; by default, for as long as it takes
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Do not mind if an object is not there
    #[arg(long)]
    ignore_not_found: bool,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    super::run(delete(args))
}

/// An object that was asked to go.
struct Leaving {
    target: Target,
    uid: String,
}

async fn delete(args: &Args) -> Result<Answer, Failure> {
    let documents = Document::read_all(&args.file)?;
    let named = Named::read(&args.what)?;
    if let Some(nameless) = named.iter().find(|one| one.name.is_none()) {
        let kind = &nameless.kind;
        return Err(Failure::usage(format!(
            "which of them? name it, as in {kind}/NAME; `segue get {kind}` lists them"
        )));
    }
    let cluster = Cluster::reach(&args.reach).await?;
    let mut report = Report::new(args.output);
    let mut targets = Vec::new();
    for one in named {
        let served = cluster.kind_called(&one.kind).await?;
        let name = one.name.unwrap_or_default();
        targets.push(Target { served, namespace: cluster.namespace.clone(), name });
    }
    for document in documents.iter().rev() {
        let (group, version) = document.group_and_version();
        let kinds = cluster.kinds_of(group, version).await?;
        match kinds.into_iter().find(|kind| kind.kind == document.kind()) {
            Some(served) => match document.target(served, &cluster, args.reach.namespace.as_ref()) {
                Ok(target) => targets.push(target),
                Err(why) => document.refuse(&mut report, &why, &Value::Null),
            },
            None if args.ignore_not_found => {}
            None => document.refuse(&mut report, "kind: the server does not serve it", &Value::Null),
        }
    }
    let leaving = ask_to_go(&cluster, targets, args, &mut report).await?;
    if !args.wait {
        for one in leaving {
            report.done(&one.target.title(), "deleting", "")?;
        }
        return Ok(report.finish()?);
    }
    let mut held = String::new();
    let waiting = wait(&cluster, &leaving, &mut report, &mut held);
    match args.timeout {
        None => waiting.await?,
        Some(limit) => {
            if let Ok(waited) = timeout(limit, waiting).await {
                waited?;
            } else {
                report.refused(
                    &held,
                    &format!("not gone after {}s; it is leaving still", limit.as_secs()),
                    &Value::Null,
                );
            }
        }
    }
    Ok(report.finish()?)
}

async fn ask_to_go(
    cluster: &Cluster,
    targets: Vec<Target>,
    args: &Args,
    report: &mut Report,
) -> Result<Vec<Leaving>, Failure> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    let mut leaving = Vec::new();
    for target in targets {
        let ask = Ask {
            method: Method::DELETE,
            path: target.path(),
            content: Some("application/json"),
            body: options.to_string().into_bytes(),
            ..Ask::default()
        };
        let answered = cluster.ask(ask).await?;
        match answered.code {
            code if code.is_success() => {
                // Either the object as it leaves, or a `Status` about it.
                let uid = answered.body["metadata"]["uid"].as_str();
                let uid = uid.or_else(|| answered.body["details"]["uid"].as_str());
                let uid = uid.unwrap_or_default().to_owned();
                leaving.push(Leaving { target, uid });
            }
            StatusCode::NOT_FOUND if args.ignore_not_found => {}
            StatusCode::NOT_FOUND => {
                let why = format!("there is none{}", target.place());
                report.refused(&target.title(), &why, &answered.body);
            }
            _ => report.refused(&target.title(), &answered.message(), &answered.body),
        }
    }
    Ok(leaving)
}

/// Tells of each when it is gone; `held` is the one that is waited for.
async fn wait(
    cluster: &Cluster,
    leaving: &[Leaving],
    report: &mut Report,
    held: &mut String,
) -> Result<(), Failure> {
    for Leaving { target, uid } in leaving {
        let title = target.title();
        held.clone_from(&title);
        let mut told = String::new();
        let gone = |object: Option<&Value>| {
            let there = object.filter(|object| uid.is_empty() || object["metadata"]["uid"] == uid.as_str());
            let Some(object) = there else { return true };
            let why = format!("{title}: waiting until it is gone{}", holding(object));
            if told != why {
                eprintln!("{why}");
                told = why;
            }
            false
        };
        cluster.watch_until(target, gone).await?;
        report.done(&title, "deleted", "")?;
    }
    Ok(())
}

/// What keeps an object that is leaving.
fn holding(object: &Value) -> String {
    let meta = &object["metadata"];
    // A namespace has some in its spec, too.
    let lists = [&meta["finalizers"], &object["spec"]["finalizers"]];
    let finalizers = lists.into_iter().filter_map(Value::as_array).flatten();
    let finalizers: Vec<&str> = finalizers.filter_map(Value::as_str).collect();
    if !finalizers.is_empty() {
        return format!("; held by the finalizers {}", finalizers.join(", "));
    }
    match meta["deletionGracePeriodSeconds"].as_i64() {
        Some(seconds) if seconds > 0 => format!("; it has {seconds}s to end"),
        _ => String::new(),
    }
}

/// `30s`, `5m`, `1h`; a number alone is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let seconds = match &text[number.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        unit => return Err(format!("the unit {unit:?} is not known; there are s, m and h")),
    };
    let number: u64 = number.parse().map_err(|_| "a number and a unit are expected, as in 30s".to_owned())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| "that is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, seconds) in [("30s", 30), ("5m", 300), ("1h", 3600), ("7", 7)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "s", "5d", "-1s", "99999999999999999999h", "9999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_holds_an_object_is_named() {
        let object = json!({"metadata": {"finalizers": ["a/b", "c/d"], "deletionGracePeriodSeconds": 30}});
        assert_eq!(holding(&object), "; held by the finalizers a/b, c/d");
        assert_eq!(holding(&json!({"metadata": {"deletionGracePeriodSeconds": 5}})), "; it has 5s to end");
        assert_eq!(holding(&json!({"metadata": {}})), "");
    }
}
