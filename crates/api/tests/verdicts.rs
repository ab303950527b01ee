//! What each kind accepts and refuses, row by row, judged by `validate` alone. The same rows go to a real kube-apiserver
//! in the test bed.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod tables;

use api::{KINDS, Kind, defaulted, validate};
use serde_json::Value;
use tables::Table;

fn each_table(check: impl Fn(&'static Kind, &Table)) {
    for kind in KINDS {
        check(kind, &Table::of(kind));
    }
}

#[test]
fn every_kind_has_thirty_bad_manifests_and_ten_good_ones_that_need_no_webhook() {
    each_table(|kind, table| {
        let bad = table.bad.iter().filter(|row| !row.needs_webhook()).count();
        assert!(bad >= 30, "{}: {bad} bad manifests", kind.name);
        assert!(table.good.len() >= 10, "{}: {} good manifests", kind.name, table.good.len());
    });
}

#[test]
fn bad_manifests_are_refused_with_the_field_and_the_value() {
    each_table(|kind, table| {
        for row in &table.bad {
            let verdict = validate(&table.manifest(&row.patch), None);
            let said: Vec<String> = verdict.violations.iter().map(ToString::to_string).collect();
            assert!(row.is_answered_by(&said), "{}: {}: got {said:#?}", kind.name, row.name);
        }
    });
}

#[test]
fn good_manifests_are_accepted_and_survive_a_round_trip() {
    each_table(|kind, table| {
        for row in &table.good {
            let manifest = table.manifest(&row.patch);
            let verdict = validate(&manifest, None);
            assert!(verdict.accepted(), "{}: {}: {:?}", kind.name, row.name, verdict.violations);
            let unknown: Vec<_> =
                verdict.warnings.iter().filter(|w| w.starts_with("unknown field")).collect();
            assert!(unknown.is_empty(), "{}: {}: {unknown:?}", kind.name, row.name);
            let mut filled = defaulted(&manifest).unwrap();
            // The status of a manifest is dropped by every server.
            filled.as_object_mut().unwrap().remove("status");
            assert_eq!(through_types(kind, &filled), filled, "{}: {}", kind.name, row.name);
        }
    });
}

#[test]
fn updates_are_judged_against_what_was_there() {
    each_table(|kind, table| {
        assert!(!table.updates.is_empty(), "{} has no transitions", kind.name);
        for row in &table.updates {
            let old = table.manifest(&row.from);
            let new = Table::changed(&old, &row.patch);
            let verdict = validate(&new, Some(&old));
            let said: Vec<String> = verdict.violations.iter().map(ToString::to_string).collect();
            match &row.field {
                Some(_) => assert!(row.is_answered_by(&said), "{}: {}: got {said:#?}", kind.name, row.name),
                None => assert!(said.is_empty(), "{}: {}: {said:#?}", kind.name, row.name),
            }
        }
    });
}

/// The object read into its Rust type and written again.
fn through_types(kind: &Kind, object: &Value) -> Value {
    fn trip<T: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> Value {
        serde_json::to_value(T::deserialize(object).unwrap()).unwrap()
    }
    match kind.name {
        "ModelDeployment" => trip::<api::modeldeployment::ModelDeployment>(object),
        "LeaderWorkerSet" => trip::<api::leaderworkerset::LeaderWorkerSet>(object),
        "ModelServing" => trip::<api::modelserving::ModelServing>(object),
        "RayCluster" => trip::<api::raycluster::RayCluster>(object),
        "RayService" => trip::<api::rayservice::RayService>(object),
        other => panic!("{other} has no round trip"),
    }
}
