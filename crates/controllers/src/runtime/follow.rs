//! One list and one watch for each kind, for ever.
//!
//! Not the library's watcher: it does not tell how new a list is. Without that, an object that a write answered and a
//! list does not have is either one that the list is too old for, or one that is gone, and whoever guesses wrong waits
//! for ever for a pod that is no more, or makes one twice.

use std::{pin::pin, time::Duration};

use api::{
    Kind,
    gateway::{GRPCRoute, Gateway, HTTPRoute},
    leaderworkerset::{self, LeaderWorkerSet},
    modeldeployment::{self, ModelDeployment},
    modelserving::{self, ModelServing},
    volcano::PodGroup,
};
use futures_util::StreamExt;
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Node, PersistentVolumeClaim, Pod, Service},
    discovery::v1::EndpointSlice,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Resource, ResourceExt,
    api::{ListParams, ObjectList, WatchEvent, WatchParams},
    core::Request,
};
use tokio::task::JoinSet;

use super::{Context, Error, Followed, News, write::kind};
use crate::labels;

/// How many objects a list brings at once.
const PAGE: u32 = 500;

/// The first wait after the API failed; it doubles with each in a row.
const AGAIN: Duration = Duration::from_millis(250);

/// The longest.
const LONGEST: Duration = Duration::from_secs(30);

/// Follows what the kinds need that are looked after, in the namespaces where they are. Where endpoints are nobody's but
/// ours, all pods matter; else only those of our sets do, so that memory follows our objects and not the cluster.
pub(super) fn all(context: &Context) -> JoinSet<()> {
    let ours = |label: &'static str| (!context.settings.embedded).then_some(label);
    let mut feeding = JoinSet::new();
    let units = [&leaderworkerset::KIND, &modelserving::KIND];
    // One selector cannot say "either": then all come by, and those of neither are let go.
    let of_units = match units.map(|kind| context.settings.looks_after(kind)) {
        [true, true] => None,
        [true, false] => Some(labels::SET_NAME),
        [false, _] => Some(labels::SERVING_NAME),
    };
    feeding.spawn(follow::<Node>(context.clone(), String::new(), Choice::all()));
    for scope in context.settings.scopes() {
        let mut feed = Feed { feeding: &mut feeding, context, scope };
        feed.with::<LeaderWorkerSet>([&leaderworkerset::KIND], None);
        feed.with::<ModelServing>([&modelserving::KIND], None);
        if context.settings.embedded {
            feed.with::<Pod>(units, None);
        } else {
            feed.with_some::<Pod>(units, Choice { selector: of_units, keeps: is_of_a_unit });
        }
        feed.with::<PersistentVolumeClaim>([&leaderworkerset::KIND], Some(labels::SET_NAME));
        feed.with::<PodDisruptionBudget>(units, None);
        feed.with_some::<ControllerRevision>(units, Choice { selector: of_units, keeps: is_of_a_unit });
        feed.with::<Service>(units, ours("app.kubernetes.io/managed-by=segue"));
        feed.with_some::<PodGroup>([&modelserving::KIND], Choice { selector: None, keeps: is_of_a_serving });
        feed.with::<ModelDeployment>([&modeldeployment::KIND], None);
        feed.with::<EndpointSlice>([&modeldeployment::KIND], ours(labels::DEPLOYMENT));
        feed.with::<Gateway>([&modeldeployment::KIND], Some(labels::DEPLOYMENT));
        feed.with::<HTTPRoute>([&modeldeployment::KIND], Some(labels::DEPLOYMENT));
        feed.with::<GRPCRoute>([&modeldeployment::KIND], Some(labels::DEPLOYMENT));
    }
    feeding
}

/// What is followed in one namespace.
struct Feed<'a> {
    feeding: &'a mut JoinSet<()>,
    context: &'a Context,
    scope: String,
}

impl Feed<'_> {
    /// Follows objects if a kind that needs them is looked after.
    fn with<K: Followed>(
        &mut self,
        needed_by: impl IntoIterator<Item = &'static Kind>,
        selector: Option<&'static str>,
    ) {
        self.with_some::<K>(needed_by, Choice { selector, ..Choice::all() });
    }

    fn with_some<K: Followed>(
        &mut self,
        needed_by: impl IntoIterator<Item = &'static Kind>,
        choice: Choice<K>,
    ) {
        if needed_by.into_iter().any(|kind| self.context.settings.looks_after(kind)) {
            self.feeding.spawn(follow::<K>(self.context.clone(), self.scope.clone(), choice));
        } else {
            self.context.learned::<K>(News::NoSuchKind(self.scope.clone()));
        }
    }
}

/// Which objects of a kind are known.
struct Choice<K> {
    /// What the API chooses by.
    selector: Option<&'static str>,
    /// What is kept of that.
    keeps: fn(&K) -> bool,
}

impl<K> Choice<K> {
    fn all() -> Self {
        Self { selector: None, keeps: |_| true }
    }
}

fn is_of_a_unit(object: &impl Resource) -> bool {
    [labels::SET_NAME, labels::SERVING_NAME].iter().any(|label| object.labels().contains_key(*label))
}

/// By its owner: those that Kthena made may have any label.
fn is_of_a_serving(group: &PodGroup) -> bool {
    group.owner_references().iter().any(|owner| owner.kind == modelserving::KIND.name)
}

async fn follow<K: Followed>(context: Context, scope: String, choice: Choice<K>) {
    let namespace = Some(scope.as_str()).filter(|scope| !scope.is_empty());
    let path = K::url_path(&(), namespace);
    let mut wait = AGAIN;
    loop {
        match list::<K>(&context, &path, &choice).await {
            Ok((version, objects)) => {
                context.learned(News::All(scope.clone(), version.parse().unwrap_or_default(), objects));
                match watch::<K>(&context, &path, &choice, version).await {
                    // Refused for good: lists in its place come ever more seldom.
                    Err(error) if is_forbidden(&error) => unseen::<K>("watch", &scope, error),
                    _ => wait = AGAIN,
                }
            }
            // A kind that is not installed has no objects, and may be installed later.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                context.learned::<K>(News::NoSuchKind(scope.clone()));
            }
            Err(error) if is_forbidden(&error) => unseen::<K>("list", &scope, error),
            // What is known stays.
            Err(_) => {}
        }
        tokio::time::sleep(wait).await;
        wait = LONGEST.min(wait * 2);
    }
}

/// An API that is away for a while comes back by itself; what it forbids, a person must allow.
fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn unseen<K: Followed>(verb: &'static str, scope: &str, source: kube::Error) {
    let (kind, namespace) = (kind::<K>(), scope.to_owned());
    let error = Error::Unseen { verb, kind, namespace, source: Box::new(source) };
    tracing::warn!("{error}; it is tried again");
}

/// Everything there is, and how new that is.
async fn list<K: Followed>(
    context: &Context,
    path: &str,
    choice: &Choice<K>,
) -> Result<(String, Vec<K>), kube::Error> {
    let mut objects = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    page.label_selector = choice.selector.map(ToOwned::to_owned);
    loop {
        let request = Request::new(path).list(&page).map_err(kube::Error::BuildRequest)?;
        let list: ObjectList<K> = context.client.request(request).await?;
        objects.extend(list.items.into_iter().filter(choice.keeps));
        page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        if page.continue_token.is_none() {
            return Ok((list.metadata.resource_version.unwrap_or_default(), objects));
        }
    }
}

/// Every change since a version, until the API says that it is too old or does not answer.
async fn watch<K: Followed>(
    context: &Context,
    path: &str,
    choice: &Choice<K>,
    mut version: String,
) -> Result<(), kube::Error> {
    let label_selector = choice.selector.map(ToOwned::to_owned);
    let parameters = WatchParams { label_selector, ..WatchParams::default() };
    loop {
        let request = Request::new(path).watch(&parameters, &version).map_err(kube::Error::BuildRequest)?;
        let events = context.client.request_events::<K>(request).await?;
        let mut events = pin!(events);
        let before = version.clone();
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    version = object.meta().resource_version.clone().unwrap_or(version);
                    // One that has lost its label is gone as far as we are concerned.
                    let keeps = (choice.keeps)(&object);
                    context.learned(if keeps { News::Here(object) } else { News::Gone(object) });
                }
                Ok(WatchEvent::Deleted(object)) => {
                    version = object.meta().resource_version.clone().unwrap_or(version);
                    context.learned(News::Gone(object));
                }
                Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
                Ok(WatchEvent::Error(_)) => return Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_sets_and_of_serving_groups_are_kept_and_others_let_go() {
        let pod = |label: Option<&str>| {
            let mut pod = Pod::default();
            pod.labels_mut().extend(label.map(|label| (label.to_owned(), "x".to_owned())));
            pod
        };
        assert!(is_of_a_unit(&pod(Some(labels::SET_NAME))));
        assert!(is_of_a_unit(&pod(Some(labels::SERVING_NAME))));
        assert!(!is_of_a_unit(&pod(Some("app"))) && !is_of_a_unit(&pod(None)));
    }
}
