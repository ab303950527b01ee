//! The embedded API beside etcd and kube-apiserver: the same requests, in one run, on one machine.
//!
//!     cargo run --profile dist -p bench --bin apiserver
//!
//! Five sides: the embedded API in process with the store in memory; over TLS, in memory and durable, in a process of
//! its own; etcd and kube-apiserver with fsync and without. Every client is a `kube::Client` with a connection of its
//! own. `TMPDIR` says which disk, for all of them.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::cast_precision_loss, reason = "figures are rounded for people")]

mod load;
mod sides;

use std::env;

use serde_json::{Map, Value, json};

use crate::{load::measure, sides::Side};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", directory, mode] => runtime.block_on(sides::serve(directory.as_ref(), mode)),
        ref only => runtime.block_on(compare(only)),
    }
}

/// Every side, or those that are named.
async fn compare(only: &[&str]) -> Result<(), Failure> {
    let mut found = Map::new();
    for name in sides::NAMES {
        if !only.is_empty() && !only.contains(&name) {
            continue;
        }
        eprintln!("{name}");
        let side = Side::start(name).await?;
        found.insert(name.to_owned(), measure(&side).await?);
    }
    let ratios = |ours: &str, theirs: &str| match (found.get(ours), found.get(theirs)) {
        (Some(ours), Some(theirs)) => ratio(ours, theirs),
        _ => Value::Null,
    };
    let result = json!({
        "benchmark": "apiserver",
        "objectBytes": load::OBJECT_BYTES,
        "ratios": {
            "durableTlsToEtcdWithFsync": ratios("durableTls", "etcdWithFsync"),
            "memoryTlsToEtcdWithoutFsync": ratios("memoryTls", "etcdWithoutFsync"),
            "memoryInProcessToEtcdWithoutFsync": ratios("memoryInProcess", "etcdWithoutFsync"),
        },
        "sides": found,
    });
    println!("{result}");
    Ok(())
}

/// Ours by theirs, figure by figure.
fn ratio(ours: &Value, theirs: &Value) -> Value {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let both = ours.iter().filter_map(|(name, ours)| Some((name, ours, theirs.get(name)?)));
            both.map(|(name, ours, theirs)| (name.clone(), ratio(ours, theirs))).collect()
        }
        _ => match (ours.as_f64(), theirs.as_f64()) {
            (Some(ours), Some(theirs)) if theirs > 0.0 => json!(significant(ours / theirs)),
            _ => Value::Null,
        },
    }
}

/// Three digits: the others are noise.
fn significant(figure: f64) -> f64 {
    format!("{figure:.2e}").parse().unwrap_or(figure)
}
