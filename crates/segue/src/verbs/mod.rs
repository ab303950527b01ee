//! The commands that talk to an API, embedded or a cluster's: the kubeconfig decides which.

pub(crate) mod adopt;
pub(crate) mod apply;
mod client;
pub(crate) mod delete;
mod discovery;
mod documents;
mod failure;
pub(crate) mod get;
pub(crate) mod live;
pub(crate) mod logs;
#[cfg(test)]
mod new_kind;
pub(crate) mod rollout;
mod stream;
mod table;
mod target;
pub(crate) mod why;

pub(crate) use self::client::{Connected, Connection};
use self::{client::Cluster, failure::Failure};
use crate::output::{Answer, Error};

/// Connects to the API of the kubeconfig.
pub(crate) async fn connect(connection: &Connection) -> Result<Connected, Error> {
    match Cluster::connect(connection).await {
        Ok(cluster) => Ok(cluster.connected()),
        Err(Failure::Refused(why)) => Err(Error::Failed(why)),
        Err(Failure::Failed(error)) => Err(error),
    }
}

/// Runs a command. A refusal is printed on standard error and becomes exit code 1.
fn run(verb: impl Future<Output = Result<Answer, Failure>>) -> Result<Answer, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(verb) {
        Ok(answer) => Ok(answer),
        Err(Failure::Refused(why)) => {
            eprintln!("error: {why}");
            Ok(Answer::No)
        }
        Err(Failure::Failed(error)) => Err(error),
    }
}
