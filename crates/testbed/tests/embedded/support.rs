//! A server in a world that repeats itself, and every byte it says.
use std::sync::{Arc, Mutex};

use apiserver::{
    Server,
    environment::SeededEnvironment,
    store::{History, Store},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use kube::{Client, client::Body};
use testbed::differential::{Runner, Sequence, prepare};
use tower::service_fn;

pub const NAMESPACE: &str = "random";

/// Requests and answers, in order, as bytes.
pub type Transcript = Arc<Mutex<Vec<u8>>>;

/// Runs on one thread and in no time.
pub fn simulate<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(work)
}

pub fn server(seed: u64) -> Server {
    let start = Timestamp::from_second(1_700_000_000).unwrap();
    let world = Arc::new(SeededEnvironment::new(seed, start));
    let server = Server::new(Store::memory(History::default()), world, Vec::new());
    tokio::spawn(server.clone().run_garbage_collector());
    server
}

/// A client of a server that writes down what both say.
fn client(server: Server, transcript: Transcript) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let (server, transcript) = (server.clone(), Arc::clone(&transcript));
        async move {
            let (head, body) = request.into_parts();
            let sent = body.collect().await?.to_bytes();
            let said = format!("{} {}\n", head.method, head.uri);
            let answer = server.handle(Request::from_parts(head, Full::new(sent.clone()))).await;
            let (head, body) = answer.into_parts();
            let answered = body.collect().await.unwrap().to_bytes();
            let status = format!("\n{} {:?}\n", head.status, head.headers);
            let lines = [said.as_bytes(), &sent, status.as_bytes(), &answered, b"\n"].concat();
            transcript.lock().unwrap().extend(lines);
            Ok::<_, kube::Error>(Response::from_parts(head, Full::new(answered)))
        }
    });
    Client::new(service, "default")
}

/// Sends a sequence to a server, the definition of its kind first.
pub async fn run(server: &Server, sequence: &Sequence) -> Vec<u8> {
    let transcript = Transcript::default();
    let client = client(server.clone(), Arc::clone(&transcript));
    prepare(&client).await.unwrap();
    Runner::new(client, NAMESPACE).await.unwrap().run(sequence).await.unwrap();
    std::mem::take(&mut *transcript.lock().unwrap())
}

/// The whole answer to a GET.
pub async fn get(server: &Server, path: &str) -> Bytes {
    let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
    let answer = server.handle(request).await;
    let code = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(code.is_success(), "{path}: {code}: {}", String::from_utf8_lossy(&body));
    body
}
