//! Which addresses may be called. A user who writes a ModelDeployment names URLs, and the controllers stand elsewhere in the
//! network than its pods do: what a machine tells only itself must not be had through them.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    task::{Context, Poll},
    vec,
};

use futures_util::{FutureExt, future::BoxFuture};
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

/// Where clouds tell a machine its credentials, beside the link-local addresses.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// The addresses that may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedTargets {
    /// Those of a cluster: not this machine itself.
    Cluster,
    /// Those of a cluster whose pods are processes of this machine.
    Machine,
}

impl AllowedTargets {
    /// Why an address may not be called.
    fn denies(self, address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        match address {
            _ if is_link_local || METADATA.contains(&address) => Some("it is of a machine's own link"),
            _ if address.is_unspecified() || address.is_multicast() => Some("it is not that of one host"),
            _ if address.is_loopback() && self == Self::Cluster => {
                Some("it is of the operator's own machine")
            }
            _ => None,
        }
    }

    /// Checks the host of a URL that is an address already: it is not resolved.
    pub(super) fn check(self, host: &str) -> Result<(), String> {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        match address.and_then(|address| Some((address, self.denies(address)?))) {
            Some((address, why)) => Err(format!("{address} may not be called: {why}")),
            None => Ok(()),
        }
    }
}

/// Resolves names to addresses that may be called. The connection is made to what was checked.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    pub(super) reach: AllowedTargets,
    names: GaiResolver,
}

impl Resolver {
    pub(super) fn new(reach: AllowedTargets) -> Self {
        Self { reach, names: GaiResolver::new() }
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.names.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (reach, found) = (self.reach, self.names.call(name.clone()));
        async move {
            let found: Vec<SocketAddr> = found.await?.collect();
            let denied = found.iter().find_map(|it| Some((it.ip(), reach.denies(it.ip())?)));
            match denied {
                // A name with one such address is a trick, whatever its others are.
                Some((address, why)) => {
                    Err(io::Error::other(format!("{name} is {address}, which may not be called: {why}")))
                }
                None => Ok(found.into_iter()),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_tells_only_itself_is_denied_however_it_is_written() {
        for host in [
            "169.254.169.254",
            "[::ffff:169.254.169.254]",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "100.100.100.200",
            "0.0.0.0",
            "[::]",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            assert!(
                AllowedTargets::Cluster.check(host).is_err() && AllowedTargets::Machine.check(host).is_err(),
                "{host}"
            );
        }
        for host in ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(
                AllowedTargets::Cluster.check(host).is_err() && AllowedTargets::Machine.check(host).is_ok(),
                "{host}"
            );
        }
        for host in ["10.0.0.1", "192.168.1.1", "[fd12::1]", "8.8.8.8", "judge.tools"] {
            assert_eq!(AllowedTargets::Cluster.check(host), Ok(()), "{host}");
        }
    }

    #[tokio::test]
    async fn a_name_is_denied_by_its_addresses() {
        let name: Name = "localhost".parse().unwrap();
        let refused =
            Resolver::new(AllowedTargets::Cluster).call(name.clone()).await.unwrap_err().to_string();
        assert!(refused.contains("localhost is") && refused.contains("may not be called"), "{refused}");
        assert!(Resolver::new(AllowedTargets::Machine).call(name).await.unwrap().len() > 0);
    }
}
