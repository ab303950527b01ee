//! Kinds that may be installed later, or removed: their CRDs are watched, and objects are listed only while the API
//! serves their kind.

use std::{pin::pin, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Resource,
    api::{ListParams, ObjectList, PartialObjectMeta, WatchEvent, WatchParams},
    core::Request,
};

use super::{Context, Watched, cache::CacheEvent, watch::is_forbidden};

/// The groups whose kinds every API of ours has.
const BUILT_IN: [&str; 6] =
    ["", "apps", "coordination.k8s.io", "discovery.k8s.io", "policy", "rbac.authorization.k8s.io"];

/// How long to wait before the API is asked again that could not say.
const AGAIN: Duration = Duration::from_secs(5);

/// Returns when the API has the definition of a kind; before it waits it says that there are no objects. Returns at
/// once where the API does not tell us: then the list does.
pub(super) async fn wait_for<K: Watched>(context: &Context, scope: &str) {
    let group = K::group(&());
    if BUILT_IN.contains(&group.as_ref()) {
        return;
    }
    let definition = format!("{}.{group}", K::plural(&()));
    let mut is_logged = false;
    loop {
        match find(context, &definition).await {
            Ok(Found::Here) => return,
            Ok(Found::Missing(version)) => {
                if is_logged {
                    // The watch ended without the definition; it may end at once again, so the next one waits.
                    tokio::time::sleep(AGAIN).await;
                } else {
                    context.handle_event::<K>(CacheEvent::NoSuchKind(scope.to_owned()));
                    is_logged = true;
                }
                // A definition that cannot be watched is requested again and again, with a pause.
                if appears(context, &definition, version).await.is_err() {
                    tokio::time::sleep(AGAIN).await;
                }
            }
            Err(error) if is_forbidden(&error) => return,
            // An API without definitions has none to wait for.
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

enum Found {
    Here,
    /// There is none, as of this version.
    Missing(String),
}

/// Metadata is all that is asked for: a definition may be a megabyte.
type Definition = PartialObjectMeta<CustomResourceDefinition>;

async fn find(context: &Context, name: &str) -> Result<Found, kube::Error> {
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let path = CustomResourceDefinition::url_path(&(), None);
    let request = Request::new(path).list_metadata(&named).map_err(kube::Error::BuildRequest)?;
    let list: ObjectList<Definition> = context.client.request(request).await?;
    let lives = |it: &Definition| it.metadata.deletion_timestamp.is_none();
    let version = list.metadata.resource_version.unwrap_or_default();
    Ok(if list.items.iter().any(lives) { Found::Here } else { Found::Missing(version) })
}

/// Returns when the definition has changed since a version, or when the watch ends.
async fn appears(context: &Context, name: &str, version: String) -> Result<(), kube::Error> {
    let named = WatchParams::default().fields(&format!("metadata.name={name}"));
    let path = CustomResourceDefinition::url_path(&(), None);
    let request = Request::new(path).watch_metadata(&named, &version).map_err(kube::Error::BuildRequest)?;
    let mut events = pin!(context.client.request_events::<Definition>(request).await?);
    while let Some(event) = events.next().await {
        match event {
            Ok(WatchEvent::Bookmark(_)) => {}
            _ => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{KINDS, Served};

    /// A kind of a group that is neither is waited for until its CRD comes, which is never.
    #[test]
    fn every_group_that_is_watched_is_built_in_or_comes_with_crds() {
        let ours = KINDS.into_iter().map(|served| served.kind.group);
        let known: Vec<&str> = BUILT_IN
            .into_iter()
            .chain(ours)
            .chain(["gateway.networking.k8s.io", "scheduling.volcano.sh"])
            .collect();
        for right in KINDS.into_iter().flat_map(Served::all_rights) {
            assert!(!right.verbs.contains("watch") || known.contains(&right.group), "{right:?}");
        }
    }
}
