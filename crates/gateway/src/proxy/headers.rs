//! Headers: those of one connection stay there, those of the route are changed.
use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Uri, Version,
    header::{self, Entry},
    uri::{self, Authority, PathAndQuery, Scheme},
};

use crate::{kinds::HeaderChange, routes::Rewrite};

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

/// Makes the request of a client one of ours, of no version yet: the host is in `Host`, the rest of the URI in its path.
pub fn to_server<B>(request: &mut Request<B>, upgrade: bool) {
    let authority = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    // Most clients of HTTP/1.1 send nothing else: then nothing is to do.
    if request.uri().authority().is_some() || request.uri().path_and_query().is_none() {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    let headers = request.headers_mut();
    if let Some(host) = authority {
        headers.insert(header::HOST, host);
    }
    let trailers = headers.get_all(header::TE).iter().any(|value| value.as_bytes() == b"trailers");
    strip(headers, upgrade);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    // The answer to it is ours to give: reading the body gives it.
    headers.remove(header::EXPECT);
}

/// Does what a URL rewrite says. What is no path or host is left as it is.
pub fn rewrite<B>(request: &mut Request<B>, rewrite: &Rewrite) {
    if let Ok(target) = rewrite.target(request.uri()).parse::<Uri>() {
        *request.uri_mut() = target;
    }
    if let Some(host) = rewrite.host.as_ref().and_then(|host| HeaderValue::from_str(host).ok()) {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// Writes the request for a server of HTTP/1.1, or of HTTP/2, which has the host in the URI.
pub fn set_version<B>(request: &mut Request<B>, http2: bool) {
    if http2 {
        let host = request.headers_mut().remove(header::HOST);
        let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let mut parts = uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(host.unwrap_or_else(|| Authority::from_static("localhost")));
        parts.path_and_query = request.uri().path_and_query().cloned();
        if let Ok(absolute) = Uri::from_parts(parts) {
            *request.uri_mut() = absolute;
        }
        *request.version_mut() = Version::HTTP_2;
        return;
    }
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    headers.remove(header::TE);
    // HTTP/2 may send each pair as a header of its own (RFC 9113, 8.2.3).
    let pairs = || headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
    if pairs().nth(1).is_some() {
        let all: Vec<&[u8]> = pairs().collect();
        if let Ok(cookie) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
            headers.insert(header::COOKIE, cookie);
        }
    }
}

/// Says for whom the request was forwarded.
pub fn forwarded(headers: &mut HeaderMap, client: &HeaderValue, scheme: &'static str) {
    let value = match headers.entry(FORWARDED_FOR) {
        Entry::Vacant(_) => Some(client.clone()),
        Entry::Occupied(before) => {
            let mut all = Vec::new();
            for value in before.iter() {
                all.extend_from_slice(value.as_bytes());
                all.extend_from_slice(b", ");
            }
            all.extend_from_slice(client.as_bytes());
            HeaderValue::from_bytes(&all).ok()
        }
    };
    if let Some(value) = value {
        headers.insert(FORWARDED_FOR, value);
    }
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
    if let (Some(host), Entry::Vacant(unset)) =
        (headers.get(header::HOST).cloned(), headers.entry(FORWARDED_HOST))
    {
        unset.insert(host);
    }
}

/// The address of a client, as servers are told it: written once for all requests of its connection.
pub fn forwarded_for(client: IpAddr) -> HeaderValue {
    HeaderValue::from_str(&client.to_string()).unwrap_or(HeaderValue::from_static("unknown"))
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
        to_server(&mut request, false);
        forwarded(request.headers_mut(), &forwarded_for("127.0.0.9".parse().unwrap()), "http");
        assert_eq!(request.uri(), "/path?q=1");
        let mut left: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-stays"]);
        assert_eq!(request.headers()["x-forwarded-for"], "10.0.0.1, 127.0.0.9");
        let mut first = HeaderMap::new();
        forwarded(&mut first, &forwarded_for("::1".parse().unwrap()), "https");
        assert_eq!(
            (&first["x-forwarded-for"], &first["x-forwarded-proto"]),
            (&"::1".parse().unwrap(), &"https".parse().unwrap())
        );
    }

    #[test]
    fn a_request_of_http2_becomes_one_of_http1_and_the_other_way_round() {
        let mut request = Request::builder()
            .uri("http://host:1/path?q=1")
            .version(Version::HTTP_2)
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("te", "trailers")
            .body(())
            .unwrap();
        to_server(&mut request, false);
        let mut old = request.clone();
        set_version(&mut old, false);
        assert_eq!((old.uri().to_string(), old.version()), ("/path?q=1".to_owned(), Version::HTTP_11));
        assert_eq!(
            (&old.headers()["host"], &old.headers()["cookie"]),
            (&"host:1".parse().unwrap(), &"a=1; b=2".parse().unwrap())
        );
        assert!(!old.headers().contains_key("te"), "it is of one connection");
        set_version(&mut request, true);
        assert_eq!(
            (request.uri().to_string(), request.version()),
            ("http://host:1/path?q=1".to_owned(), Version::HTTP_2)
        );
        assert_eq!(
            (request.headers().contains_key("host"), &request.headers()["te"]),
            (false, &"trailers".parse().unwrap())
        );
    }

    #[test]
    fn a_target_is_a_path_whatever_the_client_wrote() {
        let table = [
            ("http://host:1", "/", "http://host:1/"),
            ("http://host:1/a?b=1", "/a?b=1", "http://host:1/a?b=1"),
            ("/a?b=1", "/a?b=1", "http://other/a?b=1"),
            ("/", "/", "http://other/"),
            ("*", "*", "http://other*"),
        ];
        for (target, old, new) in table {
            let mut request = Request::builder().uri(target).header("host", "other").body(()).unwrap();
            to_server(&mut request, false);
            assert_eq!(request.uri(), old, "{target}");
            set_version(&mut request, true);
            assert_eq!(request.uri(), new, "{target}");
        }
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
