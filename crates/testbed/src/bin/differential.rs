//! Random sequences of requests to the embedded API and to a kube-apiserver; prints where the answers differ.
//!
//! `differential [SEQUENCES] [LONGEST] [FIRST SEED] [folder for what differed]`, results as one line of JSON. With 0
//! sequences it prints the one of the seed, for `tests/recorded`.
use std::{
    env, fs,
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use kube::Client;
use serde_json::json;
use testbed::{
    Cluster, Embedded, Error,
    differential::{Difference, Recording, Sequence, compare_both, prepare},
};
use tokio::{sync::Semaphore, task::JoinSet};

/// Sequences under way at once; each waits for its watches most of the time.
const AT_ONCE: usize = 64;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let number = |at: usize, or: u64| env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(or);
    let (sequences, length, first) = (number(1, 200), number(2, 40), number(3, 1));
    let folder = env::args().nth(4).map(PathBuf::from);
    if sequences == 0 {
        return print_sequence(first, usize::try_from(length).unwrap_or(40));
    }
    let real = Cluster::shared().await.client();
    let embedded = Embedded::start().await?;
    let ours = embedded.client();
    prepare(&real).await?;
    prepare(&ours).await?;

    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for seed in first..first + sequences {
        let (real, ours, places) = (real.clone(), ours.clone(), Arc::clone(&places));
        running.spawn(async move {
            let _place = places.acquire_owned().await;
            // Short ones and long ones.
            let length = usize::try_from(1 + seed % length.max(1)).unwrap_or(1);
            (seed, one(seed, length, real, ours).await)
        });
    }
    let (mut differing, mut requests) = (0, 0);
    while let Some(done) = running.join_next().await {
        let (seed, result) = done.map_err(|join| Error::Io {
            action: "finish a sequence".to_owned(),
            source: io::Error::other(join),
        })?;
        let (sent, differences) = result?;
        requests += sent;
        differing += usize::from(!differences.is_empty());
        for difference in differences.iter().take(1) {
            print(seed, difference, folder.as_ref());
        }
    }
    let summary = json!({"sequences": sequences, "requests": requests, "differing": differing});
    writeln!(io::stdout(), "{summary}").map_err(|source| Error::Io { action: "print".to_owned(), source })
}

/// A recording without answers yet: `SEGUE_UPDATE=1` fills them in.
fn print_sequence(seed: u64, length: usize) -> Result<(), Error> {
    let recording = Recording { sequence: Sequence::random(seed, length), answers: Vec::new() };
    io::stdout()
        .write_all(recording.text().as_bytes())
        .map_err(|source| Error::Io { action: "print".to_owned(), source })
}

async fn one(
    seed: u64,
    length: usize,
    real: Client,
    ours: Client,
) -> Result<(usize, Vec<Difference>), Error> {
    let sequence = Sequence::random(seed, length);
    let differences = compare_both(&sequence, &format!("differential-{seed}"), &real, &ours).await?;
    Ok((sequence.steps.len(), differences))
}

fn print(seed: u64, difference: &Difference, folder: Option<&PathBuf>) {
    let Difference { step, request, expected, found } = difference;
    let text = json!({"seed": seed, "step": step, "request": request, "expected": expected, "found": found});
    if let Some(folder) = folder {
        let text = serde_json::to_string_pretty(&text).unwrap_or_default();
        drop(fs::create_dir_all(folder).and_then(|()| fs::write(folder.join(format!("{seed}.json")), text)));
    }
}
