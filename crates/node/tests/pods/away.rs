use std::{convert::Infallible, future::pending, io};

use apiserver::{
    InProcess,
    store::{History, Store},
};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyStream, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
    client::Body,
};
use serde_json::json;
use tokio::sync::watch;
use tower::Service;

use crate::support::{Bed, api, dead, is_alive, phase, settings, shell, start};

/// Answers a request unless the API is away. Watches end when it goes.
async fn answer(
    mut api: InProcess,
    mut is_away: watch::Receiver<bool>,
    request: Request<Body>,
) -> io::Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>> {
    if *is_away.borrow() {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let gone = async move {
        if is_away.wait_for(|is_away| *is_away).await.is_err() {
            pending::<()>().await;
        }
    };
    let Ok(answer) = api.call(request).await;
    let until_gone = |body| StreamBody::new(BodyStream::new(body).take_until(Box::pin(gone)));
    Ok(answer.map(until_gone))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_vanished_while_the_api_was_away_is_killed_and_others_stay() {
    let history = History { events: 20, ..History::default() };
    let api = api(Store::memory(history)).await;
    let away = watch::Sender::new(false);
    let is_away = away.subscribe();
    let way = {
        let api = api.clone();
        tower::service_fn(move |request| answer(api.clone(), is_away.clone(), request))
    };
    let directory = tempfile::tempdir().unwrap();
    let agent = start(&Client::new(way, "default"), settings(directory.path()));
    let bed = Bed { client: Client::new(api, "default"), directory, agent };
    for name in ["goes", "stays"] {
        let script = format!("trap '' TERM; echo $$ > {}; exec sleep 1000", bed.path(name));
        bed.create(name, json!({"containers": [shell(&script)]})).await;
        bed.see(name, "running", phase("Running")).await;
    }
    let (goes, stays) = (bed.file("goes").await, bed.file("stays").await);

    away.send_replace(true);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    bed.pods().delete("goes", &now).await.unwrap();
    // The deletion is older than what the API remembers, so that only a new list can tell.
    let others: Api<ConfigMap> = Api::default_namespaced(bed.client.clone());
    for number in 0..2 * history.events {
        let other = json!({"metadata": {"name": format!("other-{number}")}});
        others.create(&PostParams::default(), &serde_json::from_value(other).unwrap()).await.unwrap();
    }
    assert!(is_alive(goes.trim()));
    away.send_replace(false);

    dead(&goes).await;
    bed.create("comes", json!({"containers": [shell("exec sleep 1000")]})).await;
    bed.see("comes", "running", phase("Running")).await;
    assert!(is_alive(stays.trim()));
}
