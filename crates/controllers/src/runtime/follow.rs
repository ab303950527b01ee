//! One list and one watch for each kind, for ever.

use std::pin::pin;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, watcher},
    },
};
use tokio::task::JoinSet;

use super::{Context, Followed, News};
use crate::labels;

/// Follows every kind. Where endpoints are nobody's but ours, all pods matter; else only those of our sets do, so that
/// memory follows our objects and not the cluster.
pub(super) fn all(context: &Context) -> JoinSet<()> {
    let everything = Config::default();
    let ours = |label: &str| {
        if context.settings.embedded { Config::default() } else { Config::default().labels(label) }
    };
    let mut feeding = JoinSet::new();
    feeding.spawn(follow::<api::leaderworkerset::LeaderWorkerSet>(context.clone(), everything.clone()));
    feeding.spawn(follow::<api::modeldeployment::ModelDeployment>(context.clone(), everything));
    feeding.spawn(follow::<Pod>(context.clone(), ours(labels::SET_NAME)));
    feeding.spawn(follow::<k8s_openapi::api::apps::v1::ControllerRevision>(
        context.clone(),
        Config::default().labels(labels::SET_NAME),
    ));
    feeding.spawn(follow::<k8s_openapi::api::core::v1::Service>(
        context.clone(),
        ours("app.kubernetes.io/managed-by=segue"),
    ));
    feeding.spawn(follow::<k8s_openapi::api::discovery::v1::EndpointSlice>(
        context.clone(),
        ours(labels::DEPLOYMENT),
    ));
    let routing = Config::default().labels(labels::DEPLOYMENT);
    feeding.spawn(follow::<api::gateway::Gateway>(context.clone(), routing.clone()));
    feeding.spawn(follow::<api::gateway::HTTPRoute>(context.clone(), routing.clone()));
    feeding.spawn(follow::<api::gateway::GRPCRoute>(context.clone(), routing));
    feeding
}

async fn follow<K: Followed>(context: Context, config: Config) {
    let api: Api<K> = Api::all(context.client.clone());
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.push(object),
            Ok(Event::InitDone) => context.learned(News::All(std::mem::take(&mut listed))),
            Ok(Event::Apply(object)) => context.learned(News::Here(object)),
            Ok(Event::Delete(object)) => context.learned(News::Gone(object)),
            // A kind that is not installed has no objects. The watch goes on and finds them when it is.
            Err(error) if is_unknown(&error) => context.learned::<K>(News::NoSuchKind),
            // What is known stays; the watch tries again.
            Err(_) => {}
        }
    }
}

fn is_unknown(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}
