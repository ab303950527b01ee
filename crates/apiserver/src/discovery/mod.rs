//! Discovery: the groups, versions and resources that the server serves.
pub(crate) mod openapi;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    registry::Registry,
    registry::resource::{Part, Resource, Rules, api_version},
};

/// The release whose API this is.
const RELEASE: (&str, &str, &str) = ("1", "36", "v1.36.3+segue-embedded");

pub fn server_version() -> Value {
    let (major, minor, version) = RELEASE;
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

pub fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// The versions of every group but the core one. The version that is stored is preferred.
fn by_group(registry: &Registry) -> BTreeMap<&str, Vec<&str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in registry.all().filter(|resource| !resource.group.is_empty()) {
        let versions = groups.entry(&resource.group).or_default();
        if !versions.contains(&resource.version.as_str()) {
            if resource.version == resource.stored_version {
                versions.insert(0, &resource.version);
            } else {
                versions.push(&resource.version);
            }
        }
    }
    groups
}

fn describe(name: &str, versions: &[&str]) -> Value {
    let entry = |version: &&str| json!({"groupVersion": api_version(name, version), "version": version});
    let entries: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": name, "versions": entries, "preferredVersion": entries.first()})
}

pub fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> =
        by_group(registry).iter().map(|(name, versions)| describe(name, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub fn group(registry: &Registry, name: &str) -> Option<Value> {
    let mut group = describe(name, by_group(registry).get(name)?);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    Some(group)
}

pub fn version(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let of = registry.all().filter(|resource| resource.group == group && resource.version == version);
    let resources: Vec<Value> = of.flat_map(|resource| entries(resource)).collect();
    if resources.is_empty() {
        return None;
    }
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group, version),
        "resources": resources,
    }))
}

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A resource and those below it.
fn entries(resource: &Resource) -> Vec<Value> {
    let verbs: &[&str] = match &resource.rules {
        Rules::BuiltIn(kind) => kind.verbs,
        Rules::Custom(_) => &VERBS,
    };
    let mut main = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs,
    });
    if !resource.short_names.is_empty() {
        main["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main["categories"] = json!(resource.categories);
    }
    let mut entries = vec![main];
    let below = |name: &str, kind: &str, group: &str, version: &str, verbs: &[&str]| {
        let mut entry = json!({
            "name": format!("{}/{name}", resource.plural),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": verbs,
        });
        if !version.is_empty() {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
        entry
    };
    match &resource.rules {
        Rules::BuiltIn(kind) => entries.extend(
            kind.subresources.iter().map(|sub| below(sub.name, sub.kind, sub.group, sub.version, sub.verbs)),
        ),
        Rules::Custom(_) => {
            let changes = ["get", "patch", "update"];
            if resource.has_part(Part::Status) {
                entries.push(below("status", &resource.kind, "", "", &changes));
            }
            if resource.has_part(Part::Scale) {
                entries.push(below("scale", "Scale", "autoscaling", "v1", &changes));
            }
        }
    }
    entries
}
