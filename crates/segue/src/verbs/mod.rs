//! The verbs that talk to an API: what `kubectl` would be needed for otherwise.
//!
//! Each one asks whatever API a kubeconfig leads to, embedded or a cluster's; none of them knows which.

pub(crate) mod adopt;
pub(crate) mod apply;
mod client;
pub(crate) mod delete;
mod documents;
mod failure;
pub(crate) mod get;
mod kinds;
pub(crate) mod logs;
mod object;
pub(crate) mod rollout;
mod stream;
mod table;
pub(crate) mod why;

pub(crate) use self::client::{Connected, Reach};
use self::{client::Cluster, failure::Failure};
use crate::output::{Answer, Error};

/// A client of the API that a kubeconfig leads to.
pub(crate) async fn connect(reach: &Reach) -> Result<Connected, Error> {
    match Cluster::reach(reach).await {
        Ok(cluster) => Ok(cluster.connected()),
        Err(Failure::Refused(why)) => Err(Error::CouldNotAsk(why)),
        Err(Failure::Unasked(error)) => Err(error),
    }
}

/// Runs a verb to its end; a refusal is told on standard error and becomes the exit code.
fn run(verb: impl Future<Output = Result<Answer, Failure>>) -> Result<Answer, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(verb) {
        Ok(answer) => Ok(answer),
        Err(Failure::Refused(why)) => {
            eprintln!("error: {why}");
            Ok(Answer::No)
        }
        Err(Failure::Unasked(error)) => Err(error),
    }
}
