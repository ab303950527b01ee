//! Addresses of endpoints.
use std::net::IpAddr;

use serde_json::Value;

use super::cause::Cause;

pub const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

pub fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// What is wrong with the address of an endpoint. A kube-apiserver refuses loopback, too; here the pods listen on it.
pub fn endpoint(ip: IpAddr, field: &str, value: &Value) -> Vec<Cause> {
    let (link, multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let wrong = [
        (ip.is_unspecified(), format!("may not be unspecified ({ip})")),
        (link, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()),
    ];
    let wrong = wrong.into_iter().filter(|(wrong, _)| *wrong);
    wrong.map(|(_, says)| Cause::invalid(field, value, &says)).collect()
}
