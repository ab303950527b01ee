use clap::Args as ClapArgs;
use controllers::{
    kind::{Revisioned, Served},
    request::verbs,
};
use serde_json::{Value, json};

use super::{About, PARTITION_BEFORE_PAUSE, Subject, kinds, request};
use crate::{
    output::{Answer, Error, Report},
    verbs::failure::Failure,
};

/// The help of `segue pause` below its options.
pub(crate) fn pause_help() -> String {
    let rolls = holdable().into_iter().filter_map(|served| {
        held_type(served.revisions).map(|rolls| format!("{rolls} of a {}", served.kind.name))
    });
    let types: Vec<String> = rolls.collect();
    format!(
        "{}Paused by their controllers: {}. Of the other kinds ({}), the partition is set so that no further group is \
         replaced; `segue resume` sets it back. Old and new groups keep serving, and a group that fails is recreated at \
         its revision. The types of rollout that have such a partition: {}.",
        examples(verbs::PAUSE),
        named(&request::takers(verbs::PAUSE)),
        named(&holdable()),
        types.join(", "),
    )
}

/// The help of `segue resume` below its options.
pub(crate) fn resume_help() -> String {
    let (partitions, takers) = (named(&holdable()), named(&request::takers(verbs::RESUME)));
    format!(
        "{}Of {partitions}, the partition is set back to what it was before `segue pause`; the controllers resume {takers}.",
        examples(verbs::RESUME),
    )
}

/// An example of each kind that a verb is for.
fn examples(verb: &str) -> String {
    let takers = request::takers(verb).into_iter().chain(holdable());
    let lines = takers.map(|served| format!("  segue {verb} {}/NAME\n", served.kind.singular));
    format!("Examples:\n{}\n", lines.collect::<String>())
}

fn named(kinds: &[&'static Served]) -> String {
    kinds.iter().map(|served| served.kind.name).collect::<Vec<_>>().join(", ")
}

/// The arguments of `segue pause` and `segue resume`.
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
}

pub(crate) fn pause(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(change(args, verbs::PAUSE, held, "is paused"))
}

pub(crate) fn resume(args: &Args) -> Result<Answer, Error> {
    crate::verbs::run(change(args, verbs::RESUME, released, "is resumed"))
}

type Change = fn(&Value, &str) -> Result<Value, String>;

async fn change(args: &Args, verb: &str, patch: Change, what: &str) -> Result<Answer, Failure> {
    let takers = request::takers(verb);
    let can: Vec<&'static Served> = holdable().into_iter().chain(takers.iter().copied()).collect();
    let mut subject = Subject::find(&args.about, &can).await?;
    if takers.iter().any(|served| std::ptr::eq(*served, subject.served)) {
        return request::request(verb, subject, &args.about, None).await;
    }
    let title = subject.target.title();
    let rolls =
        held_type(subject.served.revisions).ok_or_else(|| Failure::usage("this kind has no partition"))?;
    let held =
        |object: &Value| patch(object, rolls).map_err(|why| Failure::Refused(format!("{title}: {why}")));
    subject.change(held).await?;
    let mut report = Report::new(args.about.output);
    report.done(&title, what, "")?;
    Ok(report.finish()?)
}

/// The kinds that a partition of groups holds.
fn holdable() -> Vec<&'static Served> {
    kinds(|served| held_type(served.revisions).is_some())
}

/// The type of rollout that a partition of groups holds, for a kind that has one.
fn held_type(revisions: Option<Revisioned>) -> Option<&'static str> {
    revisions.and_then(|it| it.rolls)
}

/// No group has a place that high: none is replaced.
fn held(object: &Value, rolls: &str) -> Result<Value, String> {
    if object["metadata"]["annotations"][PARTITION_BEFORE_PAUSE].is_string() {
        return Err("it is paused already; to continue: segue resume".to_owned());
    }
    let (spec, strategy) = (&object["spec"], &object["spec"]["rolloutStrategy"]);
    let ty = strategy["type"].as_str().unwrap_or(rolls);
    if ty != rolls {
        return Err(format!("its type {ty} has one partition per role; set them in spec.template.roles"));
    }
    let partition = &strategy["rollingUpdateConfiguration"]["partition"];
    let before = if partition.is_null() { json!(0) } else { partition.clone() };
    let replicas = spec["replicas"].as_u64().unwrap_or(1);
    let all = replicas.max(before.as_u64().unwrap_or_default());
    Ok(change_partition(&json!(all), Some(&before.to_string()), rolls))
}

fn released(object: &Value, rolls: &str) -> Result<Value, String> {
    let before = object["metadata"]["annotations"][PARTITION_BEFORE_PAUSE].as_str();
    let before: Option<Value> = before.and_then(|text| serde_json::from_str(text).ok());
    before.map(|before| change_partition(&before, None, rolls)).ok_or_else(|| "it is not paused".to_owned())
}

fn change_partition(partition: &Value, remembered: Option<&str>, rolls: &str) -> Value {
    json!({
        "metadata": {"annotations": {PARTITION_BEFORE_PAUSE: remembered}},
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
    fn a_kind_without_a_partition_is_not_held() {
        let names: Vec<&str> = holdable().iter().map(|served| served.kind.name).collect();
        assert_eq!(names, ["LeaderWorkerSet", "ModelServing", "Note"]);
        let revisions = holdable()[0].revisions.unwrap();
        assert_eq!(held_type(Some(revisions)), Some("RollingUpdate"));
        assert_eq!(held_type(Some(Revisioned { rolls: None, ..revisions })), None);
        assert_eq!(held_type(None), None);
    }

    #[test]
    fn the_help_names_the_kinds_of_the_descriptions() {
        let help = pause_help();
        let of_requests = "Paused by their controllers: ModelDeployment, RayService.";
        let of_partitions = "(LeaderWorkerSet, ModelServing, Note)";
        let types = "RollingUpdate of a LeaderWorkerSet, ServingGroupRollingUpdate of a ModelServing, Rewrite of a Note.";
        for part in [
            of_requests,
            of_partitions,
            types,
            "  segue pause note/NAME\n",
            "  segue pause rayservice/NAME\n",
        ] {
            assert!(help.contains(part), "{part}: {help}");
        }
        assert!(
            resume_help().contains("the controllers resume ModelDeployment, RayService."),
            "{}",
            resume_help()
        );
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
            object["metadata"]["annotations"][PARTITION_BEFORE_PAUSE] =
                patch["metadata"]["annotations"][PARTITION_BEFORE_PAUSE].clone();
            assert!(held(&object, "Rolls").is_err());
            let patch = released(&object, "Rolls").unwrap();
            assert_eq!(
                (partition(&patch), &patch["metadata"]["annotations"][PARTITION_BEFORE_PAUSE]),
                (before, &Value::Null)
            );
        }
    }

    #[test]
    fn roles_that_are_updated_by_themselves_have_partitions_of_their_own() {
        let roles = json!({"spec": {"rolloutStrategy": {"type": "RoleRollingUpdate"}}});
        let why = held(&roles, "ServingGroupRollingUpdate").unwrap_err();
        assert!(why.contains("RoleRollingUpdate") && why.contains("spec.template.roles"), "{why}");
    }
}
