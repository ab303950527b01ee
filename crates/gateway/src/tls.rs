//! TLS of the listeners: which certificate a client gets, and what it may speak.
use std::sync::Arc;

use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::routes::{Certificate, Frontend, Host};

/// The certificates of one address and port, by the hosts of its listeners: the most specific comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Certificates(Vec<(Host, Vec<Certificate>)>);

impl ResolvesServerCert for Certificates {
    /// The certificate of the listener that the client names; none, and no connection, where there is no such listener.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A client that connects to an address names no host: only a listener for every host takes it.
        let host = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        let (_, certificates) = self.0.iter().find(|(listener, _)| listener.matches(&host))?;
        let usable = |it: &&Certificate| it.key.key.choose_scheme(hello.signature_schemes()).is_some();
        certificates.iter().find(usable).map(|it| Arc::clone(&it.key))
    }
}

/// How TLS is served at one address and port.
#[derive(Debug, Clone)]
pub struct Tls {
    certificates: Arc<Certificates>,
    pub config: Arc<ServerConfig>,
}

impl Tls {
    /// The TLS of a frontend, if it has any. With the same certificates it stays the one of before, and with it the
    /// sessions that clients resume.
    pub fn of(frontend: &Frontend, before: Option<&Self>) -> Option<Self> {
        let listeners = frontend.listeners.iter().filter(|listener| !listener.certificates.is_empty());
        let all = listeners.map(|listener| (listener.host.clone(), listener.certificates.clone()));
        let certificates = Certificates(all.collect());
        if certificates.0.is_empty() {
            return None;
        }
        if let Some(same) = before.filter(|before| *before.certificates == certificates) {
            return Some(same.clone());
        }
        let certificates = Arc::new(certificates);
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let resolver = Arc::<Certificates>::clone(&certificates);
        let mut config = config
            .with_safe_default_protocol_versions()
            .ok()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Some(Self { certificates, config: Arc::new(config) })
    }
}
