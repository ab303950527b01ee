//! Content negotiation: the representation of the response that the `Accept` header asks for.
use http::{HeaderMap, header};

use crate::{
    status::StatusError,
    table::{Include, Version},
};

/// The representations of an object or a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// As it is stored.
    Json,
    /// Rows for people.
    Table { version: Version, include: Include },
    /// The metadata alone.
    Metadata { version: Version },
}

impl Representation {
    /// Reads the `Accept` header. Clients list what they would rather have first; protobuf is among it and passed
    /// over, because they also take JSON.
    pub fn negotiate(headers: &HeaderMap, include: &str) -> Result<Self, StatusError> {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        accept
            .split(',')
            .find_map(|range| Self::of(range, include))
            .ok_or_else(|| StatusError::not_acceptable("application/json"))?
    }

    fn of(range: &str, include: &str) -> Option<Result<Self, StatusError>> {
        let mut parts = range.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "*/*" | "application/*") {
            return None;
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name: &str| parameters.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v);
        let version = match parameter("v") {
            "v1beta1" => Version::V1Beta1,
            _ => Version::V1,
        };
        match (parameter("as"), parameter("g")) {
            ("", _) => Some(Ok(Self::Json)),
            ("Table", "meta.k8s.io") => {
                let include = Include::parse(include).map_err(StatusError::bad_request);
                Some(include.map(|include| Self::Table { version, include }))
            }
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io") => {
                Some(Ok(Self::Metadata { version }))
            }
            _ => None,
        }
    }
}
