//! The certificates of HTTPS listeners.
use std::{fmt, sync::Arc};

use k8s_openapi::ByteString;
use kube::core::DynamicObject;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use serde::Deserialize;

use super::{conditions::Condition, rules::granted};
use crate::{
    cache::{Cache, Kind, Name},
    kinds::{BackendRef, ListenerSpec},
};

const SECRET_TYPE: &str = "kubernetes.io/tls";

/// A certificate with its chain and key.
#[derive(Clone)]
pub struct Certificate {
    /// As the Secret has them: what makes two of them equal.
    pem: Arc<(Vec<u8>, Vec<u8>)>,
    pub key: Arc<CertifiedKey>,
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Eq for Certificate {}

/// Without the key.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// Reads the certificates of a listener: those that its references lead to, and whether all of them do.
pub fn certificates(gateway: &Name, listener: &ListenerSpec, cache: &Cache) -> (Vec<Certificate>, Condition) {
    let (mut found, mut resolved) = (Vec::new(), None);
    for reference in &listener.tls.certificate_refs {
        match resolve(gateway, reference, cache) {
            Ok(certificate) => found.push(certificate),
            Err(why) => drop(resolved.get_or_insert(why)),
        }
    }
    if found.is_empty() && resolved.is_none() {
        resolved =
            Some(invalid("an HTTPS listener needs a certificate: tls.certificateRefs names none".to_owned()));
    }
    (
        found,
        resolved
            .unwrap_or_else(|| Condition::yes("ResolvedRefs", "ResolvedRefs", "every reference is valid")),
    )
}

fn invalid(message: String) -> Condition {
    Condition::no("ResolvedRefs", "InvalidCertificateRef", message)
}

fn resolve(gateway: &Name, reference: &BackendRef, cache: &Cache) -> Result<Certificate, Condition> {
    let kind = reference.kind.as_deref().unwrap_or("Secret");
    if kind != "Secret" || reference.group.as_ref().is_some_and(|group| !group.is_empty()) {
        return Err(invalid(format!("{}: certificates are in Secrets, not in a {kind}", reference.name)));
    }
    let secret = Name::new(reference.namespace.as_deref().unwrap_or(&gateway.namespace), &reference.name);
    if secret.namespace != gateway.namespace && !granted(Kind::Gateway, gateway, Kind::Secret, &secret, cache)
    {
        let why = format!("no ReferenceGrant in {} allows the Secret {secret}", secret.namespace);
        return Err(Condition::no("ResolvedRefs", "RefNotPermitted", why));
    }
    let object = cache.get(Kind::Secret, &secret);
    let object = object.ok_or_else(|| invalid(format!("there is no Secret {secret}")))?;
    read(object).map_err(|why| invalid(format!("the Secret {secret}: {why}")))
}

fn read(secret: &DynamicObject) -> Result<Certificate, String> {
    let kind = secret.data["type"].as_str().unwrap_or_default();
    if kind != SECRET_TYPE {
        return Err(format!("its type is {kind:?} and not {SECRET_TYPE}"));
    }
    let data = |name: &str| {
        let bytes = ByteString::deserialize(&secret.data["data"][name]).unwrap_or_default().0;
        if bytes.is_empty() { Err(format!("it has no {name}")) } else { Ok(bytes) }
    };
    let pem = (data("tls.crt")?, data("tls.key")?);
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&pem.0).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| "tls.crt is not a certificate in PEM".to_owned())?;
    let key = PrivateKeyDer::from_pem_slice(&pem.1);
    let key = key.map_err(|_| "tls.key is not a private key in PEM".to_owned())?;
    let key = CertifiedKey::from_der(chain, key, &ring::default_provider());
    let key = key.map_err(|error| format!("tls.crt and tls.key do not go together: {error}"))?;
    Ok(Certificate { pem: Arc::new(pem), key: Arc::new(key) })
}
