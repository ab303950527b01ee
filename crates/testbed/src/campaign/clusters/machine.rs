//! What befalls the pods of a Ray cluster beside the controllers: failures, checks that fail, other clients, and Redis.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use super::checker::{ClusterChecker, node_type};
use crate::Kubelet;

/// Something that befalls a cluster. Pods are `head`, or `w` and the index of their replica.
#[derive(Clone, Debug)]
pub enum Befalls {
    /// This pod ends.
    Fails(&'static str),
    /// The head ends, and so many of its successors at their start.
    HeadsFail(u32),
    /// The checks of this pod, or of all `workers`, fail from now on.
    Unhealthy(&'static str),
    /// All checks succeed again.
    Healthy,
    /// Another client marks this pod as unhealthy.
    Marked(&'static str),
    /// The autoscaler asks for one worker less, and says which goes.
    ScaledDownBy(&'static str),
    /// Redis does not answer any more.
    RedisIsGone,
}

/// The machine that the pods run on.
#[derive(Clone, Default)]
pub(in crate::campaign) struct Machine(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    heads_that_fail: u32,
    redis_is_gone: bool,
    /// Whether the keys of the cluster are gone from Redis.
    cleaned: bool,
    /// Whether the cluster, which had such keys, is gone.
    cluster_is_gone: bool,
}

impl Machine {
    fn with<T>(&self, read: impl FnOnce(&mut State) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(in crate::campaign) fn violations(&self) -> Option<String> {
        let leaks = self.with(|state| state.cluster_is_gone && !state.cleaned && !state.redis_is_gone);
        leaks.then(|| "P9: the cluster is gone, and its keys are left in Redis".to_owned())
    }

    /// Lets this befall the cluster.
    pub(in crate::campaign) async fn befall(
        &self,
        what: &Befalls,
        (client, checker, kubelet): (&Client, &ClusterChecker, &Kubelet),
    ) -> Result<(), String> {
        match what {
            Befalls::Fails(pod) => fail(client, &checker.harm(pod)?).await,
            Befalls::HeadsFail(times) => {
                self.with(|state| state.heads_that_fail = *times);
                fail(client, &checker.harm("head")?).await
            }
            Befalls::Unhealthy(pods) => {
                let uids: BTreeSet<String> = checker.uids(pods);
                if *pods != "workers" {
                    checker.harm(pods)?;
                }
                kubelet.ready_if(move |pod| pod.uid().is_none_or(|uid| !uids.contains(&uid)));
                Ok(())
            }
            Befalls::Healthy => {
                kubelet.ready_if(|_| true);
                Ok(())
            }
            Befalls::Marked(pod) => {
                let mark = json!({"metadata": {"annotations": {"ray.io/health-state": "Unhealthy"}}});
                patch_pod(client, &checker.mark(pod)?, &mark).await
            }
            Befalls::ScaledDownBy(pod) => scale_down(client, &checker.harm(pod)?).await,
            Befalls::RedisIsGone => {
                self.with(|state| state.redis_is_gone = true);
                Ok(())
            }
        }
    }

    /// Ends heads that fail and pods that clean Redis up, for ever.
    pub(in crate::campaign) async fn follow(self, client: Client, checker: ClusterChecker) {
        tokio::join!(self.follow_pods(&client, &checker), self.follow_cluster(&client));
    }

    async fn follow_pods(&self, client: &Client, checker: &ClusterChecker) {
        let api: Api<Pod> = Api::all(client.clone());
        let mut version = "0".to_owned();
        loop {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else { continue };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
                version = pod.resource_version().unwrap_or_default();
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                if phase == Some("Running") {
                    self.run(client, checker, &pod).await;
                }
            }
        }
    }

    /// What a pod that runs does.
    async fn run(&self, client: &Client, checker: &ClusterChecker, pod: &Pod) {
        if node_type(pod) == "redis-cleanup" && !self.with(|state| state.redis_is_gone) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.with(|state| state.cleaned = true);
            drop(set_phase(client, &pod.name_any(), "Succeeded").await);
        }
        let fails = node_type(pod) == "head"
            && pod.metadata.deletion_timestamp.is_none()
            && !checker.is_harmed(pod)
            && self.with(|state| {
                let fails = state.heads_that_fail > 0;
                state.heads_that_fail = state.heads_that_fail.saturating_sub(1);
                fails
            });
        if fails {
            checker.harm_uid(pod);
            drop(fail(client, &pod.name_any()).await);
        }
    }

    async fn follow_cluster(&self, client: &Client) {
        let api = clusters(client);
        let mut version = "0".to_owned();
        loop {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else { continue };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                let (gone, cluster) = match event {
                    WatchEvent::Added(cluster) | WatchEvent::Modified(cluster) => (false, cluster),
                    WatchEvent::Deleted(cluster) => (true, cluster),
                    _ => continue,
                };
                version = cluster.resource_version().unwrap_or_default();
                // One that is deleted before its first pod was made has nothing in Redis.
                let tolerant = cluster.data["spec"]["gcsFaultToleranceOptions"].is_object();
                let began = !cluster.data["status"].is_null();
                self.with(|state| state.cluster_is_gone = gone && tolerant && began);
            }
        }
    }
}

fn clusters(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayCluster"));
    Api::default_namespaced_with(client.clone(), &kind)
}

async fn fail(client: &Client, pod: &str) -> Result<(), String> {
    set_phase(client, pod, "Failed").await
}

async fn set_phase(client: &Client, name: &str, phase: &str) -> Result<(), String> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut pod = pods.get(name).await.map_err(|error| error.to_string())?;
    pod.status.get_or_insert_default().phase = Some(phase.to_owned());
    // The kubelet of the campaign may write between the two.
    pod.metadata.resource_version = None;
    let answer = pods.replace_status(name, &PostParams::default(), &pod).await;
    answer.map(drop).map_err(|error| error.to_string())
}

async fn patch_pod(client: &Client, name: &str, patch: &Value) -> Result<(), String> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let answer = pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    answer.map(drop).map_err(|error| error.to_string())
}

async fn scale_down(client: &Client, worker: &str) -> Result<(), String> {
    let api = clusters(client);
    let cluster = api.get("x").await.map_err(|error| error.to_string())?;
    let mut groups = cluster.data["spec"]["workerGroupSpecs"].clone();
    groups[0]["replicas"] = groups[0]["replicas"].as_u64().unwrap_or_default().saturating_sub(1).into();
    groups[0]["scaleStrategy"] = json!({"workersToDelete": [worker]});
    let patch = Patch::Merge(json!({"spec": {"workerGroupSpecs": groups}}));
    let answer = api.patch("x", &PatchParams::default(), &patch).await;
    answer.map(drop).map_err(|error| error.to_string())
}
