use bytes::Bytes;
use futures_util::StreamExt;
use node::{LogError, LogRequest};
use serde_json::json;

use crate::support::{Bed, phase, shell};

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_container_can_be_read_and_followed_to_its_end() {
    let bed = Bed::new().await;
    let go = bed.path("go");
    let script = format!("echo one; echo two >&2; while [ ! -e {go} ]; do sleep 0.02; done; echo three");
    bed.create("p", json!({"restartPolicy": "Never", "containers": [shell(&script)]})).await;
    bed.see("p", "running", phase("Running")).await;
    let request =
        LogRequest { namespace: "default".to_owned(), pod: "p".to_owned(), ..LogRequest::default() };
    let following = bed.agent.logs.read(LogRequest { follow: true, ..request.clone() }).await.unwrap();
    std::fs::write(go, "").unwrap();
    let all: Vec<Bytes> = following.collect().await;
    assert_eq!(String::from_utf8(all.concat()).unwrap(), "one\ntwo\nthree\n");
    let tail = bed.agent.logs.read(LogRequest { tail: Some(2), ..request.clone() }).await.unwrap();
    assert_eq!(tail.collect::<Vec<Bytes>>().await.concat(), b"two\nthree\n");
    let nobody = bed.agent.logs.read(LogRequest { pod: "x".to_owned(), ..request }).await;
    assert!(matches!(nobody.err(), Some(LogError::NoPod(pod)) if pod == "x"));
}
