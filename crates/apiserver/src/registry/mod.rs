//! The resources that the server serves: built-in kinds, and those that a CRD defines.
pub(crate) mod crd;
mod nesting;
pub(crate) mod resource;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    builtin::{self, BuiltIn},
    registry::resource::{Resource, Rules},
    status::Cause,
    table::Columns,
};

/// A snapshot of what is served. Installing a kind makes a new one; requests under way keep theirs.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// By group, version and plural name.
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    pub fn built_in() -> Self {
        let mut registry = Self::default();
        for kind in builtin::KINDS {
            registry.add(built_in(kind));
        }
        registry
    }

    fn add(&mut self, resource: Resource) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, Arc::new(resource));
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// A kind as owner references name it.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.all().find(|found| found.group == group && found.version == version && found.kind == kind)
    }

    /// In the order of their groups, versions and names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Every kind once, in the version that it is stored in: `events.k8s.io` shares the objects of the core group.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.all().filter(|resource| {
            resource.group != "events.k8s.io" && resource.version == resource.stored_version
        })
    }

    /// This registry with a definition's kinds instead of what that definition served before.
    pub fn with(&self, crd: &Value) -> Result<Self, Vec<Cause>> {
        let resources = crd::resources(crd)?;
        let mut registry = self.without(crd);
        for resource in resources {
            registry.add(resource);
        }
        Ok(registry)
    }

    pub fn without(&self, crd: &Value) -> Self {
        let (group, plural) = (&crd["spec"]["group"], &crd["spec"]["names"]["plural"]);
        let mut registry = self.clone();
        registry.resources.retain(|(g, _, p), resource| {
            let same = group == g.as_str() && plural == p.as_str();
            !(same && matches!(resource.rules, Rules::Custom(_)))
        });
        registry
    }
}

fn built_in(kind: &'static BuiltIn) -> Resource {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Resource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        kind: kind.kind.to_owned(),
        list_kind: format!("{}List", kind.kind),
        plural: kind.plural.to_owned(),
        singular: kind.singular.to_owned(),
        short_names: owned(kind.short_names),
        categories: owned(kind.categories),
        namespaced: kind.namespaced,
        stored_version: kind.version.to_owned(),
        selectable: owned(kind.selectable),
        columns: Columns::built_in(kind.group, kind.plural),
        rules: Rules::BuiltIn(kind),
    }
}
