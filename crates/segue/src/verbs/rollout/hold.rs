use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::{HELD, KINDS, Subject};
use crate::{
    output::{Answer, Error, Format, Report},
    verbs::{Reach, failure::Failure},
};

/// `pause` or `resume`
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue pause leaderworkerset/ray
  segue resume modelserving/pd

It is held by the partition of its groups: what is of the old revision stays, what is of the new one stays too, and what
fails is made again as it was. A ModelServing whose roles are updated by themselves (RoleRollingUpdate) has a partition for
each role, and cannot be held so.")]
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

type Change = fn(&Value, &str) -> Result<Value, String>;

async fn change(args: &Args, patch: Change, what: &str) -> Result<Answer, Failure> {
    let subject = Subject::find(&args.reach, &args.what, &KINDS).await?;
    let title = subject.target.title();
    let patch = patch(&subject.object, subject.shape().rolls);
    subject.change(patch.map_err(|why| Failure::Refused(format!("{title}: {why}")))?).await?;
    let mut report = Report::new(args.output);
    report.done(&title, what, "")?;
    Ok(report.finish()?)
}

/// No group has a place that high: none is replaced.
fn held(object: &Value, rolls: &str) -> Result<Value, String> {
    if object["metadata"]["annotations"][HELD].is_string() {
        return Err("it is held already; `segue resume` lets it go on".to_owned());
    }
    let (spec, strategy) = (&object["spec"], &object["spec"]["rolloutStrategy"]);
    let ty = strategy["type"].as_str().unwrap_or(rolls);
    if ty != rolls {
        return Err(format!("it is updated by {ty}; set the partition of each role in spec.template.roles"));
    }
    let partition = &strategy["rollingUpdateConfiguration"]["partition"];
    let before = if partition.is_null() { json!(0) } else { partition.clone() };
    let replicas = spec["replicas"].as_u64().unwrap_or(1);
    let all = replicas.max(before.as_u64().unwrap_or_default());
    Ok(change_partition(&json!(all), Some(&before.to_string()), rolls))
}

fn released(object: &Value, rolls: &str) -> Result<Value, String> {
    let before = object["metadata"]["annotations"][HELD].as_str();
    let before: Option<Value> = before.and_then(|text| serde_json::from_str(text).ok());
    before.map(|before| change_partition(&before, None, rolls)).ok_or_else(|| "it is not held".to_owned())
}

fn change_partition(partition: &Value, remembered: Option<&str>, rolls: &str) -> Value {
    json!({
        "metadata": {"annotations": {HELD: remembered}},
        "spec": {"rolloutStrategy": {
            "type": rolls, "rollingUpdateConfiguration": {"partition": partition},
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(patch: &Value) -> Value {
        patch["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"].clone()
    }

    #[test]
    fn what_is_held_goes_on_where_it_was() {
        for before in [json!(1), json!("50%"), json!(7)] {
            let mut object = json!({"metadata": {"annotations": {}}, "spec": {"replicas": 3, "rolloutStrategy": {
                "rollingUpdateConfiguration": {"partition": before},
            }}});
            let patch = held(&object, "Rolls").unwrap();
            assert_eq!(partition(&patch), json!(before.as_u64().unwrap_or(3).max(3)));
            assert!(released(&object, "Rolls").is_err());
            object["metadata"]["annotations"][HELD] = patch["metadata"]["annotations"][HELD].clone();
            assert!(held(&object, "Rolls").is_err());
            let patch = released(&object, "Rolls").unwrap();
            assert_eq!((partition(&patch), &patch["metadata"]["annotations"][HELD]), (before, &Value::Null));
        }
    }

    #[test]
    fn roles_that_are_updated_by_themselves_have_partitions_of_their_own() {
        let roles = json!({"spec": {"rolloutStrategy": {"type": "RoleRollingUpdate"}}});
        let why = held(&roles, "ServingGroupRollingUpdate").unwrap_err();
        assert!(why.contains("RoleRollingUpdate") && why.contains("spec.template.roles"), "{why}");
    }
}
