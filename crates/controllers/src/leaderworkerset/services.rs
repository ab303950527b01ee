//! The headless Services that give pods their names.

use std::{collections::BTreeSet, sync::Arc};

use api::leaderworkerset::SubdomainPolicy;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use planner::sets;

use super::{Decision, observe::Observed, render};
use crate::{
    labels,
    runtime::{Context, Error},
};

/// Makes the Services that are needed, before the pods that they name, and removes the others. Says which names belong
/// to somebody else.
pub(super) async fn keep(
    context: &Context,
    observed: &Observed,
    decision: &Decision,
) -> Result<Vec<Error>, Error> {
    let owner = observed.set.uid().unwrap_or_default();
    let wanted = wanted(observed, decision);
    let mut foreign = Vec::new();
    let mut names = BTreeSet::new();
    for group in wanted {
        let (key, body) = render::headless(&observed.set, group);
        let live = observed.services.iter().find(|service| service.name_any() == key.name);
        match context.apply::<Service>(&key, &owner, body, live.map(AsRef::as_ref)).await {
            Err(error @ Error::Foreign { .. }) => foreign.push(error),
            done => done?,
        }
        names.insert(key.name);
    }
    // The Service of a version belongs to its set too, and is its deployment's.
    let ours = |service: &&Arc<Service>| service.labels().contains_key(labels::SET_NAME);
    for service in observed.services.iter().filter(ours) {
        if !names.contains(&service.name_any()) && service.metadata.deletion_timestamp.is_none() {
            context.delete(service.as_ref(), true).await?;
        }
    }
    Ok(foreign)
}

/// Which Services are needed: the shared one, or those of groups. While the policy changes it is both, because a group
/// keeps the names that it was made with.
fn wanted(observed: &Observed, decision: &Decision) -> BTreeSet<Option<u32>> {
    let one = |subdomains: SubdomainPolicy, place: u32| match subdomains {
        SubdomainPolicy::Shared => None,
        SubdomainPolicy::UniquePerReplica => Some(place),
    };
    let shared = observed.set.name_any();
    let mut wanted = BTreeSet::new();
    let target = observed.revisions.target().map(|template| template.subdomains);
    if target == Some(SubdomainPolicy::Shared) {
        wanted.insert(None);
    }
    for (place, group) in observed.groups.iter().filter(|(place, _)| !decision.is_forgotten(**place)) {
        let template = observed.revisions.get(group.unit.revision).map(|template| template.subdomains);
        wanted.extend(template.map(|subdomains| one(subdomains, *place)));
        for pod in &group.pods {
            let subdomain = pod.spec.as_ref().and_then(|spec| spec.subdomain.as_ref());
            wanted.extend(subdomain.map(|name| if *name == shared { None } else { Some(*place) }));
        }
    }
    for op in &decision.set.ops {
        if let sets::Op::Create { ordinal, revision } = op
            && let Some(template) = observed.revisions.get(*revision)
        {
            wanted.insert(one(template.subdomains, *ordinal));
        }
    }
    wanted
}
