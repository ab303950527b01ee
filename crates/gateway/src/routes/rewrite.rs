//! Redirects and rewrites: where a request goes instead.
use http::Uri;

/// What becomes of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathChange {
    Full(String),
    /// The prefix that the rule matched is replaced.
    Prefix {
        matched: String,
        by: String,
    },
}

impl PathChange {
    fn apply(&self, path: &str) -> String {
        match self {
            Self::Full(path) => path.clone(),
            Self::Prefix { matched, by } => {
                let rest = path.strip_prefix(matched.trim_end_matches('/')).unwrap_or_default();
                let changed = format!("{}{rest}", by.trim_end_matches('/'));
                if changed.is_empty() { "/".to_owned() } else { changed }
            }
        }
    }
}

/// What a URL rewrite changes before the request is sent to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    pub host: Option<String>,
    pub path: Option<PathChange>,
}

impl Rewrite {
    /// The path and query of the request that is sent.
    pub fn target(&self, uri: &Uri) -> String {
        target(self.path.as_ref(), uri)
    }
}

/// What a redirect answers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub scheme: Option<String>,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub path: Option<PathChange>,
    pub status: u16,
}

impl Redirect {
    /// Where the client is sent. `scheme` and `host`, without a port, are those of the request, and `listener` is the port
    /// of the listener.
    pub fn location(&self, scheme: &str, host: &str, listener: u16, uri: &Uri) -> String {
        let scheme = self.scheme.as_deref().unwrap_or(scheme);
        let usual = if scheme == "https" { 443 } else { 80 };
        let port = self.port.unwrap_or_else(|| if self.scheme.is_some() { usual } else { listener });
        let port = if port == usual { String::new() } else { format!(":{port}") };
        let host = self.host.as_deref().unwrap_or(host);
        format!("{scheme}://{host}{port}{}", target(self.path.as_ref(), uri))
    }
}

fn target(change: Option<&PathChange>, uri: &Uri) -> String {
    let path = change.map_or_else(|| uri.path().to_owned(), |change| change.apply(uri.path()));
    match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_replaced_by_whole_elements() {
        let table = [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/x", "/", "/b", "/b/x"),
        ];
        for (path, matched, by, expected) in table {
            let change = PathChange::Prefix { matched: matched.to_owned(), by: by.to_owned() };
            assert_eq!(change.apply(path), expected, "{path} {matched} {by}");
        }
    }

    #[test]
    fn a_redirect_names_the_port_only_if_it_is_not_the_usual_one() {
        let plain = Redirect { scheme: None, host: None, port: None, path: None, status: 302 };
        let uri: Uri = "/a?b=1".parse().unwrap();
        let https = Redirect { scheme: Some("https".to_owned()), ..plain.clone() };
        let other = Redirect { host: Some("other".to_owned()), port: Some(9000), ..https.clone() };
        assert_eq!(plain.location("http", "host", 80, &uri), "http://host/a?b=1");
        assert_eq!(plain.location("http", "host", 8080, &uri), "http://host:8080/a?b=1");
        assert_eq!(https.location("http", "host", 8080, &uri), "https://host/a?b=1");
        assert_eq!(plain.location("https", "host", 443, &uri), "https://host/a?b=1");
        assert_eq!(other.location("http", "host", 8080, &uri), "https://other:9000/a?b=1");
    }
}
