use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::{KINDS, Subject, set::HELD};
use crate::{
    output::{Answer, Error, Format, Report},
    verbs::{Reach, failure::Failure},
};

/// `pause` or `resume`
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue pause leaderworkerset/ray
  segue resume leaderworkerset/ray

A set is held by its partition: what is of the old revision stays, what is of the new one stays too, and groups that fail are
made again as they were.")]
pub(crate) struct Args {
    /// KIND/NAME
    #[arg(value_name = "KIND/NAME", required = true)]
    what: Vec<String>,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn pause(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(change(args, held, "is held"))
}

pub(crate) fn resume(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(change(args, released, "goes on"))
}

async fn change(
    args: &Args,
    patch: fn(&Value) -> Result<Value, &'static str>,
    what: &str,
) -> Result<Answer, Failure> {
    let subject = Subject::find(&args.reach, &args.what, &KINDS).await?;
    let title = subject.target.title();
    let patch = patch(&subject.object).map_err(|why| Failure::Refused(format!("{title}: {why}")))?;
    subject.change(patch).await?;
    let mut report = Report::new(args.output);
    report.done(&title, what, "")?;
    Ok(report.finish()?)
}

/// No group has a place that high: none is replaced.
fn held(set: &Value) -> Result<Value, &'static str> {
    if set["metadata"]["annotations"][HELD].is_string() {
        return Err("it is held already; `segue resume` lets it go on");
    }
    let spec = &set["spec"];
    let partition = &spec["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"];
    let before = partition.as_u64().unwrap_or_default();
    let replicas = spec["replicas"].as_u64().unwrap_or(1);
    Ok(change_partition(replicas.max(before), Some(&before.to_string())))
}

fn released(set: &Value) -> Result<Value, &'static str> {
    let before = set["metadata"]["annotations"][HELD].as_str().and_then(|text| text.parse().ok());
    before.map(|before| change_partition(before, None)).ok_or("it is not held")
}

fn change_partition(partition: u64, remembered: Option<&str>) -> Value {
    json!({
        "metadata": {"annotations": {HELD: remembered}},
        "spec": {"rolloutStrategy": {
            "type": "RollingUpdate", "rollingUpdateConfiguration": {"partition": partition},
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_goes_on_where_it_was() {
        let mut set = json!({"metadata": {"annotations": {}}, "spec": {"replicas": 3, "rolloutStrategy": {
            "rollingUpdateConfiguration": {"partition": 1},
        }}});
        let patch = held(&set).unwrap();
        let partition = |patch: &Value| {
            patch["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"].clone()
        };
        assert_eq!(partition(&patch), json!(3));
        assert!(released(&set).is_err());
        set["metadata"]["annotations"][HELD] = patch["metadata"]["annotations"][HELD].clone();
        assert!(held(&set).is_err());
        let patch = released(&set).unwrap();
        assert_eq!((partition(&patch), &patch["metadata"]["annotations"][HELD]), (json!(1), &Value::Null));
    }
}
