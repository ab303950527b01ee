//! Headers: those of one connection stay there, those of the route are changed.
use std::net::SocketAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Uri, Version,
    header::{self, Entry},
};

use crate::kinds::HeaderChange;

/// Those that mean one connection only (RFC 9110, 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
        && tokens(headers).any(|token| token.eq_ignore_ascii_case(header::UPGRADE.as_str()))
}

/// Makes the request of a client one of ours.
pub fn to_server<B>(request: &mut Request<B>, client: SocketAddr, upgrade: bool) {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    if let Ok(origin) = path.parse::<Uri>() {
        *request.uri_mut() = origin;
    }
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    strip(headers, upgrade);
    // The answer to it is ours to give: reading the body gives it.
    headers.remove(header::EXPECT);
    if let Ok(value) = HeaderValue::from_str(&forwarded_for(headers, client)) {
        headers.insert(FORWARDED_FOR, value);
    }
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
    if let (Some(host), Entry::Vacant(unset)) =
        (headers.get(header::HOST).cloned(), headers.entry(FORWARDED_HOST))
    {
        unset.insert(host);
    }
}

fn forwarded_for(headers: &HeaderMap, client: SocketAddr) -> String {
    let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<String> = before.map(str::to_owned).chain([client.ip().to_string()]).collect();
    all.join(", ")
}

pub fn to_client(headers: &mut HeaderMap, upgrade: bool) {
    strip(headers, upgrade);
}

fn strip(headers: &mut HeaderMap, upgrade: bool) {
    let named: Vec<HeaderName> = tokens(headers).filter_map(|token| token.parse().ok()).collect();
    let protocol = headers.get(header::UPGRADE).cloned().filter(|_| upgrade);
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
    if let Some(protocol) = protocol {
        headers.insert(header::UPGRADE, protocol);
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Does what the filters of a rule say: set, then add, then remove. What is no header is left out: the schema of the
/// route rules it out.
pub fn change(headers: &mut HeaderMap, changes: &[HeaderChange]) {
    for change in changes {
        for (entries, add) in [(&change.set, false), (&change.add, true)] {
            for entry in entries {
                let name = HeaderName::from_bytes(entry.name.as_bytes());
                let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&entry.value)) else { continue };
                if add {
                    headers.append(name, value);
                } else {
                    headers.insert(name, value);
                }
            }
        }
        for name in &change.remove {
            headers.remove(name.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_one_connection_stays_there() {
        let mut request = Request::builder()
            .uri("http://host/path?q=1")
            .header("connection", "keep-alive, X-Once")
            .header("x-once", "1")
            .header("keep-alive", "5")
            .header("host", "host")
            .header("x-forwarded-for", "10.0.0.1")
            .header("x-stays", "1")
            .body(())
            .unwrap();
        to_server(&mut request, "127.0.0.9:1".parse().unwrap(), false);
        assert_eq!(request.uri(), "/path?q=1");
        let mut left: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-stays"]);
        assert_eq!(request.headers()["x-forwarded-for"], "10.0.0.1, 127.0.0.9");
    }

    #[test]
    fn an_upgrade_is_passed_on_and_nothing_else_of_the_connection() {
        let mut headers = HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static("Upgrade"));
        headers.insert("upgrade", HeaderValue::from_static("websocket"));
        assert!(wants_upgrade(&headers));
        strip(&mut headers, true);
        assert_eq!(
            (&headers["connection"], &headers["upgrade"]),
            (&HeaderValue::from_static("upgrade"), &HeaderValue::from_static("websocket"))
        );
        strip(&mut headers, false);
        assert!(headers.is_empty());
    }
}
