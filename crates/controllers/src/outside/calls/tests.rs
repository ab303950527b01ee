use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;

/// A request that a server has got, which answers it when it is told what.
struct Got {
    text: String,
    stream: TcpStream,
}

impl Got {
    async fn answer(mut self, status: &str, body: &str) {
        let length = body.len();
        let text =
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }
}

/// A server on loopback: its address, and its requests in the order in which they arrive.
async fn server() -> (String, mpsc::UnboundedReceiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
                while !is_whole(&bytes) {
                    match stream.read(&mut part).await.unwrap_or_default() {
                        0 => return,
                        read => bytes.extend_from_slice(&part[..read]),
                    }
                }
                let _ = sender.send(Got { text: String::from_utf8(bytes).unwrap(), stream });
            });
        }
    });
    (url, requests)
}

/// Whether a request has its head and as much of a body as the head says.
fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

fn object(name: &str, uid: &str) -> ObjectId {
    ObjectId { controller: "test", key: Key::new("ns", name), uid: uid.to_owned() }
}

fn call(url: &str, target: &str, id: &str) -> Call {
    let (target, id) = (target.to_owned(), id.to_owned());
    Call {
        target,
        id,
        url: format!("{url}/api"),
        method: "PUT",
        body: Some(json!({"of": 1})),
        expects: Expects::Json,
    }
}

/// The next answer for an object, by condition and not by time.
async fn answer(calls: &Calls, answers: &mut broadcast::Receiver<ObjectId>, object: &ObjectId) -> Answer {
    while answers.recv().await.unwrap() != *object {}
    calls.heard(object).pop().unwrap()
}

#[tokio::test]
async fn a_call_is_made_once_and_its_answer_is_kept_with_its_id() {
    let (url, mut requests) = server().await;
    let calls = Calls::default();
    let (mut answers, object) = (calls.answers().unwrap(), object("one", "1"));
    calls.tell(&object, &[call(&url, "a", "first")]);
    calls.tell(&object, &[call(&url, "a", "first")]);
    let got = requests.recv().await.unwrap();
    assert!(got.text.starts_with("PUT /api HTTP/1.1\r\n"), "{}", got.text);
    assert!(got.text.ends_with("{\"of\":1}"), "{}", got.text);
    got.answer("200 OK", "{\"a\":1}").await;
    let heard = answer(&calls, &mut answers, &object).await;
    assert_eq!((heard.target.as_str(), heard.id.as_str(), heard.result), ("a", "first", Ok(json!({"a": 1}))));

    // The same id is not told again; another is, and is the next request that arrives.
    calls.tell(&object, &[call(&url, "a", "first")]);
    calls.tell(&object, &[Call { url: format!("{url}/second"), ..call(&url, "a", "second") }]);
    let got = requests.recv().await.unwrap();
    assert!(got.text.starts_with("PUT /second "), "{}", got.text);
    got.answer("200 OK", "").await;
    let heard = answer(&calls, &mut answers, &object).await;
    assert_eq!((heard.id.as_str(), heard.result), ("second", Ok(Value::Null)));
}

#[tokio::test]
async fn a_target_has_one_call_in_flight_and_only_the_last_of_those_that_wait_is_made() {
    let (url, mut requests) = server().await;
    let calls = Calls::default();
    let (mut answers, object) = (calls.answers().unwrap(), object("one", "1"));
    calls.tell(&object, &[call(&url, "a", "first")]);
    let first = requests.recv().await.unwrap();
    calls.tell(&object, &[Call { url: format!("{url}/skipped"), ..call(&url, "a", "second") }]);
    calls.tell(&object, &[Call { url: format!("{url}/last"), ..call(&url, "a", "third") }]);
    assert!(requests.try_recv().is_err());
    first.answer("200 OK", "1").await;
    assert_eq!(answer(&calls, &mut answers, &object).await.id, "first");
    let got = requests.recv().await.unwrap();
    assert!(got.text.starts_with("PUT /last "), "{}", got.text);
    got.answer("200 OK", "2").await;
    assert_eq!(answer(&calls, &mut answers, &object).await.id, "third");
}

#[tokio::test]
async fn going_back_to_the_call_in_flight_makes_no_other() {
    let (url, mut requests) = server().await;
    let calls = Calls::default();
    let (mut answers, object) = (calls.answers().unwrap(), object("one", "1"));
    calls.tell(&object, &[call(&url, "a", "first")]);
    let first = requests.recv().await.unwrap();
    calls.tell(&object, &[call(&url, "a", "second")]);
    calls.tell(&object, &[call(&url, "a", "first")]);
    first.answer("200 OK", "1").await;
    assert_eq!(answer(&calls, &mut answers, &object).await.id, "first");
    let all = calls.0.targets();
    assert!(all[&object]["a"].in_flight.is_none() && all[&object]["a"].next.is_none());
}

#[tokio::test]
async fn a_target_that_does_not_answer_holds_up_no_other_and_is_given_up() {
    let (url, mut requests) = server().await;
    let calls = Calls::default();
    let (mut answers, object) = (calls.answers().unwrap(), object("one", "1"));
    calls.tell(&object, &[call(&url, "silent", "1"), call(&url, "a", "1")]);
    let (one, other) = (requests.recv().await.unwrap(), requests.recv().await.unwrap());
    one.answer("200 OK", "1").await;
    answer(&calls, &mut answers, &object).await;
    assert_eq!(calls.heard(&object).len(), 1);
    tokio::time::pause();
    while answers.recv().await.unwrap() != object {}
    let failed = calls.heard(&object).into_iter().find_map(|answer| answer.result.err()).unwrap();
    assert!(failed.ends_with("did not answer within 60 s"), "{failed}");
    drop(other);
}

#[tokio::test]
async fn a_call_that_only_reads_is_given_up_sooner_and_a_check_reads_no_body() {
    let (url, mut requests) = server().await;
    let calls = Calls::default();
    let (mut answers, object) = (calls.answers().unwrap(), object("one", "1"));
    let check = Call { method: "GET", body: None, expects: Expects::Success, ..call(&url, "check", "1") };
    calls.tell(&object, std::slice::from_ref(&check));
    requests.recv().await.unwrap().answer("200 OK", "fine").await;
    assert_eq!(answer(&calls, &mut answers, &object).await.result, Ok(Value::Null));
    calls.tell(&object, &[Call { id: "2".to_owned(), ..check }]);
    let silent = requests.recv().await.unwrap();
    tokio::time::pause();
    let failed = answer(&calls, &mut answers, &object).await.result.unwrap_err();
    assert!(failed.ends_with("did not answer within 10 s"), "{failed}");
    drop(silent);
}

#[tokio::test]
async fn what_went_wrong_is_said() {
    let (url, mut requests) = server().await;
    let calls = Calls::default();
    let (mut answers, object) = (calls.answers().unwrap(), object("one", "1"));
    for (id, status, body, expected) in [
        (
            "1",
            "500 Internal Server Error",
            "no such app",
            "it answered 500 Internal Server Error: no such app",
        ),
        ("2", "200 OK", "<html>", "its answer is not JSON: expected value at line 1 column 1"),
    ] {
        calls.tell(&object, &[call(&url, "a", id)]);
        requests.recv().await.unwrap().answer(status, body).await;
        assert_eq!(answer(&calls, &mut answers, &object).await.result, Err(expected.to_owned()));
    }
    // A port that refuses: bound, never listened on, and held for as long as it is called.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    calls.tell(&object, &[call(&format!("http://{}", closed.local_addr().unwrap()), "a", "3")]);
    let refused = answer(&calls, &mut answers, &object).await.result.unwrap_err();
    assert!(refused.to_lowercase().contains("refused"), "{refused}");
    calls.tell(&object, &[call("not a url", "a", "4")]);
    let refused = answer(&calls, &mut answers, &object).await.result.unwrap_err();
    assert!(refused.contains("is no URL"), "{refused}");
}

#[tokio::test]
async fn nothing_is_heard_of_what_is_forgotten_or_told_no_more() {
    let (url, mut requests) = server().await;
    let calls = Calls::default();
    let mut answers = calls.answers().unwrap();
    let (gone, same, other) = (object("gone", "1"), object("gone", "2"), object("other", "1"));
    for object in [&gone, &same, &other] {
        calls.tell(object, &[call(&url, "a", "1"), call(&url, "b", "1")]);
    }
    calls.forget("test", &Key::new("ns", "gone"));
    calls.tell(&other, &[call(&url, "b", "1")]);
    assert_eq!(calls.0.targets().keys().collect::<Vec<_>>(), [&other]);
    // Calls that had arrived before they were dropped have lost their connection.
    let answered = async {
        loop {
            if let Some(got) = requests.recv().await {
                let length = "content-length: 1\r\nconnection: close";
                let mut stream = got.stream;
                let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n1").as_bytes()).await;
            }
        }
    };
    tokio::select! {
        () = answered => {}
        heard = answer(&calls, &mut answers, &other) => assert_eq!(heard.target, "b"),
    }
    assert_eq!(calls.heard(&other).len(), 1);
    assert_eq!(calls.heard(&gone), []);
    calls.tell(&other, &[]);
    assert!(calls.0.targets().is_empty(), "nothing is kept");
}

/// A call that expects a status gets it with any content, and sends a text as it is.
#[tokio::test]
async fn a_status_that_is_expected_is_a_good_answer() {
    let (url, mut requests) = server().await;
    let calls = Calls::default();
    let (mut answers, object) = (calls.answers().unwrap(), object("one", "1"));
    let mut heard = async |id: &str, status: &'static str| {
        let body = Some(json!("a text"));
        calls.tell(&object, &[Call { body, expects: Expects::Status(404), ..call(&url, "a", id) }]);
        let got = requests.recv().await.unwrap();
        assert!(got.text.ends_with("\r\n\r\na text"), "{}", got.text);
        got.answer(status, "no JSON").await;
        answers.recv().await.unwrap();
        calls.heard(&object).pop().unwrap().result
    };
    assert_eq!(heard("first", "404 Not Found").await, Ok(Value::Null));
    let why = heard("second", "200 OK").await.unwrap_err();
    assert!(is_answer(&why) && why.contains("200 OK: no JSON"), "{why}");
    assert!(!is_answer("connection refused"));
}

#[tokio::test]
async fn a_call_from_a_cluster_reaches_nothing_of_its_own_machine() {
    let (url, mut requests) = server().await;
    let calls = Calls::in_cluster();
    let mut answers = calls.answers().unwrap();
    for (number, url) in [url.clone(), url.replace("127.0.0.1", "localhost")].into_iter().enumerate() {
        let object = object(&format!("o{number}"), "u");
        calls.tell(&object, &[call(&url, "t", "1")]);
        let refused = answer(&calls, &mut answers, &object).await.result.unwrap_err();
        assert!(refused.contains("may not be called"), "{url}: {refused}");
    }
    assert!(requests.try_recv().is_err(), "nothing arrived");
}
