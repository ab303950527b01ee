//! Which connections are HTTP; those to a Service that are not become one connection to one endpoint each, byte for
//! byte, each half closed when it ends.
use std::{net::SocketAddr, time::Duration};

use tokio::{io::copy_bidirectional, net::TcpStream, time::timeout};

use crate::{
    counters::{Cause, Counters, Flow},
    router::{InFlight, Router},
    settings::Settings,
};

/// How long the first bytes of a client are waited for before it gets a connection to a server.
const FIRST_BYTES: Duration = Duration::from_millis(20);

/// Enough for the first line of most requests.
const FIRST_LINE: usize = 1024;

const METHODS: [&[u8]; 7] = [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"];

/// What every client of HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client speaks, by the first bytes that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Http1,
    Http2,
    Other,
}

/// Waits for the first bytes of a client.
pub async fn speaks(client: &TcpStream) -> Speaks {
    let mut first = [0; FIRST_LINE];
    match client.peek(&mut first).await {
        Ok(length) if first[..length].starts_with(PREFACE) => Speaks::Http2,
        Ok(length) if begins_request(&first[..length]) => Speaks::Http1,
        Ok(_) | Err(_) => Speaks::Other,
    }
}

/// What a connection to a Service turns out to be.
#[derive(Debug)]
pub enum Entered {
    Http {
        http2: bool,
    },
    Tcp(InFlight, TcpStream),
    /// No endpoint took it.
    Refused,
}

/// Finds out whether the client of a Service speaks HTTP. A client that sends nothing may wait for the server to begin,
/// so it soon gets a connection to one; that is given up again if the client then begins with HTTP.
pub async fn enter(router: &Router, settings: &Settings, service: SocketAddr, client: &TcpStream) -> Entered {
    let http = |speaks| match speaks {
        Speaks::Http1 => Some(Entered::Http { http2: false }),
        Speaks::Http2 if router.is_http2(service) => Some(Entered::Http { http2: true }),
        Speaks::Http2 | Speaks::Other => None,
    };
    let soon = timeout(FIRST_BYTES, speaks(client)).await;
    if let Some(http) = soon.as_ref().ok().copied().and_then(http) {
        return http;
    }
    let Some((in_flight, server)) = connect(router, settings, service).await else { return Entered::Refused };
    if soon.is_err() {
        let mut byte = [0];
        let speaks = tokio::select! {
            biased;
            _ = server.peek(&mut byte) => Speaks::Other,
            speaks = speaks(client) => speaks,
        };
        if let Some(http) = http(speaks) {
            in_flight.withdraw();
            return http;
        }
    }
    Entered::Tcp(in_flight, server)
}

fn begins_request(first: &[u8]) -> bool {
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let whole = line.len() < first.len();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.splitn(2, |byte| *byte == b' ');
    let method = words.next().unwrap_or_default();
    let rest = words.next().unwrap_or_default();
    METHODS.contains(&method)
        && rest.starts_with(b"/")
        && (!whole || rest.ends_with(b" HTTP/1.1") || rest.ends_with(b" HTTP/1.0"))
}

/// Forwards one connection until one side ends it. It goes on when its endpoint leaves service: the pod ends it, at the
/// latest when its grace period is over.
pub async fn forward(in_flight: InFlight, mut client: TcpStream, mut server: TcpStream) {
    drop(client.set_nodelay(true));
    match copy_bidirectional(&mut client, &mut server).await {
        Ok((up, down)) => in_flight.record(|counters| {
            counters.received(up);
            counters.sent(down);
        }),
        // Either side may have broken it, and bytes do not say which: not a failure of ours.
        Err(_) => in_flight.record(Counters::cancelled),
    }
}

/// Connects to an endpoint. Nothing of the client was read yet, so every endpoint may be asked.
async fn connect(router: &Router, settings: &Settings, service: SocketAddr) -> Option<(InFlight, TcpStream)> {
    let mut in_flight = router.choose_in_service(service, Flow::Connection)?;
    let mut retries = settings.retries;
    loop {
        let connected = timeout(settings.connect, TcpStream::connect(in_flight.endpoint.address)).await;
        if let Ok(Ok(server)) = connected {
            in_flight.endpoint.refused(false);
            drop(server.set_nodelay(true));
            return Some((in_flight, server));
        }
        in_flight.endpoint.refused(true);
        let next = if retries > 0 { router.choose_another(in_flight) } else { Err(in_flight) };
        match next {
            Ok(next) => {
                retries -= 1;
                in_flight = next;
            }
            Err(refused) => {
                refused.record(|counters| counters.failed(Cause::Refused));
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_other_protocols_by_their_first_line() {
        let long = format!("GET /{}", "x".repeat(FIRST_LINE));
        for http in ["GET / HTTP/1.1\r\nHost: x\r\n", "POST /v1 HTTP/1.0\n", "DELETE /a/b", &long] {
            assert!(begins_request(http.as_bytes()), "{http}");
        }
        let others = [
            "",
            "G",
            "PRI * HTTP/2.0\r\n",
            "OPTIONS sip:a@b SIP/2.0\r\n",
            "GET key\r\n",
            "GET /key\r\n",
            "\x16\x03\x01",
        ];
        for other in others {
            assert!(!begins_request(other.as_bytes()), "{other}");
        }
    }
}
