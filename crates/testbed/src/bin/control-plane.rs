//! Runs a control plane until standard input ends or the process does, and prints where it is as one line of JSON.
use std::io::{self, Read, Write};

use serde_json::json;
use testbed::Cluster;

#[tokio::main]
async fn main() -> io::Result<()> {
    let cluster = Cluster::shared().await;
    let place = json!({
        "kubeconfig": cluster.kubeconfig(),
        "directory": cluster.directory(),
        "processes": cluster.processes(),
    });
    writeln!(io::stdout(), "{place}")?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
