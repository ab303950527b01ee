//! A prefill and its decodes as a client meets them.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod running;

use std::time::Duration;

use sample::LAST_EVENT;
use testbed::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use self::running::{Running, SOON, get, send};

const PATH: &str = "/v1/completions";

async fn decode(version: &str, protocol: u32) -> Running {
    Running::with(|settings| {
        version.clone_into(&mut settings.version);
        settings.protocol = protocol;
        settings.token_gap = Duration::from_millis(20);
    })
    .await
}

async fn prefill(protocol: u32, decodes: &[String]) -> Running {
    Running::with(|settings| {
        "p".clone_into(&mut settings.version);
        settings.protocol = protocol;
        settings.decodes = decodes.to_vec();
    })
    .await
}

fn addresses(decodes: &[&Running]) -> Vec<String> {
    decodes.iter().map(|decode| decode.address.to_string()).collect()
}

#[tokio::test]
async fn a_prefill_has_its_decodes_answer_in_turn_and_both_count() {
    let (one, other) = (decode("one", 1).await, decode("other", 1).await);
    let pair = prefill(1, &addresses(&[&one, &other])).await;
    let answers = [get(pair.address, PATH).await, get(pair.address, PATH).await];
    for version in ["one", "other"] {
        let said = |answer: &&String| {
            answer.contains(&format!("\"version\":\"{version}\"")) && answer.contains("\"prefill\":\"p\"")
        };
        assert_eq!(answers.iter().filter(said).count(), 1, "{answers:?}");
    }
    let stream = get(pair.address, &format!("{PATH}?stream=5")).await;
    assert_eq!(stream.matches("\"token\":").count(), 5, "{stream}");
    assert!(stream.contains(LAST_EVENT) && stream.contains("text/event-stream"), "{stream}");
    // What a decode answers is the answer, whatever it is.
    assert!(get(pair.address, &format!("{PATH}?status=418")).await.starts_with("HTTP/1.1 418"));
    assert_eq!(pair.end().await.requests, 4);
    assert_eq!(one.end().await.requests + other.end().await.requests, 4);
}

#[tokio::test]
async fn a_decode_of_another_protocol_is_passed_over_and_said_to_be_when_none_is_left() {
    let (old, new) = (decode("old", 1).await, decode("new", 2).await);
    let pair = prefill(1, &addresses(&[&old, &new])).await;
    for _ in 0..4 {
        let answer = get(pair.address, PATH).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"old\""), "{answer}");
    }
    let stats = get(pair.address, "/stats").await;
    assert!(stats.contains("\"refused\":2"), "it was the turn of the new one every other time: {stats}");
    old.end().await;
    let answer = get(pair.address, PATH).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("no decode took the request"), "{answer}");
    assert!(answer.contains("it speaks protocol 2, this prefill speaks protocol 1"), "{answer}");
    pair.end().await;
    new.end().await;
}

#[tokio::test]
async fn a_decode_says_which_protocol_it_refuses_and_answers_those_who_speak_none() {
    let new = decode("new", 2).await;
    let mut asking = tokio::net::TcpStream::connect(new.address).await.unwrap();
    let request =
        format!("GET {PATH} HTTP/1.1\r\nhost: x\r\nx-sample-protocol: 1\r\nconnection: close\r\n\r\n");
    asking.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("x-sample-protocol: 2"), "{answer}");
    assert!(answer.contains("speaks protocol 2 and the prefill that asks speaks protocol 1"), "{answer}");
    assert!(get(new.address, PATH).await.starts_with("HTTP/1.1 200"));
    new.end().await;
}

/// Takes a request, says so much of an answer, and is gone.
async fn breaks_off(said: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            stream.write_all(said.as_bytes()).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn a_decode_that_is_gone_before_its_first_byte_costs_nothing() {
    let gone = decode("gone", 1).await;
    let refuses = gone.address.to_string();
    gone.end().await;
    let loads = Running::with(|settings| settings.load = Duration::from_hours(1)).await;
    let silent = breaks_off("").await;
    let head_only = breaks_off("HTTP/1.1 200 OK\r\nx-sample-protocol: 1\r\ncontent-length: 9\r\n\r\n").await;
    let good = decode("good", 1).await;
    let decodes = [refuses, loads.address.to_string(), silent, head_only, good.address.to_string()];
    let pair = prefill(1, &decodes).await;
    for _ in 0..decodes.len() {
        let answer = get(pair.address, PATH).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"good\""), "{answer}");
    }
    for server in [pair, loads, good] {
        server.end().await;
    }
}

/// A request is never answered twice: what has begun and breaks off is broken for the client too.
#[tokio::test]
async fn an_answer_that_breaks_off_after_its_first_byte_is_seen_to() {
    let broken = breaks_off("HTTP/1.1 200 OK\r\nx-sample-protocol: 1\r\ncontent-length: 9\r\n\r\nhalf").await;
    let good = decode("good", 1).await;
    let pair = prefill(1, &[broken, good.address.to_string()]).await;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let mut answer = String::new();
        drop(send(pair.address, PATH, "close").await.read_to_string(&mut answer).await);
        answers.push(answer);
    }
    let cut = answers.iter().filter(|answer| answer.contains("half") && !answer.ends_with("0\r\n\r\n"));
    assert_eq!(cut.count(), 1, "{answers:?}");
    assert_eq!(pair.end().await.requests, 1, "half an answer is none");
    good.end().await;
}

#[tokio::test]
async fn a_decode_that_is_told_to_stop_finishes_its_streams_and_gets_no_new_ones() {
    let (leaves, stays) = (decode("leaves", 1).await, decode("stays", 1).await);
    let pair = prefill(1, &addresses(&[&leaves, &stays])).await;
    let (mut first, mut second) = (String::new(), String::new());
    let path = format!("{PATH}?stream=20");
    let mut one = send(pair.address, &path, "close").await;
    let mut other = send(pair.address, &path, "close").await;
    let streams = async || get(leaves.address, "/stats").await.contains("\"inFlight\":1").then_some(());
    eventually("a stream on the one that leaves", SOON, streams).await.unwrap();
    let counts = leaves.end().await;
    assert_eq!(counts.requests, 1);
    let answer = get(pair.address, PATH).await;
    assert!(answer.contains("\"stays\""), "{answer}");
    one.read_to_string(&mut first).await.unwrap();
    other.read_to_string(&mut second).await.unwrap();
    for stream in [first, second] {
        assert!(stream.contains(LAST_EVENT), "{stream}");
    }
    pair.end().await;
    stays.end().await;
}
