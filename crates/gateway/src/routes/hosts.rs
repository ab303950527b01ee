//! Hostnames of listeners and routes.

/// Which hosts are meant. In order: what is more specific comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Exact(String),
    /// `*.example.com`, kept as `.example.com`: any number of labels, at least one.
    Below(String),
    Any,
}

impl Host {
    pub fn parse(hostname: Option<&str>) -> Self {
        match hostname.unwrap_or_default().to_ascii_lowercase() {
            all if all.is_empty() || all == "*" => Self::Any,
            name => match name.strip_prefix('*') {
                Some(suffix) => Self::Below(suffix.to_owned()),
                None => Self::Exact(name),
            },
        }
    }

    /// `host` without its port, in lower case.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
            Self::Any => true,
        }
    }

    /// What both mean, if anything.
    pub fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, host) | (host, Self::Any) => Some(host.clone()),
            (Self::Exact(name), pattern) | (pattern, Self::Exact(name)) => {
                pattern.matches(name).then(|| Self::Exact(name.clone()))
            }
            (Self::Below(one), Self::Below(two)) => {
                let (long, short) = if one.len() >= two.len() { (one, two) } else { (two, one) };
                long.ends_with(short.as_str()).then(|| Self::Below(long.clone()))
            }
        }
    }

    /// Smaller is more specific.
    pub fn rank(&self) -> (u8, std::cmp::Reverse<usize>) {
        match self {
            Self::Exact(name) => (0, std::cmp::Reverse(name.len())),
            Self::Below(suffix) => (1, std::cmp::Reverse(suffix.len())),
            Self::Any => (2, std::cmp::Reverse(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_needs_a_label_and_takes_many() {
        let below = Host::parse(Some("*.Example.com"));
        assert!(below.matches("a.example.com") && below.matches("a.b.example.com"));
        assert!(!below.matches("example.com") && !below.matches("aexample.com"));
    }

    #[test]
    fn two_patterns_mean_what_both_mean() {
        let table = [
            (None, Some("a.b"), Some("a.b")),
            (Some("*.b"), Some("a.b"), Some("a.b")),
            (Some("*.b"), Some("*.a.b"), Some("*.a.b")),
            (Some("a.b"), Some("*.c"), None),
            (Some("a.b"), Some("b.b"), None),
        ];
        for (one, two, both) in table {
            let (one, two) = (Host::parse(one), Host::parse(two));
            assert_eq!(one.and(&two), both.map(|both| Host::parse(Some(both))));
            assert_eq!(one.and(&two), two.and(&one));
        }
    }
}
