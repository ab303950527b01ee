//! Prefill and decode as processes on a `segue up`, upgraded under load in the order of their steps.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use gateway::load::{Client, Outcome, Target, Totals};
use serde_json::Value;
use testbed::{eventually, free_port};
use tokio::{
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
};

use self::support::{
    pod::{address, is_ready, kill},
    seen::Watch,
    up::Up,
};

const LIMIT: Duration = Duration::from_mins(2);
const PATH: &str = "/v1/completions";

/// Tokens of a stream: two seconds of them, so that every replica that goes has some.
const STREAM: &str = "/v1/completions?stream=10";
/// So long that none ends while it is looked at.
const LONG_STREAM: &str = "/v1/completions?stream=15";

/// The example on a `segue up` of its own, at a port that nobody else has: all of them share the addresses of loopback.
struct Pair {
    up: Up,
    port: u16,
}

impl Pair {
    /// The first version, in service.
    async fn start() -> Self {
        let port = free_port();
        let pair = Self { up: Up::start(), port };
        pair.apply("processes.yaml");
        pair.serves("v1").await;
        let answered = eventually("an answer", LIMIT, async || {
            let (outcome, _) = pair.client(PATH).request().await;
            (outcome == Outcome::Ok).then_some(())
        });
        answered.await.unwrap();
        pair
    }

    fn apply(&self, example: &str) {
        self.apply_changed(example, str::to_owned);
    }

    fn apply_changed(&self, example: &str, change: impl Fn(&str) -> String) {
        let manifest = support::read(&format!("examples/modelserving-role-upgrade-order/{example}"));
        let manifest = change(&manifest).replace("8000", &self.port.to_string());
        self.up.says(&["apply", "-f", &self.up.file(example, &manifest)]);
    }

    fn get(&self, what: &[&str]) -> Value {
        serde_json::from_str(&self.up.says(&[&["get", "-o", "json"], what].concat())).unwrap()
    }

    /// The pods by what is theirs alone in their names: `decode-3` for `pd-0-decode-3-0`.
    fn pods(&self) -> BTreeMap<String, Value> {
        let list = self.get(&["pods"]);
        let pods = list["items"].as_array().unwrap().iter();
        pods.map(|pod| (support::seen::short(pod["metadata"]["name"].as_str().unwrap()), pod.clone()))
            .collect()
    }

    fn uids(&self) -> BTreeMap<String, String> {
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
        self.pods().iter().map(|(name, pod)| (name.clone(), uid(pod))).collect()
    }

    /// Waits until the group serves, all of it this version, and nothing is left to do.
    async fn serves(&self, version: &str) {
        let flag = format!("--version={version}");
        let what = format!("{version} in service");
        let served = eventually(&what, LIMIT, async || {
            let serving = self.get(&["modelserving", "pd"]);
            let (status, pods) = (&serving["status"], self.pods());
            let settled = status["observedGeneration"] == serving["metadata"]["generation"]
                && status["availableReplicas"] == 1
                && status["message"].is_null()
                && status["currentRevision"] == status["updateRevision"];
            let whole = pods.len() == 8
                && pods.values().all(|pod| is_ready(pod) && pod["spec"].to_string().contains(&flag));
            (settled && whole).then_some(())
        });
        served.await.unwrap_or_else(|late| panic!("{late}: {}", self.up.says(&["get", "pods"])));
    }

    /// Waits until the upgrade waits at this step for this pod, and says so.
    async fn stalls(&self, step: u64, pod: &str) -> Value {
        let stalled = eventually("a step that is stalled", LIMIT, async || {
            let status = self.get(&["modelserving", "pd"])["status"].clone();
            let at = &status["groups"][0]["step"];
            let is_stalled = status["conditions"].as_array()?.iter().any(|it| it["type"] == "Stalled");
            (is_stalled
                && at["index"] == step
                && at["blockingPod"] == pod
                && at["reason"] == "container server is not ready")
                .then_some(status)
        });
        stalled.await.unwrap()
    }

    /// What was told of the upgrades, in its order.
    fn told(&self, reason: &str) -> Vec<String> {
        let list = self.get(&["events"]);
        let of_reason = list["items"].as_array().unwrap().iter().filter(|event| event["reason"] == reason);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut events: Vec<_> =
            of_reason.map(|event| (text(&event["eventTime"]), text(&event["message"]))).collect();
        events.sort();
        events.into_iter().map(|(_, message)| message).collect()
    }

    /// A client that comes by the gateway.
    fn client(&self, path: &str) -> Client {
        let gateway = self.get(&["gateway", "pd"]);
        let target = self.target(&gateway["status"]["addresses"][0]["value"], path, false);
        Client::of_streams(target, if path == PATH { "" } else { sample::LAST_EVENT })
    }

    /// A client that comes by the Service, with a new connection each time.
    fn client_of_service(&self) -> Client {
        let service = self.get(&["service", "pd"]);
        Client::new(self.target(&service["spec"]["clusterIP"], PATH, true))
    }

    fn target(&self, address: &Value, path: &str, fresh: bool) -> Target {
        let address = SocketAddr::new(address.as_str().unwrap().parse().unwrap(), self.port);
        Target { address, host: "pd".to_owned(), path: path.to_owned(), fresh }
    }

    /// What a pod says of itself.
    fn stats(&self, pod: &Value) -> Value {
        let mut stream = TcpStream::connect((address(pod), self.port)).unwrap();
        write!(stream, "GET /stats HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    }
}

/// Which prefill had which decode answer, by their versions, and how often.
type Pairs = BTreeMap<(String, String), u64>;

/// Users, until they are told to stop.
struct Load {
    by_gateway: Client,
    by_service: Client,
    streams: Client,
    stop: watch::Sender<bool>,
    asking: JoinSet<()>,
    pairs: JoinHandle<Pairs>,
}

impl Load {
    fn start(pair: &Pair) -> Self {
        let (by_gateway, by_service, streams) =
            (pair.client(PATH), pair.client_of_service(), pair.client(STREAM));
        let (stop, stopped) = watch::channel(false);
        let told = || {
            let mut stopped = stopped.clone();
            async move { drop(stopped.wait_for(|stopped| *stopped).await) }
        };
        let mut asking = JoinSet::new();
        for client in [&by_gateway, &by_service] {
            let (client, told) = (client.clone(), told());
            asking.spawn(async move { client.open_loop(10, told).await });
        }
        let (client, until) = (streams.clone(), told());
        asking.spawn(async move { client.closed_loop_until(8, until).await });
        let pairs = tokio::spawn(note_pairs(by_gateway.clone(), stopped.clone()));
        Self { by_gateway, by_service, streams, stop, asking, pairs }
    }

    /// So far: what was short, and what was a stream.
    fn totals(&self) -> [Totals; 3] {
        [&self.by_gateway, &self.by_service, &self.streams].map(Client::totals)
    }

    fn ok(&self) -> u64 {
        self.totals().iter().map(|totals| totals.ok).sum()
    }

    /// Waits until so much more was answered: time has passed, and users were served in it.
    async fn goes_on(&self, more: u64) {
        let enough = self.ok() + more;
        eventually("more answers", LIMIT, async || (self.ok() >= enough).then_some(())).await.unwrap();
    }

    async fn end(mut self) -> Pairs {
        self.stop.send_replace(true);
        while self.asking.join_next().await.is_some() {}
        let pairs = (&mut self.pairs).await.unwrap();
        println!("gateway, Service, streams: {:?}; pairs: {pairs:?}", self.totals());
        pairs
    }
}

/// Asks one after the other, and reads who answers.
async fn note_pairs(client: Client, stopped: watch::Receiver<bool>) -> Pairs {
    let mut pairs = Pairs::new();
    while !*stopped.borrow() {
        let (outcome, body) = client.request().await;
        if outcome == Outcome::Ok {
            let answer: Value = serde_json::from_slice(&body).unwrap();
            let said = |field: &str| answer[field].as_str().unwrap().to_owned();
            *pairs.entry((said("prefill"), said("version"))).or_default() += 1;
        }
    }
    pairs
}

/// What the platform lost, and what the servers answered with an error: by the gateway, by the Service, and of streams.
fn troubles(load: &Load) -> [(u64, u64); 3] {
    load.totals().map(|totals| (totals.lost(), totals.app_errors))
}

const NONE: [(u64, u64); 3] = [(0, 0); 3];

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_cannot_talk_are_upgraded_under_load_and_no_user_notices() {
    let pair = Pair::start().await;
    let load = Load::start(&pair);
    load.goes_on(50).await;

    let watching = Watch::start(pair.up.client().await).await;
    pair.apply("processes-v2.yaml");
    pair.serves("v2").await;
    load.goes_on(50).await;
    let seen = watching.end().await;
    let order =
        ["decode-3", "prefill-3", "prefill-2", "prefill-1", "prefill-0", "decode-2", "decode-1", "decode-0"];
    assert_eq!(seen.made, order);
    assert_eq!(seen.fewest, BTreeMap::from([("decode".to_owned(), 3), ("prefill".to_owned(), 3)]));
    assert_eq!(
        (seen.most_pairs, seen.alone.len()),
        (2, 0),
        "old with old and new with new: {:?}",
        seen.alone
    );
    let entered = [
        "group 0: step 1 of 4: 0 of 1 decode updated and Ready",
        "group 0: step 2 of 4: 0 of 1 prefill updated and Ready",
        "group 0: step 3 of 4: 1 of 4 prefill updated and Ready",
        "group 0: step 4 of 4: 1 of 4 decode updated and Ready",
    ];
    assert_eq!(pair.told("StepEntered"), entered);
    assert_eq!(pair.told("GroupUpdated"), ["group 0: every step is met"]);
    let refused = pair.stats(&pair.pods()["prefill-3"])["refused"].as_u64().unwrap();
    assert!(refused > 0, "the new prefill met decodes that it could not talk to");
    assert_eq!(troubles(&load), NONE);

    a_broken_canary_is_all_that_is_lost(&pair, &load).await;
    assert_eq!(troubles(&load), NONE);
    let pairs: Vec<_> = load.end().await.into_keys().collect();
    let same = |version: &str| (version.to_owned(), version.to_owned());
    assert_eq!(pairs, [same("v1"), same("v2")]);

    a_decode_that_is_killed_costs_the_streams_that_it_has_begun(&pair).await;
}

async fn a_broken_canary_is_all_that_is_lost(pair: &Pair, load: &Load) {
    let before = pair.uids();
    let watching = Watch::start(pair.up.client().await).await;
    pair.apply("processes-broken.yaml");
    let status = pair.stalls(0, "pd-0-decode-3-0").await;
    let stalled = status["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Stalled").unwrap();
    assert_eq!(
        (&stalled["status"], &stalled["message"]),
        (
            &"True".into(),
            &"group 0, step 1 (decode): 0 of 1 updated and Ready; pod pd-0-decode-3-0: container server is not ready"
                .into()
        )
    );
    load.goes_on(100).await;
    let still = pair.stalls(0, "pd-0-decode-3-0").await;
    assert_eq!(
        (&still["roles"][0]["readyReplicas"], &still["roles"][1]["readyReplicas"]),
        (&4.into(), &3.into())
    );
    pair.apply("processes-v2.yaml");
    pair.serves("v2").await;
    let seen = watching.end().await;
    assert_eq!(seen.made, ["decode-3", "decode-3"], "the canary, and what it was before");
    assert_eq!(seen.fewest, BTreeMap::from([("decode".to_owned(), 3), ("prefill".to_owned(), 4)]));
    let after = pair.uids();
    let others = |uids: &BTreeMap<String, String>| {
        uids.clone().into_iter().filter(|(name, _)| name != "decode-3").collect::<Vec<_>>()
    };
    assert_eq!(others(&before), others(&after), "nothing else was restarted");
}

/// The counts can: nothing protects a stream from this once it has begun. What has no byte yet is answered by another
/// decode, so the kill waits for the first one.
async fn a_decode_that_is_killed_costs_the_streams_that_it_has_begun(pair: &Pair) {
    let (streams, short) = (pair.client(LONG_STREAM), pair.client(PATH));
    let (stop, stopped) = oneshot::channel::<()>();
    let asked = streams.clone();
    let asking = tokio::spawn(async move { asked.closed_loop_until(8, async { drop(stopped.await) }).await });
    let decode = &pair.pods()["decode-0"];
    let busy = async || (pair.stats(decode)["inFlight"] != 0).then_some(());
    eventually("a stream", LIMIT, busy).await.unwrap();
    // What it is asked later and has answered says that its streams have begun: each answer takes as long to begin.
    let direct = Client::new(pair.target(&decode["status"]["podIP"], PATH, true));
    assert_eq!(direct.request().await.0, Outcome::Ok);
    let begun = pair.stats(decode)["inFlight"].as_u64().unwrap();
    kill(decode);
    for _ in 0..20 {
        assert_eq!(short.request().await.0, Outcome::Ok);
    }
    let lost = async || (streams.totals().truncated == begun).then_some(());
    eventually("every stream that breaks off", LIMIT, lost)
        .await
        .unwrap_or_else(|late| panic!("{late}: {begun} had begun: {:?}", streams.totals()));
    pair.serves("v2").await;
    stop.send(()).unwrap();
    asking.await.unwrap();
    let Totals { failed, app_errors, truncated, .. } = streams.totals();
    assert_eq!((failed, app_errors, truncated), (0, 0, begun));
}

/// Here decodes have something to do when they are told to go.
#[tokio::test(flavor = "multi_thread")]
async fn versions_that_can_talk_do_and_are_upgraded_without_a_failure() {
    let pair = Pair::start().await;
    let load = Load::start(&pair);
    load.goes_on(50).await;
    pair.apply_changed("processes-v2.yaml", |manifest| manifest.replace("--protocol=2", "--protocol=1"));
    pair.serves("v2").await;
    load.goes_on(50).await;
    assert_eq!(troubles(&load), NONE);
    let pairs: Vec<_> = load.end().await.into_keys().collect();
    let all = [("v1", "v1"), ("v1", "v2"), ("v2", "v1"), ("v2", "v2")];
    assert_eq!(pairs, all.map(|(prefill, decode)| (prefill.to_owned(), decode.to_owned())));
}

/// What the order is good for: in another one the new prefill has nobody to talk to.
#[tokio::test(flavor = "multi_thread")]
async fn in_the_other_order_a_new_prefill_finds_nobody_and_users_do_notice() {
    let pair = Pair::start().await;
    let load = Load::start(&pair);
    let watching = Watch::start(pair.up.client().await).await;
    pair.apply_changed("processes-v2.yaml", |manifest| {
        let swapped = manifest.replace("role: decode", "role: x").replace("role: prefill", "role: decode");
        swapped.replace("role: x", "role: prefill")
    });
    let noticed = async || (load.by_gateway.totals().app_errors > 0).then_some(());
    eventually("an error", LIMIT, noticed).await.unwrap();
    pair.serves("v2").await;
    let seen = watching.end().await;
    assert_eq!(seen.made[..2], ["prefill-3", "decode-3"]);
    assert!(seen.alone.contains("pd-0-prefill-3-0"), "{seen:?}");
    let lost = troubles(&load).map(|(lost, _)| lost);
    assert_eq!(lost, [0; 3], "the servers said so, and the platform lost nothing");
    load.end().await;
}
