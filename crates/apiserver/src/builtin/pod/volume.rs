//! The volumes of a pod.
use std::collections::HashSet;

use serde_json::Value;

use super::text;
use crate::builtin::{
    cause::{Cause, each},
    names,
};

/// The order in which upstream looks at the sources, of which a volume has one.
const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// A field that a source must have.
const NEEDS: &[(&str, &str)] = &[
    ("hostPath", "path"),
    ("secret", "secretName"),
    ("configMap", "name"),
    ("persistentVolumeClaim", "claimName"),
    ("nfs", "server"),
    ("nfs", "path"),
    ("csi", "driver"),
];

/// The names of the volumes that can be mounted, and what is wrong with the others.
pub fn validate(volumes: &[Value]) -> (HashSet<&str>, Vec<Cause>) {
    let mut known = HashSet::new();
    let mut causes = Vec::new();
    for (i, volume) in volumes.iter().enumerate() {
        let field = format!("spec.volumes[{i}]");
        let mut wrong = sources(volume, &field);
        let name = text(volume, "name");
        let at = format!("{field}.name");
        if name.is_empty() {
            wrong.push(Cause::required(at, ""));
        } else {
            wrong.extend(each(&at, name, names::label(name)));
            if known.contains(name) {
                wrong.push(Cause::duplicate(at, &volume["name"].to_string()));
            }
        }
        if wrong.is_empty() {
            known.insert(name);
        }
        causes.extend(wrong);
    }
    (known, causes)
}

fn sources(volume: &Value, field: &str) -> Vec<Cause> {
    let mut given = SOURCES.iter().filter(|source| volume.get(**source).is_some());
    let Some(first) = given.next() else {
        return vec![Cause::required(field, "must specify a volume type")];
    };
    let needs =
        NEEDS.iter().filter(|(source, need)| source == first && text(&volume[*source], need).is_empty());
    let missing = needs.map(|(source, need)| Cause::required(format!("{field}.{source}.{need}"), ""));
    let at = |name: &str| format!("{field}.{first}.{name}");
    let relative = *first == "nfs" && !text(&volume["nfs"], "path").starts_with('/');
    let relative =
        relative.then(|| Cause::invalid(at("path"), &volume["nfs"]["path"], "must be an absolute path"));
    let mode = &volume[*first]["defaultMode"];
    let wide = mode.as_i64().is_some_and(|mode| !(0..=0o777).contains(&mode));
    let says = "must be a number between 0 and 0777 (octal), both inclusive";
    let wide = wide.then(|| Cause::invalid(at("defaultMode"), mode, says));
    let others = given.map(|source| {
        Cause::forbidden(format!("{field}.{source}"), "may not specify more than 1 volume type")
    });
    missing.chain(relative).chain(wide).chain(others).collect()
}
