//! The headless Services that give pods their names.

use std::{collections::BTreeSet, sync::Arc};

use api::leaderworkerset::{LeaderWorkerSet, SubdomainPolicy};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use planner::sets;

use super::{Decision, observe::Observed, render};
use crate::{
    labels,
    pipeline::Executor,
    runtime::{Apply, Error},
};

/// Makes the Services that are needed, before the pods that they name, and removes the others.
pub(super) async fn keep(
    executor: &Executor<'_, LeaderWorkerSet>,
    observed: &Observed,
    decision: &Decision,
) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for group in wanted(observed, decision) {
        let (key, body) = render::headless(&observed.set, group);
        names.insert(key.name.clone());
        let live = observed.services.iter().find(|service| service.name_any() == key.name);
        let service = Apply::new((key, body), live.map(AsRef::as_ref)).exactly(&["selector"]);
        let applied = executor.apply::<Service>(service).await;
        executor.defer(applied.map(drop))?;
    }
    // The Service of a version belongs to its set too, and is its deployment's.
    let ours = |service: &&Arc<Service>| service.labels().contains_key(labels::SET_NAME);
    for service in observed.services.iter().filter(ours) {
        if !names.contains(&service.name_any()) && service.metadata.deletion_timestamp.is_none() {
            executor.defer(executor.delete(service.as_ref(), true).await)?;
        }
    }
    Ok(())
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
    let subdomains = |revision| observed.revisions.get(revision).map(|stored| stored.subdomains);
    if subdomains(decision.spec.target) == Some(SubdomainPolicy::Shared) {
        wanted.insert(None);
    }
    for (place, group) in observed.groups.iter().filter(|(place, _)| !decision.is_forgotten(**place)) {
        wanted.extend(subdomains(decision.revision(*place)).map(|subdomains| one(subdomains, *place)));
        for member in &group.pods {
            let subdomain = member.pod.spec.as_ref().and_then(|spec| spec.subdomain.as_ref());
            wanted.extend(subdomain.map(|name| if *name == shared { None } else { Some(*place) }));
        }
    }
    for op in &decision.set.ops {
        if let sets::Op::Create { ordinal, revision } = op
            && let Some(subdomains) = subdomains(*revision)
        {
            wanted.insert(one(subdomains, *ordinal));
        }
    }
    wanted
}
