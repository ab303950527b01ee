//! The parts that tests run against.
//!
//! [`Cluster`] is a real Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager, built once with
//! Go from `control-plane/go.mod`, run on loopback ports in a directory of their own, and gone when the test process
//! is gone, however it ends. There is no kubelet and no scheduler: a test plays them where it needs them.
#![warn(missing_docs)]

mod binaries;
pub mod campaign;
mod certificates;
mod cluster;
mod crds;
mod daemons;
pub mod differential;
mod embedded;
mod error;
mod flags;
pub mod inherited;
mod kubelet;
mod port;
mod traefik;
mod versions;
pub mod virtual_time;
mod volcano;
mod wait;

pub use binaries::Binaries;
pub use cluster::{Cluster, Parts};
pub use embedded::Embedded;
pub use error::Error;
pub use kubelet::{Kubelet, Pace};
pub use port::free_port;
pub use traefik::traefik;
pub use versions::Versions;
pub use volcano::pod_groups;
pub use wait::eventually;
