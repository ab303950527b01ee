//! The load of the demonstration: many short requests, and a few streams at any time.

use std::{net::SocketAddr, time::Duration};

use gateway::load::{Client, Target, Totals};
use tokio::{sync::watch, task::JoinSet};

use super::manifest::{NAME, TOKEN_MILLIS, TOKENS};

/// How many long streams there are at any time: enough that each replica that leaves has some.
const STREAMS: u32 = 24;

/// How long after the other they begin, so that at any moment some have just begun.
const APART: Duration = Duration::from_millis((TOKENS * TOKEN_MILLIS / STREAMS) as u64);

const PATH: &str = "/v1/completions";

/// The addresses that the load goes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    /// The Gateway, which balances requests.
    pub(super) gateway: SocketAddr,
    /// The stable Service, which balances connections, as for clients inside a cluster.
    pub(super) service: SocketAddr,
}

/// Load that runs until it is told to stop, and what became of it.
#[derive(Debug)]
pub(super) struct Load {
    clients: [Client; 3],
    stop: watch::Sender<bool>,
    asking: JoinSet<()>,
}

impl Load {
    /// Two thirds by the Gateway, one third by the Service with a new connection each, and the streams.
    pub(super) fn start(addresses: Addresses, per_second: u32) -> Self {
        let target = |address, path: &str, fresh| Target {
            address,
            host: NAME.to_owned(),
            path: path.to_owned(),
            fresh,
        };
        let by_gateway = Client::new(target(addresses.gateway, PATH, false));
        let by_service = Client::new(target(addresses.service, PATH, true));
        let streams = target(addresses.gateway, &format!("{PATH}?stream={TOKENS}"), false);
        let streams = Client::of_streams(streams, sample::LAST_EVENT);
        let (stop, stopped) = watch::channel(false);
        let told = || {
            let mut stopped = stopped.clone();
            async move { drop(stopped.wait_for(|stopped| *stopped).await) }
        };
        let service_share = (per_second / 3).max(1);
        let gateway_share = per_second.saturating_sub(service_share).max(1);
        let mut asking = JoinSet::new();
        for (client, per_second) in [(&by_gateway, gateway_share), (&by_service, service_share)] {
            let (client, told) = (client.clone(), told());
            asking.spawn(async move { client.open_loop(per_second, told).await });
        }
        for place in 0..STREAMS {
            let (client, stopping) = (streams.clone(), told());
            asking.spawn(async move {
                tokio::time::sleep(APART * place).await;
                client.closed_loop_until(1, stopping).await;
            });
        }
        Self { clients: [by_gateway, by_service, streams], stop, asking }
    }

    /// How requests ended, so far.
    pub(super) fn totals(&self) -> Totals {
        self.clients.iter().map(Client::totals).fold(Totals::default(), |sum, more| Totals {
            ok: sum.ok + more.ok,
            app_errors: sum.app_errors + more.app_errors,
            failed: sum.failed + more.failed,
            truncated: sum.truncated + more.truncated,
        })
    }

    /// Nothing new is asked; what was asked may be answered.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Whether everything that was asked has ended.
    pub(super) fn is_over(&mut self) -> bool {
        while self.asking.try_join_next().is_some() {}
        self.asking.is_empty()
    }
}
