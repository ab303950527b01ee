//! A certificate with an authority of its own. The authority's key signs once and is never stored.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::{
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// A time since 1970.
type Time = Duration;

/// The most by which the clocks of a cluster may differ.
const SKEW: Duration = Duration::from_hours(1);

/// A certificate, its key, and the authorities that clients trust it by.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The authorities, newest first. The one before the newest stays trusted while other replicas serve its certificate.
    pub(super) authorities: String,
    pub(super) chain: String,
    pub(super) key: String,
    pub(super) expires: Time,
}

/// Not derived, so that the key is never printed.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Makes a certificate for these names. The newest authority of `before` stays trusted.
    pub(super) fn make(
        names: &[String],
        now: Time,
        life: Duration,
        before: Option<&str>,
    ) -> Result<Self, rcgen::Error> {
        // In whole seconds, as it is written.
        let expires = Duration::from_secs((now + life).as_secs());
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "segue webhook authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let mut serving = CertificateParams::new(names)?;
        serving.distinguished_name.push(DnType::CommonName, "segue webhook");
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for params in [&mut authority, &mut serving] {
            let since_1970 = |time: Time| date_time_ymd(1970, 1, 1) + time;
            params.not_before = since_1970(now.saturating_sub(SKEW));
            params.not_after = since_1970(expires);
        }
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let chain = serving.signed_by(&key, &authority)?.pem();
        let authorities = authority.pem() + before.map_or("", newest);
        Ok(Self { authorities, chain, key: key.serialize_pem(), expires })
    }

    /// Returns whether renewal is due: a third of the validity is left, for the API to learn of the next certificate.
    pub(super) fn is_old(&self, now: Time, life: Duration) -> bool {
        now + life / 3 >= self.expires
    }

    fn certified(&self) -> Option<CertifiedKey> {
        let chain = CertificateDer::from_pem_slice(self.chain.as_bytes()).ok()?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(self.key.as_bytes()).ok()?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key.into()).ok()?;
        Some(CertifiedKey::new(vec![chain], key))
    }
}

/// The first certificate of several.
fn newest(authorities: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----\n";
    authorities.find(END).map_or(authorities, |at| &authorities[..at + END.len()])
}

/// Resolves new TLS connections to the current certificate.
#[derive(Debug, Default)]
pub(crate) struct Resolver(RwLock<Option<(Certificate, Arc<CertifiedKey>)>>);

impl Resolver {
    /// Serves this certificate from now on. Returns false, and changes nothing, if it cannot be read.
    pub(super) fn set(&self, certificate: &Certificate) -> bool {
        let Some(key) = certificate.certified() else { return false };
        let mut served = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *served = Some((certificate.clone(), Arc::new(key)));
        true
    }

    /// Returns whether this certificate is served.
    pub(super) fn serves(&self, certificate: &Certificate) -> bool {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        served.as_ref().is_some_and(|(served, _)| served == certificate)
    }

    /// Returns whether any certificate is served.
    pub(crate) fn is_set(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        served.as_ref().map(|(_, key)| Arc::clone(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn make(now: Time, before: Option<&str>) -> Certificate {
        Certificate::make(&["x.svc".to_owned()], now, 30 * DAY, before).unwrap()
    }

    #[test]
    fn the_authority_before_is_trusted_too_and_no_other() {
        let first = make(DAY, None);
        let second = make(2 * DAY, Some(&first.authorities));
        let third = make(3 * DAY, Some(&second.authorities));
        assert_eq!(newest(&first.authorities), first.authorities);
        assert_eq!(second.authorities, newest(&second.authorities).to_owned() + &first.authorities);
        assert_eq!(third.authorities.matches("BEGIN CERTIFICATE").count(), 2);
        assert!(!third.authorities.contains(&first.authorities));
    }

    #[test]
    fn it_is_old_when_a_third_of_its_life_is_left() {
        let made = make(DAY, None);
        assert!(!made.is_old(20 * DAY, 30 * DAY));
        assert!(made.is_old(21 * DAY, 30 * DAY));
    }

    #[test]
    fn keys_are_never_told() {
        let made = make(DAY, None);
        assert!(!format!("{made:?}").contains("KEY"));
        let resolver = Resolver::default();
        assert!(!resolver.is_set() && resolver.set(&made) && resolver.is_set() && resolver.serves(&made));
        assert!(!resolver.set(&Certificate { key: String::new(), ..made.clone() }));
        assert!(resolver.serves(&made), "what makes no sense changes nothing");
    }
}
