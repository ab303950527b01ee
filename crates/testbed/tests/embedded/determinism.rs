//! One seed, one history, to the byte.
use std::time::Duration;

use testbed::differential::Sequence;

use crate::support::{NAMESPACE, get, run, server, simulate};

const SEQUENCES: u64 = 40;
const LENGTH: usize = 60;

/// Everything a server answers to a sequence, and everything that somebody who watches sees.
fn history(world: u64, sequence: &Sequence) -> (Vec<u8>, Vec<u8>) {
    simulate(async {
        let server = server(world);
        let answers = run(&server, sequence).await;
        // Until the collector has nothing left to do: in this runtime time passes only when nothing else can.
        tokio::time::sleep(Duration::from_mins(1)).await;
        let mut watched = Vec::new();
        for resource in ["api/v1/configmaps", "api/v1/pods", "api/v1/services", "apis/segue.test/v1/widgets"]
        {
            let (base, plural) = resource.rsplit_once('/').unwrap();
            let path = format!(
                "/{base}/namespaces/{NAMESPACE}/{plural}?watch=true&timeoutSeconds=1&resourceVersion=1"
            );
            watched.extend(get(&server, &path).await);
        }
        (answers, watched)
    })
}

#[test]
fn two_runs_with_one_seed_are_equal_to_the_byte() {
    let mut watched = 0;
    for seed in 0..SEQUENCES {
        let sequence = Sequence::random(seed, LENGTH);
        let (once, again) = (history(seed, &sequence), history(seed, &sequence));
        if let Some(at) = once.0.iter().zip(&again.0).position(|(one, two)| one != two) {
            let around = |bytes: &[u8]| {
                String::from_utf8_lossy(&bytes[at.saturating_sub(200)..(at + 200).min(bytes.len())])
                    .into_owned()
            };
            panic!("sequence {seed} differs:\n{}\n---\n{}", around(&once.0), around(&again.0));
        }
        assert!(once == again, "sequence {seed}");
        watched += once.1.len();
    }
    assert!(watched > 0);
}

#[test]
fn another_seed_is_another_history() {
    for seed in 0..10 {
        let sequence = Sequence::random(seed, LENGTH);
        let other_world = history(seed + 1, &sequence);
        let other_sequence = history(seed, &Sequence::random(seed + SEQUENCES, LENGTH));
        let this = history(seed, &sequence);
        assert_ne!(this.0, other_world.0, "sequence {seed}: uids must follow the seed");
        assert_ne!(this.0, other_sequence.0, "sequence {seed}");
    }
}
