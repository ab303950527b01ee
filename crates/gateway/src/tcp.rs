//! TCP: a connection to a Service is one to an endpoint of it, byte for byte, each half closed when it ends.
use std::{net::SocketAddr, sync::Arc};

use tokio::{io::copy_bidirectional, net::TcpStream, time::timeout};

use crate::{
    counters::{Cause, Tally},
    live::{Live, Visit},
    settings::Settings,
};

/// Forwards one connection. It goes on when its endpoint leaves service, for as long as the drain allows.
pub async fn forward(live: Arc<Live>, settings: Arc<Settings>, door: SocketAddr, mut client: TcpStream) {
    let Some((visit, mut server)) = connect(&live, &settings, door).await else {
        return;
    };
    drop(client.set_nodelay(true));
    let endpoint = Arc::clone(&visit.endpoint);
    tokio::select! {
        ended = copy_bidirectional(&mut client, &mut server) => match ended {
            Ok((up, down)) => visit.tell(|tally| {
                tally.received(up);
                tally.sent(down);
            }),
            // Either side may have broken it, and bytes do not say which: not a failure of ours.
            Err(_) => visit.tell(Tally::cancelled),
        },
        () = endpoint.gone_for(settings.drain) => visit.tell(|tally| tally.failed(Cause::Truncated)),
    }
}

/// Nothing of the client was read yet, so every endpoint may be asked.
async fn connect(live: &Live, settings: &Settings, door: SocketAddr) -> Option<(Visit, TcpStream)> {
    let mut visit = live.enter(door)?;
    let mut retries = settings.retries;
    loop {
        let connected = timeout(settings.connect, TcpStream::connect(visit.endpoint.address)).await;
        if let Ok(Ok(server)) = connected {
            visit.endpoint.refused(false);
            drop(server.set_nodelay(true));
            return Some((visit, server));
        }
        visit.endpoint.refused(true);
        let next = if retries > 0 { live.elsewhere(visit) } else { Err(visit) };
        match next {
            Ok(next) => {
                retries -= 1;
                visit = next;
            }
            Err(refused) => {
                refused.tell(|tally| tally.failed(Cause::Refused));
                return None;
            }
        }
    }
}
