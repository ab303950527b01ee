use std::time::Duration;

use clap::{ArgAction, Args as ClapArgs};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    client::{ApiRequest, Cluster, Connection},
    documents::Document,
    failure::Failure,
    target::{Named, Target},
};
use crate::output::{Answer, Error, Format, Report};

/// Delete objects, and wait until they are gone
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue delete pod/web
  segue delete pod web api -n serving
  segue delete -f service.yaml
  segue delete modeldeployment/chat --wait=false

The objects of a file are deleted in reverse order. Exit codes: 0 deleted, 1 an object was not found, refused or not deleted \
in time, 2 no answer from the API.")]
pub(crate) struct Args {
    /// What to delete, as KIND/NAME ... or KIND NAME ...
    #[arg(value_name = "KIND/NAME", required_unless_present = "file")]
    what: Vec<String>,
    /// Delete the objects of a file, of a folder, or of - for standard input; may be repeated
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "what")]
    file: Vec<String>,
    /// Wait until the objects are gone
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    wait: bool,
    /// The longest wait for all objects, as in 30s or 5m [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Do not fail if an object is not found
    #[arg(long)]
    ignore_not_found: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    connection: Connection,
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
            "name the object, as in {kind}/NAME; to list them: segue get {kind}"
        )));
    }
    let cluster = Cluster::connect(&args.connection).await?;
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
            Some(served) => match document.target(served, &cluster, args.connection.namespace.as_ref()) {
                Ok(target) => targets.push(target),
                Err(why) => document.refuse(&mut report, &why, &Value::Null),
            },
            None if args.ignore_not_found => {}
            None => document.refuse(&mut report, "kind: the server does not serve this kind", &Value::Null),
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
                    &format!("not deleted after {} s; the deletion continues", limit.as_secs()),
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
        let ask = ApiRequest {
            method: Method::DELETE,
            path: target.path(),
            content: Some("application/json"),
            body: options.to_string().into_bytes(),
            ..ApiRequest::default()
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
                let why = format!("not found{}", target.place());
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
            let why = format!("{title}: waiting for its deletion{}", holding(object));
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
        return format!("; finalizers: {}", finalizers.join(", "));
    }
    match meta["deletionGracePeriodSeconds"].as_i64() {
        Some(seconds) if seconds > 0 => format!("; its grace period is {seconds} s"),
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
        unit => return Err(format!("unknown suffix {unit}; allowed are s, m and h")),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number with s, m or h, as in 30s".to_owned())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| "the duration is too long".to_owned())
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
        assert_eq!(holding(&object), "; finalizers: a/b, c/d");
        assert_eq!(
            holding(&json!({"metadata": {"deletionGracePeriodSeconds": 5}})),
            "; its grace period is 5 s"
        );
        assert_eq!(holding(&json!({"metadata": {}})), "");
    }
}
