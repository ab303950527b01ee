//! The promises of the data plane, kept by a real gateway in front of real servers.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use gateway::{Cause, Settings, load::Outcome};
use serde_json::json;
use support::{Rig, SOON, echo::Echo, load_at};
use testbed::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
};

/// Load that runs until it is told to stop, and what became of it.
struct Load {
    client: gateway::load::Client,
    stop: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(client: gateway::load::Client, per_second: u32) -> Self {
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn({
            let client = client.clone();
            async move { client.open_loop(per_second, async { drop(stopped.await) }).await }
        });
        Self { client, stop, running }
    }

    /// Waits until so many more requests were answered.
    async fn goes_on(&self, requests: u64) {
        let goal = self.client.totals().requests() + requests;
        let asked = async || (self.client.totals().requests() >= goal).then_some(());
        eventually("more requests", SOON, asked).await.unwrap();
    }

    async fn end(self) -> gateway::load::Totals {
        self.stop.send(()).unwrap();
        self.running.await.unwrap();
        self.client.totals()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_are_exact_however_many_ask_at_once() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Echo::new("two", rig.endpoint(2, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.service("two", &[two.address]).await;
    rig.routed(&[("one", 70), ("two", 30)]).await;
    let client = rig.load("/").await;
    client.closed_loop(3_000, 16).await;
    assert_eq!((client.totals().ok, one.served(), two.served()), (3_000, 2_100, 900));
    rig.routed(&[("one", 999), ("two", 1)]).await;
    client.closed_loop(2_000, 16).await;
    assert_eq!((client.totals().ok, one.served(), two.served()), (5_000, 2_100 + 1_998, 900 + 2));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_counts_agree() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.routed(&[("one", 1)]).await;
    rig.load("/").await.closed_loop(300, 4).await;
    rig.load("/error").await.closed_loop(200, 4).await;
    rig.idle(one.address).await;
    let snapshot = rig.snapshot();
    let endpoint = &snapshot.endpoints[&one.address].counts;
    assert_eq!((endpoint.answers[&200], endpoint.answers[&500], endpoint.failures()), (300, 200, 0));
    assert_eq!(endpoint.bytes_sent, 300 * 3 + 200 * 6);
    for counts in
        snapshot.routes.values().chain(snapshot.services.values().filter(|counts| counts.requests > 0))
    {
        assert_eq!(counts, endpoint);
    }
    assert_eq!(one.served(), 500);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_change_under_load_and_nothing_fails() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Echo::new("two", rig.endpoint(2, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.service("two", &[two.address]).await;
    rig.routed(&[("one", 100), ("two", 0)]).await;
    let load = Load::start(rig.load("/").await, 300);
    load.goes_on(50).await;
    assert_eq!(two.served(), 0, "weight 0 is nothing");
    for weight in [10, 50, 90, 100] {
        rig.routed(&[("one", 100 - weight), ("two", weight)]).await;
        load.goes_on(50).await;
    }
    // The acknowledgement means: no request begins there any more.
    rig.idle(one.address).await;
    let last = one.served();
    load.goes_on(100).await;
    assert_eq!(one.served(), last);
    let totals = load.end().await;
    assert_eq!((totals.failed, totals.truncated, totals.app_errors), (0, 0, 0));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_leaves_under_load_and_nothing_fails() {
    let rig = Rig::new().await;
    let mut replicas = Vec::new();
    for replica in 0..3 {
        replicas.push(Echo::new("one", rig.endpoint(1, replica)).await);
    }
    let mut addresses: Vec<_> = replicas.iter().map(|replica| replica.address).collect();
    rig.service("one", &addresses).await;
    rig.routed(&[("one", 1)]).await;
    let load = Load::start(rig.load("/").await, 300);
    while replicas.len() > 1 {
        load.goes_on(50).await;
        let leaving = replicas.pop().unwrap();
        addresses.pop();
        rig.endpoints("one", &addresses).await;
        rig.drained(leaving.address).await;
        leaving.finish().await;
    }
    load.goes_on(50).await;
    let totals = load.end().await;
    assert_eq!((totals.failed, totals.truncated), (0, 0));
    assert_eq!(
        rig.snapshot().services.values().map(|counts| counts.retried).sum::<u64>(),
        0,
        "no request was retried"
    );
    rig.stop().await;
}

/// The negative control, and what the retry is worth.
async fn a_replica_is_gone_before_the_table_knows(retries: usize) -> (u64, u64) {
    let rig = Rig::with(Settings { retries, ..Settings::default() }).await;
    let stays = Echo::without_keep_alive("one", rig.endpoint(1, 0)).await;
    let goes = Echo::without_keep_alive("one", rig.endpoint(1, 1)).await;
    rig.service("one", &[stays.address, goes.address]).await;
    rig.routed(&[("one", 1)]).await;
    let client = rig.load("/").await;
    client.closed_loop(100, 1).await;
    assert_eq!((client.totals().ok, goes.served()), (100, 50), "equals take turns");
    goes.finish().await;
    client.closed_loop(100, 1).await;
    let refused: u64 = rig.snapshot().services.values().map(|counts| counts.failed[&Cause::Refused]).sum();
    assert_eq!(client.totals().failed, refused, "the gateway counts what the client saw");
    // It is back, and the gateway finds out by itself.
    let back = Echo::without_keep_alive("one", rig.endpoint(1, 1)).await;
    client.closed_loop(200, 1).await;
    assert!(back.served() > 50, "{}", back.served());
    rig.stop().await;
    (client.totals().failed, client.totals().ok)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_table_and_without_the_retry_requests_fail() {
    assert!(a_replica_is_gone_before_the_table_knows(0).await.0 > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_sent_goes_to_another_replica() {
    assert_eq!(a_replica_is_gone_before_the_table_knows(3).await, (0, 400));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_is_never_sent_again() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Echo::new("one", rig.endpoint(1, 1)).await;
    rig.service("one", &[one.address, two.address]).await;
    rig.routed(&[("one", 1)]).await;
    let client = rig.load("/stream").await;
    let asking = join_all((0..2).map(|_| client.request()));
    let dying = async {
        rig.in_flight(one.address, 1).await;
        rig.in_flight(two.address, 1).await;
        two.die().await;
        one.let_chunks_go(10);
    };
    let (mut outcomes, ()) = tokio::join!(asking, dying);
    outcomes.sort_by_key(|(outcome, _)| *outcome as u8);
    assert_eq!(outcomes[0].0, Outcome::Ok);
    assert!(matches!(outcomes[1].0, Outcome::Failed | Outcome::Truncated), "{outcomes:?}");
    assert_eq!(one.served(), 1);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_survives_every_change_and_then_the_drain_ends() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Echo::new("two", rig.endpoint(2, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.service("two", &[two.address]).await;
    rig.routed(&[("one", 1), ("two", 0)]).await;
    let client = rig.load("/stream").await;
    let changing = async {
        rig.in_flight(one.address, 1).await;
        one.let_chunks_go(3);
        rig.routed(&[("one", 0), ("two", 1)]).await;
        rig.routed(&[("two", 1)]).await;
        rig.endpoints("one", &[]).await;
        assert!(!rig.gateway.drained(one.address), "the stream is in flight");
        assert_eq!(rig.load("/").await.request().await.1, "two");
        one.let_chunks_go(7);
    };
    let ((outcome, body), ()) = tokio::join!(client.request(), changing);
    assert_eq!((outcome, body.as_ref()), (Outcome::Ok, &b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"[..]));
    rig.drained(one.address).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_ends_its_request() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.routed(&[("one", 1)]).await;
    let client = rig.load("/stream").await;
    tokio::select! {
        _ = client.request() => unreachable!("no chunk may go"),
        () = rig.in_flight(one.address, 1) => {}
    }
    rig.idle(one.address).await;
    let counts = rig.snapshot().endpoints[&one.address].counts.clone();
    assert_eq!((counts.cancelled, counts.failures()), (1, 0));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_ready_is_said_with_503_and_a_reason() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let address = one.address.ip().to_string();
    rig.service("one", &[]).await;
    rig.slice(
        "one",
        json!([
            {"addresses": [address], "conditions": {"ready": true, "serving": true, "terminating": true}},
        ]),
    )
    .await;
    rig.routed(&[("one", 1)]).await;
    let (outcome, body) = rig.load("/").await.request().await;
    assert_eq!((outcome, body.as_ref()), (Outcome::Failed, &b"no-endpoint"[..]));
    rig.endpoints("one", &[one.address]).await;
    assert_eq!(rig.load("/").await.request().await.0, Outcome::Ok);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_may_limit_the_time() {
    let rig = Rig::new().await;
    let one = tokio::net::TcpListener::bind(rig.endpoint(1, 0)).await.unwrap();
    rig.service("one", &[one.local_addr().unwrap()]).await;
    let backends = json!([{"name": "one", "port": rig.port}]);
    let generation = rig.route_of(json!([{"backendRefs": backends, "timeouts": {"request": "50ms"}}])).await;
    rig.acknowledged(generation).await;
    // Connected by the kernel, answered by no process.
    assert_eq!(rig.load("/").await.request().await.1, "timed-out");
    let route = rig.snapshot().routes.into_values().next().unwrap();
    assert_eq!((route.failed[&Cause::TimedOut], route.in_flight), (1, 0));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_changed_as_the_route_says() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    let generation = rig
        .route_of(json!([{
            "backendRefs": [{"name": "one", "port": rig.port}],
            "filters": [{
                "type": "RequestHeaderModifier",
                "requestHeaderModifier": {"set": [{"name": "x-version", "value": "1"}], "remove": ["x-forwarded-proto"]},
            }],
        }]))
        .await;
    rig.acknowledged(generation).await;
    let headers = String::from_utf8(rig.load("/headers").await.request().await.1.to_vec()).unwrap();
    assert!(
        headers.contains("\"x-version\": \"1\"") && headers.contains("\"x-forwarded-for\": \"127.0.0.1\""),
        "{headers}"
    );
    assert!(!headers.contains("x-forwarded-proto"), "{headers}");
    rig.stop().await;
}

/// A client of its own: what goes over the wire, byte for byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_may_redirect_its_requests_or_rewrite_their_urls() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    let prefix = |prefix: &str| json!([{"path": {"type": "PathPrefix", "value": prefix}}]);
    let path = |by: &str| json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": by});
    let redirect = json!({"hostname": "there", "path": path("/new"), "statusCode": 301});
    let rewrite = json!({"hostname": "inner", "path": path("/headers")});
    let generation = rig
        .route_of(json!([
            {"matches": prefix("/old"), "filters": [{"type": "RequestRedirect", "requestRedirect": redirect}]},
            {
                "matches": prefix("/outer"), "filters": [{"type": "URLRewrite", "urlRewrite": rewrite}],
                "backendRefs": [{"name": "one", "port": rig.port}],
            },
        ]))
        .await;
    rig.acknowledged(generation).await;
    let front = rig.front().await;
    let mut stream = talk(front, "GET /old/x?a=1 HTTP/1.1\r\nhost: front\r\nconnection: close\r\n\r\n").await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 301 "), "{answer}");
    assert!(answer.contains(&format!("location: http://there:{}/new/x?a=1\r\n", rig.port)), "{answer}");
    let (outcome, body) = load_at(front, "/outer", false).request().await;
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert_eq!((outcome, one.served()), (Outcome::Ok, 1));
    assert!(body.contains(r#""host": "inner""#), "{body}");
    rig.stop().await;
}

async fn talk(address: std::net::SocketAddr, says: &str) -> tokio::net::TcpStream {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(says.as_bytes()).await.unwrap();
    stream
}

/// Reads until this came.
async fn hears(stream: &mut tokio::net::TcpStream, until: &str) -> String {
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(until) {
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes).await.unwrap();
        assert!(count > 0, "{until} never came: {}", String::from_utf8_lossy(&heard));
        heard.extend(&bytes[..count]);
    }
    String::from_utf8(heard).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_stream_both_ways_at_once() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.routed(&[("one", 1)]).await;
    let mut client =
        talk(rig.front().await, "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for word in ["first", "again", "third"] {
        client.write_all(format!("5\r\n{word}\r\n").as_bytes()).await.unwrap();
        // The answer to this chunk comes before the next is sent.
        hears(&mut client, word).await;
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    hears(&mut client, "0\r\n\r\n").await;
    rig.idle(one.address).await;
    let counts = rig.snapshot().endpoints[&one.address].counts.clone();
    assert_eq!((counts.bytes_received, counts.bytes_sent), (15, 15));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_a_client_outlives_every_table() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Echo::new("two", rig.endpoint(2, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.service("two", &[two.address]).await;
    rig.routed(&[("one", 1)]).await;
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut client = talk(rig.front().await, request).await;
    hears(&mut client, "one").await;
    rig.routed(&[("two", 1)]).await;
    client.write_all(request.as_bytes()).await.unwrap();
    hears(&mut client, "two").await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_of_protocols_is_a_tunnel() {
    let rig = Rig::new().await;
    let listener = tokio::net::TcpListener::bind(rig.endpoint(1, 0)).await.unwrap();
    let server = listener.local_addr().unwrap();
    rig.service("one", &[server]).await;
    rig.routed(&[("one", 1)]).await;
    let upgrade = "connection: upgrade\r\nupgrade: shout\r\n";
    let mut client = talk(rig.front().await, &format!("GET / HTTP/1.1\r\nhost: x\r\n{upgrade}\r\n")).await;
    let (mut accepted, _) = listener.accept().await.unwrap();
    assert!(hears(&mut accepted, "\r\n\r\n").await.contains("upgrade: shout"));
    accepted
        .write_all(format!("HTTP/1.1 101 Switching Protocols\r\n{upgrade}\r\n").as_bytes())
        .await
        .unwrap();
    hears(&mut client, "\r\n\r\n").await;
    client.write_all(b"hello").await.unwrap();
    hears(&mut accepted, "hello").await;
    accepted.write_all(b"HELLO").await.unwrap();
    hears(&mut client, "HELLO").await;
    assert_eq!(rig.snapshot().endpoints[&server].counts.in_flight, 1);
    drop((client, accepted));
    rig.idle(server).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_what_is_in_flight_end() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.routed(&[("one", 1)]).await;
    let (front, client) = (rig.front().await, rig.load("/stream").await);
    let stopping = async {
        rig.in_flight(one.address, 1).await;
        let closing = rig.stop();
        let ending = async {
            let closed = async || tokio::net::TcpStream::connect(front).await.is_err().then_some(());
            eventually("the listener to close", SOON, closed).await.unwrap();
            one.let_chunks_go(10);
        };
        tokio::join!(closing, ending);
    };
    let ((outcome, body), ()) = tokio::join!(client.request(), stopping);
    assert_eq!((outcome, body.len()), (Outcome::Ok, 20));
}

/// `cargo test --release -p gateway -- --ignored --nocapture rates`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a promise"]
async fn rates() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.routed(&[("one", 1)]).await;
    for round in 0..3 {
        let direct = load_at(one.address, "/", false).rate(20_000, 16).await;
        let client = rig.load("/").await;
        let through = client.rate(20_000, 16).await;
        println!(
            "round {round}: direct {direct:.0}/s, through the gateway {through:.0}/s, {:?}",
            client.totals()
        );
    }
    tokio::time::timeout(Duration::from_secs(30), rig.stop()).await.unwrap();
}
