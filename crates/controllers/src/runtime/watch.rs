//! One list and one watch for each type that a controller needs, for ever.
//!
//! Not the library's watcher: it does not tell how new a list is. Without that, an object that a write answered and a
//! list does not have is either newer than the list, or gone; a guess makes a controller wait for
//! ever for a pod that is no more, or make one twice.

use std::{any::TypeId, collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture};
use kube::{
    api::{ListParams, ObjectList, WatchEvent, WatchParams},
    core::Request,
};
use planner::Backoff;
use tokio::{task::JoinSet, time::Instant};

use super::{
    ApiVerb, Cache, Context, Error, Key, Watched,
    api::kind_of,
    cache::{CacheEvent, EventHandler, MapFn, Select, controllers_of, is_namespaced},
    installed,
};

/// How many objects a page of a list has.
const PAGE: u32 = 500;

/// The waits after failures of the API in a row.
const BACK_OFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(30) };

/// A watch that lived so long works: what ends it is not repeated at once.
const WORKS: Duration = Duration::from_secs(5);

/// What a controller watches. Each says it once, before anything is watched; types that several need are watched once.
pub struct Watches<'a> {
    pub(super) controller: &'static str,
    pub(super) cache: &'a mut Cache,
    pub(super) feeds: &'a mut Reflectors,
}

impl Watches<'_> {
    /// Watches the controller's own objects.
    pub fn own<K: Watched>(&mut self) {
        self.mapped::<K>(Select::all(), |object, _| vec![Key::of(object)]);
    }

    /// Watches objects that objects of a kind control: those are reconciled when these change.
    pub fn controlled<K: Watched>(&mut self, kind: &'static api::Kind, select: Select<K>) {
        self.mapped::<K>(select, |object, _| controllers_of(object, kind));
    }

    /// Watches objects, and reconciles those that the function names when one changes.
    pub fn mapped<K: Watched>(
        &mut self,
        select: Select<K>,
        map: impl Fn(&K, &Cache) -> Vec<Key> + Send + Sync + 'static,
    ) {
        let map: MapFn<K> = Box::new(map);
        self.cache.keep(EventHandler { controller: self.controller, select, map });
        self.feeds.0.insert(
            TypeId::of::<K>(),
            Reflector { is_namespaced: is_namespaced::<K>(), list_and_watch: boxed::<K> },
        );
    }
}

/// What is watched, by type.
#[derive(Default)]
pub(super) struct Reflectors(BTreeMap<TypeId, Reflector>);

struct Reflector {
    is_namespaced: bool,
    list_and_watch: fn(Context, String) -> BoxFuture<'static, ()>,
}

impl Reflectors {
    /// Begins every watch: in each of these scopes, or once for what is in no namespace.
    pub(super) fn begin(&self, context: &Context, scopes: &[String]) -> JoinSet<()> {
        let mut feeding = JoinSet::new();
        for feed in self.0.values() {
            let everywhere = [String::new()];
            let scopes = if feed.is_namespaced { scopes } else { &everywhere };
            for scope in scopes {
                feeding.spawn((feed.list_and_watch)(context.clone(), scope.clone()));
            }
        }
        feeding
    }
}

fn boxed<K: Watched>(context: Context, scope: String) -> BoxFuture<'static, ()> {
    Box::pin(list_and_watch::<K>(context, scope))
}

/// What is asked of the API on behalf of all event handlers of a kind, and what is kept of the answer.
struct Choice<K> {
    label: Option<&'static str>,
    interests: Arc<Vec<EventHandler<K>>>,
}

impl<K: Watched> Choice<K> {
    /// One selector cannot say "either": where two need different labels all objects come by, and the rest is let go.
    fn of(interests: Arc<Vec<EventHandler<K>>>) -> Self {
        let first = interests.first().and_then(|interest| interest.select.label());
        let same = interests.iter().all(|interest| interest.select.label() == first);
        Self { label: first.filter(|_| same), interests }
    }

    fn keeps(&self, object: &K) -> bool {
        self.interests.iter().any(|interest| interest.select.matches(object))
    }
}

async fn list_and_watch<K: Watched>(context: Context, scope: String) {
    let choice = Choice::<K>::of(context.cache().interests());
    let namespace = Some(scope.as_str()).filter(|scope| !scope.is_empty());
    let path = K::url_path(&(), namespace);
    let mut failures = 0;
    installed::wait_for::<K>(&context, &scope).await;
    loop {
        match list::<K>(&context, &path, &choice).await {
            Ok((version, objects)) => {
                context.handle_event(CacheEvent::Listed(
                    scope.clone(),
                    version.parse().unwrap_or_default(),
                    objects,
                ));
                let began = Instant::now();
                match watch::<K>(&context, &path, &choice, version).await {
                    Err(error) if is_forbidden(&error) => {
                        list_or_watch_failed::<K>(ApiVerb::Watch, &scope, error);
                    }
                    // A watch that ends sooner does not work: the lists in its place back off.
                    _ if began.elapsed() >= WORKS => failures = 0,
                    _ => {}
                }
            }
            // A new definition is not served at once, and a removed one may come back.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                context.handle_event::<K>(CacheEvent::NoSuchKind(scope.clone()));
                installed::wait_for::<K>(&context, &scope).await;
            }
            Err(error) if is_forbidden(&error) => list_or_watch_failed::<K>(ApiVerb::List, &scope, error),
            // What is known stays.
            Err(_) => {}
        }
        failures += 1;
        tokio::time::sleep(BACK_OFF.after(failures)).await;
    }
}

/// An API that is away for a while comes back by itself; what it forbids, a person must allow.
pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn list_or_watch_failed<K: Watched>(verb: ApiVerb, scope: &str, source: kube::Error) {
    let (kind, namespace) = (kind_of::<K>(), scope.to_owned());
    let error = Error::ListOrWatchFailed { verb, kind, namespace, source: Box::new(source) };
    tracing::warn!("{error}; it is tried again");
}

/// Everything there is, and how new that is.
async fn list<K: Watched>(
    context: &Context,
    path: &str,
    choice: &Choice<K>,
) -> Result<(String, Vec<K>), kube::Error> {
    let mut objects = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    page.label_selector = choice.label.map(ToOwned::to_owned);
    loop {
        let request = Request::new(path).list(&page).map_err(kube::Error::BuildRequest)?;
        let list: ObjectList<K> = context.client.request(request).await?;
        objects.extend(list.items.into_iter().filter(|object| choice.keeps(object)));
        page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        if page.continue_token.is_none() {
            return Ok((list.metadata.resource_version.unwrap_or_default(), objects));
        }
    }
}

/// Every change since a version, until the API says that it is too old, refuses or does not answer.
async fn watch<K: Watched>(
    context: &Context,
    path: &str,
    choice: &Choice<K>,
    mut version: String,
) -> Result<(), kube::Error> {
    let label_selector = choice.label.map(ToOwned::to_owned);
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
                    // An object that has lost its label counts as gone.
                    let keeps = choice.keeps(&object);
                    context.handle_event(if keeps {
                        CacheEvent::Updated(object)
                    } else {
                        CacheEvent::Deleted(object)
                    });
                }
                Ok(WatchEvent::Deleted(object)) => {
                    version = object.meta().resource_version.clone().unwrap_or(version);
                    context.handle_event(CacheEvent::Deleted(object));
                }
                Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
                Ok(WatchEvent::Error(_)) => return Ok(()),
                // Refused: the same request would be refused again.
                Err(error @ kube::Error::Api(_)) => return Err(error),
                // It broke off: what was seen is seen.
                Err(_) => break,
            }
        }
        if version == before {
            // Nothing came: the next one does not begin at once.
            tokio::time::sleep(BACK_OFF.first).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;

    use super::*;

    fn interest(label: Option<&'static str>) -> EventHandler<Pod> {
        let select = label.map_or_else(Select::all, Select::labelled);
        EventHandler { controller: "Test", select, map: Box::new(|_, _| Vec::new()) }
    }

    fn choice(labels: &[Option<&'static str>]) -> Choice<Pod> {
        Choice::of(Arc::new(labels.iter().map(|label| interest(*label)).collect()))
    }

    fn pod(label: Option<(&str, &str)>) -> Pod {
        let mut pod = Pod::default();
        pod.labels_mut().extend(label.map(|(key, value)| (key.to_owned(), value.to_owned())));
        pod
    }

    #[test]
    fn the_api_selects_by_the_label_that_all_need_and_the_rest_is_let_go_here() {
        assert_eq!(choice(&[Some("a"), Some("a")]).label, Some("a"));
        assert_eq!(choice(&[Some("a"), None]).label, None);
        let either = choice(&[Some("a"), Some("b=c")]);
        assert_eq!(either.label, None);
        assert!(either.keeps(&pod(Some(("a", "x")))) && either.keeps(&pod(Some(("b", "c")))));
        assert!(!either.keeps(&pod(Some(("b", "x")))) && !either.keeps(&pod(None)));
    }
}
