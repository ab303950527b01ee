//! What can be set.
use std::{net::Ipv4Addr, time::Duration};

use jiff::Timestamp;

/// The settings of a gateway. The defaults are right for one machine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `controllerName` of the `GatewayClass`es that are ours.
    pub controller: String,
    /// The first two numbers of the addresses given to Gateways that ask for none.
    pub addresses: [u8; 2],
    /// How long a connection to an endpoint may take to open.
    pub connect: Duration,
    /// How long a connection to an endpoint is kept without a request. Shorter than what servers keep (uvicorn: 5 s),
    /// so that a request is never sent into a connection that its server is about to close.
    pub idle: Duration,
    /// How long connections of clients may go on after the stop.
    pub drain: Duration,
    /// How many other endpoints a request may be offered to when nothing of it could be sent.
    pub retries: usize,
    /// Whether the share of a Service without a ready endpoint goes to the others of its rule while that lasts. The
    /// Gateway API would have it answered with 503. With it, a weight that is seen before the endpoints that it needs
    /// costs nothing.
    pub failover: bool,
    /// How much later than it is seen a change of routes is taken up; endpoints are at once. Nothing is gained by it:
    /// other gateways hear of both in different ways and collect changes of routes before they reload, and a controller that
    /// moves traffic must not rely on a gateway that does not. With it they can be shown to wait for the
    /// acknowledgement, which comes after the change is served all the same.
    pub lag: Duration,
    /// Where the times in conditions come from.
    pub clock: fn() -> Timestamp,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            controller: "segue.dev/gateway".to_owned(),
            addresses: [127, 80],
            connect: Duration::from_secs(2),
            idle: Duration::from_secs(2),
            drain: Duration::from_mins(1),
            retries: 3,
            failover: true,
            lag: Duration::ZERO,
            clock: wall_clock,
        }
    }
}

impl Settings {
    /// The address of the range with this number. `.0` and `.255` stay free, as people expect of them.
    pub fn address(&self, number: u16) -> Ipv4Addr {
        let (high, low) = (number / 254 % 256, number % 254 + 1);
        let [a, b] = self.addresses;
        Ipv4Addr::new(a, b, u8::try_from(high).unwrap_or(0), u8::try_from(low).unwrap_or(1))
    }
}

#[allow(clippy::disallowed_methods, reason = "conditions carry the time of their last transition")]
fn wall_clock() -> Timestamp {
    Timestamp::now()
}
