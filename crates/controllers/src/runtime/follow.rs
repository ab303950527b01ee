//! One list and one watch for each kind, for ever.
//!
//! Not the library's watcher: it does not tell how new a list is. Without that, an object that a write answered and a
//! list does not have is either one that the list is too old for, or one that is gone, and whoever guesses wrong waits
//! for ever for a pod that is no more, or makes one twice.

use std::{pin::pin, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use tokio::task::JoinSet;

use super::{Context, Followed, News};
use crate::labels;

/// How many objects a list brings at once.
const PAGE: u32 = 500;

/// The first wait after the API failed; it doubles with each in a row.
const AGAIN: Duration = Duration::from_millis(250);

/// The longest.
const LONGEST: Duration = Duration::from_secs(30);

/// Follows every kind. Pods and revisions are of sets or of serving groups; one selector cannot say "either", so all of
/// them are followed.
pub(super) fn all(context: &Context) -> JoinSet<()> {
    let everything = || None;
    let ours = |label: &'static str| (!context.settings.embedded).then_some(label);
    let mut feeding = JoinSet::new();
    feeding.spawn(follow::<api::leaderworkerset::LeaderWorkerSet>(context.clone(), everything()));
    feeding.spawn(follow::<api::modelserving::ModelServing>(context.clone(), everything()));
    feeding.spawn(follow::<api::modeldeployment::ModelDeployment>(context.clone(), everything()));
    feeding.spawn(follow::<Node>(context.clone(), everything()));
    feeding.spawn(follow::<Pod>(context.clone(), everything()));
    feeding.spawn(follow::<ControllerRevision>(context.clone(), everything()));
    feeding.spawn(follow::<Service>(context.clone(), ours("app.kubernetes.io/managed-by=segue")));
    feeding.spawn(follow::<EndpointSlice>(context.clone(), ours(labels::DEPLOYMENT)));
    feeding.spawn(follow::<api::gateway::Gateway>(context.clone(), Some(labels::DEPLOYMENT)));
    feeding.spawn(follow::<api::gateway::HTTPRoute>(context.clone(), Some(labels::DEPLOYMENT)));
    feeding.spawn(follow::<api::gateway::GRPCRoute>(context.clone(), Some(labels::DEPLOYMENT)));
    feeding
}

async fn follow<K: Followed>(context: Context, selector: Option<&'static str>) {
    let api: Api<K> = Api::all(context.client.clone());
    let mut wait = AGAIN;
    loop {
        match list(&api, selector).await {
            Ok((version, objects)) => {
                context.learned(News::All(version.parse().unwrap_or_default(), objects));
                wait = AGAIN;
                watch(&context, &api, selector, version).await;
            }
            // A kind that is not installed has no objects, and may be installed later.
            Err(kube::Error::Api(status)) if status.code == 404 => context.learned::<K>(News::NoSuchKind),
            // What is known stays.
            Err(_) => {}
        }
        tokio::time::sleep(wait).await;
        wait = LONGEST.min(wait * 2);
    }
}

/// Everything there is, and how new that is.
async fn list<K: Followed>(api: &Api<K>, selector: Option<&str>) -> Result<(String, Vec<K>), kube::Error> {
    let mut objects = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    page.label_selector = selector.map(ToOwned::to_owned);
    loop {
        let list = api.list(&page).await?;
        objects.extend(list.items);
        page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        if page.continue_token.is_none() {
            return Ok((list.metadata.resource_version.unwrap_or_default(), objects));
        }
    }
}

/// Every change since a version, until the API says that it is too old or does not answer.
async fn watch<K: Followed>(context: &Context, api: &Api<K>, selector: Option<&str>, mut version: String) {
    let label_selector = selector.map(ToOwned::to_owned);
    let parameters = WatchParams { label_selector, ..WatchParams::default() };
    loop {
        let Ok(events) = api.watch(&parameters, &version).await else { return };
        let mut events = pin!(events);
        let before = version.clone();
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    version = object.meta().resource_version.clone().unwrap_or(version);
                    context.learned(News::Here(object));
                }
                Ok(WatchEvent::Deleted(object)) => {
                    version = object.meta().resource_version.clone().unwrap_or(version);
                    context.learned(News::Gone(object));
                }
                Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
                Ok(WatchEvent::Error(_)) => return,
                // It broke off: what was seen is seen.
                Err(_) => break,
            }
        }
        if version == before {
            // Nothing came: the next one does not begin at once.
            tokio::time::sleep(AGAIN).await;
        }
    }
}
