//! Authentication: a certificate authority, a bearer token, and a kubeconfig that holds both.
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
};
use serde_json::json;
use thiserror::Error;

use crate::{
    builtin::base64,
    environment::{Environment, hex},
};

/// Why credentials could not be made or read.
#[derive(Debug, Error)]
pub enum CredentialsError {
    #[error("failed to {what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("failed to read the certificate at {}; remove the directory to have a new one", path.display())]
    Unreadable { path: PathBuf },
    #[error("failed to set up TLS")]
    Tls(#[from] rustls::Error),
}

/// The certificate and the token of a listener. They are kept in a directory, so that a kubeconfig stays valid.
#[derive(Clone)]
pub struct Credentials {
    authority: String,
    token: Arc<str>,
    pub(super) tls: Arc<ServerConfig>,
}

/// Not derived: the token and the key are secrets.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads the credentials in a directory, or makes them.
    pub fn load(directory: &Path, environment: &dyn Environment) -> Result<Self, CredentialsError> {
        let [authority, certificate, key, token] =
            ["ca.crt", "server.crt", "server.key", "token"].map(|name| directory.join(name));
        if !token.exists() {
            let made = make(environment)?;
            for (path, content) in
                [(&authority, &made.authority), (&certificate, &made.certificate), (&key, &made.key)]
            {
                write_private(path, content)?;
            }
            // The last: when it is there, so is the rest.
            write_private(&token, &made.token)?;
        }
        let read = |path: &Path| fs::read_to_string(path).map_err(file("read", path));
        let unreadable = |path: &Path| CredentialsError::Unreadable { path: path.to_owned() };
        let chain = CertificateDer::from_pem_slice(read(&certificate)?.as_bytes())
            .map_err(|_| unreadable(&certificate))?;
        let secret =
            PrivatePkcs8KeyDer::from_pem_slice(read(&key)?.as_bytes()).map_err(|_| unreadable(&key))?;
        Ok(Self {
            authority: read(&authority)?,
            token: read(&token)?.trim().into(),
            tls: Arc::new(tls(chain, secret)?),
        })
    }

    /// Whether a request carries the token. All of it is compared, so that the time says nothing.
    pub(super) fn admits(&self, authorization: Option<&str>) -> bool {
        let Some(given) = authorization.and_then(|value| value.strip_prefix("Bearer ")) else { return false };
        let (given, wanted) = (given.trim().as_bytes(), self.token.as_bytes());
        let differing = given.iter().zip(wanted).fold(0, |sum, (a, b)| sum | (a ^ b));
        given.len() == wanted.len() && differing == 0
    }

    /// Writes a kubeconfig that only its owner can read.
    pub fn write_kubeconfig(&self, path: &Path, address: SocketAddr) -> Result<(), CredentialsError> {
        // JSON is YAML.
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "segue",
            "contexts": [{"name": "segue", "context": {"cluster": "segue", "user": "segue", "namespace": "default"}}],
            "clusters": [{"name": "segue", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": base64::encode(self.authority.as_bytes()),
            }}],
            "users": [{"name": "segue", "user": {"token": &*self.token}}],
        });
        write_private(path, &kubeconfig.to_string())
    }
}

fn tls(
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

struct Made {
    authority: String,
    certificate: String,
    key: String,
    token: String,
}

fn make(environment: &dyn Environment) -> Result<Made, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.distinguished_name.push(DnType::CommonName, "segue");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut server =
        CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, "segue-apiserver");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &issuer)?;
    let random = [environment.uid(), environment.uid()].concat();
    Ok(Made {
        authority: authority_certificate.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        token: hex(&random),
    })
}

/// Whole or not at all, and never readable by others.
fn write_private(path: &Path, content: &str) -> Result<(), CredentialsError> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let write = || {
        // A file that exists keeps its mode: it is removed first.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = options.open(&temporary)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(file("write", path))
}

fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CredentialsError {
    let path = path.to_owned();
    move |source| CredentialsError::File { what, path, source }
}
